//! Which load is tried next on the way to the highest that still meets an objective, and when is it found?
//!
//! From the lowest load up by doubling until one misses; then the middle, by ratio, between the highest that met the
//! objective and the lowest that missed it, until the two are close. A probe that decides nothing is repeated.

/// Two-sided 90%: each side errs in one of twenty.
const Z: f64 = 1.645;
/// Probes of one load, all together, before the counts themselves decide.
const TRIES: u32 = 3;

/// Whether a load meets the objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Meets,
    /// It does not.
    Misses,
    /// The counts allow both.
    Undecided,
}

/// Whether `good` of `all` requests show a share of at least `share`.
///
/// # Source
/// Wilson's interval of a binomial share: E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical
/// Inference", JASA 22 (1927).
pub fn verdict(good: usize, all: usize, share: f64) -> Verdict {
    if all == 0 {
        return Verdict::Misses;
    }
    let (n, z2) = (all as f64, Z * Z);
    let p = good as f64 / n;
    let middle = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    if middle - half >= share {
        Verdict::Meets
    } else if middle + half < share {
        Verdict::Misses
    } else {
        Verdict::Undecided
    }
}

/// The fewest requests whose being all good shows a share of `share`, from 0 to below 1.
pub fn fewest(share: f64) -> usize {
    whole(Z * Z * share / (1.0 - share))
}

/// How many requests a time holds at a rate, or any such count: the next whole number, from 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number within the bounds"
)]
pub fn whole(count: f64) -> usize {
    /// More requests than any run has.
    const MOST: f64 = 1e9;
    count.ceil().clamp(1.0, MOST) as usize
}

/// Whether requests pile up at a server: more are under way when the last is sent than in the middle, by more than
/// chance. `sent` holds when each was sent and how long it took, in seconds.
///
/// Nothing is said where one takes a quarter of the run or more at the least: then their number grows anyway.
pub fn piles_up(sent: &[(f64, f64)]) -> bool {
    /// Growth below this share of what was sent is none.
    const LEAST: f64 = 0.05;
    let last = sent.iter().map(|(start, _)| *start).fold(0.0, f64::max);
    let quickest = sent.iter().map(|(_, latency)| *latency).fold(f64::INFINITY, f64::min);
    if quickest > last / 4.0 {
        return false;
    }
    let under_way =
        |at: f64| sent.iter().filter(|(start, latency)| *start <= at && start + latency > at).count() as f64;
    let (middle, end) = (under_way(last / 2.0), under_way(last));
    // Two counts of independent arrivals differ by the root of their sum.
    end - middle > LEAST * sent.len() as f64 && end - middle > 3.0 * (end + middle).sqrt()
}

/// The loads that are tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    /// The lowest, above 0.
    pub from: f64,
    /// The highest.
    pub to: f64,
    /// How close the answer's two ends have to be: 0.05 for 5%.
    pub within: f64,
    /// The share of requests that have to be good, from 0 to below 1.
    pub share: f64,
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct Search {
    bounds: Bounds,
    at: Option<f64>,
    /// Good requests, all requests, and probes of the load that is tried now.
    counts: (usize, usize, u32),
    met: Option<f64>,
    missed: Option<f64>,
}

impl Search {
    /// Begins at the lowest load.
    pub fn new(bounds: Bounds) -> Self {
        let at = Some(bounds.from);
        Self { bounds, at, counts: (0, 0, 0), met: None, missed: None }
    }

    /// The load to try; `None` when the search is over.
    pub fn next_load(&self) -> Option<f64> {
        self.at
    }

    /// The highest load that met the objective.
    pub fn met(&self) -> Option<f64> {
        self.met
    }

    /// The lowest load that missed it.
    pub fn missed(&self) -> Option<f64> {
        self.missed
    }

    /// Takes what a probe of the load has shown, and says what it means together with the probes of it before.
    pub fn tell(&mut self, good: usize, all: usize) -> Verdict {
        let Some(load) = self.at else { return Verdict::Undecided };
        let (good, all) = (self.counts.0.saturating_add(good), self.counts.1.saturating_add(all));
        self.counts = (good, all, self.counts.2.saturating_add(1));
        let share = self.bounds.share;
        let shown = match verdict(good, all, share) {
            Verdict::Undecided if self.counts.2 < TRIES => return Verdict::Undecided,
            Verdict::Undecided if good as f64 >= share * all as f64 => Verdict::Meets,
            Verdict::Undecided => Verdict::Misses,
            shown => shown,
        };
        self.counts = (0, 0, 0);
        if shown == Verdict::Meets {
            self.met = Some(load);
        } else {
            self.missed = Some(load);
        }
        self.at = self.choose();
        shown
    }

