//! The report of a check as Markdown for a pull request.

use std::fmt::Write as _;

use super::load::Unread;
use super::report::{Outcome, Status};

/// The report.
pub(super) fn document(outcome: &Outcome) -> String {
    let mut out = format!("### KV cache groups: {}\n\n", outcome.summary());
    let rows =
        outcome.checked.iter().filter(|c| c.finding.status != Status::Equal || !c.finding.broken.is_empty());
    let rows: Vec<_> = rows.collect();
    // Writing to a string cannot fail.
    if !rows.is_empty() {
        let _ = writeln!(out, "| scenario | vLLM | is | what moved |\n|---|---|---|---|");
    }
    for checked in &rows {
        let mut moved: Vec<String> = checked
            .finding
            .moved
            .iter()
            .map(|moved| {
                let (locked, now) = moved.shown();
                format!("{} {locked} -> {now} ({})", moved.metric.name(), moved.verdict.word())
            })
            .collect();
        moved.extend(checked.finding.broken.iter().cloned());
        let word = checked.word(outcome);
        let _ = writeln!(
            out,
            "| {} | {} | {word} | {} |",
            escaped(&checked.key),
            checked.engine,
            escaped(&moved.join("; "))
        );
    }
    if !rows.is_empty() {
        out.push('\n');
    }
    for checked in &rows {
        for cause in &checked.finding.causes {
            let _ = writeln!(out, "- {}: {}", escaped(&checked.key), escaped(&cause.text));
        }
    }
    for Unread { place, failure } in &outcome.unread {
        let causes: String = failure.causes.iter().map(|cause| format!(": {cause}")).collect();
        let _ =
            writeln!(out, "- error, {}: {}{}", escaped(place), escaped(&failure.message), escaped(&causes));
    }
    if !outcome.left_out.is_empty() {
        let names: Vec<String> = outcome.left_out.iter().map(|name| escaped(name)).collect();
        let _ = writeln!(out, "- left out, since the change cannot touch them: {}", names.join(", "));
    }
    out
}

/// Text that stays in its cell.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}
