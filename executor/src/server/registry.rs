//! Which servers has an experiment started, and do they still run?
//!
//! A killed experiment cannot end its servers. So each is written down when it starts, and taken off the list when it
//! has ended; the next experiment in the same folder ends what is left. A process is known by its number and the time
//! of its start, since numbers are given out again.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// The version of the list's format.
pub const SCHEMA: &str = "k3plan.servers/1";

/// A process, told from any later one of the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks after the system did; `None` where the system has no `/proc`.
    pub started: Option<u64>,
    /// Which start of the system that was.
    pub boot: Option<String>,
}

impl Identity {
    /// The identity of a process that runs now.
    pub fn of(pid: u32) -> Self {
        Self { pid, started: stat(pid).map(|stat| stat.started), boot: boot() }
    }

    /// Whether this very process still runs; `false` where nobody can tell.
    pub fn runs(&self) -> bool {
        let now = stat(self.pid).filter(|stat| !stat.ended);
        self.started.is_some()
            && self.boot == boot()
            && now.is_some_and(|now| Some(now.started) == self.started)
    }
}

struct Stat {
    started: u64,
    ended: bool,
}

/// State and start of a process (proc(5): the third and the 22nd field; the second may hold anything in brackets).
fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = text.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let started = fields.nth(18)?.parse().ok()?;
    Some(Stat { started, ended })
}

fn boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// A server that an experiment has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its arm.
    pub arm: String,
    /// Leader of its process group.
    pub leader: Identity,
    /// The experiment that started it.
    pub owner: Identity,
    /// Its command, as it may be shown.
    pub command: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct List {
    schema: String,
    servers: Vec<Listed>,
}

/// The list of one results folder.
#[derive(Debug)]
pub struct Registry {
    path: PathBuf,
    servers: Vec<Listed>,
}

impl Registry {
    /// Opens the list of a folder; there is none where nothing was left.
    ///
    /// # Errors
    /// When a list is there and cannot be read.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("servers.json");
        let servers = match std::fs::read(&path) {
            Ok(text) => {
                let list: List = serde_json::from_slice(&text)?;
                if list.schema != SCHEMA {
                    return Err(io::Error::other(format!("its format is `{}`, not `{SCHEMA}`", list.schema)));
                }
                list.servers
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { path, servers })
    }

    /// Where the list lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The servers of the list that still run.
    pub fn running(&self) -> impl Iterator<Item = &Listed> {
        self.servers.iter().filter(|server| server.leader.runs())
    }

    /// Writes a server down.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn add(&mut self, server: Listed) -> io::Result<()> {
        self.servers.push(server);
        self.write()
    }

    /// Takes an arm's servers off the list.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn remove(&mut self, arm: &str) -> io::Result<()> {
        self.servers.retain(|server| server.arm != arm);
        self.write()
    }

    /// Ends what an experiment that is gone has left running, and tells what that was.
    ///
    /// # Errors
    /// When the list cannot be written, or a server runs on.
    pub fn end_left_over(&mut self, patience: Duration) -> io::Result<Vec<Listed>> {
        let left: Vec<Listed> = self.running().filter(|server| !server.owner.runs()).cloned().collect();
        for server in &left {
            end_group(&server.leader, patience)?;
        }
        let owned = |server: &Listed| server.owner.runs() && server.leader.runs();
        self.servers.retain(owned);
        self.write()?;
        Ok(left)
    }

    /// Takes off the list what runs no more.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn prune(&mut self) -> io::Result<()> {
        self.servers.retain(|server| server.leader.runs());
        self.write()
    }

    /// Writes the list whole, so that a kill leaves the one before; an empty list is no file.
    fn write(&self) -> io::Result<()> {
        if self.servers.is_empty() {
            return match std::fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let draft = self.path.with_extension("json.part");
        let list = List { schema: SCHEMA.to_owned(), servers: self.servers.clone() };
        let mut file = std::fs::File::create(&draft)?;
        serde_json::to_writer_pretty(&mut file, &list)?;
        file.write_all(b"\n")?;
        std::fs::rename(&draft, &self.path)
    }
}

