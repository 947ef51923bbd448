//! What a step's metadata costs: builder calls, launches, copies and bytes, a group and a step.

mod tables;

use thiserror::Error;

use crate::engine::Engine;
use crate::group::{Group, Manager, StateMode};
use crate::step::Step;
use tables::Count;
pub use tables::{Builder, Tables, builders};

/// How the worker sends block tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// All rows of every group, every step.
    V1,
    /// What changed.
    V2,
}

/// What is known of the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// A builder's name for each group.
    pub builders: Vec<String>,
    /// How block tables are sent.
    pub runner: Runner,
    /// Whether groups may take over one another's metadata (`update_block_table`).
    pub reuse: bool,
    /// Whether decode steps run as full graphs, for which metadata goes to fixed buffers.
    pub full_graphs: bool,
}

/// Why costs cannot be given.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// No builder of that name is known.
    #[error("no metadata builder is called `{name}`; known are {known}")]
    Builder {
        /// What was asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// A builder a group is needed.
    #[error("{builders} builders do not go with {groups} groups")]
    Count {
        /// Builders given.
        builders: usize,
        /// Groups there are.
        groups: usize,
    },
}

/// What kind of batch a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// Nothing is scheduled.
    Empty,
    /// One token a request.
    Decode,
    /// Drafts to verify, no prompt.
    Verify,
    /// Prompts among it.
    Mixed,
}

impl Batch {
    /// The kind of a step.
    pub fn of(step: &Step) -> Self {
        let mut kind = Self::Empty;
        for part in &step.scheduled {
            if part.generated == 0 || part.tokens > 1 + part.drafts {
                return Self::Mixed;
            }
            if part.drafts > 0 {
                kind = Self::Verify;
            } else if kind == Self::Empty {
                kind = Self::Decode;
            }
        }
        kind
    }
}

/// The cost of one or many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Calls of `build`.
    pub builds: u64,
    /// Calls of `update_block_table` in their place.
    pub reuses: u64,
    /// Kernels.
    pub launches: u64,
    /// Copies to the device.
    pub h2d: u64,
    /// Copies from the device.
    pub d2h: u64,
    /// Bytes of page indices that builders fill.
    pub filled_bytes: u64,
    /// Bytes of block tables sent.
    pub table_bytes: u64,
    /// Rows of block tables sent.
    pub table_rows: u64,
    /// Entries of slot mappings computed.
    pub slots: u64,
}

impl Cost {
    /// Adds another cost.
    pub fn add(&mut self, other: &Self) {
        let Self { builds, reuses, launches, h2d, d2h, filled_bytes, table_bytes, table_rows, slots } = other;
        self.builds += builds;
        self.reuses += reuses;
        self.launches += launches;
        self.h2d += h2d;
        self.d2h += d2h;
        self.filled_bytes += filled_bytes;
        self.table_bytes += table_bytes;
        self.table_rows += table_rows;
        self.slots += slots;
    }
}

/// One group's fixed figures.
#[derive(Debug, Clone)]
struct GroupCost {
    /// By batch: decode, verify, mixed, mixed with drafts.
    counts: [Count; 4],
    reused: bool,
    row_bytes: u64,
    filled_bytes: u64,
}

/// Adds up what the metadata of steps costs.
#[derive(Debug, Clone)]
pub struct Meter {
    groups: Vec<GroupCost>,
    runner: Runner,
    runner_cost: tables::RunnerCost,
    /// Steps by batch: decode, verify, mixed.
    pub steps: [u64; 3],
    /// Sums a group.
    pub by_group: Vec<Cost>,
    /// Sums of what is done once for all groups.
    pub shared: Cost,
}

