//! `k3plan bench run`: an experiment over several ways to serve one model.

mod dry_run;
mod experiment;
mod planned;
mod start;

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use executor::load::secret::Secret;
use executor::load::tls::Trust;
use executor::server::process::ServerProcess;
use executor::server::registry::Registry;

use super::hidden::redact;
use super::load_args::LoadArgs;
use super::measure::{Cancel, Measurement, stop_on_signals};
use super::result::Measured;
use super::serve::{Access, journal_beside, write_result};
use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::input_file;
use crate::output_file::make_folder;
use crate::terminal::Terminal;
use experiment::{Arm, Experiment, Step};
use start::Up;

/// Run an experiment: start each arm's server, check its KV cache groups, measure, end it.
///
/// Exit 1 when a signal ends it before its last measurement; what it had stays, and `--resume` goes on.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The experiment's file.
    experiment: PathBuf,
    /// Folder for results, journals and logs.
    #[arg(long, default_value = "results", value_name = "FOLDER")]
    output: PathBuf,
    /// Leave out what the folder already holds; servers that a killed run left behind are ended first.
    #[arg(long)]
    resume: bool,
    /// Print the commands, the load, the order and the least time, and do nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    access: Access,
}

struct Session<'a> {
    experiment: &'a Experiment,
    load: LoadArgs,
    folder: &'a Path,
    secret: Option<Secret>,
    trust: Trust,
    headers: &'a [(String, String)],
    cancel: Cancel,
    registry: RefCell<Registry>,
}

/// The largest experiment file, bytes.
const EXPERIMENT: u64 = 1 << 20;

/// Why an experiment did not come to its end.
enum Stopped {
    Signal,
    Failed(Failure),
    Output(io::Error),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let secret = args.access.secret()?;
    let text = input_file::text(&args.experiment, EXPERIMENT).map_err(|error| {
        Failure::new(format!("failed to read the experiment `{}`", args.experiment.display()))
            .caused_by(error)
    })?;
    let experiment = Experiment::read(&args.experiment, &text)?;
    let steps = experiment.steps();
    if args.dry_run {
        let mut told = Vec::new();
        let exit = dry_run::tell(&experiment, &steps, &mut told, terminal.err)?;
        let mut told = String::from_utf8_lossy(&told).into_owned();
        redact(secret.as_ref(), &mut told);
        terminal.out.write_all(told.as_bytes())?;
        return Ok(exit);
    }
    make_folder(&args.output)?;
    let session = Session {
        load: experiment.load_args()?,
        experiment: &experiment,
        folder: &args.output,
        secret,
        trust: args.access.trust(),
        headers: args.access.headers()?,
        cancel: stop_on_signals(),
        registry: RefCell::new(Registry::open(&args.output).map_err(|error| list_failed(&error))?),
    };
    session.end_left_over(terminal)?;
    writeln!(terminal.out, "{}", experiment.title)?;
    writeln!(
        terminal.out,
        "{:<16}{:>6}{:>6}{:>8}{:>10}{:>10}{:>10}{:>12}{:>8}",
        "arm", "start", "seed", "repeat", "TTFT ms", "TPOT ms", "ITL ms", "tokens/s", "failed"
    )?;
    let mut files: Vec<Vec<PathBuf>> = vec![Vec::new(); experiment.arms.len()];
    let outcome = session.take_steps(&steps, args.resume, &mut files, terminal);
    session.registry.borrow_mut().prune().map_err(|error| list_failed(&error))?;
    match outcome {
        Ok(()) => {
            tell_comparison(&experiment, &files, terminal)?;
            Ok(Exit::Fine)
        }
        Err(Stopped::Signal) => {
            let there = steps.iter().filter(|step| session.has_result(**step)).count();
            let all = steps.len();
            writeln!(
                terminal.err,
                "interrupted: a signal ended the experiment with {there} of {all} measurements whole; its servers are \
                 ended, `--resume` goes on"
            )?;
            Ok(Exit::CheckSaysNo)
        }
        Err(Stopped::Failed(failure)) => Err(failure.into()),
        Err(Stopped::Output(error)) => Err(error.into()),
    }
}

fn list_failed(error: &io::Error) -> Failure {
    Failure::new("failed to keep the list of started servers `servers.json`").caused_by(error)
}

