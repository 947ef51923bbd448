//! `k3plan check`: holds plans to a lock, and says what made them worse.

mod cause;
mod changed;
mod json;
mod load;
mod markdown;
mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lock::{Entry, Lock, Place, Places, Verdict, write_beside};
use crate::scenario::Changes;
use crate::terminal::Terminal;

pub(crate) use json::Report;
use load::{Loaded, Unread};
use report::{Checked, Finding, Format, Outcome, Status};

/// Hold plans to a lock file, and say what made them worse
///
/// Exit code 1 if any number differs from the lock, a limit of its `[policy]` is broken, or a scenario is
/// not in it; 2 if the lock or a scenario cannot be read, or there is nothing to check. `--update` writes new
/// entries and better numbers; worse ones need `--accept-worse` too.
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
    let format = if args.json { Format::Json } else { args.format };
    let mut outcome = Outcome {
        checked: Vec::new(),
        unread: Vec::new(),
        left_out: Vec::new(),
        updated: args.update,
        accept_worse: args.accept_worse,
        lock: args.baseline.clone(),
    };
    let failed = check_all(args, &mut outcome).err();
    if let Some(failure) = failed {
        // Whoever reads reports learns of it, too; on a terminal the message is enough.
        if format != Format::Text || args.output.is_some() {
            let place = args.baseline.display().to_string();
            outcome.unread.push(Unread { place, failure });
            write_report(args, format, &outcome, terminal)?;
            let Some(Unread { failure, .. }) = outcome.unread.pop() else { return Ok(Exit::WrongInput) };
            return Err(failure.into());
        }
        return Err(failure.into());
    }
    write_report(args, format, &outcome, terminal)?;
    for Unread { failure, .. } in &outcome.unread {
        write!(terminal.err, "{failure}")?;
    }
    Ok(if !outcome.unread.is_empty() {
        Exit::WrongInput
    } else if outcome.checked.iter().any(|checked| checked.fails(args.update, args.accept_worse)) {
        Exit::CheckSaysNo
    } else {
        Exit::Fine
    })
}

fn write_report(
    args: &Args,
    format: Format,
    outcome: &Outcome,
    terminal: &mut Terminal<'_>,
) -> Result<(), Ended> {
    let Some(path) = &args.output else { return Ok(report::write(format, outcome, terminal)?) };
    let mut bytes = Vec::new();
    let mut to_file = Terminal { out: &mut bytes, err: &mut *terminal.err, color: false, progress: false };
    report::write(format, outcome, &mut to_file)?;
    let failed = |error| Failure::new(format!("failed to write `{}`", path.display())).caused_by(error);
    Ok(write_beside(path, &bytes).map_err(failed)?)
}

/// Reads the lock and the scenarios, holds these to that, and updates it if asked to.
fn check_all(args: &Args, outcome: &mut Outcome) -> Result<(), Failure> {
    let lock = Lock::read(&args.baseline)?;
    if !lock.existed && !args.update {
        return Err(Failure::new(format!("failed to read the lock `{}`", args.baseline.display()))
            .caused_by("there is no such file")
            .hint("`k3plan check FILE... --update` makes one"));
    }
    let places = Places::of(&args.baseline);
    let mut found = if args.files.is_empty() {
        load::of_lock(&lock, &places, &args.changes)
    } else {
        load::named(&args.files, &places, &args.changes)
    };
    let nothing = found.scenarios.is_empty() && found.unread.is_empty() && found.gone.is_empty();
    if nothing && lock.existed {
        return Err(Failure::new(format!("failed to check the lock `{}`", args.baseline.display()))
            .caused_by("it holds no scenario, so there is nothing to check")
            .hint("name the files whose plans it shall hold: `k3plan check FILE... --update`"));
    }
    if nothing {
        return Err(Failure::new("failed to make a lock")
            .caused_by("no scenario is named")
            .hint("name the files whose plans it shall hold"));
    }
    let mut gone = std::mem::take(&mut found.gone);
    if args.prune {
        if !args.files.is_empty() {
            gone = load::gone(&lock, &places);
        }
        if found.scenarios.is_empty() && found.unread.is_empty() {
            return Err(Failure::new(format!("failed to prune the lock `{}`", args.baseline.display()))
                .caused_by("none of its scenarios is there any more, and a lock of nothing guards nothing")
                .hint("name the files whose plans it shall hold beside `--update --prune`, or remove it"));
        }
    } else {
        for (key, cause) in gone.drain(..) {
            let failure = Failure::new(format!("failed to check `{key}`, which the lock holds"))
                .caused_by(cause)
                .hint("name the scenario's file, or take it out with `--update --prune`");
            found.unread.push(Unread { place: key, failure });
        }
    }
    if let Some(revision) = &args.since {
        outcome.left_out = changed::leave_out(revision, &mut found.scenarios)?;
    }
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for loaded in &found.scenarios {
        *names.entry(&loaded.scenario.name).or_default() += 1;
    }
    let alone = found.scenarios.len() == 1 && found.unread.is_empty();
    outcome.checked = found
        .scenarios
        .iter()
        .map(|loaded| {
            let unique = names.get(loaded.scenario.name.as_str()) == Some(&1);
            let held = held_to(loaded, &lock, &places, unique, alone && !args.update);
            check(loaded, &lock, held)
        })
        .collect();
    outcome.unread = found.unread;
    if args.update {
        update(args, &outcome.checked, &gone)?;
    }
    Ok(())
}