impl Meter {
    /// A meter for `groups` on `worker`.
    ///
    /// # Errors
    /// [`MetadataError`] if a builder is not known.
    pub fn new(engine: &Engine, groups: &[Group], worker: &Worker) -> Result<Self, MetadataError> {
        let tables = builders();
        if worker.builders.len() != groups.len() {
            return Err(MetadataError::Count { builders: worker.builders.len(), groups: groups.len() });
        }
        let mut costs = Vec::with_capacity(groups.len());
        for (index, (group, name)) in groups.iter().zip(&worker.builders).enumerate() {
            let builder = tables.find(name)?;
            // A group takes over what an earlier one with the same spec and builder has made.
            let takes_over = worker.reuse
                && (0..index).any(|i| groups[i].spec == group.spec && worker.builders[i] == *name);
            let reuse = builder
                .reuse
                .filter(|_| takes_over)
                .and_then(|reuse| reuse.counts(worker.full_graphs, engine.speculative.is_some()));
            let reused = reuse.is_some();
            let counts = reuse.unwrap_or_else(|| builder.counts(worker.full_graphs));
            let filled = builder.fills_page_indices && worker.full_graphs;
            costs.push(GroupCost {
                counts,
                reused,
                row_bytes: 4 * row_width(engine, group),
                filled_bytes: if filled {
                    4 * u64::from(engine.max_num_seqs) * u64::from(engine.max_model_len)
                } else {
                    0
                },
            });
        }
        let runner_cost = match worker.runner {
            Runner::V1 => tables.runner.v1,
            Runner::V2 => tables.runner.v2,
        };
        Ok(Self {
            by_group: vec![Cost::default(); costs.len()],
            groups: costs,
            runner: worker.runner,
            runner_cost,
            steps: [0; 3],
            shared: Cost::default(),
        })
    }

    /// Adds a step and gives its cost over all groups.
    pub fn step(&mut self, step: &Step) -> Cost {
        let place = match Batch::of(step) {
            Batch::Empty => return Cost::default(),
            Batch::Decode => 0,
            Batch::Verify => 1,
            Batch::Mixed => 2,
        };
        self.steps[place] += 1;
        let drafts = place == 2 && step.scheduled.iter().any(|part| part.drafts > 0);
        let rows = step.scheduled.len() as u64;
        let tokens = step.tokens();
        let mut total = Cost { launches: self.runner_cost.step_launches, ..Cost::default() };
        self.shared.add(&total);
        for (group, sum) in self.groups.iter().zip(&mut self.by_group) {
            let count = group.counts[place + usize::from(drafts)];
            let mut cost = Cost {
                builds: u64::from(!group.reused),
                reuses: u64::from(group.reused),
                launches: count.launches + self.runner_cost.group_launches,
                h2d: count.h2d + self.runner_cost.group_h2d,
                d2h: count.d2h,
                filled_bytes: if place < 2 { group.filled_bytes } else { 0 },
                slots: tokens,
                ..Cost::default()
            };
            if self.runner == Runner::V1 {
                cost.table_rows = rows;
                cost.table_bytes = rows * group.row_bytes;
            }
            sum.add(&cost);
            total.add(&cost);
        }
        if self.runner == Runner::V2 {
            self.add_changes(step, &mut total);
        }
        total
    }

    /// The rows that changed: their new entries, and where they go.
    fn add_changes(&mut self, step: &Step, total: &mut Cost) {
        for part in &step.scheduled {
            let mut group = 0_usize;
            for &(groups, count) in step.new_blocks(part) {
                for sum in self.by_group.iter_mut().skip(group).take(groups as usize) {
                    if count > 0 {
                        let change = Cost {
                            table_rows: 1,
                            table_bytes: 4 * u64::from(count) + WRITE_BYTES,
                            ..Cost::default()
                        };
                        sum.add(&change);
                        total.add(&change);
                    }
                }
                group += groups as usize;
            }
        }
    }

    /// The sum over all groups and steps.
    pub fn total(&self) -> Cost {
        let mut total = self.shared;
        for cost in &self.by_group {
            total.add(cost);
        }
        total
    }
}

/// Bytes that tell where a staged write goes: row, start and end, 4 each (`v1/worker/gpu/buffer_utils.py`).
const WRITE_BYTES: u64 = 12;

/// Entries of a group's block-table row (`max_num_blocks_per_req`, vLLM 0.32).
fn row_width(engine: &Engine, group: &Group) -> u64 {
    let tokens = u64::from(engine.max_model_len);
    let blocks = tokens.div_ceil(u64::from(engine.tokens_of_block(group)).max(1));
    match group.manager {
        Manager::State { mode: StateMode::Align, speculative_blocks, .. } => {
            blocks + u64::from(speculative_blocks)
        }
        Manager::State { speculative_blocks, .. } => 1 + u64::from(speculative_blocks),
        Manager::Ring => 1,
        _ => blocks,
    }
}
