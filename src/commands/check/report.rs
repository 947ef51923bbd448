//! The reports of a check: text, JSON, JUnit, SARIF, and annotations for GitHub.

use std::io;
use std::path::Path;

use crate::lock::{Entry, Moved, Verdict};
use crate::render::junit;
use crate::render::plan_text::count;
use crate::render::words::wrap;
use crate::terminal::{Style, Terminal};

/// How to report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
    /// JUnit XML.
    Junit,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// Workflow commands that GitHub shows as annotations.
    Github,
}

/// How a scenario compares with its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// The same.
    Equal,
    /// No entry.
    New,
    /// Better.
    Better,
    /// Neither better nor worse, but another plan.
    Changed,
    /// Worse.
    Worse,
}

impl Status {
    const fn word(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::New => "not in the lock",
            Self::Better => "better",
            Self::Changed => "changed",
            Self::Worse => "worse",
        }
    }
}

/// What was found.
pub(super) struct Finding {
    /// In a word.
    pub(super) status: Status,
    /// Number by number, the worst first.
    pub(super) moved: Vec<Moved>,
    /// Limits that are broken.
    pub(super) broken: Vec<String>,
    /// What caused it.
    pub(super) cause: Option<String>,
    /// The entry's scenario, where it is another name's.
    pub(super) against: Option<String>,
}

/// One scenario that was checked.
pub(super) struct Checked {
    /// Its name.
    pub(super) scenario: String,
    /// The version.
    pub(super) engine: String,
    /// Its numbers.
    pub(super) entry: Entry,
    /// What was found.
    pub(super) finding: Finding,
}

impl Checked {
    /// Whether the check says no.
    pub(super) fn fails(&self, updated: bool, accept_worse: bool) -> bool {
        let status = match self.finding.status {
            Status::Equal => false,
            Status::New | Status::Better => !updated,
            Status::Changed | Status::Worse => !(updated && accept_worse),
        };
        status || !self.finding.broken.is_empty()
    }

    /// What is wrong in a line.
    fn message(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        if let Some(other) = &self.finding.against {
            parts.push(format!("compared with `{other}`, the lock's only entry"));
        }
        for Moved { metric, locked, now, verdict } in &self.finding.moved {
            parts.push(format!("{} {locked} -> {now} ({})", metric.name(), verdict.word()));
        }
        parts.extend(self.finding.broken.iter().cloned());
        if self.finding.status == Status::New {
            parts.push("not in the lock".to_owned());
        }
        if let Some(cause) = &self.finding.cause {
            parts.push(format!("cause: {cause}"));
        }
        parts.join("; ")
    }
}

/// All that was checked.
pub(super) struct Outcome<'a> {
    /// The scenarios.
    pub(super) checked: &'a [Checked],
    /// Scenarios that the change cannot touch.
    pub(super) left_out: &'a [String],
    /// Whether the lock was updated.
    pub(super) updated: bool,
    /// Whether worse numbers were written, too.
    pub(super) accept_worse: bool,
    /// The lock.
    pub(super) lock: &'a Path,
}

impl Outcome<'_> {
    fn fails(&self, checked: &Checked) -> bool {
        checked.fails(self.updated, self.accept_worse)
    }
}

/// Writes the report.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn write(format: Format, outcome: &Outcome<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    match format {
        Format::Text => text(outcome, terminal),
        Format::Json => writeln!(terminal.out, "{:#}", json(outcome)),
        Format::Junit => write!(terminal.out, "{}", junit_text(outcome)),
        Format::Sarif => writeln!(terminal.out, "{:#}", sarif(outcome)),
        Format::Github => github(outcome, terminal),
    }
}

fn text(outcome: &Outcome<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    for checked in outcome.checked {
        let Checked { scenario, engine, finding, .. } = checked;
        if finding.status == Status::Equal && finding.broken.is_empty() {
            continue;
        }
        let style = match finding.status {
            Status::Better => Style::Good,
            Status::Worse => Style::Bad,
            _ => Style::Warn,
        };
        let word = match (finding.status, outcome.updated) {
            (Status::New, true) => "new, written to the lock",
            (Status::Better, true) => "better, written to the lock",
            (Status::Worse, true) if outcome.accept_worse => "worse, written to the lock",
            (Status::Changed, true) if outcome.accept_worse => "changed, written to the lock",
            (Status::Equal, _) => "breaks a limit",
            (status, _) => status.word(),
        };
        writeln!(terminal.out, "{scenario} (vLLM {engine}): {}", terminal.paint(style, word))?;
        if let Some(other) = &finding.against {
            writeln!(terminal.out, "  compared with `{other}`, the lock's only entry")?;
        }
        for Moved { metric, locked, now, verdict } in &finding.moved {
            let line = format!("{}: {locked} -> {now} ({})", metric.name(), verdict.word());
            writeln!(terminal.out, "  {}", wrap(&line, 4))?;
        }
        for limit in &finding.broken {
            writeln!(terminal.out, "  limit: {limit}")?;
        }
        if let Some(cause) = &finding.cause {
            writeln!(terminal.out, "  {}", wrap(&format!("cause: {cause}"), 4))?;
        }
    }
    if !outcome.left_out.is_empty() {
        let line = format!("left out, since the change cannot touch them: {}", outcome.left_out.join(", "));
        writeln!(terminal.out, "{}", wrap(&line, 2))?;
    }
    let failing = outcome.checked.iter().filter(|checked| outcome.fails(checked)).count();
    let total = count(outcome.checked.len() as u64, "scenario");
    let line = format!("{total} checked, {failing} not as in `{}`", outcome.lock.display());
    let style = if failing == 0 { Style::Good } else { Style::Bad };
    writeln!(terminal.out, "{}", terminal.paint(style, &line))?;
    if failing > 0 && !outcome.updated {
        let worse =
            outcome.checked.iter().any(|c| matches!(c.finding.status, Status::Worse | Status::Changed));
        let flags = if worse { "--update --accept-worse" } else { "--update" };
        writeln!(terminal.out, "`k3plan explain` says more; `{flags}` writes these numbers to the lock")?;
    }
    Ok(())
}

