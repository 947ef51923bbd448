//! How far a set of factors is from the points and from its start, in one list of residuals.

use levenberg_marquardt::LeastSquaresProblem;
use nalgebra::{DMatrix, DVector, Dyn, Owned};

use super::{Calibration, Factor, Point};

/// How much a residual counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weighting {
    /// How far a good prediction of the time between tokens may be off, as a logarithm.
    tpot: f64,
    /// Likewise for the first token.
    ttft: f64,
    /// Points of one model err together: so many of them count as one.
    pub(super) together: f64,
}

impl Weighting {
    pub(super) fn of(points: &[&Point]) -> Self {
        let first = points.first().map(|point| point.model.as_str());
        let several = points.iter().any(|point| Some(point.model.as_str()) != first);
        if several {
            Self { tpot: 0.08, ttft: 0.4, together: 12.0 }
        } else {
            Self { tpot: 0.02, ttft: 0.4, together: 1.0 }
        }
    }
}

/// How much a residual that is far off counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// As its size: a fit finds its way from a start that is off everywhere.
    SoftL1,
    /// Hardly more than a small one: a server that did something else does not bend the fit.
    Cauchy,
}

impl Loss {
    /// Square root of the loss of a residual, with its sign.
    fn softened(self, residual: f64) -> f64 {
        let square = residual * residual;
        let loss = match self {
            Self::SoftL1 => 2.0 * ((1.0 + square).sqrt() - 1.0),
            Self::Cauchy => FAR * FAR * (square / (FAR * FAR)).ln_1p(),
        };
        loss.sqrt().copysign(residual)
    }
}

/// Where a residual counts as far off, in units of what a good prediction may be off.
const FAR: f64 = 3.0;

/// What Levenberg and Marquardt's method makes small.
pub(super) struct Problem<'a> {
    pub(super) points: &'a [&'a Point],
    pub(super) start: &'a Calibration,
    pub(super) weighting: Weighting,
    pub(super) loss: Loss,
    pub(super) offsets: DVector<f64>,
}

impl Problem<'_> {
    fn rows(&self) -> usize {
        self.points
            .iter()
            .map(|p| usize::from(p.between().is_some()) + usize::from(p.ttft.is_some()))
            .sum::<usize>()
            + self.offsets.len()
    }

    pub(super) fn residuals_at(&self, offsets: &[f64]) -> DVector<f64> {
        let mut out = Vec::with_capacity(self.rows());
        let Weighting { tpot, ttft, together } = self.weighting;
        let weight = together.sqrt().recip();
        for point in self.points {
            // Points are known to be predictable: `fit` tried them all.
            let Ok(model) = point.subject.model(offsets) else { continue };
            let estimate = model.estimate(&point.load);
            if let Some((measured, of)) = point.between() {
                out.push(weight * self.loss.softened((of(&estimate) / measured).ln() / tpot));
            }
            if let Some(measured) = point.ttft {
                out.push(
                    weight * self.loss.softened((estimate.ttft / measured).ln().clamp(-3.0, 3.0) / ttft),
                );
            }
        }
        for ((offset, start), factor) in offsets.iter().zip(&self.start.offsets).zip(Factor::ALL) {
            out.push((offset - start) / factor.spread());
        }
        DVector::from_vec(out)
    }

    pub(super) fn jacobian_at(&self, offsets: &[f64]) -> DMatrix<f64> {
        const STEP: f64 = 1e-4;
        let base = self.residuals_at(offsets);
        let mut jacobian = DMatrix::zeros(base.len(), offsets.len());
        let mut moved = offsets.to_vec();
        for (column, offset) in offsets.iter().enumerate() {
            if let Some(slot) = moved.get_mut(column) {
                *slot = offset + STEP;
                let shifted = self.residuals_at(&moved);
                jacobian.set_column(column, &((shifted - &base) / STEP));
            }
            if let Some(slot) = moved.get_mut(column) {
                *slot = *offset;
            }
        }
        jacobian
    }
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for Problem<'_> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;
    type ParameterStorage = Owned<f64, Dyn>;

    fn set_params(&mut self, offsets: &DVector<f64>) {
        self.offsets.copy_from(offsets);
    }

    fn params(&self) -> DVector<f64> {
        self.offsets.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        Some(self.residuals_at(self.offsets.as_slice()))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        Some(self.jacobian_at(self.offsets.as_slice()))
    }
}
