//! Who wrote a line: which container, which process, and does vLLM's own prefix stand before the message?

/// Where a statement comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Source {
    /// The container, where a tool that joins logs names it, as `vllm-1  | `.
    pub(super) label: String,
    pub(super) process: Process,
}

/// A process of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Process {
    /// A frontend; its data parallel rank where each rank has one.
    Api { pid: u64, rank: Option<u64> },
    /// An engine; its data parallel rank where it is one of several.
    Engine { pid: u64, rank: Option<u64> },
    /// An engine that Ray runs, whose rank is not in its name.
    Actor { pid: u64, ip: String },
    /// A worker of a data parallel rank.
    Rank(u64),
    /// A worker, or a line that names no process.
    #[default]
    Other,
}

/// What names one engine of a server, or the only one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Engine {
    Only,
    Rank(u64),
    Actor(u64, String),
}

impl Process {
    /// The engine that the process is of, as far as it tells.
    pub(super) fn engine(&self) -> Option<Engine> {
        match self {
            Self::Engine { rank: Some(rank), .. } | Self::Rank(rank) => Some(Engine::Rank(*rank)),
            Self::Engine { rank: None, .. } => Some(Engine::Only),
            Self::Actor { pid, ip } => Some(Engine::Actor(*pid, ip.clone())),
            Self::Api { .. } | Self::Other => None,
        }
    }
}

/// How much of a line is looked at for its prefix, bytes.
const HEAD: usize = 400;

/// Reads what stands before a message.
///
/// # Source
/// Names of processes: `set_process_title` and `decorate_logs` in `v1/engine/core.py`,
/// `v1/executor/multiproc_executor.py`, `v1/utils.py`, `entrypoints/`, vLLM 0.24 to 0.33; Ray puts
/// `(NAME pid=N, ip=A)` before what its actors write, which are `RayWorkerWrapper`, `EngineCoreActor` and
/// `DPMoEEngineCoreActor`.
pub(super) fn source(before: &str) -> Source {
    let head = &before[..before.floor_char_boundary(HEAD)];
    let mut found = Process::Other;
    for (at, _) in head.match_indices(" pid=") {
        let Some(name) = head[..at].rfind('(').map(|open| &head[open + 1..at]) else { continue };
        if name.contains(char::is_whitespace) {
            continue;
        }
        let rest = &head[at + " pid=".len()..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let Ok(pid) = rest[..digits].parse() else { continue };
        let rank = name.split('_').find_map(|part| part.strip_prefix("DP")?.parse().ok());
        let process = if name.contains("EngineCoreActor") && rank.is_none() {
            let ip =
                rest[digits..].strip_prefix(", ip=").and_then(|ip| ip.split(')').next()).unwrap_or_default();
            Process::Actor { pid, ip: ip.to_owned() }
        } else if name.contains("EngineCore") {
            Process::Engine { pid, rank }
        } else if name.to_ascii_lowercase().starts_with("apiserver") {
            Process::Api { pid, rank }
        } else {
            rank.map_or(Process::Other, Process::Rank)
        };
        // An engine hands on what its workers write, a frontend what its engines do.
        let weight = |process: &Process| match process {
            Process::Other => 0,
            Process::Api { .. } => 1,
            Process::Rank(_) => 2,
            Process::Engine { .. } | Process::Actor { .. } => 3,
        };
        if weight(&process) > weight(&found) {
            found = process;
        }
    }
    Source { label: label(head).to_owned(), process: found }
}

/// The container's name before ` | `, or in brackets as `kubectl logs --prefix` writes it.
fn label(head: &str) -> &str {
    let Some((first, rest)) = head.split_once(' ') else { return "" };
    let joined = rest.trim_start().starts_with("| ") && first.chars().all(is_of_name);
    if joined || (first.starts_with("[pod/") && first.ends_with(']')) { first } else { "" }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// How much of vLLM's prefix stands before a message: nothing, a level, or a level and `[file.py:line]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Prefix {
    #[default]
    None,
    Level,
    File,
}

/// The prefix before a message.
pub(super) fn prefix(before: &str) -> Prefix {
    let head = &before[..before.floor_char_boundary(HEAD)];
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let level = head
        .split(|c: char| !word(c))
        .any(|word| matches!(word, "INFO" | "WARNING" | "ERROR" | "DEBUG" | "CRITICAL"));
    match level {
        false => Prefix::None,
        true if file(head).is_some() => Prefix::File,
        true => Prefix::Level,
    }
}

/// The file that a prefix names, such as `kv_cache_utils.py`.
fn file(head: &str) -> Option<&str> {
    let at = head.find(".py:")?;
    head[at + 4..].starts_with(|c: char| c.is_ascii_digit()).then_some(())?;
    let begin = head[..at].rfind(|c: char| !is_of_name(c)).map_or(0, |space| space + 1);
    head.get(begin..at + 3)
}

/// Whether the line is what a user asked: the one that logs requests wrote it.
pub(super) fn is_request(before: &str) -> bool {
    let head = &before[..before.floor_char_boundary(HEAD)];
    matches!(file(head), Some("logger.py" | "request_logger.py"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes() {
        let of = |text: &str| source(text).process;
        assert_eq!(of("(EngineCore_DP12 pid=7) INFO"), Process::Engine { pid: 7, rank: Some(12) });
        assert_eq!(of("(Worker_DP3_TP0_EP4 pid=7) INFO"), Process::Rank(3));
        assert_eq!(of("(EngineCore pid=7) INFO"), Process::Engine { pid: 7, rank: None });
        assert_eq!(of("(EngineCore_DPx pid=7) INFO"), Process::Engine { pid: 7, rank: None });
        assert_eq!(of("(APIServer_DP1 pid=7) INFO"), Process::Api { pid: 7, rank: Some(1) });
        assert_eq!(of("(RayWorkerWrapper pid=7, ip=10.0.0.1) INFO"), Process::Other);
        assert_eq!(
            of("(EngineCore_DP1 pid=7) (RayWorkerWrapper pid=9, ip=10.0.0.1) INFO"),
            Process::Engine { pid: 7, rank: Some(1) }
        );
        assert_eq!(
            of("(APIServer pid=1) (DPMoEEngineCoreActor pid=21, ip=10.0.0.1) INFO"),
            Process::Actor { pid: 21, ip: "10.0.0.1".to_owned() }
        );
        assert_eq!(of("pid=7) ( pid=x"), Process::Other);
    }

    #[test]
    fn labels_and_prefixes() {
        assert_eq!(source("vllm-1  | (EngineCore pid=7) INFO").label, "vllm-1");
        assert_eq!(source("[pod/a/b] (EngineCore pid=7) INFO").label, "[pod/a/b]");
        assert_eq!(source("Loading: 50%| #### | 2/4").label, "");
        assert_eq!(prefix("(E pid=7) INFO 12-02 10:16:46 [kv_cache_utils.py:1] "), Prefix::File);
        assert_eq!(prefix("INFO 12-02 10:16:46 llm_engine.py:98] "), Prefix::File);
        assert_eq!(prefix("INFO "), Prefix::Level);
        assert_eq!(prefix("(APIServer pid=1) INFORMATION "), Prefix::None);
        assert!(is_request("INFO 12-02 [logger.py:1] "));
        assert!(!is_request("INFO 12-02 [loggers.py:1] "));
    }
}
