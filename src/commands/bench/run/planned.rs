//! Does an arm's server have the KV cache groups that the experiment expects, or that are planned for its model?

use std::path::Path;

use clap::{Args as _, FromArgMatches as _};
use planner::group;
use planner::import::beside::{self, Row, Verdict};
use planner::import::log::ServerLog;

use super::experiment::Arm;
use crate::commands::bench::server_log;
use crate::failure::Failure;
use crate::scenario::{Scenario, ScenarioArgs};

/// Reads an experiment's `plan`: the words that `k3plan plan` takes.
pub(super) fn words(arm: &str, plan: &[String]) -> Result<ScenarioArgs, Failure> {
    let command = ScenarioArgs::augment_args(clap::Command::new("plan").no_binary_name(true));
    let failed = |error: &clap::Error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or("").trim_start_matches("error: ").to_owned();
        Failure::new(format!("failed to read the `plan` of the arm `{arm}`"))
            .caused_by(first)
            .hint("its words are those of `k3plan plan`: a scenario, or `--model` and a config.json")
    };
    let matches = command.try_get_matches_from(plan).map_err(|error| failed(&error))?;
    ScenarioArgs::from_arg_matches(&matches).map_err(|error| failed(&error))
}

/// Holds the server's log to what the experiment says.
pub(super) fn check(arm: &Arm, log: Option<&Path>) -> Result<(), Failure> {
    if arm.expected_groups.is_none() && arm.plan.is_none() {
        return Ok(());
    }
    let log = log.map_or_else(|| Ok(ServerLog::default()), server_log::read)?;
    if let Some(expected) = arm.expected_groups {
        hold_count(arm, &log, expected, "are expected")
            .map_err(|failure| failure.hint("or correct `expected_groups`"))?;
    }
    let Some(plan) = arm.filled_plan()? else { return Ok(()) };
    let mut scenarios = words(&arm.name, &plan)?.load()?;
    let (Some(scenario), true) = (scenarios.pop(), scenarios.is_empty()) else {
        return Err(Failure::new(format!("the `plan` of the arm `{}` is not of one scenario", arm.name)));
    };
    hold_plan(arm, &log, &scenario)
}

fn hold_plan(arm: &Arm, log: &ServerLog, scenario: &Scenario) -> Result<(), Failure> {
    let failed = |error: planner::GroupingError| {
        Failure::new(format!("failed to plan the arm `{}`", arm.name)).caused_by(error)
    };
    let beside =
        beside::beside(log, &scenario.model, &scenario.settings, scenario.version).map_err(failed)?;
    let grouping =
        group::group(&scenario.model, &beside.settings, &beside.version.rules()).map_err(failed)?;
    hold_count(arm, log, grouping.groups.len(), "are planned")?;
    // How much memory there is may differ from machine to machine; how layers are grouped may not.
    let of_groups = |row: &&Row| ["group block sizes", "padding layers"].contains(&row.name);
    match beside.rows.iter().filter(of_groups).find(|row| row.verdict == Verdict::Different) {
        None => Ok(()),
        Some(row) => Err(not_right(
            arm,
            &format!("its server logs {} {} where {} are planned", row.name, row.log, row.plan),
        )),
    }
}

fn hold_count(arm: &Arm, log: &ServerLog, expected: usize, why: &str) -> Result<(), Failure> {
    let found = server_log::groups(log);
    if found == Some(expected) {
        return Ok(());
    }
    let have = found.map_or_else(
        || "does not tell its groups".to_owned(),
        |count| {
            let sizes = log.group_block_sizes.as_ref().map_or(&[][..], |sizes| &sizes.value);
            format!("has {count} KV cache groups (block sizes {sizes:?})")
        },
    );
    Err(not_right(arm, &format!("its server {have} where {expected} {why}")))
}

fn not_right(arm: &Arm, cause: &str) -> Failure {
    Failure::new(format!("the arm `{}` is not what the experiment says", arm.name))
        .caused_by(cause.to_owned())
        .hint("see what decides it with `k3plan explain`")
}
