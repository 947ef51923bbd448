//! `k3plan check`: holds plans to a lock, and says what made them worse.

mod changed;
mod report;

use std::path::PathBuf;

use planner::explain::explain;

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lock::{Entry, Lock, Verdict, write_beside};
use crate::render::explain_text::cause_line;
use crate::scenario::{Changes, Scenario};
use crate::terminal::Terminal;

use report::{Checked, Finding, Format, Status};

/// Hold plans to a lock file, and say what made them worse
///
/// Exit code 1 if any number differs from the lock, a limit of its `[policy]` is broken, or a scenario is
/// not in it. `--update` writes new entries and better numbers; worse ones need `--accept-worse` too.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Scenario files, recorded cases or shipped names; all scenarios of the lock where none is given.
    #[arg(value_name = "FILE")]
    files: Vec<String>,

    /// The lock file.
    #[arg(long, default_value = "groups.lock", value_name = "FILE")]
    baseline: PathBuf,

    /// Write what is new or better to the lock.
    #[arg(long)]
    update: bool,

    /// With `--update`: write what is worse or otherwise changed, too.
    #[arg(long, requires = "update")]
    accept_worse: bool,

    /// With `--update`: take scenarios that no longer exist out of the lock.
    #[arg(long, requires = "update")]
    prune: bool,

    /// Check only the scenarios that the change since this git revision can touch.
    #[arg(long, value_name = "REV")]
    since: Option<String>,

    #[command(flatten)]
    changes: Changes,

    /// How to report.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,

    /// Print the report as JSON; the same as `--format json`.
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Write the report to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let lock = Lock::read(&args.baseline)?;
    if !lock.existed && !args.update {
        return Err(Failure::new(format!("failed to read the lock `{}`", args.baseline.display()))
            .caused_by("there is no such file")
            .hint("`k3plan check FILE... --update` makes one")
            .into());
    }
    let mut gone = Vec::new();
    let mut scenarios = load(args, &lock, &mut gone)?;
    if !gone.is_empty() && !args.prune {
        let mut failure = Failure::new(format!("failed to check the lock `{}`", args.baseline.display()));
        for (name, cause) in &gone {
            failure = failure.caused_by(format!("its scenario `{name}` cannot be read: {cause}"));
        }
        return Err(failure.hint("name the scenario's file, or take it out with `--update --prune`").into());
    }
    let left_out = match &args.since {
        Some(revision) => changed::leave_out(revision, &mut scenarios)?,
        None => Vec::new(),
    };
    let checked: Vec<Checked> =
        scenarios.iter().map(|(_, scenario)| check(scenario, &lock, scenarios.len())).collect();
    if args.update {
        update(args, &checked, &gone)?;
    }
    let format = if args.json { Format::Json } else { args.format };
    let outcome = report::Outcome {
        checked: &checked,
        left_out: &left_out,
        updated: args.update,
        accept_worse: args.accept_worse,
        lock: lock.path(),
    };
    match &args.output {
        None => report::write(format, &outcome, terminal)?,
        Some(path) => {
            let mut bytes = Vec::new();
            let mut to_file =
                Terminal { out: &mut bytes, err: &mut *terminal.err, color: false, progress: false };
            report::write(format, &outcome, &mut to_file)?;
            write_beside(path, &bytes).map_err(|error| {
                Failure::new(format!("failed to write `{}`", path.display())).caused_by(error)
            })?;
        }
    }
    let fails = checked.iter().any(|checked| checked.fails(args.update, args.accept_worse));
    Ok(if fails { Exit::CheckSaysNo } else { Exit::Fine })
}

/// The scenarios to check, each with the argument that it came from; `gone` gets what the lock names in vain.
fn load(
    args: &Args,
    lock: &Lock,
    gone: &mut Vec<(String, String)>,
) -> Result<Vec<(String, Scenario)>, Failure> {
    let mut all = Vec::new();
    if args.files.is_empty() {
        if !lock.existed {
            return Err(Failure::new("failed to make a lock")
                .caused_by("no scenario is named")
                .hint("name the files whose plans it shall hold"));
        }
        for (name, engines) in lock.scenarios() {
            for engine in engines {
                let mut changes = args.changes.clone();
                if changes.engine.is_none() {
                    changes.engine = Some(engine.to_owned());
                }
                match changes.load(name) {
                    Ok(found) => all.extend(found.into_iter().map(|scenario| (name.to_owned(), scenario))),
                    Err(failure) => {
                        let cause = failure.causes.first().unwrap_or(&failure.message).clone();
                        gone.push((name.to_owned(), cause));
                    }
                }
            }
        }
    } else {
        for file in &args.files {
            let found = args.changes.load(file)?;
            all.extend(found.into_iter().map(|scenario| (file.clone(), scenario)));
        }
    }
    Ok(all)
}

/// Plans one scenario and holds it to its entry.
fn check(scenario: &Scenario, lock: &Lock, scenarios: usize) -> Checked {
    let version = scenario.engine();
    let engine = version.to_string();
    let rules = version.rules();
    let plan = planner::plan(&scenario.model, &scenario.settings, &rules);
    let entry = Entry::of(plan.as_ref());
    let mut against = None;
    let locked = lock.entry(&scenario.name, &engine).or_else(|| {
        // One scenario against a lock of one: a copy under another name is held to it.
        let (name, entry) = lock.only_entry(&engine).filter(|_| scenarios == 1)?;
        against = Some(name.to_owned());
        Some(entry)
    });
    let moved = locked.map(|locked| locked.moved(&entry)).unwrap_or_default();
    let status = match (locked, moved.first().map(|moved| moved.verdict)) {
        (None, _) => Status::New,
        (Some(_), None) => Status::Equal,
        (Some(_), Some(Verdict::Worse)) => Status::Worse,
        (Some(_), Some(Verdict::Changed)) => Status::Changed,
        (Some(_), Some(Verdict::Better)) => Status::Better,
    };
    let broken = lock.policy(&scenario.name).broken(&entry, scenario.model.len());
    let worth_a_reason = !matches!(status, Status::Equal | Status::Better) || !broken.is_empty();
    let cause = if worth_a_reason {
        let explanation = explain(&scenario.model, &scenario.settings, &rules);
        cause_line(&scenario.model, &explanation)
    } else {
        None
    };
    let finding = Finding { status, moved, broken, cause, against };
    Checked { scenario: scenario.name.clone(), engine, entry, finding }
}

fn update(args: &Args, checked: &[Checked], gone: &[(String, String)]) -> Result<(), Failure> {
    let write = |status: Status| match status {
        Status::New | Status::Better => true,
        Status::Worse | Status::Changed => args.accept_worse,
        Status::Equal => false,
    };
    let any = !gone.is_empty() || checked.iter().any(|checked| write(checked.finding.status));
    if !any {
        return Ok(());
    }
    Lock::update(&args.baseline, |lock| {
        for (name, _) in gone {
            lock.remove(name);
        }
        for Checked { scenario, engine, entry, finding } in checked {
            if write(finding.status) {
                lock.set(scenario, engine, entry);
            }
        }
    })
}