fn json(outcome: &Outcome<'_>) -> serde_json::Value {
    let checked: Vec<serde_json::Value> = outcome
        .checked
        .iter()
        .map(|checked| {
            let moved: Vec<serde_json::Value> = checked
                .finding
                .moved
                .iter()
                .map(|moved| {
                    serde_json::json!({
                        "key": moved.metric.name(),
                        "locked": moved.locked,
                        "now": moved.now,
                        "verdict": moved.verdict.word(),
                    })
                })
                .collect();
            serde_json::json!({
                "broken_limits": checked.finding.broken,
                "cause": checked.finding.cause,
                "compared_with": checked.finding.against,
                "engine": checked.engine,
                "fails": outcome.fails(checked),
                "moved": moved,
                "now": checked.entry,
                "scenario": checked.scenario,
                "status": checked.finding.status.word(),
            })
        })
        .collect();
    serde_json::json!({
        "checked": checked,
        "failing": outcome.checked.iter().filter(|checked| outcome.fails(checked)).count(),
        "left_out": outcome.left_out,
        "lock": outcome.lock.display().to_string(),
        "schema": "k3plan.check/1",
        "updated": outcome.updated,
    })
}

/// The name of the JUnit suite, and the class of its cases.
const SUITE: &str = "k3plan check";

fn junit_text(outcome: &Outcome<'_>) -> String {
    let mut cases: Vec<junit::Case> = outcome
        .checked
        .iter()
        .map(|checked| junit::Case {
            class: SUITE.to_owned(),
            name: format!("{} @ vLLM {}", checked.scenario, checked.engine),
            outcome: if outcome.fails(checked) {
                let first = checked.finding.moved.first().map_or_else(
                    || checked.finding.status.word().to_owned(),
                    |moved| format!("{} {} -> {}", moved.metric.name(), moved.locked, moved.now),
                );
                junit::Outcome::Failed(first, checked.message())
            } else {
                junit::Outcome::Passed
            },
        })
        .collect();
    cases.extend(outcome.left_out.iter().map(|name| junit::Case {
        class: SUITE.to_owned(),
        name: name.clone(),
        outcome: junit::Outcome::Skipped("the change cannot touch it".to_owned()),
    }));
    junit::suite(SUITE, &cases)
}

fn sarif(outcome: &Outcome<'_>) -> serde_json::Value {
    let results: Vec<serde_json::Value> = outcome
        .checked
        .iter()
        .filter(|checked| outcome.fails(checked))
        .map(|checked| {
            let worst = checked.finding.moved.first().map(|moved| moved.verdict);
            let level = if worst == Some(Verdict::Better) { "note" } else { "error" };
            serde_json::json!({
                "level": level,
                "locations": [{
                    "physicalLocation": {"artifactLocation": {"uri": outcome.lock.display().to_string()}},
                }],
                "message": {
                    "text": format!("{} (vLLM {}): {}", checked.scenario, checked.engine, checked.message()),
                },
                "ruleId": "kv-cache-groups",
            })
        })
        .collect();
    serde_json::json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "runs": [{
            "results": results,
            "tool": {"driver": {
                "name": "k3plan",
                "rules": [{
                    "id": "kv-cache-groups",
                    "shortDescription": {"text": "KV cache groups are as in the lock"},
                }],
                "version": env!("CARGO_PKG_VERSION"),
            }},
        }],
        "version": "2.1.0",
    })
}

fn github(outcome: &Outcome<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let escaped = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| escaped(text).replace(':', "%3A").replace(',', "%2C");
    for checked in outcome.checked.iter().filter(|checked| outcome.fails(checked)) {
        let kind = if checked.finding.status == Status::Better { "notice" } else { "error" };
        writeln!(
            terminal.out,
            "::{kind} file={},title={}::{}",
            property(&outcome.lock.display().to_string()),
            property(&format!("KV cache groups of {}", checked.scenario)),
            escaped(&checked.message())
        )?;
    }
    for name in outcome.left_out {
        writeln!(terminal.out, "::debug::{} left out: the change cannot touch it", escaped(name))?;
    }
    Ok(())
}
