//! `k3plan predict`: measured points beside what the cost model says of them.

mod effects;
mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;

use simulator::cost::calibrate::{self, Calibration, LEAST_POINTS, LeaveOut, Miss, Point};
use simulator::cost::closed_loop::Estimate;

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::predict::calibration::{CalibrationFile, Errors};
use crate::predict::points::{self, Measured, Peaks};
use crate::terminal::Terminal;

/// Predict measured points, and say how far off that is
///
/// Takes tables of serving points (times to the first token and between tokens at a concurrency), tables of batch
/// latencies, and JSON lines (docs/predict.md).
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files of measured points.
    #[arg(required = true, value_name = "POINTS")]
    points: Vec<PathBuf>,

    /// A file of `k3plan calibrate`, or `public` (fitted to public points), or `none` (defaults only).
    #[arg(long, default_value = "public", value_name = "FILE")]
    calibration: String,

    /// Fit to these points and predict those left out: each model in turn, or half of each model's points on a system.
    #[arg(long, value_enum, value_name = "WHAT")]
    leave_out: Option<Leave>,

    /// Only points whose name, model or system contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// The files hold changes of groups or builders (scenarios/measured/effects.jsonl): predict what each did.
    #[arg(long, conflicts_with_all = ["leave_out", "only", "rows"])]
    effects: bool,

    /// Print every point.
    #[arg(long)]
    rows: bool,

    /// Memory bandwidth of a device without a figure of its own, bytes/s.
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<f64>,

    /// bf16 rate of a device without a figure of its own, FLOP/s.
    #[arg(long, value_name = "RATE")]
    flops: Option<f64>,

    /// Print JSON, schema `k3plan.predict/1`.
    #[arg(long)]
    json: bool,
}

/// What is left out of the fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Leave {
    /// A model.
    Model,
    /// Half of the points of a model on a system.
    Half,
}

/// A point with its prediction.
pub(super) struct Predicted {
    pub(super) measured: Measured,
    pub(super) estimate: Estimate,
    pub(super) miss: Miss,
    /// Factor of the 90% interval of the time between tokens.
    pub(super) tpot_times: Option<f64>,
    /// Likewise of the time to the first token.
    pub(super) ttft_times: Option<f64>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    if args.effects {
        return effects::run(&args.points, &args.calibration, args.json, terminal);
    }
    let peaks = Peaks { bandwidth: args.bandwidth, flops: args.flops };
    let mut all = points::read(&args.points, peaks)?;
    if let Some(only) = &args.only {
        all.retain(|m| {
            [&m.point.id, &m.pair, &m.point.model].iter().any(|text| text.contains(only.as_str()))
        });
    }
    if all.is_empty() {
        return Err(Failure::new("failed to predict: no point is left")
            .hint("give files of measured points; `--only` must leave some")
            .into());
    }
    let file = CalibrationFile::read(&args.calibration)?;
    let predicted = match args.leave_out {
        None => with_file(all, &args.calibration)?,
        Some(Leave::Model) => {
            // A fit that has seen these points must not start from them.
            let start = started(args, &file)?;
            by_model(all, &start)?
        }
        Some(Leave::Half) => by_half(all, &started(args, &file)?)?,
    };
    if args.json {
        report::json(&predicted, terminal)?;
    } else {
        report::text(&predicted, args.rows, terminal)?;
    }
    Ok(Exit::Fine)
}

/// Where a fit starts: the defaults, unless a file of one's own is given.
fn started(args: &Args, file: &CalibrationFile) -> Result<Calibration, Failure> {
    if args.calibration == "public" { Ok(Calibration::default()) } else { file.calibration() }
}

pub(super) fn wrong(error: &calibrate::CalibrateError) -> Failure {
    let failure = Failure::new("failed to predict the points").caused_by(error);
    match error {
        calibrate::CalibrateError::TooFew { .. } => failure.hint(format!(
            "measure more: a fit needs {LEAST_POINTS} points with a time between tokens; without one, use `--calibration none`"
        )),
        calibrate::CalibrateError::Point { .. } => {
            failure.hint("give the device's peaks with `--bandwidth` and `--flops`, or other hardware")
        }
        _ => failure,
    }
}

fn predicted(measured: Measured, calibration: &Calibration, errors: &Errors) -> Result<Predicted, Failure> {
    let estimate = calibrate::predict(&measured.point, calibration).map_err(|error| wrong(&error))?;
    let miss = calibrate::miss(&measured.point, calibration).map_err(|error| wrong(&error))?;
    Ok(Predicted {
        measured,
        estimate,
        miss,
        tpot_times: errors.tpot.map(|off| off.p90.exp()),
        ttft_times: errors.ttft.map(|off| off.p90.exp()),
    })
}