impl Session<'_> {
    /// Ends servers that a killed experiment left in this folder.
    fn end_left_over(&self, terminal: &mut Terminal<'_>) -> Result<(), Failure> {
        let mut registry = self.registry.borrow_mut();
        let other = registry.running().find(|server| server.owner.runs()).map(|server| server.owner.pid);
        if let Some(pid) = other {
            return Err(Failure::new(format!("another experiment works in `{}`", self.folder.display()))
                .caused_by(format!("the process {pid} has started servers that run"))
                .hint("wait for it, or name another folder by `--output`"));
        }
        let listed: Vec<String> = registry
            .running()
            .map(|server| format!("process {}: {}", server.leader.pid, server.command))
            .collect();
        let ended = registry.end_left_over(self.experiment.health.patience()).map_err(|error| {
            let failure =
                Failure::new("failed to end the servers that a killed experiment left").caused_by(error);
            listed.iter().fold(failure, |failure, server| failure.caused_by(server))
        })?;
        for server in ended {
            let (arm, pid) = (&server.arm, server.leader.pid);
            let _ = writeln!(
                terminal.err,
                "ended the server of the arm `{arm}` (process {pid}) that a killed run left"
            );
        }
        Ok(())
    }

    /// Measures every step that has no result yet, each with its arm's server up.
    fn take_steps(
        &self,
        steps: &[Step],
        resume: bool,
        files: &mut [Vec<PathBuf>],
        terminal: &mut Terminal<'_>,
    ) -> Result<(), Stopped> {
        let mut up: Vec<Option<Up>> = self.experiment.arms.iter().map(|_| None).collect();
        let taken = self.take_steps_with(&mut up, steps, resume, files, terminal);
        // Also where a step failed: a server that is asked to end frees what it holds.
        for (arm, server) in self.experiment.arms.iter().zip(up) {
            let ended = self.end(&arm.name, server);
            if taken.is_ok() {
                ended?;
            }
        }
        taken
    }

    fn take_steps_with(
        &self,
        up: &mut [Option<Up>],
        steps: &[Step],
        resume: bool,
        files: &mut [Vec<PathBuf>],
        terminal: &mut Terminal<'_>,
    ) -> Result<(), Stopped> {
        let experiment = self.experiment;
        let mut start = None;
        for step in steps {
            let Some(arm) = experiment.arms.get(step.arm) else { continue };
            let path = self.result_path(arm, *step);
            if let Some(list) = files.get_mut(step.arm) {
                list.push(path.clone());
            }
            if path.exists() && resume {
                continue;
            }
            if path.exists() {
                return Err(Failure::new(format!("the result `{}` exists", path.display()))
                    .hint("go on with `--resume`, or name another folder by `--output`")
                    .into());
            }
            if *self.cancel.borrow() {
                return Err(Stopped::Signal);
            }
            if step.start != start {
                for (arm, server) in experiment.arms.iter().zip(up.iter_mut()) {
                    self.end(&arm.name, server.take())?;
                }
                start = step.start;
                if experiment.keep_running {
                    // All before the first is measured, so that none is measured beside one that loads.
                    let starting: Result<Vec<_>, _> =
                        experiment.arms.iter().map(|arm| self.launch(arm, start, terminal)).collect();
                    for ((arm, place), starting) in experiment.arms.iter().zip(up.iter_mut()).zip(starting?) {
                        *place = Some(self.bring_up(arm, starting)?);
                    }
                }
            }
            if !experiment.keep_running {
                for (index, other) in up.iter_mut().enumerate().filter(|(index, _)| *index != step.arm) {
                    let name = experiment.arms.get(index).map_or("", |arm| arm.name.as_str());
                    self.end(name, other.take())?;
                }
            }
            let Some(place) = up.get_mut(step.arm) else { continue };
            if place.is_none() {
                let starting = self.launch(arm, step.start, terminal)?;
                *place = Some(self.bring_up(arm, starting)?);
            }
            let Some(server) = place else { continue };
            let measured = self.measure(arm, server, *step, &path, terminal)?;
            tell_measured(arm, *step, &measured, terminal)?;
        }
        Ok(())
    }

    fn has_result(&self, step: Step) -> bool {
        self.experiment.arms.get(step.arm).is_some_and(|arm| self.result_path(arm, step).exists())
    }

    fn result_path(&self, arm: &Arm, step: Step) -> PathBuf {
        let start = step.start.map_or_else(String::new, |start| format!("-start{start}"));
        self.folder.join(format!("{}{start}-seed{}-repeat{}.json", arm.name, step.seed, step.repeat))
    }

    /// The end of a server's log, without keys.
    fn last_lines(&self, process: &ServerProcess) -> String {
        const LINES: usize = 15;
        let text = process.last_lines(LINES);
        let text = self.secret.as_ref().map_or_else(|| text.clone(), |secret| secret.redact(&text));
        format!("last lines of {}:\n{text}", process.log().display())
    }

    fn measure(
        &self,
        arm: &Arm,
        up: &mut Up,
        step: Step,
        path: &Path,
        terminal: &mut Terminal<'_>,
    ) -> Result<Measured, Stopped> {
        let mut metadata = vec![
            ("experiment".to_owned(), self.experiment.title.clone()),
            ("arm".to_owned(), arm.name.clone()),
            ("repeat".to_owned(), step.repeat.to_string()),
        ];
        metadata.extend(step.start.map(|start| ("server_start".to_owned(), start.to_string())));
        metadata.extend(arm.shown_command().map(|command| ("command".to_owned(), command)));
        if !arm.env.is_empty() {
            metadata.push(("env".to_owned(), arm.shown_environment()));
        }
        metadata.extend(arm.note.clone().map(|note| ("note".to_owned(), note)));
        let journal = journal_beside(path);
        let measurement = Measurement {
            target: &up.target,
            model: self.experiment.model.as_deref(),
            secret: self.secret.as_ref(),
            trust: &self.trust,
            headers: self.headers,
            load: &self.load,
            seed: step.seed,
            label: Some(arm.name.clone()),
            metadata,
            journal: Some(&journal),
            resume: true,
            server_log: up
                .process
                .as_ref()
                .map(|process| process.log().to_owned())
                .or_else(|| arm.log.clone()),
            detailed: true,
        };
        let measured = measurement.run(&self.cancel, terminal)?;
        // What answers at the address of a server that has ended is another one.
        if let Some(process) = &mut up.process
            && let Ok(Some(status)) = process.ended()
        {
            let what = format!("its server ended ({status}), so that something else may have answered");
            return Err(Failure::new(format!("the arm `{}` was not measured", arm.name))
                .caused_by(what)
                .at(self.last_lines(process))
                .into());
        }
        let stopped = |cause: String| {
            Failure::new(format!("the arm `{}` could not be measured with seed {}", arm.name, step.seed))
                .caused_by(cause)
                .hint(format!("what it had is in `{}`; go on with `--resume`", journal.display()))
        };
        if measured.interrupted {
            return Err(Stopped::Signal);
        }
        if measured.summary.completed == 0 {
            let first = measured.records.iter().find_map(|record| record.failure.as_ref());
            let why =
                first.map_or_else(String::new, |failure| format!(": {}: {}", failure.kind, failure.detail));
            return Err(stopped(format!("no request succeeded{why}")).into());
        }
        write_result(path, &measured)?;
        Ok(measured)
    }

    fn end(&self, name: &str, up: Option<Up>) -> Result<(), Failure> {
        /// Who has asked for the end by a signal does not wait for long.
        const AFTER_A_SIGNAL: Duration = Duration::from_secs(10);
        let Some(mut process) = up.and_then(|up| up.process) else { return Ok(()) };
        let patience = self.experiment.health.patience();
        let patience = if *self.cancel.borrow() { patience.min(AFTER_A_SIGNAL) } else { patience };
        process
            .stop(patience)
            .map_err(|error| Failure::new(format!("failed to end the arm `{name}`")).caused_by(error))?;
        self.registry.borrow_mut().remove(name).map_err(|error| list_failed(&error))
    }
}

