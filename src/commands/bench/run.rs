//! `k3plan bench run`: an experiment over several ways to serve one model.

mod experiment;
mod planned;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use executor::load::secret::Secret;
use executor::load::target::Target;
use executor::load::tls::Trust;
use executor::server::probe::Probe;
use executor::server::process::ServerProcess;

use super::hidden::redact;
use super::load_args::LoadArgs;
use super::measure::{Cancel, Measurement, stop_on_signals};
use super::result::Measured;
use super::serve::{Access, journal_beside, parse_target, write_result};
use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;
use experiment::{Arm, Experiment, Step};

/// Run an experiment: start each arm's server, check its KV cache groups, measure, end it.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The experiment's file.
    experiment: PathBuf,
    /// Folder for results, journals and logs.
    #[arg(long, default_value = "results", value_name = "FOLDER")]
    output: PathBuf,
    /// Leave out what the folder already holds.
    #[arg(long)]
    resume: bool,
    /// Print the steps and do nothing.
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
}

/// An arm's server that is not known to be up.
struct Starting {
    target: Target,
    probe: Probe,
    process: Option<ServerProcess>,
}

/// An arm's server, up and checked.
struct Up {
    target: Target,
    process: Option<ServerProcess>,
}

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let secret = args.access.secret()?;
    let text = read_bounded(&args.experiment).map_err(|error| {
        Failure::new(format!("failed to read the experiment `{}`", args.experiment.display()))
            .caused_by(error)
    })?;
    let experiment = Experiment::read(&args.experiment, &text)?;
    let steps = experiment.steps();
    if args.dry_run {
        let mut told = Vec::new();
        let exit = tell_steps(&experiment, &steps, &mut told)?;
        let mut told = String::from_utf8_lossy(&told).into_owned();
        redact(secret.as_ref(), &mut told);
        terminal.out.write_all(told.as_bytes())?;
        return Ok(exit);
    }
    std::fs::create_dir_all(&args.output).map_err(|error| {
        Failure::new(format!("failed to make the folder `{}`", args.output.display())).caused_by(error)
    })?;
    let session = Session {
        load: experiment.load_args()?,
        experiment: &experiment,
        folder: &args.output,
        secret,
        trust: args.access.trust(),
        headers: args.access.headers()?,
        cancel: stop_on_signals(),
    };
    writeln!(terminal.out, "{}", experiment.title)?;
    writeln!(
        terminal.out,
        "{:<16}{:>6}{:>6}{:>8}{:>10}{:>10}{:>10}{:>12}{:>8}",
        "arm", "start", "seed", "repeat", "TTFT ms", "TPOT ms", "ITL ms", "tokens/s", "failed"
    )?;
    let mut up: Vec<Option<Up>> = experiment.arms.iter().map(|_| None).collect();
    let mut start = None;
    let mut files: Vec<Vec<PathBuf>> = vec![Vec::new(); experiment.arms.len()];
    for step in &steps {
        let Some(arm) = experiment.arms.get(step.arm) else { continue };
        let path = session.result_path(arm, *step);
        if let Some(list) = files.get_mut(step.arm) {
            list.push(path.clone());
        }
        if path.exists() && args.resume {
            continue;
        }
        if path.exists() {
            return Err(Failure::new(format!("the result `{}` exists", path.display()))
                .hint("go on with `--resume`, or name another folder by `--output`")
                .into());
        }
        if step.start != start {
            for (arm, server) in experiment.arms.iter().zip(&mut up) {
                session.end(&arm.name, server.take())?;
            }
            start = step.start;
            if experiment.keep_running {
                // All before the first is measured, so that none is measured beside one that loads.
                let starting: Result<Vec<_>, _> =
                    experiment.arms.iter().map(|arm| session.launch(arm, start, terminal)).collect();
                for ((arm, place), starting) in experiment.arms.iter().zip(&mut up).zip(starting?) {
                    *place = Some(session.bring_up(arm, starting)?);
                }
            }
        }
        if !experiment.keep_running {
            for (index, other) in up.iter_mut().enumerate().filter(|(index, _)| *index != step.arm) {
                let name = experiment.arms.get(index).map_or("", |arm| arm.name.as_str());
                session.end(name, other.take())?;
            }
        }
        let Some(place) = up.get_mut(step.arm) else { continue };
        if place.is_none() {
            let starting = session.launch(arm, step.start, terminal)?;
            *place = Some(session.bring_up(arm, starting)?);
        }
        let Some(server) = place else { continue };
        let measured = session.measure(arm, server, *step, &path, terminal)?;
        tell_measured(arm, *step, &measured, terminal)?;
    }
    for (arm, server) in experiment.arms.iter().zip(up) {
        session.end(&arm.name, server)?;
    }
    tell_comparison(&experiment, &files, terminal)?;
    Ok(Exit::Fine)
}