    /// Ends the search where a load could not be sent as it was asked for.
    pub fn stop(&mut self) {
        self.at = None;
    }

    fn choose(&self) -> Option<f64> {
        match (self.met, self.missed) {
            (Some(met), None) if met >= self.bounds.to => None,
            (Some(met), None) => Some((2.0 * met).min(self.bounds.to)),
            (Some(met), Some(missed)) if missed <= met * (1.0 + self.bounds.within) => None,
            (Some(met), Some(missed)) => Some((met * missed).sqrt()).filter(|at| *at > met && *at < missed),
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bounds(from: f64, to: f64, within: f64) -> Bounds {
        Bounds { from, to, within, share: 0.9 }
    }

    #[test]
    fn a_share_is_shown_by_enough_requests_only() {
        assert_eq!(verdict(9, 10, 0.9), Verdict::Undecided);
        assert_eq!(verdict(24, 24, 0.9), Verdict::Undecided);
        assert_eq!(verdict(fewest(0.9), fewest(0.9), 0.9), Verdict::Meets);
        assert_eq!(verdict(80, 100, 0.9), Verdict::Misses);
        assert_eq!((verdict(0, 0, 0.9), fewest(0.0)), (Verdict::Misses, 1));
    }

    #[test]
    fn a_server_that_falls_behind_piles_requests_up() {
        // 40 a second for 10 s, each of 0.1 s, by a server that ends `capacity` a second.
        let sent = |capacity: f64| -> Vec<(f64, f64)> {
            let mut free = 0.0_f64;
            (0..400)
                .map(|place| {
                    let start = f64::from(place) / 40.0;
                    free = (free + 1.0 / capacity).max(start);
                    (start, 0.1 + free - start)
                })
                .collect()
        };
        assert!(piles_up(&sent(20.0)) && piles_up(&sent(30.0)));
        assert!(!piles_up(&sent(41.0)) && !piles_up(&sent(400.0)) && !piles_up(&[]));
        // Long answers are not a pile.
        let long: Vec<_> = sent(400.0).into_iter().map(|(start, _)| (start, 7.0)).collect();
        assert!(!piles_up(&long));
    }

    #[test]
    fn a_doubtful_load_is_tried_three_times() {
        let mut search = Search::new(bounds(1.0, 8.0, 0.05));
        assert_eq!(search.tell(9, 10), Verdict::Undecided);
        assert_eq!((search.tell(9, 10), search.next_load()), (Verdict::Undecided, Some(1.0)));
        assert_eq!((search.tell(9, 10), search.next_load()), (Verdict::Meets, Some(2.0)));
    }

    proptest! {
        #[test]
        fn the_knee_is_between_the_two_ends(
            from in 0.01..10.0_f64, times in 1.0..1e4_f64, knee in 0.0..1.2_f64, within in 0.005..0.5_f64,
        ) {
            let bounds = bounds(from, from * times, within);
            let knee = from * times.powf(knee) * if knee < 0.02 { 0.5 } else { 1.0 };
            let mut search = Search::new(bounds.clone());
            let mut probes = 0;
            while let Some(load) = search.next_load() {
                prop_assert!(load >= bounds.from && load <= bounds.to);
                search.tell(if load <= knee { 100 } else { 0 }, 100);
                probes += 1;
                prop_assert!(probes < 64);
            }
            match (search.met(), search.missed()) {
                (None, missed) => prop_assert!(missed == Some(from) && knee < from),
                (Some(met), None) => prop_assert!(met == bounds.to && knee >= met),
                (Some(met), Some(missed)) => {
                    prop_assert!(met <= knee && knee < missed);
                    prop_assert!(missed <= met * (1.0 + within));
                }
            }
        }

        #[test]
        fn a_soft_knee_ends_too(seed in any::<u64>(), width in 0.05..2.0_f64) {
            let mut search = Search::new(bounds(0.5, 512.0, 0.05));
            let mut random = crate::load::random::Random::new(seed, "soft knee");
            let mut probes = 0;
            while let Some(load) = search.next_load() {
                let chance = 1.0 / (1.0 + ((load.ln() - 10.0_f64.ln()) / width - 2.2).exp());
                let good = (0..40).filter(|_| random.unit() < chance).count();
                search.tell(good, 40);
                probes += 1;
                prop_assert!(probes < 150);
            }
        }
    }
}
