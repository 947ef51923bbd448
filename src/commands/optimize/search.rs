//! Which choice is best, and what does each change give by itself?

use planner::GroupSizeRule;

use super::choice::{Choice, Setting};
use super::rig::{Coming, Outcome, Question, Rig, Why};
use crate::failure::Failure;
use crate::predict::slo::Slo;

/// The values of each setting.
pub(super) struct Space {
    pub(super) tp: Vec<u32>,
    pub(super) max_num_seqs: Vec<u32>,
    pub(super) max_num_batched_tokens: Vec<u32>,
    /// `None` is what the platform takes.
    pub(super) block_size: Option<Vec<u64>>,
    /// `None` is what is worth a look.
    pub(super) rules: Option<Vec<Option<GroupSizeRule>>>,
}

/// A choice and what came of it.
#[derive(Debug, Clone)]
pub(super) struct Tried {
    pub(super) choice: Choice,
    pub(super) outcome: Result<Outcome, Why>,
    /// Whether it keeps what is asked: the SLO, or no worse than today.
    pub(super) kept: bool,
}

/// Everything that the search found.
pub(super) struct Answer {
    pub(super) today: Tried,
    /// One setting changed.
    pub(super) singles: Vec<(Setting, Tried)>,
    /// The best with flags that vLLM has.
    pub(super) best: Option<Tried>,
    /// The best with another group size rule too, where that is better still.
    pub(super) with_rule: Option<Tried>,
    /// Choices looked at.
    pub(super) looked_at: usize,
}

/// Outcomes this much worse than the best are as good, if they change less.
const AS_GOOD: f64 = 0.01;

/// What is kept without an SLO: answers end no later than today, but for rounding.
const NO_LATER: f64 = 1.001;

/// Neither of the two times may make up for the other by more than this.
const LITTLE_WORSE: f64 = 1.05;

impl Tried {
    /// Output tokens a second and device of what runs.
    pub(super) fn per_device(&self) -> Option<f64> {
        self.outcome.as_ref().ok().map(|outcome| outcome.per_device)
    }

    /// Whether it serves as many as `today`, and its longest step is much shorter.
    pub(super) fn stalls_less(&self, today: &Self) -> bool {
        let (Ok(own), Ok(other)) = (&self.outcome, &today.outcome) else { return false };
        self.kept
            && own.per_device >= other.per_device * (1.0 - AS_GOOD)
            && own.longest_step < 0.7 * other.longest_step
    }

    fn score(&self) -> Option<f64> {
        if self.kept { self.per_device() } else { None }
    }
}

struct Search<'a> {
    rig: Rig<'a>,
    /// What must be kept.
    bounds: Slo,
}

impl Search<'_> {
    fn tried(&mut self, choice: Choice) -> Result<Tried, Failure> {
        let outcome = self.rig.try_out(&choice)?;
        let kept =
            outcome.as_ref().is_ok_and(|outcome| self.bounds.broken(&outcome.estimate, 1.0, 1.0).is_none());
        Ok(Tried { choice, outcome, kept })
    }
}

/// Today's number of ranks: as given, or the fewest that the model runs on; the most where it runs on none.
fn settle(rig: &mut Rig<'_>, space: &Space, today: Choice) -> Result<Choice, Failure> {
    if today.tensor_parallel > 0 {
        return Ok(today);
    }
    let mut ranks = space.tp.clone();
    ranks.sort_unstable();
    let mut settled = today;
    for tensor_parallel in ranks {
        settled.tensor_parallel = tensor_parallel;
        if !matches!(rig.try_out(&settled)?, Err(Why::Room(_) | Why::Refused(_))) {
            break;
        }
    }
    Ok(settled)
}

/// Looks at all combinations.
///
/// # Errors
/// If the device lacks a figure.
pub(super) fn search(question: &Question<'_>, space: &Space, today: Choice) -> Result<Answer, Failure> {
    let mut rig = Rig::new(question);
    let today = settle(&mut rig, space, today)?;
    let mut search = Search { rig, bounds: question.slo.unwrap_or_default() };
    let mut now = search.tried(today)?;
    if let (None, Ok(outcome)) = (question.slo, &now.outcome) {
        let estimate = &outcome.estimate;
        search.bounds = Slo {
            ttft: Some(estimate.ttft * LITTLE_WORSE),
            tpot: Some(estimate.tpot * LITTLE_WORSE),
            e2e: Some(estimate.e2e * NO_LATER),
        };
        now.kept = true;
    }
    let axes = axes(&mut search.rig, space, &today);
    let mut singles = Vec::new();
    for setting in Setting::ALL {
        for choice in axes.iter().flat_map(|axis| axis.of(setting, &today)) {
            if choice.changes(&today) == [setting] {
                singles.push((setting, search.tried(choice)?));
            }
        }
    }
    let mut all = Vec::new();
    for choice in combinations(&axes, &today) {
        all.push(search.tried(choice)?);
    }
    let best = best(all.iter().filter(|tried| tried.choice.rule == today.rule), &today, question.coming);
    let with_rule = self::best(all.iter(), &today, question.coming).filter(|tried| {
        let flags = best.as_ref().and_then(Tried::score).unwrap_or(0.0);
        tried.choice.rule != today.rule && tried.score().is_some_and(|score| score > flags * (1.0 + AS_GOOD))
    });
    Ok(Answer { today: now, singles, best, with_rule, looked_at: all.len() })
}

