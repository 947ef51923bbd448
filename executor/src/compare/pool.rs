//! Which runs are one sample: those of one start of a server.
//!
//! A server has its own level from start to start: where its memory lies, which cores it got. Further rounds of one
//! start tell that level better, not how far levels lie apart; taken for samples of their own they would make two
//! equal servers differ. So the rounds of a start become one run, with the median of their figures.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::drift::f64_from;
use super::metric::{Metric, Scale};
use super::run::{Measured, Run};

/// The standard error of a median of normal values, in that of their mean.
const MEDIAN_ERROR: f64 = 1.2533;

/// One arm's runs, pooled or as they were.
pub type Pooled<'a> = Vec<Cow<'a, Run>>;

/// Pools the rounds of each start in both arms, where their files tell starts.
pub fn starts<'a>(a: &[&'a Run], b: &[&'a Run], warnings: &mut Vec<String>) -> (Pooled<'a>, Pooled<'a>) {
    let as_they_are = |arm: &[&'a Run]| arm.iter().map(|run| Cow::Borrowed(*run)).collect();
    let known = a.iter().chain(b).all(|run| run.start.is_some());
    if !known {
        if a.iter().chain(b).any(|run| run.start.is_some()) {
            warnings.push(
                "only some runs tell which start of a server they measured: none are pooled".to_owned(),
            );
        }
        return (as_they_are(a), as_they_are(b));
    }
    (by_start(a), by_start(b))
}

fn by_start<'a>(arm: &[&'a Run]) -> Pooled<'a> {
    let mut starts: BTreeMap<Option<u64>, Vec<&Run>> = BTreeMap::new();
    for run in arm {
        starts.entry(run.start).or_default().push(run);
    }
    starts.into_values().map(|rounds| Cow::Owned(pool(&rounds))).collect()
}

fn pool(rounds: &[&Run]) -> Run {
    let Some(first) = rounds.first() else { return Run::new("", super::run::Tool::K3plan) };
    let mut pooled = (*first).clone();
    if rounds.len() > 1 {
        pooled.source = format!("{} and {} rounds more", first.source, rounds.len() - 1);
    }
    // Arms meet start by start as they do seed by seed: measured at about the same time.
    pooled.seed = first.start;
    pooled.time = rounds.iter().filter_map(|run| run.time.clone()).min();
    pooled.failed = rounds.iter().map(|run| run.failed).sum();
    pooled.remarks = rounds.iter().flat_map(|run| run.remarks.iter().cloned()).collect();
    pooled.remarks.dedup();
    pooled.figures = first
        .figures
        .keys()
        .filter_map(|metric| {
            let all: Option<Vec<Measured>> =
                rounds.iter().map(|run| run.figures.get(metric).copied()).collect();
            Some((metric.clone(), middle(metric, &all?)))
        })
        .collect();
    pooled
}

fn middle(metric: &Metric, rounds: &[Measured]) -> Measured {
    let mut values: Vec<f64> = rounds.iter().map(|round| round.value).collect();
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
    let (low, high) = (at((values.len() - 1) / 2), at(values.len() / 2));
    let value = match metric.scale {
        Scale::Logarithm => (low * high).sqrt(),
        Scale::Share => f64::midpoint(low, high),
    };
    let errors: Option<Vec<f64>> = rounds.iter().map(|round| round.standard_error).collect();
    let count = f64_from(rounds.len());
    let widened = if rounds.len() > 2 { MEDIAN_ERROR } else { 1.0 };
    let standard_error = errors.map(|errors| {
        let mean_square = errors.iter().map(|error| error * error).sum::<f64>() / count;
        (mean_square / count).sqrt() * widened
    });
    Measured { value, standard_error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::run::Tool;

    fn run(start: Option<u64>, value: f64, time: &str) -> Run {
        let metric = Metric::named("median_tpot_ms").unwrap();
        let mut run = Run::new(format!("{value}.json"), Tool::K3plan).with(metric, value);
        (run.start, run.time) = (start, Some(time.to_owned()));
        run
    }

    #[test]
    fn rounds_of_a_start_are_one_sample() {
        let a = [
            run(Some(0), 9.0, "1"),
            run(Some(0), 10.0, "2"),
            run(Some(0), 20.0, "3"),
            run(Some(1), 8.0, "9"),
        ];
        let b = [run(Some(0), 4.0, "4"), run(Some(0), 9.0, "5")];
        let mut warnings = Vec::new();
        let (a, b) = starts(&a.each_ref(), &b.each_ref(), &mut warnings);
        let values = |arm: &Pooled<'_>| -> Vec<f64> {
            arm.iter().map(|run| run.figures.values().next().unwrap().value).collect()
        };
        assert_eq!((values(&a), values(&b)), (vec![10.0, 8.0], vec![6.0]));
        assert_eq!((a[0].seed, a[0].time.as_deref(), a[1].seed), (Some(0), Some("1"), Some(1)));
        assert!(warnings.is_empty());
    }

    #[test]
    fn runs_that_tell_no_start_stay_as_they_are() {
        let (a, b) =
            ([run(None, 9.0, "1"), run(None, 9.5, "2")], [run(Some(0), 4.0, "3"), run(Some(0), 4.5, "4")]);
        let mut warnings = Vec::new();
        let (a, b) = starts(&a.each_ref(), &b.each_ref(), &mut warnings);
        assert_eq!((a.len(), b.len(), warnings.len()), (2, 2, 1));
    }
}
