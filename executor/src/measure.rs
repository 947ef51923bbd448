//! How long does something take: warm-up, repeated runs, the median and how sure it is?

/// How often to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeats {
    /// Runs that are not counted.
    pub warm_up: u32,
    /// Runs that are.
    pub runs: u32,
}

/// A median of repeated runs with its interval, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Median {
    /// The median.
    pub median_ns: f64,
    /// The interval that holds the true median in 95% of cases, from the order of the runs (the binomial
    /// distribution); with fewer than six runs it is the whole range and holds it less often.
    pub low_ns: f64,
    /// See `low_ns`.
    pub high_ns: f64,
    /// Runs.
    pub runs: usize,
}

/// Runs `once`, which gives the nanoseconds that count.
///
/// # Errors
/// The first error of `once`.
pub fn repeat<E>(repeats: Repeats, mut once: impl FnMut() -> Result<f64, E>) -> Result<Median, E> {
    for _ in 0..repeats.warm_up {
        once()?;
    }
    let times = (0..repeats.runs.max(1)).map(|_| once()).collect::<Result<Vec<_>, _>>()?;
    Ok(median(times))
}

/// The median of at least one time.
pub fn median(mut times: Vec<f64>) -> Median {
    times.sort_by(f64::total_cmp);
    let runs = times.len();
    let at = |i: usize| times.get(i).copied().unwrap_or(f64::NAN);
    let middle = if runs % 2 == 1 {
        at(runs / 2)
    } else {
        f64::midpoint(at((runs / 2).saturating_sub(1)), at(runs / 2))
    };
    let low = first_rank(runs);
    Median {
        median_ns: middle,
        low_ns: at(low),
        high_ns: at(runs.saturating_sub(1).saturating_sub(low)),
        runs,
    }
}

/// The 0-based rank below which the median lies in at most 2.5% of cases.
fn first_rank(runs: usize) -> usize {
    #[expect(clippy::cast_precision_loss, reason = "a count of runs")]
    let n = runs as f64;
    let mut term = 0.5_f64.powf(n);
    let mut below = term;
    let mut rank = 0;
    #[expect(clippy::cast_precision_loss, reason = "a count of runs")]
    while rank + 1 < runs {
        term *= (n - rank as f64) / (rank as f64 + 1.0);
        if below + term > 0.025 {
            break;
        }
        below += term;
        rank += 1;
    }
    if below > 0.025 { 0 } else { rank.min(runs.saturating_sub(1) / 2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        // The table of the sign test: of 25 runs the 8th and the 18th, of 6 the first and the last.
        let times = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
        let of_25 = median(times(25));
        assert_eq!((of_25.median_ns, of_25.low_ns, of_25.high_ns), (13.0, 8.0, 18.0));
        let of_6 = median(times(6));
        assert_eq!((of_6.median_ns, of_6.low_ns, of_6.high_ns), (3.5, 1.0, 6.0));
        assert_eq!(median(vec![7.0]).median_ns, 7.0);
    }

    #[test]
    fn warm_up_is_not_counted_and_an_error_ends_it() {
        let mut calls = 0;
        let result = repeat(Repeats { warm_up: 2, runs: 3 }, || {
            calls += 1;
            Ok::<_, ()>(f64::from(calls))
        });
        assert_eq!(result.map(|m| m.median_ns), Ok(4.0));
        assert_eq!(repeat(Repeats { warm_up: 0, runs: 3 }, || Err::<f64, _>("no")), Err("no"));
    }
}