impl Session<'_> {
    fn result_path(&self, arm: &Arm, step: Step) -> PathBuf {
        let start = step.start.map_or_else(String::new, |start| format!("-start{start}"));
        self.folder.join(format!("{}{start}-seed{}-repeat{}.json", arm.name, step.seed, step.repeat))
    }

    /// Starts an arm's server.
    fn launch(
        &self,
        arm: &Arm,
        start: Option<usize>,
        terminal: &mut Terminal<'_>,
    ) -> Result<Starting, Failure> {
        let target = parse_target(&arm.address())?;
        let started =
            |cause: String| Failure::new(format!("the arm `{}` did not come up", arm.name)).caused_by(cause);
        let patience = Duration::from_secs(5);
        let probe = Probe::new(&target, &self.trust, self.secret.as_ref(), patience)
            .map_err(|error| started(error.to_string()))?;
        let mut process = None;
        if let Some(command) = arm.filled_command()? {
            if probe.status(&self.experiment.health.path).is_ok() {
                return Err(started(format!("another server already answers at {target}"))
                    .hint("end it, or give the arm another `port`"));
            }
            let environment = arm.filled_environment()?;
            let start = start.map_or_else(String::new, |start| format!("-start{start}"));
            let log = self.folder.join(format!("{}{start}.log", arm.name));
            let server = ServerProcess::start(&command, &environment, arm.folder.as_deref(), &log).map_err(
                |error| started(format!("`{}`: {error}", command.first().map_or("", String::as_str))),
            )?;
            process = Some(server.with_patience(self.experiment.health.patience()));
        }
        let _ = writeln!(terminal.err, "waiting for the arm `{}` at {target}", arm.name);
        Ok(Starting { target, probe, process })
    }

    /// Waits until an arm's server is healthy and checks its groups.
    fn bring_up(&self, arm: &Arm, starting: Starting) -> Result<Up, Failure> {
        let Starting { target, probe, mut process } = starting;
        self.wait_until_healthy(arm, &probe, process.as_mut())?;
        planned::check(arm, process.as_ref().map(ServerProcess::log).or(arm.log.as_deref()))?;
        Ok(Up { target, process })
    }

    fn wait_until_healthy(
        &self,
        arm: &Arm,
        probe: &Probe,
        mut process: Option<&mut ServerProcess>,
    ) -> Result<(), Failure> {
        const LOOK: Duration = Duration::from_millis(250);
        let health = &self.experiment.health;
        let failed = |cause: String, process: Option<&ServerProcess>| {
            let failure = Failure::new(format!("the arm `{}` did not come up", arm.name)).caused_by(cause);
            match process {
                Some(process) => failure.at(self.last_lines(process)),
                None => failure,
            }
        };
        let timeout = health.timeout();
        let begun = Instant::now();
        let mut last = "no answer".to_owned();
        loop {
            if *self.cancel.borrow() {
                return Err(failed("a signal has ended the experiment".to_owned(), None));
            }
            if let Some(process) = process.as_deref_mut() {
                match process.ended() {
                    Ok(None) => {}
                    Ok(Some(status)) => {
                        return Err(failed(format!("its server ended: {status}"), Some(process)));
                    }
                    Err(error) => return Err(failed(error.to_string(), Some(process))),
                }
            }
            match probe.status(&health.path) {
                Ok(200) => return Ok(()),
                Ok(status) => last = format!("`{}` answers {status}", health.path),
                Err(error) => last.clone_from(&error.to_string()),
            }
            if begun.elapsed() > timeout {
                let seconds = health.timeout_seconds;
                return Err(failed(
                    format!("it was not healthy after {seconds} s: {last}"),
                    process.as_deref(),
                ));
            }
            std::thread::sleep(LOOK);
        }
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
    ) -> Result<Measured, Failure> {
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
                .at(self.last_lines(process)));
        }
        let stopped = |cause: String| {
            Failure::new(format!("the arm `{}` could not be measured with seed {}", arm.name, step.seed))
                .caused_by(cause)
                .hint(format!("what it had is in `{}`; go on with `--resume`", journal.display()))
        };
        if measured.interrupted {
            return Err(stopped("a signal has ended the experiment".to_owned()));
        }
        if measured.summary.completed == 0 {
            let first = measured.records.iter().find_map(|record| record.failure.as_ref());
            let why =
                first.map_or_else(String::new, |failure| format!(": {}: {}", failure.kind, failure.detail));
            return Err(stopped(format!("no request succeeded{why}")));
        }
        write_result(path, &measured)?;
        Ok(measured)
    }

    fn end(&self, name: &str, up: Option<Up>) -> Result<(), Failure> {
        let patience = self.experiment.health.patience();
        match up.and_then(|up| up.process) {
            None => Ok(()),
            Some(mut process) => process
                .stop(patience)
                .map_err(|error| Failure::new(format!("failed to end the arm `{name}`")).caused_by(error)),
        }
    }
}

