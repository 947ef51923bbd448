//! The reports of a check: text, JSON, JUnit, SARIF, annotations for GitHub, and Markdown.

use std::io;
use std::path::PathBuf;

use super::cause::Cause;
use super::load::Unread;
use super::{json, markdown};
use crate::failure::Failure;
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
    /// Markdown, for a pull request.
    Markdown,
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
    pub(super) const fn word(self) -> &'static str {
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
    /// What caused it, the likeliest first.
    pub(super) causes: Vec<Cause>,
    /// The entry's key, where it is another scenario's.
    pub(super) against: Option<String>,
    /// The entry's key, where it is the scenario's name.
    pub(super) by_name: Option<String>,
    /// Whether the entry says less or else of what an equal plan is made of.
    pub(super) stale: bool,
}

/// One scenario that was checked.
pub(super) struct Checked {
    /// Its name.
    pub(super) scenario: String,
    /// Its key in the lock: where it is.
    pub(super) key: String,
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

    /// What caused it, in a line.
    pub(super) fn cause(&self) -> Option<String> {
        let texts: Vec<&str> = self.finding.causes.iter().map(|cause| cause.text.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// How it compares, and what an update did about it.
    pub(super) fn word(&self, outcome: &Outcome) -> &'static str {
        match (self.finding.status, outcome.updated) {
            (Status::New, true) => "new, written to the lock",
            (Status::Better, true) => "better, written to the lock",
            (Status::Worse, true) if outcome.accept_worse => "worse, written to the lock",
            (Status::Changed, true) if outcome.accept_worse => "changed, written to the lock",
            (Status::Equal, _) => "breaks a limit",
            (status, _) => status.word(),
        }
    }

    /// What is wrong in a line.
    fn message(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        if let Some(other) = &self.finding.against {
            parts.push(format!("compared with `{other}`, the lock's only entry"));
        }
        for moved in &self.finding.moved {
            let (locked, now) = moved.shown();
            parts.push(format!("{} {locked} -> {now} ({})", moved.metric.name(), moved.verdict.word()));
        }
        parts.extend(self.finding.broken.iter().cloned());
        if self.finding.status == Status::New {
            parts.push("not in the lock".to_owned());
        }
        if let Some(cause) = self.cause() {
            parts.push(format!("cause: {cause}"));
        }
        parts.join("; ")
    }
}

/// All that was checked.
pub(super) struct Outcome {
    /// The scenarios.
    pub(super) checked: Vec<Checked>,
    /// What could not be read.
    pub(super) unread: Vec<Unread>,
    /// Keys of the scenarios that the change cannot touch.
    pub(super) left_out: Vec<String>,
    /// Whether the lock was updated.
    pub(super) updated: bool,
    /// Whether worse numbers were written, too.
    pub(super) accept_worse: bool,
    /// The lock.
    pub(super) lock: PathBuf,
}

impl Outcome {
    /// Whether the check says no to it.
    pub(super) fn fails(&self, checked: &Checked) -> bool {
        checked.fails(self.updated, self.accept_worse)
    }

    /// How many were checked, and how many are not as they should be.
    pub(super) fn summary(&self) -> String {
        let failing = self.checked.iter().filter(|checked| self.fails(checked)).count();
        let total = count(self.checked.len() as u64, "scenario");
        let mut line = format!("{total} checked, {failing} not as in `{}`", self.lock.display());
        if !self.unread.is_empty() {
            line.push_str(&format!(", {} not readable", self.unread.len()));
        }
        line
    }
}

/// What is wrong with an input, in a line.
fn failure_line(failure: &Failure) -> String {
    let mut line = failure.message.clone();
    for cause in &failure.causes {
        line.push_str(": ");
        line.push_str(cause);
    }
    line
}

/// Writes the report.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn write(format: Format, outcome: &Outcome, terminal: &mut Terminal<'_>) -> io::Result<()> {
    match format {
        Format::Text => text(outcome, terminal),
        Format::Json => {
            serde_json::to_writer_pretty(&mut *terminal.out, &json::report(outcome))?;
            writeln!(terminal.out)
        }
        Format::Junit => write!(terminal.out, "{}", junit_text(outcome)),
        Format::Sarif => writeln!(terminal.out, "{:#}", sarif(outcome)),
        Format::Github => github(outcome, terminal),
        Format::Markdown => write!(terminal.out, "{}", markdown::document(outcome)),
    }
}

