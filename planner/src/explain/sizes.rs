//! What every group size would give.

use super::Numbers;
use crate::engine::Rules;
use crate::group::Decision;
use crate::model::Model;
use crate::plan::{Plan, plan};
use crate::settings::{EngineSettings, GroupSizeRule};

/// Sizes that are tried at most.
const SIZES_MAX: u64 = 128;

/// One group size and what it comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupSizeRow {
    /// Layers of a group.
    pub size: u64,
    /// Whether the engine chooses it.
    pub chosen: bool,
    /// The plan in numbers.
    pub numbers: Numbers,
}

/// A row for every size up to the largest bucket; empty where the engine chooses no size.
pub fn group_sizes(
    model: &Model,
    settings: &EngineSettings,
    rules: &Rules,
    chosen: &Plan,
) -> Vec<GroupSizeRow> {
    if chosen.grouping.decision != Decision::UniformPageSize {
        return Vec::new();
    }
    let largest = chosen.grouping.buckets.iter().map(|bucket| bucket.layers.len() as u64).max().unwrap_or(0);
    // Beyond the first sizes only those that change the number of groups are worth a row.
    let mut rows: Vec<GroupSizeRow> = Vec::new();
    for size in 1..=largest {
        if size > SIZES_MAX && size != largest {
            continue;
        }
        let settings =
            EngineSettings { group_size_rule: Some(GroupSizeRule::Fixed(size)), ..settings.clone() };
        let Ok(plan) = plan(model, &settings, rules) else { continue };
        rows.push(GroupSizeRow {
            size,
            chosen: size == chosen.grouping.group_size(),
            numbers: Numbers::of(&plan),
        });
    }
    rows
}