fn tell_measured(
    arm: &Arm,
    step: Step,
    measured: &Measured,
    terminal: &mut Terminal<'_>,
) -> std::io::Result<()> {
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

/// The text of a file that is no longer than an experiment can be.
fn read_bounded(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    const MOST: u64 = 1 << 20;
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(MOST + 1).read_to_string(&mut text)?;
    if read as u64 > MOST {
        return Err(std::io::Error::other(format!("it is longer than {MOST} bytes")));
    }
    Ok(text)
}

fn tell_steps(experiment: &Experiment, steps: &[Step], out: &mut dyn std::io::Write) -> Result<Exit, Ended> {
    writeln!(out, "{}", experiment.title)?;
    let origin: Vec<&str> =
        [&experiment.source, &experiment.date].into_iter().flatten().map(String::as_str).collect();
    if !origin.is_empty() {
        writeln!(out, "{}", origin.join(", "))?;
    }
    writeln!(out)?;
    for arm in &experiment.arms {
        let groups =
            arm.expected_groups.map_or_else(String::new, |count| format!(", {count} groups expected"));
        writeln!(out, "{}  {}{groups}", arm.name, arm.address())?;
        if let Some(plan) = &arm.plan {
            writeln!(out, "    planned as by k3plan plan {}", plan.join(" "))?;
        }
        if let Some(command) = arm.shown_command() {
            writeln!(out, "    {command}")?;
        }
    }
    writeln!(out)?;
    for step in steps {
        let name = experiment.arms.get(step.arm).map_or("", |arm| arm.name.as_str());
        let start = step.start.map_or_else(String::new, |start| format!("  start {start}"));
        writeln!(out, "{name}{start}  seed {}  repeat {}", step.seed, step.repeat)?;
    }
    Ok(Exit::Fine)
}

fn tell_comparison(
    experiment: &Experiment,
    files: &[Vec<PathBuf>],
    terminal: &mut Terminal<'_>,
) -> std::io::Result<()> {
    let list = |index: usize| {
        let paths = files.get(index).into_iter().flatten().map(|path| path.display().to_string());
        paths.collect::<Vec<_>>().join(" ")
    };
    for index in 1..experiment.arms.len() {
        writeln!(terminal.out, "k3plan compare {} -- {}", list(0), list(index))?;
    }
    Ok(())
}