fn with_file(all: Vec<Measured>, name: &str) -> Result<Vec<Predicted>, Failure> {
    let mut files: BTreeMap<String, (Calibration, Errors)> = BTreeMap::new();
    all.into_iter()
        .map(|measured| {
            let platform = &measured.point.subject.hardware.platform;
            if !files.contains_key(platform) {
                let file = CalibrationFile::for_platform(name, platform)?;
                files.insert(platform.clone(), (file.calibration()?, file.errors));
            }
            match files.get(platform) {
                Some((calibration, errors)) => predicted(measured.clone(), calibration, errors),
                None => Err(Failure::new(format!("no calibration is for {platform}"))),
            }
        })
        .collect()
}

/// Each model from the others; intervals from how far the others' points are off when their model is left out.
fn by_model(all: Vec<Measured>, start: &Calibration) -> Result<Vec<Predicted>, Failure> {
    let points: Vec<Point> = all.iter().map(|measured| measured.point.clone()).collect();
    let mut names: Vec<&str> = points.iter().map(|point| point.model.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() < 2 {
        return Err(Failure::new("failed to leave a model out: there is only one")
            .hint("give points of several models, or `--leave-out half`"));
    }
    let misses = calibrate::left_out(&points, start, LeaveOut::Model).map_err(|error| wrong(&error))?;
    let mut calibrations = BTreeMap::new();
    for name in names {
        let seen: Vec<&Point> = points.iter().filter(|point| point.model != name).collect();
        let others: Vec<Miss> = misses
            .iter()
            .zip(&points)
            .filter(|(_, point)| point.model != name)
            .map(|(miss, _)| *miss)
            .collect();
        let calibration = calibrate::fit(&seen, start).map_err(|error| wrong(&error))?;
        calibrations.insert(name.to_owned(), (calibration, Errors::of(&others, "model")));
    }
    all.into_iter()
        .map(|measured| match calibrations.get(&measured.point.model) {
            Some((calibration, errors)) => predicted(measured, calibration, errors),
            None => Err(Failure::new(format!("no fit leaves `{}` out", measured.point.model))),
        })
        .collect()
}

/// Where a model's own fit starts: from what the other models' points say, where there are others.
fn from_other_models(every: &[Point], own: &[Measured], start: &Calibration) -> Result<Calibration, Failure> {
    let model = own.first().map_or("", |measured| measured.point.model.as_str());
    let others: Vec<&Point> = every.iter().filter(|point| point.model != model).collect();
    let first = others.first().map_or("", |point| point.model.as_str());
    if others.iter().all(|point| point.model == first) {
        return Ok(start.clone());
    }
    let fitted = calibrate::fit(&others, start).map_err(|error| wrong(&error))?;
    // The offsets are carried over, the spreads are those of one model again.
    Ok(Calibration { deviations: start.deviations.clone(), ..fitted })
}

/// Half of each pair's points from the other half, both ways; repeats of one point stay together.
fn by_half(all: Vec<Measured>, start: &Calibration) -> Result<Vec<Predicted>, Failure> {
    let mut pairs: BTreeMap<String, Vec<Measured>> = BTreeMap::new();
    for measured in all {
        pairs.entry(measured.pair.clone()).or_default().push(measured);
    }
    let every: Vec<Point> = pairs.values().flatten().map(|measured| measured.point.clone()).collect();
    let mut out = Vec::new();
    for (_, points) in pairs {
        let start = &from_other_models(&every, &points, start)?;
        let mut same: Vec<String> = points.iter().map(|measured| measured.point.same.clone()).collect();
        same.sort_unstable();
        same.dedup();
        let side = |measured: &Measured| same.binary_search(&measured.point.same).unwrap_or(0) % 2;
        for half in 0..2 {
            let seen: Vec<Point> =
                points.iter().filter(|m| side(m) != half).map(|m| m.point.clone()).collect();
            let held = points.iter().filter(|m| side(m) == half);
            if seen.len() < LEAST_POINTS {
                // Too few for a fit: the start answers.
                let errors = Errors::of(&[], "none");
                for measured in held {
                    out.push(predicted(measured.clone(), start, &errors)?);
                }
                continue;
            }
            let refs: Vec<&Point> = seen.iter().collect();
            let calibration = calibrate::fit(&refs, start).map_err(|error| wrong(&error))?;
            let folds = if seen.len() >= 10 { 5 } else { 2 };
            let misses = if seen.len() >= 2 * LEAST_POINTS {
                calibrate::left_out(&seen, start, LeaveOut::EveryNth(folds)).map_err(|error| wrong(&error))?
            } else {
                Vec::new()
            };
            let errors = Errors::of(&misses, "fifth");
            for measured in held {
                out.push(predicted(measured.clone(), &calibration, &errors)?);
            }
        }
    }
    Ok(out)
}
