//! Fits the factors to measured points, and says how far off it is on points that it did not see.
//!
//! Least squares over logarithms, with a soft L1 and then a Cauchy loss, by Levenberg and Marquardt; each factor is held to its start by
//! its spread, so that what the points do not tell stays as it was. What the factors leave over is kept beside them
//! ([`super::leftover`]).

mod problem;

use std::collections::BTreeMap;
use std::sync::Arc;

use levenberg_marquardt::LevenbergMarquardt;
use nalgebra::DVector;
use thiserror::Error;

use super::closed_loop::{Estimate, Load};
use super::factors::Factor;
use super::hardware::{Hardware, HardwareError};
use super::host::{Dispatch, Exposure};
use super::leftover::{Leftover, Leftovers, Place};
use super::shape::Shape;
use super::step::{CostError, CostModel, Layout};
use super::weights::Precision;
use problem::{Loss, Problem, Weighting};

/// A model on a device, before its factors are known.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The model.
    pub shape: Arc<Shape>,
    /// The device.
    pub hardware: Arc<Hardware>,
    /// How its weights are stored.
    pub precision: Precision,
    /// How it is spread.
    pub layout: Layout,
    /// What the host does for its groups.
    pub dispatch: Dispatch,
    /// Whether that shows.
    pub exposure: Exposure,
}

impl Subject {
    /// The model with the device's factors times what `offsets` are logarithms of.
    ///
    /// # Errors
    /// If the device lacks a figure.
    pub fn model(&self, offsets: &[f64]) -> Result<CostModel, CostError> {
        let factors = self.hardware.factors()?.times(offsets);
        let model = CostModel::new(&self.shape, &self.hardware, self.precision, self.layout, &factors)?;
        Ok(model.with_groups(self.dispatch, self.exposure))
    }
}

/// A measurement.
#[derive(Debug, Clone)]
pub struct Point {
    /// Its name.
    pub id: String,
    /// The model's name: points of one model share errors.
    pub model: String,
    /// Points of one server's run carry one name here: what that run was off by, they all are.
    pub server: String,
    /// The engine's version, or another name for what was measured together; empty where it is not known.
    pub engine: String,
    /// Data parallel ranks of attention.
    pub replicas: u32,
    /// What repeats of one measurement have in common.
    pub same: String,
    /// What was measured.
    pub subject: Subject,
    /// Under which load.
    pub load: Load,
    /// Time between tokens, seconds.
    pub tpot: Option<f64>,
    /// Time to the first token, seconds.
    pub ttft: Option<f64>,
    /// Median time between chunks, seconds; read where there is no `tpot`.
    pub itl: Option<f64>,
}

/// One time of an estimate.
type Of = fn(&Estimate) -> f64;

impl Point {
    /// The measured time between tokens, and which it is of an estimate.
    fn between(&self) -> Option<(f64, Of)> {
        let tpot: Of = |estimate| estimate.tpot;
        let itl: Of = |estimate| estimate.itl;
        self.tpot.map(|measured| (measured, tpot)).or_else(|| self.itl.map(|measured| (measured, itl)))
    }

    /// Where it lies among points of its model.
    pub fn place(&self) -> Place {
        let Subject { hardware, precision, layout, .. } = &self.subject;
        let spread = if layout.expert_parallel { "experts whole" } else { "experts split" };
        let Load { concurrency, input, output, .. } = self.load;
        let logarithm = |value: f64| value.max(1.0).ln();
        Place {
            model: self.model.clone(),
            kinds: [
                hardware.name.clone(),
                precision.experts.name().to_owned(),
                self.engine.clone(),
                format!("{spread}, {} replicas", self.replicas),
            ],
            at: [
                logarithm(concurrency),
                logarithm(input),
                logarithm(output),
                logarithm(f64::from(layout.tensor_parallel)),
            ],
        }
    }
}

/// Why nothing can be fitted.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CalibrateError {
    /// Not enough points.
    #[error("{points} points with a time between tokens; at least {least} are needed")]
    TooFew {
        /// What there is.
        points: usize,
        /// What is needed.
        least: usize,
    },
    /// A measured time is no time.
    #[error("point `{id}`: a measured time is {value} s; it must be above 0")]
    Time {
        /// The point.
        id: String,
        /// What was given.
        value: f64,
    },
    /// A point cannot be predicted.
    #[error("point `{id}`: {source}")]
    Point {
        /// The point.
        id: String,
        /// Why.
        source: CostError,
    },
    /// The device's own factors are wrong.
    #[error(transparent)]
    Hardware(#[from] HardwareError),
}

