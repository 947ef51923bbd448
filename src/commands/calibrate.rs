//! `k3plan calibrate`: fits the cost model's factors to measured points.

use std::path::PathBuf;

use simulator::cost::calibrate::{self, Calibration, LEAST_POINTS, LeaveOut, Point};
use simulator::cost::{Factor, Factors};

use super::capacity::device;
use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::predict::aiconfigurator::{self, Silicon};
use crate::predict::calibration::{CalibrationFile, Errors, Times};
use crate::predict::points::{self, Peaks};
use crate::render::table::{Side, Table};
use crate::terminal::Terminal;

/// Fit what devices and engines reach of their peaks to measured points
///
/// The file that `-o` writes is what `--calibration` takes. Its errors are those of points that the fit did not see:
/// of each model in turn where there are three or more, else of every fifth point in turn.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files of measured points, as `k3plan predict` takes them.
    #[arg(required_unless_present = "aiconfigurator", value_name = "MEASURED")]
    points: Vec<PathBuf>,

    /// The folder of an installed aiconfigurator: its tables of measured operators give the factors of `--hardware`
    /// that the fit starts from, or that stand as they are without points.
    #[arg(long, value_name = "DIR", requires = "hardware", conflicts_with = "start")]
    aiconfigurator: Option<PathBuf>,

    /// The device whose tables are read.
    #[arg(long, value_name = "NAME", requires = "aiconfigurator")]
    hardware: Option<String>,

    /// Where the calibration goes.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Only points whose name, model or system contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Where the fit starts, and what it is held to: a file of this command, or `none`.
    #[arg(long, default_value = "none", value_name = "FILE")]
    start: String,

    /// Fit nothing: only measure how far the start is off.
    #[arg(long)]
    measure_only: bool,

    /// Memory bandwidth of a device without a figure of its own, bytes/s.
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<f64>,

    /// bf16 rate of a device without a figure of its own, FLOP/s.
    #[arg(long, value_name = "RATE")]
    flops: Option<f64>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let silicon = silicon(args)?;
    if let (Some(silicon), true) = (&silicon, args.points.is_empty()) {
        return tables_alone(args, silicon, terminal);
    }
    let peaks = Peaks { bandwidth: args.bandwidth, flops: args.flops };
    let mut all = points::read(&args.points, peaks)?;
    if let Some(only) = &args.only {
        all.retain(|m| {
            [&m.point.id, &m.pair, &m.point.model].iter().any(|text| text.contains(only.as_str()))
        });
    }
    // Repeats lie together, so that a fold holds all of them or none.
    all.sort_by(|a, b| a.point.same.cmp(&b.point.same));
    let points: Vec<Point> = all.iter().map(|measured| measured.point.clone()).collect();
    let start = match &silicon {
        Some(silicon) => silicon.calibration.clone(),
        None => CalibrationFile::read(&args.start)?.calibration()?,
    };
    let (calibration, errors) = if args.measure_only {
        let misses = points
            .iter()
            .map(|point| calibrate::miss(point, &start))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| failed(&error))?;
        (start, Errors::of(&misses, "none"))
    } else {
        fitted(&points, &start)?
    };
    let mut hardware: Vec<String> = points.iter().map(|point| point.subject.hardware.name.clone()).collect();
    hardware.sort_unstable();
    hardware.dedup();
    let name = |path: &PathBuf| {
        path.file_name()
            .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
    };
    let mut measured: Vec<String> = args.points.iter().map(name).collect();
    measured.extend(silicon.into_iter().flat_map(|silicon| silicon.sources));
    let file = CalibrationFile::of(&calibration, errors, measured, hardware);
    write(args, &file)?;
    // Several devices may have defaults of their own: then the common ones are shown.
    let first = points.first().map(|point| &point.subject.hardware);
    let one = first.filter(|first| points.iter().all(|point| point.subject.hardware.name == first.name));
    let defaults = one.and_then(|hardware| hardware.factors().ok()).unwrap_or_default();
    report(&file, &defaults, points.len(), terminal)?;
    Ok(Exit::Fine)
}

fn write(args: &Args, file: &CalibrationFile) -> Result<(), Failure> {
    let Some(path) = &args.output else { return Ok(()) };
    std::fs::write(path, file.yaml())
        .map_err(|error| Failure::new(format!("failed to write `{}`", path.display())).caused_by(error))
}