fn text(outcome: &Outcome, terminal: &mut Terminal<'_>) -> io::Result<()> {
    for checked in &outcome.checked {
        let Checked { key, engine, finding, .. } = checked;
        if finding.status == Status::Equal && finding.broken.is_empty() {
            continue;
        }
        let style = match finding.status {
            Status::Better => Style::Good,
            Status::Worse => Style::Bad,
            _ => Style::Warn,
        };
        writeln!(terminal.out, "{key} (vLLM {engine}): {}", terminal.paint(style, checked.word(outcome)))?;
        if let Some(other) = &finding.against {
            writeln!(terminal.out, "  compared with `{other}`, the lock's only entry")?;
        }
        for moved in &finding.moved {
            let (locked, now) = moved.shown();
            let line = format!("{}: {locked} -> {now} ({})", moved.metric.name(), moved.verdict.word());
            writeln!(terminal.out, "  {}", wrap(&line, 4))?;
        }
        for limit in &finding.broken {
            writeln!(terminal.out, "  limit: {limit}")?;
        }
        for cause in &finding.causes {
            writeln!(terminal.out, "  {}", wrap(&format!("cause: {}", cause.text), 4))?;
        }
    }
    for Unread { place, .. } in &outcome.unread {
        writeln!(terminal.out, "{place}: {}", terminal.paint(Style::Bad, "cannot be read"))?;
    }
    if !outcome.left_out.is_empty() {
        let line = format!("left out, since the change cannot touch them: {}", outcome.left_out.join(", "));
        writeln!(terminal.out, "{}", wrap(&line, 2))?;
    }
    let fails = outcome.checked.iter().any(|checked| outcome.fails(checked)) || !outcome.unread.is_empty();
    let style = if fails { Style::Bad } else { Style::Good };
    writeln!(terminal.out, "{}", terminal.paint(style, &outcome.summary()))?;
    advice(outcome, terminal)
}

/// What to do about what fails.
fn advice(outcome: &Outcome, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let any = |of: fn(&Finding) -> bool| outcome.checked.iter().any(|checked| of(&checked.finding));
    let worse = any(|finding| matches!(finding.status, Status::Worse | Status::Changed));
    let moved = worse || any(|finding| matches!(finding.status, Status::New | Status::Better));
    if moved && !outcome.updated {
        let flags = if worse { "--update --accept-worse" } else { "--update" };
        writeln!(terminal.out, "`k3plan explain` says more; `{flags}` writes these numbers to the lock")?;
    } else if worse && !outcome.accept_worse {
        writeln!(
            terminal.out,
            "`k3plan explain` says more; `--update --accept-worse` takes what is worse, too"
        )?;
    }
    if any(|finding| !finding.broken.is_empty()) {
        let line = "a limit stands in the lock's `[policy]`: raise it there, or change what breaks it; `--update` does \
                    not lift it";
        writeln!(terminal.out, "{}", wrap(line, 2))?;
    }
    Ok(())
}

/// The name of the JUnit suite, and the class of its cases.
const SUITE: &str = "k3plan check";

fn junit_text(outcome: &Outcome) -> String {
    let mut cases: Vec<junit::Case> = outcome
        .checked
        .iter()
        .map(|checked| junit::Case {
            class: SUITE.to_owned(),
            name: format!("{} @ vLLM {}", checked.key, checked.engine),
            outcome: if outcome.fails(checked) {
                let first = checked.finding.moved.first().map_or_else(
                    || checked.finding.status.word().to_owned(),
                    |moved| {
                        let (locked, now) = moved.shown();
                        format!("{} {locked} -> {now}", moved.metric.name())
                    },
                );
                junit::Outcome::Failed(first, checked.message())
            } else {
                junit::Outcome::Passed
            },
        })
        .collect();
    cases.extend(outcome.unread.iter().map(|Unread { place, failure }| junit::Case {
        class: SUITE.to_owned(),
        name: place.clone(),
        outcome: junit::Outcome::Errored(failure.message.clone(), failure.to_string()),
    }));
    cases.extend(outcome.left_out.iter().map(|name| junit::Case {
        class: SUITE.to_owned(),
        name: name.clone(),
        outcome: junit::Outcome::Skipped("the change cannot touch it".to_owned()),
    }));
    junit::suite(SUITE, &cases)
}

fn sarif(outcome: &Outcome) -> serde_json::Value {
    let mut results: Vec<serde_json::Value> = outcome
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
                    "text": format!("{} (vLLM {}): {}", checked.key, checked.engine, checked.message()),
                },
                "ruleId": "kv-cache-groups",
            })
        })
        .collect();
    results.extend(outcome.unread.iter().map(|Unread { place, failure }| {
        serde_json::json!({
            "level": "error",
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": place}}}],
            "message": {"text": failure_line(failure)},
            "ruleId": "unreadable",
        })
    }));
    serde_json::json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "runs": [{
            "results": results,
            "tool": {"driver": {
                "name": "k3plan",
                "rules": [{
                    "id": "kv-cache-groups",
                    "shortDescription": {"text": "KV cache groups are as in the lock"},
                }, {
                    "id": "unreadable",
                    "shortDescription": {"text": "The lock and the scenarios can be read"},
                }],
                "version": env!("CARGO_PKG_VERSION"),
            }},
        }],
        "version": "2.1.0",
    })
}

fn github(outcome: &Outcome, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let escaped = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| escaped(text).replace(':', "%3A").replace(',', "%2C");
    for checked in outcome.checked.iter().filter(|checked| outcome.fails(checked)) {
        let kind = if checked.finding.status == Status::Better { "notice" } else { "error" };
        writeln!(
            terminal.out,
            "::{kind} file={},title={}::{}",
            property(&outcome.lock.display().to_string()),
            property(&format!("KV cache groups of {}", checked.key)),
            escaped(&checked.message())
        )?;
    }
    for Unread { place, failure } in &outcome.unread {
        writeln!(
            terminal.out,
            "::error file={},title={}::{}",
            property(place),
            property("KV cache groups cannot be checked"),
            escaped(&failure_line(failure))
        )?;
    }
    for name in &outcome.left_out {
        writeln!(terminal.out, "::debug::{} left out: the change cannot touch it", escaped(name))?;
    }
    Ok(())
}