/// Points that a calibration needs at least.
pub const LEAST_POINTS: usize = 4;

/// Logarithms of what the factors are multiplied by, and how sure they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// A factor each, in the order of [`Factor::ALL`].
    pub offsets: Vec<f64>,
    /// Their standard deviations.
    pub deviations: Vec<f64>,
    /// What they leave over at the points of the fit.
    pub leftovers: Leftovers,
}

impl Calibration {
    /// How sure a factor is: the standard deviation of its logarithm.
    pub fn deviation(&self, factor: Factor) -> f64 {
        self.deviations.get(factor as usize).copied().unwrap_or(factor.spread())
    }
}

impl Default for Calibration {
    /// Nothing was measured.
    fn default() -> Self {
        Self {
            offsets: vec![0.0; Factor::ALL.len()],
            deviations: Factor::ALL.iter().map(|factor| factor.spread()).collect(),
            leftovers: Leftovers::default(),
        }
    }
}

/// How far a prediction is off, as logarithms of predicted over measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Miss {
    /// Time between tokens.
    pub tpot: Option<f64>,
    /// Time to the first token.
    pub ttft: Option<f64>,
}

/// Fits all factors to the points, starting from, and held to, `start`.
///
/// # Errors
/// [`CalibrateError`] names the point.
pub fn fit(points: &[&Point], start: &Calibration) -> Result<Calibration, CalibrateError> {
    let timed = points.iter().filter(|point| point.between().is_some()).count();
    if timed < LEAST_POINTS {
        return Err(CalibrateError::TooFew { points: timed, least: LEAST_POINTS });
    }
    for point in points {
        for value in [point.tpot, point.ttft, point.itl].into_iter().flatten() {
            if !(value > 0.0 && value.is_finite()) {
                return Err(CalibrateError::Time { id: point.id.clone(), value });
            }
        }
        point
            .subject
            .model(&start.offsets)
            .map_err(|source| CalibrateError::Point { id: point.id.clone(), source })?;
    }
    let mut problem = Problem {
        points,
        start,
        weighting: Weighting::of(points),
        loss: Loss::SoftL1,
        offsets: DVector::from_column_slice(&start.offsets),
    };
    for loss in [Loss::SoftL1, Loss::Cauchy] {
        problem.loss = loss;
        (problem, _) =
            LevenbergMarquardt::new().with_patience(20).with_ftol(1e-6).with_xtol(1e-6).minimize(problem);
    }
    let offsets: Vec<f64> = problem.offsets.iter().map(|offset| offset.clamp(-5.0, 5.0)).collect();
    let jacobian = problem.jacobian_at(&offsets);
    let normal = jacobian.transpose() * jacobian;
    // Where the points scatter more than was taken for granted, so do the factors; never more than before the fit.
    let residuals = problem.residuals_at(&offsets);
    let measured = residuals.len() - offsets.len();
    #[expect(clippy::cast_precision_loss, reason = "a number of points")]
    let scatter = residuals.iter().take(measured).map(|r| r * r).sum::<f64>() * problem.weighting.together
        / measured.max(1) as f64;
    let scatter = (scatter.max(1.0) * points_a_server(points)).sqrt();
    let spreads = Factor::ALL.iter().map(|factor| factor.spread());
    let deviations = match normal.try_inverse() {
        Some(covariance) => covariance
            .diagonal()
            .iter()
            .zip(spreads)
            .map(|(variance, spread)| (variance.max(0.0).sqrt() * scatter).min(spread))
            .collect(),
        None => spreads.collect(),
    };
    let fitted = Calibration { offsets, deviations, leftovers: Leftovers::default() };
    let leftovers = points
        .iter()
        .map(|point| {
            let Miss { tpot, ttft } = miss(point, &fitted)?;
            Ok(Leftover { place: point.place(), tpot: tpot.map(|off| -off), ttft: ttft.map(|off| -off) })
        })
        .collect::<Result<Vec<_>, CalibrateError>>()?;
    Ok(Calibration { leftovers: Leftovers::of(leftovers), ..fitted })
}

