//! What the factors leave over at measured points, carried to points near them.
//!
//! A few factors cannot follow one server's every bend. What they are off by at its own points is taken for a smooth
//! function of requests, lengths and ranks with a prior around zero (a Gaussian process, also called kriging): near
//! measured points it follows them, away from them it fades, and for other models it is nothing.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use nalgebra::{Cholesky, DMatrix, DVector};

/// Where a point lies.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The model's name.
    pub model: String,
    /// What else two points share or not: device, weight format, engine version, how experts and attention are spread.
    pub kinds: [String; KINDS],
    /// Logarithms of requests, prompt tokens, output tokens, ranks.
    pub at: [f64; AXES],
}

/// Names in [`Place::kinds`].
pub const KINDS: usize = 4;

/// Numbers in [`Place::at`].
pub const AXES: usize = 4;

/// What a measured point is off by: logarithms of measured over computed by the factors alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Leftover {
    /// Where.
    pub place: Place,
    /// Time between tokens.
    pub tpot: Option<f64>,
    /// Time to the first token.
    pub ttft: Option<f64>,
}

/// How points are alike. All numbers were chosen by how well random halves of the public serving points give the
/// other halves (docs/predict.md).
struct Likeness {
    /// Distance on each axis, as a logarithm, over which what is left over changes.
    lengths: [f64; AXES],
    /// What is left of a likeness where a kind differs.
    kinds: [f64; KINDS],
}

const LIKENESS: Likeness = Likeness { lengths: [1.3, 1.6, 1.0, 1.1], kinds: [0.5, 0.6, 0.25, 0.3] };

/// Sizes of what is expected, as standard deviations of logarithms.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// What changes from point to point.
    bend: f64,
    /// What all points of a server share.
    shift: f64,
    /// What no neighbour tells.
    noise: f64,
}

const TPOT: Sizes = Sizes { bend: 0.045, shift: 0.03, noise: 0.03 };
const TTFT: Sizes = Sizes { bend: 0.25, shift: 0.1, noise: 0.12 };

/// Points that are further off than so many times the noise count for less, the less the further.
const BEYOND: f64 = 1.5;

/// A model's points beyond so many are thinned out evenly: solving takes their third power.
const POINTS: usize = 800;

/// Nothing that is further off, as a logarithm, says anything about its neighbours.
const MOST: f64 = 1.5;

/// What is left over at the points of a fit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Leftovers {
    models: BTreeMap<String, Model>,
}

#[derive(Debug, Clone, Default)]
struct Model {
    points: Vec<Leftover>,
    solved: OnceLock<Solved>,
}

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        self.points == other.points
    }
}

/// What each point adds to a place that is like it.
#[derive(Debug, Clone)]
struct Solved {
    tpot: Vec<f64>,
    ttft: Vec<f64>,
}

impl Place {
    /// Shares of the likeness that bends and that is common.
    fn likeness(&self, other: &Self) -> (f64, f64) {
        let mut shared = 1.0;
        for ((own, theirs), left) in self.kinds.iter().zip(&other.kinds).zip(LIKENESS.kinds) {
            if own != theirs {
                shared *= left;
            }
        }
        let mut distance = 0.0;
        for ((own, theirs), length) in self.at.iter().zip(other.at).zip(LIKENESS.lengths) {
            distance += ((own - theirs) / length).powi(2);
        }
        (shared * (-0.5 * distance).exp(), shared)
    }

    fn covariance(&self, other: &Self, sizes: Sizes) -> f64 {
        let (bend, shift) = self.likeness(other);
        sizes.bend.powi(2) * bend + sizes.shift.powi(2) * shift
    }
}

impl Leftovers {
    /// Takes points; those at one place become one.
    pub fn of(points: impl IntoIterator<Item = Leftover>) -> Self {
        let mut places: BTreeMap<_, (Leftover, f64)> = BTreeMap::new();
        for point in points {
            let Place { model, kinds, at } = &point.place;
            let key = (model.clone(), kinds.clone(), at.map(f64::to_bits));
            match places.get_mut(&key) {
                Some((known, count)) => {
                    let mean = |known: Option<f64>, new: Option<f64>| match (known, new) {
                        (Some(a), Some(b)) => Some(a + (b - a) / (*count + 1.0)),
                        (a, b) => a.or(b),
                    };
                    (known.tpot, known.ttft) = (mean(known.tpot, point.tpot), mean(known.ttft, point.ttft));
                    *count += 1.0;
                }
                None => {
                    places.insert(key, (point, 1.0));
                }
            }
        }
        let mut models: BTreeMap<String, Model> = BTreeMap::new();
        for ((name, ..), (point, _)) in places {
            models.entry(name).or_default().points.push(point);
        }
        for model in models.values_mut() {
            let each = model.points.len().div_ceil(POINTS);
            if each > 1 {
                model.points = std::mem::take(&mut model.points).into_iter().step_by(each).collect();
            }
        }
        Self { models }
    }

