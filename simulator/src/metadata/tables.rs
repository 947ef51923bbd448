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

/// What `update_block_table` costs in place of `build`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reuse {
    /// In a decode step.
    pub decode: Count,
    /// In a step that verifies drafts.
    pub verify: Count,
    /// In a step with prompts.
    pub mixed: Count,
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
    /// With full graphs.
    pub decode: Count,
    /// With full graphs.
    pub verify: Count,
    /// Steps with prompts.
    pub mixed: Count,
    /// Without full graphs.
    pub decode_eager: Count,
    /// Without full graphs.
    pub verify_eager: Count,
    /// Whether each call fills the page indices of the longest batch.
    #[serde(default)]
    pub fills_page_indices: bool,
    /// Where the counts come from.
    pub source: String,
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
