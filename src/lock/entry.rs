//! One plan in the lock, and how another compares with it.

use planner::explain::Numbers;
use planner::{EngineSettings, GroupSpec, GroupingError, Model, Plan};
use serde::{Deserialize, Serialize};

use super::declared;

/// What a plan came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Entry {
    /// KV cache groups.
    pub(crate) groups: u64,
    /// Layers of each group, equal neighbours as `3x23`.
    pub(crate) group_layers: String,
    /// Layer slots that stay empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) padding_layers: Option<u64>,
    /// Bytes of a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_per_block: Option<u64>,
    /// Blocks of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) num_blocks: Option<u64>,
    /// Requests of the longest length that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_concurrency: Option<f64>,
    /// Tensor parallel ranks that hold identical KV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kv_tp_replicas: Option<u64>,
    /// Why there is no plan, or no pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Stands for everything else of the plan: which layers, kinds, block and page sizes.
    pub(crate) fingerprint: String,
    /// The engine's settings, as `flag=value` with spaces between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) settings: Option<String>,
    /// What the layers declare: one line a distinct spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) layers: Option<Vec<String>>,
}

/// A number of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    /// KV cache groups; fewer is better.
    Groups,
    /// Empty layer slots; fewer is better.
    PaddingLayers,
    /// Bytes of a block; fewer is better.
    BytesPerBlock,
    /// Blocks; more is better.
    NumBlocks,
    /// Requests that fit; more is better.
    MaxConcurrency,
    /// Ranks with identical KV; more is better.
    KvTpReplicas,
    /// Whether there is a plan.
    Error,
    /// Which layers share a group, and in what blocks and pages.
    Fingerprint,
}

impl Metric {
    /// The key in the lock.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Groups => "groups",
            Self::PaddingLayers => "padding_layers",
            Self::BytesPerBlock => "bytes_per_block",
            Self::NumBlocks => "num_blocks",
            Self::MaxConcurrency => "max_concurrency",
            Self::KvTpReplicas => "kv_tp_replicas",
            Self::Error => "error",
            Self::Fingerprint => "fingerprint",
        }
    }
}

/// How one number compares with the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// It is better.
    Better,
    /// It is neither, but not the same.
    Changed,
    /// It is worse.
    Worse,
}

impl Verdict {
    /// In a word.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Changed => "changed",
            Self::Worse => "worse",
        }
    }
}

/// A number that differs from the lock.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Moved {
    /// Which number.
    pub(crate) metric: Metric,
    /// In the lock.
    pub(crate) locked: String,
    /// Now.
    pub(crate) now: String,
    /// Which way.
    pub(crate) verdict: Verdict,
}

impl Moved {
    /// Both values for people: two decimals, or as many as tell them apart.
    pub(crate) fn shown(&self) -> (String, String) {
        if let (Ok(locked), Ok(now)) = (self.locked.parse::<f64>(), self.now.parse::<f64>())
            && self.metric == Metric::MaxConcurrency
        {
            for decimals in 2..8 {
                let (a, b) = (format!("{locked:.decimals$}"), format!("{now:.decimals$}"));
                if a != b {
                    return (a, b);
                }
            }
        } else if self.metric == Metric::MaxConcurrency {
            let short =
                |text: &str| text.parse::<f64>().map_or_else(|_| text.to_owned(), |n| format!("{n:.2}"));
            return (short(&self.locked), short(&self.now));
        }
        (self.locked.clone(), self.now.clone())
    }
}