/// The entry that a scenario is held to.
struct Held<'a> {
    entry: &'a Entry,
    /// The entry's key, where it is the scenario's name from a lock of version 1.
    by_name: Option<String>,
    /// The entry's key, where it is another scenario's.
    against: Option<String>,
}

/// Finds the entry: by place; by name, as version 1 kept it; or the only one there is.
fn held_to<'a>(
    loaded: &Loaded,
    lock: &'a Lock,
    places: &Places,
    unique: bool,
    alone: bool,
) -> Option<Held<'a>> {
    let engine = loaded.scenario.engine().to_string();
    if let Some(entry) = lock.entry(&loaded.key, &engine) {
        return Some(Held { entry, by_name: None, against: None });
    }
    let name = &loaded.scenario.name;
    if lock.is_by_name()
        && unique
        && places.find(name) == Place::Unknown
        && let Some(entry) = lock.entry(name, &engine)
    {
        return Some(Held { entry, by_name: Some(name.clone()), against: None });
    }
    // One scenario against a lock of one: a copy under another name is held to it.
    let (key, entry) = lock.only_entry(&engine).filter(|_| alone)?;
    Some(Held { entry, by_name: None, against: Some(key.to_owned()) })
}

/// Plans one scenario and holds it to its entry.
fn check(loaded: &Loaded, lock: &Lock, held: Option<Held<'_>>) -> Checked {
    let scenario = &loaded.scenario;
    let version = scenario.engine();
    let rules = version.rules();
    let plan = planner::plan(&scenario.model, &scenario.settings, &rules);
    let entry = Entry::of(plan.as_ref()).made_of(&scenario.model, &scenario.settings);
    let locked = held.as_ref().map(|held| held.entry);
    let moved = locked.map(|locked| locked.moved(&entry)).unwrap_or_default();
    let status = match (locked, moved.first().map(|moved| moved.verdict)) {
        (None, _) => Status::New,
        (Some(_), None) => Status::Equal,
        (Some(_), Some(Verdict::Worse)) => Status::Worse,
        (Some(_), Some(Verdict::Changed)) => Status::Changed,
        (Some(_), Some(Verdict::Better)) => Status::Better,
    };
    let broken = lock.policy(&loaded.key, &scenario.name).broken(&entry, scenario.model.len());
    let causes = match status {
        Status::Equal if broken.is_empty() => Vec::new(),
        Status::Better if broken.is_empty() => cause::declared_otherwise(scenario, locked, &rules),
        _ => cause::of(scenario, locked, &rules),
    };
    // The lock may say less of an equal plan than it could.
    let stale =
        locked.is_some_and(|locked| locked.settings != entry.settings || locked.layers != entry.layers);
    let (by_name, against) = held.map_or((None, None), |held| (held.by_name, held.against));
    let finding = Finding { status, moved, broken, causes, against, by_name, stale };
    Checked {
        scenario: scenario.name.clone(),
        key: loaded.key.clone(),
        engine: version.to_string(),
        entry,
        finding,
    }
}

fn update(args: &Args, checked: &[Checked], gone: &[(String, String)]) -> Result<(), Failure> {
    let writes = |finding: &Finding| match finding.status {
        Status::New | Status::Better => true,
        Status::Worse | Status::Changed => args.accept_worse,
        Status::Equal => finding.stale,
    };
    let any = !gone.is_empty()
        || checked.iter().any(|checked| writes(&checked.finding) || checked.finding.by_name.is_some());
    if !any {
        return Ok(());
    }
    Lock::update(&args.baseline, |lock| {
        for (key, _) in gone {
            lock.remove(key);
        }
        for Checked { key, engine, entry, finding, .. } in checked {
            if let Some(name) = &finding.by_name {
                lock.rename(name, key);
            }
            if writes(finding) {
                lock.set(key, engine, entry);
            }
        }
    })
}
