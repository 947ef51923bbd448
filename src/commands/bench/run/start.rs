//! How does an arm's server come up: started, written down, healthy, with the groups that are expected?

use std::time::{Duration, Instant};

use executor::load::target::Target;
use executor::server::probe::Probe;
use executor::server::process::ServerProcess;
use executor::server::registry::{Identity, Listed, listener};

use super::experiment::Arm;
use super::{Session, Stopped, list_failed, planned};
use crate::commands::bench::serve::parse_target;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// An arm's server that is not known to be up.
pub(super) struct Starting {
    target: Target,
    probe: Probe,
    process: Option<ServerProcess>,
}

/// An arm's server, up and checked.
pub(super) struct Up {
    pub(super) target: Target,
    pub(super) process: Option<ServerProcess>,
}

impl Session<'_> {
    /// Starts an arm's server.
    pub(super) fn launch(
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
                return Err(taken(&target, started));
            }
            let environment = arm.filled_environment()?;
            let start = start.map_or_else(String::new, |start| format!("-start{start}"));
            let log = self.folder.join(format!("{}{start}.log", arm.name));
            let server = ServerProcess::start(&command, &environment, arm.folder.as_deref(), &log).map_err(
                |error| started(format!("`{}`: {error}", command.first().map_or("", String::as_str))),
            )?;
            let server = server.with_patience(self.experiment.health.patience());
            let mut registry = self.registry.borrow_mut();
            let listed = Listed {
                arm: arm.name.clone(),
                leader: Identity::of(server.id()),
                owner: Identity::of(std::process::id()),
                command: arm.shown_command().unwrap_or_default(),
            };
            registry.add(listed).map_err(|error| list_failed(&error))?;
            process = Some(server);
        }
        let _ = writeln!(terminal.err, "waiting for the arm `{}` at {target}", arm.name);
        Ok(Starting { target, probe, process })
    }

    /// Waits until an arm's server is healthy and checks its groups.
    pub(super) fn bring_up(&self, arm: &Arm, starting: Starting) -> Result<Up, Stopped> {
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
    ) -> Result<(), Stopped> {
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
                return Err(Stopped::Signal);
            }
            if let Some(process) = process.as_deref_mut() {
                match process.ended() {
                    Ok(None) => {}
                    Ok(Some(status)) => {
                        return Err(failed(format!("its server ended: {status}"), Some(process)).into());
                    }
                    Err(error) => return Err(failed(error.to_string(), Some(process)).into()),
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
                )
                .into());
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Another server has the address: says whose it is, where this machine tells.
fn taken(target: &Target, started: impl Fn(String) -> Failure) -> Failure {
    let failure = started(format!("another server already answers at {target}"));
    let here = ["localhost", "127.0.0.1", "::1"].contains(&target.host.as_str());
    match listener(target.port).filter(|_| here) {
        Some((pid, name)) => failure
            .caused_by(format!("the process {pid} (`{name}`) listens there"))
            .hint(format!("end it by `kill {pid}`, or give the arm another `port`")),
        None => failure.hint("end it, or give the arm another `port`"),
    }
}