fn tell_measured(arm: &Arm, step: Step, measured: &Measured, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let summary = &measured.summary;
    writeln!(
        terminal.out,
        "{:<16}{:>6}{:>6}{:>8}{:>10.3}{:>10.3}{:>10.3}{:>12.1}{:>8}",
        arm.name,
        step.start.map_or_else(|| "-".to_owned(), |start| start.to_string()),
        step.seed,
        step.repeat,
        summary.ttft.median,
        summary.tpot.median,
        summary.itl.median,
        summary.output_throughput,
        summary.failed
    )?;
    let signs = measured.client.as_ref().map(|(_, _, bottlenecks)| bottlenecks.as_slice());
    for bottleneck in signs.unwrap_or(&[]) {
        writeln!(terminal.err, "warning: {bottleneck}")?;
    }
    terminal.out.flush()
}

fn tell_comparison(
    experiment: &Experiment,
    files: &[Vec<PathBuf>],
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let list = |index: usize| {
        let paths = files.get(index).into_iter().flatten().map(|path| path.display().to_string());
        paths.collect::<Vec<_>>().join(" ")
    };
    for index in 1..experiment.arms.len() {
        writeln!(terminal.out, "k3plan compare {} -- {}", list(0), list(index))?;
    }
    Ok(())
}
