//! Where the counts a builder come from: `data/builders.json`, each with its source.

use std::sync::LazyLock;

use serde::Deserialize;

use super::MetadataError;

/// Counts a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// Kernels.
    pub launches: u64,
    /// Copies to the device.
    pub h2d: u64,
    /// Copies from the device.
    pub d2h: u64,
}

impl Count {
    /// What the host dispatches one by one: kernels and copies.
    #[expect(clippy::cast_precision_loss, reason = "counts of one call")]
    pub fn operations(&self) -> f64 {
        (self.launches + self.h2d + self.d2h) as f64
    }
}

/// What `update_block_table` costs in place of `build`, in the steps in which a builder has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reuse {
    decode: Count,
    mixed: Count,
    decode_eager: Count,
    mixed_eager: Count,
    verify: Option<Count>,
    mixed_drafts: Option<Count>,
    verify_eager: Option<Count>,
    mixed_drafts_eager: Option<Count>,
}

impl Reuse {
    /// Counts in decode, verify and mixed steps and mixed steps with drafts; `None` if the builder does not let its
    /// metadata be taken over where the engine drafts, and `drafts` says that it does.
    pub fn counts(&self, full_graphs: bool, drafts: bool) -> Option<[Count; 4]> {
        let (decode, verify, mixed, mixed_drafts) = if full_graphs {
            (self.decode, self.verify, self.mixed, self.mixed_drafts)
        } else {
            (self.decode_eager, self.verify_eager, self.mixed_eager, self.mixed_drafts_eager)
        };
        if drafts && (verify.is_none() || mixed_drafts.is_none()) {
            return None;
        }
        Some([decode, verify.unwrap_or_default(), mixed, mixed_drafts.unwrap_or_default()])
    }
}

/// A metadata builder.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Builder {
    /// Our name for it.
    pub name: String,
    /// `nvidia`, `rocm` or `any`.
    pub platform: String,
    /// What a later group of the same spec costs, where metadata can be taken over.
    pub reuse: Option<Reuse>,
    /// One token a request, with full graphs.
    pub decode: Count,
    /// Drafts to verify, with full graphs.
    pub verify: Count,
    /// Steps with prompts, where full graphs are on for the others.
    pub mixed: Count,
    /// Steps with prompts and drafts, likewise.
    pub mixed_drafts: Count,
    /// Without full graphs.
    pub decode_eager: Count,
    /// Without full graphs.
    pub verify_eager: Count,
    /// Without full graphs.
    pub mixed_eager: Count,
    /// Without full graphs.
    pub mixed_drafts_eager: Count,
    /// Whether each call fills the page indices of the longest batch.
    #[serde(default)]
    pub fills_page_indices: bool,
    /// Where the counts come from.
    pub source: String,
}

impl Builder {
    /// Counts in decode, verify and mixed steps and mixed steps with drafts.
    pub fn counts(&self, full_graphs: bool) -> [Count; 4] {
        if full_graphs {
            [self.decode, self.verify, self.mixed, self.mixed_drafts]
        } else {
            [self.decode_eager, self.verify_eager, self.mixed_eager, self.mixed_drafts_eager]
        }
    }
}

/// What a model runner does besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunnerCost {
    pub(super) group_launches: u64,
    pub(super) group_h2d: u64,
    pub(super) step_launches: u64,
}

/// The tables.
#[derive(Debug, Clone)]
pub struct Tables {
    /// All builders.
    pub builders: Vec<Builder>,
    pub(super) runner: Runners,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Runners {
    pub(super) v1: RunnerCost,
    pub(super) v2: RunnerCost,
}

impl Tables {
    /// The builder of a name.
    ///
    /// # Errors
    /// [`MetadataError::Builder`] if there is none.
    pub fn find(&self, name: &str) -> Result<&Builder, MetadataError> {
        self.builders.iter().find(|builder| builder.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.builders.iter().map(|builder| builder.name.as_str()).collect();
            MetadataError::Builder { name: name.to_owned(), known: known.join(", ") }
        })
    }
}

#[derive(Deserialize)]
struct File {
    builders: Vec<Builder>,
    runner: RawRunners,
}

#[derive(Deserialize)]
struct RawRunners {
    v1: RawRunner,
    v2: RawRunner,
}

#[derive(Deserialize)]
struct RawRunner {
    group_launches: u64,
    group_h2d: u64,
    step_launches: u64,
}

impl From<&RawRunner> for RunnerCost {
    fn from(raw: &RawRunner) -> Self {
        let RawRunner { group_launches, group_h2d, step_launches } = *raw;
        Self { group_launches, group_h2d, step_launches }
    }
}

/// The tables that are built in.
#[expect(clippy::expect_used, reason = "the file is compiled in, and a test reads it")]
pub fn builders() -> &'static Tables {
    static TABLES: LazyLock<Tables> = LazyLock::new(|| {
        let file: File =
            serde_json::from_str(include_str!("../../data/builders.json")).expect("data/builders.json");
        let runner = Runners { v1: (&file.runner.v1).into(), v2: (&file.runner.v2).into() };
        Tables { builders: file.builders, runner }
    });
    &TABLES
}