impl Entry {
    /// The entry of a plan, or of its refusal.
    pub(crate) fn of(plan: Result<&Plan, &GroupingError>) -> Self {
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                return Self {
                    error: Some(error.to_string()),
                    fingerprint: fingerprint(&error.to_string()),
                    ..Self::default()
                };
            }
        };
        let numbers = Numbers::of(plan);
        Self {
            groups: numbers.groups,
            group_layers: group_layers(plan),
            padding_layers: numbers.padding_layers,
            bytes_per_block: numbers.bytes_per_block,
            num_blocks: numbers.num_blocks,
            max_concurrency: numbers.max_concurrency.filter(|n| n.is_finite()),
            kv_tp_replicas: numbers.kv_tp_replicas,
            error: match &plan.pool {
                Some(Err(error)) => Some(error.to_string()),
                _ => None,
            },
            fingerprint: fingerprint(&shape(plan)),
            settings: None,
            layers: None,
        }
    }

    /// The same, with what it was made of.
    pub(crate) fn made_of(mut self, model: &Model, settings: &EngineSettings) -> Self {
        self.settings = Some(declared::settings_text(settings));
        self.layers = Some(declared::layers_text(model));
        self
    }

    /// Every number in which `now` differs, the worst first.
    pub(crate) fn moved(&self, now: &Self) -> Vec<Moved> {
        let mut found = Vec::new();
        let mut note = |metric: Metric, locked: Option<f64>, value: Option<f64>, texts: (String, String)| {
            if texts.0 == texts.1 {
                return;
            }
            let less_is_better =
                matches!(metric, Metric::Groups | Metric::PaddingLayers | Metric::BytesPerBlock);
            let verdict = match (locked, value) {
                (Some(locked), Some(value)) if (value < locked) == less_is_better => Verdict::Better,
                (Some(_), Some(_)) => Verdict::Worse,
                // A number that is not there any more, such as the blocks of a pool that does not fit.
                (Some(_), None) => Verdict::Changed,
                (None, _) => Verdict::Changed,
            };
            found.push(Moved { metric, locked: texts.0, now: texts.1, verdict });
        };
        #[expect(clippy::cast_precision_loss, reason = "only the direction is asked")]
        let float = |n: Option<u64>| n.map(|n| n as f64);
        let text = |n: Option<u64>| n.map_or_else(|| "none".to_owned(), |n| n.to_string());
        let both = |a: Option<u64>, b: Option<u64>| (text(a), text(b));
        for (metric, locked, value) in [
            (Metric::Groups, Some(self.groups), Some(now.groups)),
            (Metric::PaddingLayers, self.padding_layers, now.padding_layers),
            (Metric::BytesPerBlock, self.bytes_per_block, now.bytes_per_block),
            (Metric::NumBlocks, self.num_blocks, now.num_blocks),
            // A version that does not count replicas promises nothing of them, as one does that counts one.
            (
                Metric::KvTpReplicas,
                Some(self.kv_tp_replicas.unwrap_or(1)),
                Some(now.kv_tp_replicas.unwrap_or(1)),
            ),
        ] {
            note(metric, float(locked), float(value), both(locked, value));
        }
        let requests = |n: Option<f64>| n.map_or_else(|| "none".to_owned(), |n| n.to_string());
        note(
            Metric::MaxConcurrency,
            self.max_concurrency,
            now.max_concurrency,
            (requests(self.max_concurrency), requests(now.max_concurrency)),
        );
        if self.error != now.error {
            let text = |error: &Option<String>| error.clone().unwrap_or_else(|| "none".to_owned());
            found.push(Moved {
                metric: Metric::Error,
                locked: text(&self.error),
                now: text(&now.error),
                verdict: match (&self.error, &now.error) {
                    (None, Some(_)) => Verdict::Worse,
                    (Some(_), None) => Verdict::Better,
                    _ => Verdict::Changed,
                },
            });
        }
        if found.is_empty() && (self.fingerprint != now.fingerprint || self.group_layers != now.group_layers)
        {
            found.push(Moved {
                metric: Metric::Fingerprint,
                locked: format!("{} ({})", self.fingerprint, self.group_layers),
                now: format!("{} ({})", now.fingerprint, now.group_layers),
                verdict: Verdict::Changed,
            });
        }
        found.sort_by_key(|moved| std::cmp::Reverse(moved.verdict));
        found
    }
}

/// `3x23 29`.
fn group_layers(plan: &Plan) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for group in &plan.grouping.groups {
        match runs.last_mut() {
            Some((count, layers)) if *layers == group.layers.len() => *count += 1,
            _ => runs.push((1, group.layers.len())),
        }
    }
    let words: Vec<String> = runs
        .iter()
        .map(|(count, layers)| if *count == 1 { layers.to_string() } else { format!("{count}x{layers}") })
        .collect();
    words.join(" ")
}

/// Everything of a plan that the numbers do not say.
fn shape(plan: &Plan) -> String {
    let grouping = &plan.grouping;
    let mut text = String::new();
    for group in &grouping.groups {
        let mixed = matches!(group.spec, GroupSpec::UniformType(_));
        text.push_str(&format!(
            "{:?} {} {mixed} {} {:?};",
            group.layers,
            grouping.class_name(group),
            grouping.block_size(group),
            grouping.page_size_bytes(group).ok()
        ));
    }
    if let Some(Ok(pool)) = &plan.pool {
        text.push_str(&format!(
            "{} {} {:?} {:?}",
            pool.max_model_len, pool.blocks_per_max_len_request, pool.stage_blocks, pool.stage_group_sizes
        ));
    }
    text
}

/// 64-bit FNV-1a in hexadecimal: stable over platforms and versions.
fn fingerprint(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