    /// All points, a model after the other.
    pub fn points(&self) -> impl Iterator<Item = &Leftover> {
        self.models.values().flat_map(|model| &model.points)
    }

    /// What is expected at a place: logarithms to add to the time between tokens and to the first token.
    pub fn at(&self, place: &Place) -> (f64, f64) {
        let Some(model) = self.models.get(&place.model) else { return (0.0, 0.0) };
        let solved = model.solved.get_or_init(|| Solved {
            tpot: weights(&model.points, |point| point.tpot, TPOT),
            ttft: weights(&model.points, |point| point.ttft, TTFT),
        });
        let (mut tpot, mut ttft) = (0.0, 0.0);
        for (point, (a, b)) in model.points.iter().zip(solved.tpot.iter().zip(&solved.ttft)) {
            let (bend, shift) = place.likeness(&point.place);
            tpot += a * (TPOT.bend.powi(2) * bend + TPOT.shift.powi(2) * shift);
            ttft += b * (TTFT.bend.powi(2) * bend + TTFT.shift.powi(2) * shift);
        }
        (tpot, ttft)
    }
}

/// The weight of each point, 0 where it has no such time.
///
/// Points that stay far off what their neighbours say are given more noise, three times over.
fn weights(points: &[Leftover], of: fn(&Leftover) -> Option<f64>, sizes: Sizes) -> Vec<f64> {
    let known: Vec<(usize, f64)> = points
        .iter()
        .enumerate()
        .filter_map(|(index, point)| Some((index, of(point)?.clamp(-MOST, MOST))))
        .collect();
    let mut out = vec![0.0; points.len()];
    let place = |row: usize| known.get(row).and_then(|(index, _)| points.get(*index)).map(|p| &p.place);
    let covariance =
        DMatrix::from_fn(known.len(), known.len(), |row, column| match (place(row), place(column)) {
            (Some(a), Some(b)) => a.covariance(b, sizes),
            _ => 0.0,
        });
    let off = DVector::from_iterator(known.len(), known.iter().map(|(_, off)| *off));
    let mut noise = DVector::from_element(known.len(), sizes.noise.powi(2));
    for _ in 0..3 {
        let Some(factored) = Cholesky::new(&covariance + DMatrix::from_diagonal(&noise)) else { return out };
        let solved = factored.solve(&off);
        for ((index, _), weight) in known.iter().zip(&solved) {
            if let Some(slot) = out.get_mut(*index) {
                *slot = *weight;
            }
        }
        let missed = &covariance * &solved - &off;
        noise = missed.map(|missed| {
            let times = missed.abs() / (sizes.noise * BEYOND);
            sizes.noise.powi(2) * (times * times).max(1.0)
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(model: &str, requests: f64) -> Place {
        Place {
            model: model.to_owned(),
            kinds: std::array::from_fn(|_| "same".to_owned()),
            at: [requests.ln(), 7.0, 7.0, 0.0],
        }
    }

    fn leftover(requests: f64, tpot: f64) -> Leftover {
        Leftover { place: place("a", requests), tpot: Some(tpot), ttft: None }
    }

    #[test]
    fn nothing_is_known_of_other_models_and_little_far_away() {
        let known = Leftovers::of([1.0, 2.0, 4.0, 8.0].map(|requests| leftover(requests, 0.06)));
        assert_eq!(known.at(&place("b", 4.0)), (0.0, 0.0));
        let (near, far) = (known.at(&place("a", 3.0)).0, known.at(&place("a", 3000.0)).0);
        assert!((0.03..=0.06).contains(&near), "{near}");
        assert!(far < 0.5 * near, "{far} of {near}");
        assert_eq!(Leftovers::default().at(&place("a", 3.0)), (0.0, 0.0));
    }

    #[test]
    fn one_point_that_is_far_off_says_nothing_about_its_neighbours() {
        let sane = [1.0, 2.0, 4.0, 16.0, 32.0].map(|requests| leftover(requests, 0.0));
        let known = Leftovers::of(sane.into_iter().chain([leftover(8.0, 2.4)]));
        assert!(known.at(&place("a", 8.0)).0.abs() < 0.01, "{:?}", known.at(&place("a", 8.0)));
    }

    #[test]
    fn repeats_are_one_point() {
        let once = Leftovers::of([leftover(4.0, 0.05)]);
        let often = Leftovers::of([leftover(4.0, 0.04), leftover(4.0, 0.06), leftover(4.0, 0.05)]);
        assert_eq!(often.points().count(), 1);
        assert!((once.at(&place("a", 4.0)).0 - often.at(&place("a", 4.0)).0).abs() < 1e-9);
    }
}
