//! What every group size would give.

use super::Numbers;
use crate::engine::Rules;
use crate::group::{Decision, group_size};
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

/// A row for every size up to the largest bucket that changes the number of groups; empty where the engine chooses no size.
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
    let counts: Vec<u64> = chosen.grouping.buckets.iter().map(|bucket| bucket.layers.len() as u64).collect();
    let mut rows: Vec<GroupSizeRow> = Vec::new();
    let mut last_groups = None;
    for size in (1..=largest).filter(|size| *size <= SIZES_MAX || *size == largest) {
        // Of the sizes that give as many groups, the smallest pads least.
        let groups = Some(group_size::groups(&counts, size));
        if last_groups == groups && size != chosen.grouping.group_size() {
            continue;
        }
        last_groups = groups;
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