/// Values of one setting.
enum Axis {
    Tp(Vec<u32>),
    Ep(Vec<bool>),
    Seqs(Vec<u32>),
    Tokens(Vec<u32>),
    Block(Vec<Option<u64>>),
    Rule(Vec<Option<GroupSizeRule>>),
}

impl Axis {
    fn each(&self, from: &Choice) -> Vec<Choice> {
        let from = *from;
        match self {
            Self::Tp(list) => {
                list.iter().map(|&tensor_parallel| Choice { tensor_parallel, ..from }).collect()
            }
            Self::Ep(list) => {
                list.iter().map(|&expert_parallel| Choice { expert_parallel, ..from }).collect()
            }
            Self::Seqs(list) => list.iter().map(|&max_num_seqs| Choice { max_num_seqs, ..from }).collect(),
            Self::Tokens(list) => {
                list.iter().map(|&max_num_batched_tokens| Choice { max_num_batched_tokens, ..from }).collect()
            }
            Self::Block(list) => list.iter().map(|&block_size| Choice { block_size, ..from }).collect(),
            Self::Rule(list) => list.iter().map(|&rule| Choice { rule, ..from }).collect(),
        }
    }

    fn of(&self, setting: Setting, today: &Choice) -> Vec<Choice> {
        let own = match self {
            Self::Tp(_) => Setting::TensorParallel,
            Self::Ep(_) => Setting::ExpertParallel,
            Self::Seqs(_) => Setting::MaxNumSeqs,
            Self::Tokens(_) => Setting::MaxNumBatchedTokens,
            Self::Block(_) => Setting::BlockSize,
            Self::Rule(_) => Setting::GroupSize,
        };
        let choices = if own == setting { self.each(today) } else { Vec::new() };
        choices.into_iter().filter(sensible).collect()
    }
}

/// Experts can be spread whole only over several ranks.
fn sensible(choice: &Choice) -> bool {
    !choice.expert_parallel || choice.tensor_parallel > 1
}

fn with<T: Copy + PartialEq>(list: &[T], own: T) -> Vec<T> {
    let mut all = vec![own];
    for value in list {
        if !all.contains(value) {
            all.push(*value);
        }
    }
    all
}

fn axes(rig: &mut Rig<'_>, space: &Space, today: &Choice) -> Vec<Axis> {
    let experts = if rig.question.model.shape.has_experts() { vec![false, true] } else { vec![false] };
    let imported = rig.imported(today).ok().flatten();
    let blocks: Vec<Option<u64>> = match (&space.block_size, &imported) {
        (Some(list), _) => list.iter().map(|size| Some(*size)).collect(),
        // What the platform uses anyway is no change.
        (None, Some(imported)) => {
            let own = imported.block_size;
            imported.block_sizes.iter().filter(|size| **size != own).map(|size| Some(*size)).collect()
        }
        (None, None) => Vec::new(),
    };
    let rules = match &space.rules {
        Some(list) => list.clone(),
        None => rig.rules(today),
    };
    vec![
        Axis::Tp(with(&space.tp, today.tensor_parallel)),
        Axis::Ep(with(&experts, today.expert_parallel)),
        Axis::Seqs(with(&space.max_num_seqs, today.max_num_seqs)),
        Axis::Tokens(with(&space.max_num_batched_tokens, today.max_num_batched_tokens)),
        Axis::Block(with(&blocks, today.block_size)),
        Axis::Rule(with(&rules, today.rule)),
    ]
}

fn combinations(axes: &[Axis], today: &Choice) -> Vec<Choice> {
    let mut all = vec![*today];
    for axis in axes {
        all = all.iter().flat_map(|choice| axis.each(choice)).collect();
    }
    all.retain(sensible);
    all
}

/// The best of those that keep what is asked; of those as good, what changes least, then what answers soonest.
fn best<'a>(all: impl Iterator<Item = &'a Tried>, today: &Choice, coming: Coming) -> Option<Tried> {
    let kept: Vec<(&Tried, f64)> = all.filter_map(|tried| Some((tried, tried.score()?))).collect();
    let most = kept.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    let latency = |tried: &Tried| tried.outcome.as_ref().map_or(f64::MAX, |outcome| outcome.estimate.e2e);
    kept.into_iter()
        .filter(|(_, score)| *score >= most * (1.0 - AS_GOOD))
        .min_by(|(a, own), (b, other)| {
            let changes = |tried: &Tried| tried.choice.changes(today).len();
            let score = match coming {
                Coming::Concurrency(_) => other.total_cmp(own),
                Coming::Rate(_) => std::cmp::Ordering::Equal,
            };
            changes(a).cmp(&changes(b)).then(score).then(latency(a).total_cmp(&latency(b)))
        })
        .map(|(tried, _)| tried.clone())
}