/// Asks a process's group to end, then ends it.
fn end_group(leader: &Identity, patience: Duration) -> io::Result<()> {
    const LOOK: Duration = Duration::from_millis(50);
    let group = i32::try_from(leader.pid).map(Pid::from_raw).map_err(io::Error::other)?;
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        // A group that has ended meanwhile needs no signal.
        let _ = killpg(group, signal);
        let end = Instant::now() + patience;
        while leader.runs() && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
        if !leader.runs() {
            // What the leader left behind goes too.
            let _ = killpg(group, Signal::SIGKILL);
            return Ok(());
        }
    }
    Err(io::Error::other(format!("the process {} does not end", leader.pid)))
}

/// The process that listens on a TCP port of this machine, and its command, where the system tells.
pub fn listener(port: u16) -> Option<(u32, String)> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let text = std::fs::read_to_string(table).ok()?;
        text.lines().skip(1).find_map(|line| listening_inode(line, port))
    })?;
    let socket = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let pid = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find(|pid| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok);
        let mut links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        links.any(|link| link.as_os_str() == socket.as_str())
    })?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some((pid, name.trim().to_owned()))
}

/// The socket of a line of `/proc/net/tcp` that listens on the port (proc(5): local address, state 0A, tenth field).
fn listening_inode(line: &str, port: u16) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (_, local_port) = fields.nth(1)?.rsplit_once(':')?;
    let listens = fields.nth(1)? == "0A" && u16::from_str_radix(local_port, 16).ok()? == port;
    listens.then(|| fields.nth(5)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_socket_table() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 123456 1 0";
        assert_eq!(listening_inode(line, 8080), Some(123_456));
        assert_eq!(listening_inode(line, 8081), None);
        assert_eq!(listening_inode(&line.replace(" 0A ", " 01 "), 8080), None);
        assert_eq!(listening_inode("", 8080), None);
    }

    #[cfg(target_os = "linux")]
    mod on_linux {
        use std::os::unix::process::CommandExt as _;
        use std::process::{Child, Command, Stdio};

        use super::*;

        fn sleeper() -> Child {
            Command::new("sleep").arg("600").stdout(Stdio::null()).process_group(0).spawn().unwrap()
        }

        fn listed(child: &Child, owner: Identity) -> Listed {
            let leader = Identity::of(child.id());
            Listed { arm: "a".to_owned(), leader, owner, command: "sleep 600".to_owned() }
        }

        #[test]
        fn what_a_gone_experiment_left_is_ended() {
            let folder = tempfile::tempdir().unwrap();
            let mut child = sleeper();
            let mut gone = sleeper();
            let owner = Identity::of(gone.id());
            assert!(owner.runs());
            let mut registry = Registry::open(folder.path()).unwrap();
            registry.add(listed(&child, owner)).unwrap();
            let mut again = Registry::open(folder.path()).unwrap();
            assert_eq!(again.end_left_over(Duration::from_secs(5)).unwrap(), [], "its owner runs");
            gone.kill().unwrap();
            gone.wait().unwrap();
            let ended = again.end_left_over(Duration::from_secs(5)).unwrap();
            assert_eq!(ended.len(), 1);
            assert!(!child.wait().unwrap().success());
            assert!(!again.path().exists());
        }

        #[test]
        fn a_later_process_of_the_same_number_is_another() {
            let folder = tempfile::tempdir().unwrap();
            let mut child = sleeper();
            let owner = Identity { pid: child.id(), started: Some(1), boot: boot() };
            let mut server = listed(&child, owner);
            server.leader.started = server.leader.started.map(|started| started + 1);
            let mut registry = Registry::open(folder.path()).unwrap();
            registry.add(server).unwrap();
            assert_eq!(registry.end_left_over(Duration::from_secs(5)).unwrap(), []);
            assert!(child.try_wait().unwrap().is_none(), "it was left alone");
            child.kill().unwrap();
            child.wait().unwrap();
        }

        #[test]
        fn the_listener_of_a_port_is_found() {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = socket.local_addr().unwrap().port();
            assert_eq!(listener(port).map(|(pid, _)| pid), Some(std::process::id()));
        }
    }
}
