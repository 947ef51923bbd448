//! Which steps of a simulated run stand for all of them?
//!
//! Steps with prompts are rare and dear, so steps are drawn from those with prompts and from those without, half each,
//! evenly over the run. Each drawn step stands for its share of its kind.

use super::Batch;

/// A step that was drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// Its 0-based number in the run.
    pub index: u64,
    /// How many steps of the run it stands for.
    pub stands_for: f64,
    /// Its batch.
    pub batch: Batch,
}

/// Counts steps, then takes those that were chosen.
#[derive(Debug, Default)]
pub struct Counter {
    decodes: u64,
    prefills: u64,
}

impl Counter {
    /// Counts a step that schedules something.
    pub fn count(&mut self, batch: &Batch) {
        *self.of(batch) += 1;
    }

    fn of(&mut self, batch: &Batch) -> &mut u64 {
        if batch.prefills() > 0 { &mut self.prefills } else { &mut self.decodes }
    }

    /// Chooses `steps` of those that were counted; all, where there are not as many.
    pub fn sampler(self, steps: u64) -> Sampler {
        let Self { decodes, prefills } = self;
        let of_prefills = prefills.min((steps / 2).max(steps.saturating_sub(decodes)));
        let of_decodes = decodes.min(steps - of_prefills.min(steps));
        let kind = |counted, chosen| Kind { counted, chosen, seen: 0, taken: 0 };
        Sampler {
            decodes: kind(decodes, of_decodes),
            prefills: kind(prefills, of_prefills),
            sampled: Vec::new(),
        }
    }
}

#[derive(Debug)]
struct Kind {
    counted: u64,
    chosen: u64,
    seen: u64,
    taken: u64,
}

impl Kind {
    /// Whether the next step is one of the chosen: those in the middle of equal parts.
    fn takes(&mut self) -> bool {
        let (number, part) = (u128::from(self.seen), u128::from(self.taken));
        self.seen += 1;
        let wanted = (2 * part + 1) * u128::from(self.counted) / (2 * u128::from(self.chosen.max(1)));
        let takes = self.taken < self.chosen && number >= wanted;
        self.taken += u64::from(takes);
        takes
    }
}

/// Takes the chosen steps from a second, equal run.
#[derive(Debug)]
pub struct Sampler {
    decodes: Kind,
    prefills: Kind,
    sampled: Vec<Sampled>,
}

impl Sampler {
    /// Looks at a step that schedules something.
    pub fn step(&mut self, index: u64, batch: Batch) {
        let kind = if batch.prefills() > 0 { &mut self.prefills } else { &mut self.decodes };
        if kind.takes() {
            #[expect(clippy::cast_precision_loss, reason = "counts of steps, far below 2^53")]
            let stands_for = kind.counted as f64 / kind.chosen.max(1) as f64;
            self.sampled.push(Sampled { index, stands_for, batch });
        }
    }

    /// The steps, in their order.
    pub fn finish(self) -> Vec<Sampled> {
        self.sampled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Request;

    fn drawn(steps: u64, kinds: &[bool]) -> Vec<(u64, f64)> {
        let batch = |prefill: bool| {
            let query_len = if prefill { 500 } else { 1 };
            Batch::new(vec![Request { num_computed: 9, query_len }], 0)
        };
        let mut counter = Counter::default();
        kinds.iter().for_each(|kind| counter.count(&batch(*kind)));
        let mut sampler = counter.sampler(steps);
        for (index, kind) in (0..).zip(kinds) {
            sampler.step(index, batch(*kind));
        }
        sampler.finish().into_iter().map(|s| (s.index, s.stands_for)).collect()
    }

    #[test]
    fn half_of_the_steps_have_prompts_and_all_are_stood_for() {
        let kinds: Vec<bool> = (0..100).map(|i| i % 10 == 0).collect();
        let steps = drawn(4, &kinds);
        assert_eq!(steps, [(20, 5.0), (25, 45.0), (70, 5.0), (75, 45.0)]);
    }

    #[test]
    fn few_steps_are_all_taken() {
        assert_eq!(drawn(8, &[true, false, false]), [(0, 1.0), (1, 1.0), (2, 1.0)]);
        assert_eq!(drawn(3, &[true; 3]), [(0, 1.0), (1, 1.0), (2, 1.0)]);
        assert_eq!(drawn(2, &[false; 5]).iter().map(|s| s.1).sum::<f64>(), 5.0);
        assert!(drawn(4, &[]).is_empty());
    }
}
