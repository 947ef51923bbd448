//! The report of a check as JSON, `k3plan.check/1`.

use schemars::JsonSchema;
use serde::Serialize;

use super::cause::Cause;
use super::load::Unread;
use super::report::{Checked, Outcome};

/// `k3plan check --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Report<'a> {
    /// What was checked.
    checked: Vec<CheckedJson<'a>>,
    /// What could not be read.
    errors: Vec<ErrorJson<'a>>,
    /// How many of `checked` fail.
    failing: usize,
    /// Keys of the scenarios that the change cannot touch.
    left_out: &'a [String],
    /// The lock file.
    lock: String,
    /// Always `k3plan.check/1`.
    schema: &'static str,
    /// Whether `--update` was given.
    updated: bool,
}

/// One scenario under one engine.
#[derive(Debug, Serialize, JsonSchema)]
struct CheckedJson<'a> {
    /// Limits of the lock's policy that are broken.
    broken_limits: &'a [String],
    /// What made it other, in a line.
    cause: Option<String>,
    /// The same, one by one.
    causes: &'a [Cause],
    /// The key of the entry, where it is another scenario's.
    compared_with: Option<&'a str>,
    /// The version of vLLM.
    engine: &'a str,
    /// Whether the check says no to it.
    fails: bool,
    /// Its key in the lock: where it is.
    key: &'a str,
    /// The numbers that differ.
    moved: Vec<MovedJson<'a>>,
    /// What its entry would be.
    now: EntryJson<'a>,
    /// Its name.
    scenario: &'a str,
    /// `equal`, `better`, `changed`, `worse` or `not in the lock`.
    status: &'static str,
}

/// An entry of the lock.
#[derive(Debug, Serialize, JsonSchema)]
struct EntryJson<'a> {
    bytes_per_block: Option<u64>,
    /// Why there is no plan, or no pool.
    error: Option<&'a str>,
    fingerprint: &'a str,
    group_layers: &'a str,
    groups: u64,
    kv_tp_replicas: Option<u64>,
    max_concurrency: Option<f64>,
    num_blocks: Option<u64>,
    padding_layers: Option<u64>,
}

/// A number that differs from the lock.
#[derive(Debug, Serialize, JsonSchema)]
struct MovedJson<'a> {
    /// Its key in the lock.
    key: &'static str,
    /// In the lock.
    locked: &'a str,
    /// Now.
    now: &'a str,
    /// `better`, `changed` or `worse`.
    verdict: &'static str,
}

/// What could not be read.
#[derive(Debug, Serialize, JsonSchema)]
struct ErrorJson<'a> {
    /// Why, outermost first.
    causes: &'a [String],
    /// What to do.
    hints: &'a [String],
    /// What is wrong.
    message: &'a str,
    /// The file, or the key in the lock.
    place: &'a str,
}

/// The report.
pub(super) fn report(outcome: &Outcome) -> Report<'_> {
    Report {
        checked: outcome.checked.iter().map(|checked| one(checked, outcome)).collect(),
        errors: outcome
            .unread
            .iter()
            .map(|Unread { place, failure }| ErrorJson {
                causes: &failure.causes,
                hints: &failure.hints,
                message: &failure.message,
                place,
            })
            .collect(),
        failing: outcome.checked.iter().filter(|checked| outcome.fails(checked)).count(),
        left_out: &outcome.left_out,
        lock: outcome.lock.display().to_string(),
        schema: "k3plan.check/1",
        updated: outcome.updated,
    }
}

fn one<'a>(checked: &'a Checked, outcome: &Outcome) -> CheckedJson<'a> {
    let entry = &checked.entry;
    CheckedJson {
        broken_limits: &checked.finding.broken,
        cause: checked.cause(),
        causes: &checked.finding.causes,
        compared_with: checked.finding.against.as_deref(),
        engine: &checked.engine,
        fails: outcome.fails(checked),
        key: &checked.key,
        moved: checked
            .finding
            .moved
            .iter()
            .map(|moved| MovedJson {
                key: moved.metric.name(),
                locked: &moved.locked,
                now: &moved.now,
                verdict: moved.verdict.word(),
            })
            .collect(),
        now: EntryJson {
            bytes_per_block: entry.bytes_per_block,
            error: entry.error.as_deref(),
            fingerprint: &entry.fingerprint,
            group_layers: &entry.group_layers,
            groups: entry.groups,
            kv_tp_replicas: entry.kv_tp_replicas,
            max_concurrency: entry.max_concurrency,
            num_blocks: entry.num_blocks,
            padding_layers: entry.padding_layers,
        },
        scenario: &checked.scenario,
        status: checked.finding.status.word(),
    }
}
