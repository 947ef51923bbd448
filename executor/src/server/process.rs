//! A server that we start and end: in a process group of its own, so that its workers end with it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// How often is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(50);

/// A running server; it is ended, with its whole group, when this is dropped.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    group: Option<Pid>,
    log: PathBuf,
    patience: Duration,
}

/// The groups of all servers that run, for who has to end at once.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn groups() -> MutexGuard<'static, Vec<Pid>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills every server that this program has started, without waiting.
pub fn kill_all() {
    for group in groups().iter() {
        let _ = killpg(*group, Signal::SIGKILL);
    }
}

impl ServerProcess {
    /// Starts a command with further environment variables; both its outputs go to the log, which is begun anew.
    ///
    /// # Errors
    /// When the log cannot be written or the command not be started.
    pub fn start(
        command: &[String],
        environment: &[(String, String)],
        folder: Option<&Path>,
        log: &Path,
    ) -> io::Result<Self> {
        let [program, arguments @ ..] = command else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
        };
        let output = File::create(log)?;
        let mut start = Command::new(program);
        start
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        if let Some(folder) = folder {
            start.current_dir(folder);
        }
        let child = start.spawn()?;
        let group = i32::try_from(child.id()).ok().map(Pid::from_raw);
        groups().extend(group);
        Ok(Self { child, group, log: log.to_owned(), patience: Duration::ZERO })
    }

    /// How long it has to end by itself after each signal when this is dropped; else it is killed at once.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The number of the process that leads the group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where its outputs go.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its outputs.
    pub fn last_lines(&self, count: usize) -> String {
        let text = end_of(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(count)..).unwrap_or(&[]).join("\n")
    }

    /// Asks the group to end, then ends it.
    ///
    /// # Errors
    /// When the system does not let us wait for it.
    pub fn stop(&mut self, patience: Duration) -> io::Result<()> {
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            self.signal(signal);
            let end = Instant::now() + patience;
            while Instant::now() < end && self.ended()?.is_none() {
                std::thread::sleep(LOOK);
            }
            if self.ended()?.is_some() {
                break;
            }
        }
        self.kill()
    }

    fn kill(&mut self) -> io::Result<()> {
        // What the leader left behind goes too.
        self.signal(Signal::SIGKILL);
        let ended = self.group.take();
        groups().retain(|group| Some(*group) != ended);
        self.child.wait().map(drop)
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // A group that has ended needs no signal.
            let _ = killpg(group, signal);
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.group.is_some() {
            // Nobody is left to tell.
            let _ = if self.patience.is_zero() { self.kill() } else { self.stop(self.patience) };
        }
    }
}

/// The end of a file of any size.
fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    /// More than a few lines are, bytes.
    const MOST: u64 = 256 << 10;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(length.saturating_sub(MOST)))?;
    let mut text = Vec::new();
    file.take(MOST).read_to_end(&mut text)?;
    Ok(text)
}
