//! `k3plan verify`: holds k3plan to recorded answers of a real vLLM.

mod models;
mod plans;
mod schedules;

use std::path::{Path, PathBuf};

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::record::expect::Difference;
use crate::record::{LineKind, read};
use crate::terminal::{Style, Terminal};

/// Replay recorded answers of a real vLLM and print what differs
///
/// Each line of a file is one case: layers and settings with vLLM's answers by version, a model's config
/// with each layer's spec and plan, or requests with the scheduler's steps. Files that end in `.gz` are
/// decompressed. Exit code 1 if any case differs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Recorded files, a JSON case a line.
    #[arg(required = true, value_name = "FILE.jsonl")]
    files: Vec<PathBuf>,

    /// Differences printed at most; the rest are counted.
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,

    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// What one case gave.
pub(crate) struct Replayed {
    /// The case's name.
    pub(super) id: String,
    /// What differs, with the version.
    pub(super) differences: Vec<(String, Difference)>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let mut cases = 0_usize;
    let mut differing = Vec::new();
    for file in &args.files {
        let before = cases;
        read::lines(file, |number, line| {
            cases += 1;
            if terminal.progress && cases.is_multiple_of(500) {
                // Progress that cannot be drawn is no reason to stop.
                let _ = write!(terminal.err, "\r{cases} cases");
            }
            let replayed = replay(file, number, line)?;
            if !replayed.differences.is_empty() {
                differing.push((file.clone(), number, replayed));
            }
            Ok(())
        })?;
        if cases == before {
            return Err(Failure::new(format!("failed to read `{}`", file.display()))
                .caused_by("it holds no case")
                .into());
        }
    }
    if terminal.progress && cases >= 500 {
        let _ = write!(terminal.err, "\r\x1b[K");
    }
    if args.json {
        print_json(args, cases, &differing, terminal)?;
    } else {
        print_text(args, cases, &differing, terminal)?;
    }
    Ok(if differing.is_empty() { Exit::Fine } else { Exit::CheckSaysNo })
}

/// Replays one line of a file.
///
/// # Errors
/// If the line cannot be read.
pub(crate) fn replay(file: &Path, number: usize, line: &str) -> Result<Replayed, Failure> {
    let kind = LineKind::of(line).map_err(|error| read::json_failure(file, number, line, &error))?;
    match kind {
        Some(LineKind::Plan) => plans::replay(file, number, line),
        Some(LineKind::Model) => models::replay(file, number, line),
        Some(LineKind::Schedule) => schedules::replay(file, number, line),
        None => Err(Failure::new(format!("failed to verify `{}`, line {number}", file.display()))
            .caused_by("the line has neither `specs`, nor `config`, nor `requests`")
            .hint(
                "a case is one JSON object a line, as the recording scripts under `tests/oracle/` write it",
            )),
    }
}

fn print_text(
    args: &Args,
    cases: usize,
    differing: &[(PathBuf, usize, Replayed)],
    terminal: &mut Terminal<'_>,
) -> std::io::Result<()> {
    let mut left = args.limit;
    for (_, _, replayed) in differing {
        for (version, Difference { field, recorded, planned }) in &replayed.differences {
            if left == 0 {
                break;
            }
            left -= 1;
            let head = terminal.paint(Style::Bold, &format!("{} {version} {field}", replayed.id));
            writeln!(terminal.out, "{head}")?;
            writeln!(terminal.out, "  recorded {}", cut(recorded))?;
            writeln!(terminal.out, "  planned  {}", cut(planned))?;
        }
    }
    let all: usize = differing.iter().map(|(_, _, replayed)| replayed.differences.len()).sum();
    if all > args.limit {
        writeln!(terminal.out, "and {} more differences", all - args.limit)?;
    }
    let style = if differing.is_empty() { Style::Good } else { Style::Bad };
    let total = terminal.paint(style, &format!("{cases} cases, {} differ", differing.len()));
    writeln!(terminal.out, "{total}")
}

/// At most 300 characters of a value.
fn cut(text: &str) -> String {
    match text.char_indices().nth(300) {
        Some((at, _)) => format!("{} ...", &text[..at]),
        None => text.to_owned(),
    }
}

fn print_json(
    args: &Args,
    cases: usize,
    differing: &[(PathBuf, usize, Replayed)],
    terminal: &mut Terminal<'_>,
) -> std::io::Result<()> {
    let found: Vec<serde_json::Value> = differing
        .iter()
        .map(|(file, line, replayed)| {
            let differences: Vec<serde_json::Value> = replayed
                .differences
                .iter()
                .map(|(version, difference)| {
                    serde_json::json!({
                        "field": difference.field,
                        "planned": difference.planned,
                        "recorded": difference.recorded,
                        "version": version,
                    })
                })
                .collect();
            serde_json::json!({
                "differences": differences,
                "file": file.display().to_string(),
                "id": replayed.id,
                "line": line,
            })
        })
        .collect();
    let files: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
    let report = serde_json::json!({
        "cases": cases,
        "differ": differing.len(),
        "differing": found,
        "files": files,
        "schema": "k3plan.verify/1",
    });
    writeln!(terminal.out, "{report:#}")
}