/// How many points a server's run gave, on average: so many of them are one observation.
#[expect(clippy::cast_precision_loss, reason = "a number of points")]
fn points_a_server(points: &[&Point]) -> f64 {
    let servers: std::collections::BTreeSet<&str> =
        points.iter().map(|point| point.server.as_str()).collect();
    points.len() as f64 / servers.len().max(1) as f64
}

/// What a calibration predicts for a point.
///
/// # Errors
/// If the device lacks a figure.
pub fn predict(point: &Point, calibration: &Calibration) -> Result<Estimate, CalibrateError> {
    let model = point
        .subject
        .model(&calibration.offsets)
        .map_err(|source| CalibrateError::Point { id: point.id.clone(), source })?;
    let mut estimate = model.estimate(&point.load);
    let (tpot, ttft) = calibration.leftovers.at(&point.place());
    estimate.scale(tpot.exp(), ttft.exp(), &point.load);
    Ok(estimate)
}

/// How far a calibration is off on a point.
///
/// # Errors
/// If the device lacks a figure.
pub fn miss(point: &Point, calibration: &Calibration) -> Result<Miss, CalibrateError> {
    let estimate = predict(point, calibration)?;
    Ok(Miss {
        tpot: point.between().map(|(measured, of)| (of(&estimate) / measured).ln()),
        ttft: point.ttft.map(|measured| (estimate.ttft / measured).ln()),
    })
}

/// Which points are predicted by which others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaveOut {
    /// All points of one model, in turn.
    Model,
    /// Every n-th point, in turn; repeats of one point together.
    EveryNth(usize),
}

/// How far each point is off when it is not seen.
///
/// # Errors
/// [`CalibrateError`] names the point, or says that too few are left.
pub fn left_out(points: &[Point], start: &Calibration, rule: LeaveOut) -> Result<Vec<Miss>, CalibrateError> {
    let fold_of: Vec<usize> = match rule {
        LeaveOut::Model => {
            let mut names: Vec<&str> = points.iter().map(|point| point.model.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            points.iter().map(|point| names.binary_search(&point.model.as_str()).unwrap_or(0)).collect()
        }
        LeaveOut::EveryNth(n) => {
            let mut known: BTreeMap<&str, usize> = BTreeMap::new();
            points
                .iter()
                .map(|point| {
                    let next = known.len();
                    *known.entry(&point.same).or_insert(next) % n.max(2)
                })
                .collect()
        }
    };
    let folds = fold_of.iter().max().map_or(0, |most| most + 1);
    let one = |fold: usize| -> Result<Vec<(usize, Miss)>, CalibrateError> {
        let seen: Vec<&Point> =
            points.iter().zip(&fold_of).filter(|(_, own)| **own != fold).map(|(point, _)| point).collect();
        let calibration = fit(&seen, start)?;
        let held = points.iter().enumerate().zip(&fold_of).filter(|(_, own)| **own == fold);
        held.map(|((index, point), _)| Ok((index, miss(point, &calibration)?))).collect()
    };
    let mut out = vec![Miss { tpot: None, ttft: None }; points.len()];
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(folds.max(1));
    let results: Vec<Result<Vec<(usize, Miss)>, CalibrateError>> = std::thread::scope(|scope| {
        let one = &one;
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || (thread..folds).step_by(threads).map(one).collect::<Result<Vec<_>, _>>())
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().map_or(Ok(Vec::new()), |result| result.map(|lists| lists.concat())))
            .collect()
    });
    for result in results {
        for (index, miss) in result? {
            if let Some(slot) = out.get_mut(index) {
                *slot = miss;
            }
        }
    }
    Ok(out)
}

/// The error that a share of the points stays below, as a logarithm; with the finite-sample step of split conformal
/// prediction.
pub fn quantile(misses: impl Iterator<Item = f64>, share: f64) -> Option<f64> {
    let mut sizes: Vec<f64> = misses.map(f64::abs).filter(|size| size.is_finite()).collect();
    if sizes.is_empty() {
        return None;
    }
    sizes.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index of few points"
    )]
    let rank = ((sizes.len() as f64 + 1.0) * share).ceil() as usize;
    sizes.get(rank.clamp(1, sizes.len()) - 1).copied()
}