/// What aiconfigurator's tables give, where they are asked for.
fn silicon(args: &Args) -> Result<Option<Silicon>, Failure> {
    let (Some(folder), Some(name)) = (&args.aiconfigurator, &args.hardware) else { return Ok(None) };
    let hardware = device(name)?;
    aiconfigurator::read(folder, hardware).map(Some)
}

/// Writes what the tables alone give: factors of operators, and no error of a server.
fn tables_alone(args: &Args, silicon: &Silicon, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let hardware = args.hardware.iter().cloned().collect();
    let errors = Errors::of(&[], "none");
    let file = CalibrationFile::of(&silicon.calibration, errors, silicon.sources.clone(), hardware);
    write(args, &file)?;
    let mut table = Table::new(vec![
        ("factor", Side::Left),
        ("default", Side::Right),
        ("measured", Side::Right),
        ("unit", Side::Left),
        ("measurements", Side::Right),
    ]);
    for derived in &silicon.derived {
        let Some(text) = derived.factor.text() else { continue };
        table.row(vec![
            text.name.clone(),
            format!("{}", text.value),
            format!("{:.3}", derived.value),
            text.unit.clone(),
            derived.points.to_string(),
        ]);
    }
    table.write(0, terminal)?;
    writeln!(
        terminal.out,
        "operators by themselves, in their median; the other factors stay as they are, and predictions have no interval:"
    )?;
    writeln!(terminal.out, "give measured points of a server, too, to fit them")?;
    Ok(Exit::Fine)
}

fn failed(error: &calibrate::CalibrateError) -> Failure {
    let failure = Failure::new("failed to calibrate").caused_by(error);
    match error {
        calibrate::CalibrateError::TooFew { .. } => failure
            .hint("measure more points: other batch sizes, lengths or layouts of the same server will do"),
        calibrate::CalibrateError::Point { .. } => {
            failure.hint("give the device's peaks with `--bandwidth` and `--flops`")
        }
        _ => failure,
    }
}

fn fitted(points: &[Point], start: &Calibration) -> Result<(Calibration, Errors), Failure> {
    let refs: Vec<&Point> = points.iter().collect();
    let calibration = calibrate::fit(&refs, start).map_err(|error| failed(&error))?;
    let mut models: Vec<&str> = points.iter().map(|point| point.model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    let (rule, name) = if models.len() >= 3 {
        (LeaveOut::Model, "model")
    } else if points.len() >= 2 * LEAST_POINTS {
        (LeaveOut::EveryNth(5.min(points.len() / LEAST_POINTS)), "fifth")
    } else {
        // Too few to leave some out: no interval is claimed.
        return Ok((calibration, Errors::of(&[], "none")));
    };
    let misses = calibrate::left_out(points, start, rule).map_err(|error| failed(&error))?;
    Ok((calibration, Errors::of(&misses, name)))
}

fn report(
    file: &CalibrationFile,
    defaults: &Factors,
    points: usize,
    terminal: &mut Terminal<'_>,
) -> std::io::Result<()> {
    writeln!(terminal.out, "{points} points on {}", file.hardware.join(", "))?;
    let mut table = Table::new(vec![
        ("factor", Side::Left),
        ("default", Side::Right),
        ("fitted", Side::Right),
        ("90% interval", Side::Right),
        ("unit", Side::Left),
    ]);
    for factor in Factor::ALL {
        let (Some(text), Some(Times { times, low, high })) = (factor.text(), file.factors.get(factor.name()))
        else {
            continue;
        };
        let default = defaults.get(*factor);
        table.row(vec![
            factor.name().to_owned(),
            format!("{default}"),
            format!("{:.3}", default * times),
            format!("{:.3} to {:.3}", default * low, default * high),
            text.unit.clone(),
        ]);
    }
    table.write(2, terminal)?;
    let Errors { left_out, tpot, ttft, .. } = &file.errors;
    let what = match left_out.as_str() {
        "model" => "points of a model that the fit did not see",
        "fifth" => "points that the fit did not see",
        _ => "these points, nothing left out",
    };
    for (name, off) in [("TPOT", tpot), ("TTFT", ttft)] {
        if let Some(off) = off {
            writeln!(
                terminal.out,
                "{name} of {what}: off by {:.1}% in the median, within {:.1}% nine times in ten",
                (off.median.exp() - 1.0) * 100.0,
                (off.p90.exp() - 1.0) * 100.0
            )?;
        }
    }
    if tpot.is_none() && ttft.is_none() {
        writeln!(terminal.out, "too few points to leave some out: predictions have no interval")?;
    }
    Ok(())
}
