//! Which server, and which of its engines, does a statement belong to, and whose statements are reported?
//!
//! What a process says is kept by process until the log ends. Then one server is taken, the last, and of it one
//! engine, the first that told anything of its cache.

use super::source::{Process, Source};
use super::statement::Fact;
use super::{ENTRIES, Found, OtherServer, ServerLog, Value};

/// What one process said.
#[derive(Debug)]
struct Teller {
    source: Source,
    said: ServerLog,
    /// The first line.
    line: u64,
    /// Statements about a cache.
    own: u64,
    /// How many statements about any cache came before its first one.
    spoke: Option<u64>,
}

impl Teller {
    fn is_sized(&self) -> bool {
        let said = &self.said;
        !said.tokens.is_empty() || !said.concurrency.is_empty() || said.refusal.is_some()
    }

    fn is_api(&self) -> bool {
        matches!(self.source.process, Process::Api { .. })
    }
}

/// What every process of the servers in a log said since they started.
#[derive(Debug, Default)]
pub(super) struct Servers {
    processes: Vec<Teller>,
    /// Starts of servers.
    starts: u64,
    /// Statements about a cache.
    spoken: u64,
}

impl Servers {
    /// Keeps a statement; `true` where it begins a server anew.
    pub(super) fn keep(&mut self, fact: Fact, source: &Source, line: u64) -> bool {
        if matches!(fact, Fact::Flags(..) | Fact::Version(_)) && self.is_of_another_rank(source) {
            return false;
        }
        let anew = self.begins_anew(&fact, source);
        if anew {
            self.processes.retain(|process| process.source.label != source.label);
            self.starts += 1;
        }
        let begins = matches!(fact, Fact::Flags(..) | Fact::Version(_) | Fact::Config(..));
        if begins && self.starts == 0 {
            self.starts = 1;
        }
        let own = of_one_engine(&fact);
        let Some(at) = self.process(&fact, source, line, anew) else { return anew };
        let process = &mut self.processes[at];
        if own {
            process.own += 1;
            process.spoke.get_or_insert(self.spoken);
            self.spoken += 1;
        }
        process.said.keep(fact, line);
        anew
    }

    /// Whether a frontend is of another data parallel rank than the one that began.
    fn is_of_another_rank(&self, source: &Source) -> bool {
        let Process::Api { rank: Some(rank), .. } = source.process else { return false };
        self.of(&source.label).any(
            |known| matches!(known.source.process, Process::Api { rank: Some(first), .. } if first != rank),
        )
    }

    fn of<'a>(&'a self, label: &'a str) -> impl Iterator<Item = &'a Teller> {
        self.processes.iter().filter(move |process| process.source.label == label)
    }

    /// Whether a start before has come to its end.
    fn begins_anew(&self, fact: &Fact, source: &Source) -> bool {
        let label = &source.label;
        let same = || self.of(label).find(|known| known.source == *source);
        match (fact, &source.process) {
            (Fact::Flags(..) | Fact::Version(_), process) => {
                let sized = self.of(label).any(Teller::is_sized);
                let told = matches!(fact, Fact::Flags(..))
                    && match process {
                        Process::Api { .. } => same().is_some_and(|known| known.said.flags.is_some()),
                        _ => self.of(label).any(|known| known.said.flags.is_some()),
                    };
                sized || told
            }
            (Fact::Config(..), Process::Engine { rank, .. }) => {
                // A process that makes a second engine, or one more process than there are frontends.
                let sized = self
                    .of(label)
                    .filter(
                        |known| matches!(known.source.process, Process::Engine { rank: r, .. } if r == *rank),
                    )
                    .filter(|known| known.is_sized())
                    .count();
                match same() {
                    Some(known) => known.is_sized(),
                    None => sized >= self.of(label).filter(|known| known.is_api()).count().max(1),
                }
            }
            (Fact::Config(..), Process::Api { .. } | Process::Other) => same().is_some_and(Teller::is_sized),
            _ => false,
        }
    }

    /// Where what the process says is kept; `None` where there are too many.
    fn process(&mut self, fact: &Fact, source: &Source, line: u64, anew: bool) -> Option<usize> {
        let mut source = source.clone();
        let begins = matches!(fact, Fact::Flags(..) | Fact::Version(_));
        let known = |processes: &[Teller], source: &Source| {
            processes.iter().position(|process| process.source == *source)
        };
        if let Some(at) = known(&self.processes, &source) {
            return Some(at);
        }
        if matches!(source.process, Process::Api { .. }) {
            let mut apis = self.processes.iter().enumerate().filter(|(_, p)| p.is_api());
            if begins {
                if !anew && apis.any(|(_, p)| p.source.label == source.label) {
                    self.starts += 1;
                }
            } else if let Some((at, _)) = apis.rfind(|(_, p)| p.source.label == source.label) {
                // One of several frontends of a server.
                return Some(at);
            } else {
                source.process = Process::Other;
                if let Some(at) = known(&self.processes, &source) {
                    return Some(at);
                }
            }
        }
        if self.processes.len() >= ENTRIES {
            return None;
        }
        self.processes.push(Teller { source, said: ServerLog::default(), line, own: 0, spoke: None });
        Some(self.processes.len() - 1)
    }

    /// What the last server said.
    pub(super) fn finish(mut self) -> ServerLog {
        let mut others = Vec::new();
        // A container of its own is a server of its own if it has a frontend or an engine.
        let last = self
            .processes
            .iter()
            .rev()
            .find(|p| p.is_api() && p.said.flags.is_some())
            .or_else(|| self.processes.iter().rev().find(|p| p.is_api()));
        let label = last.map(|p| p.source.label.clone());
        if let Some(label) = &label {
            let is_server = |p: &Teller| p.is_api() || matches!(p.source.process, Process::Engine { .. });
            let labels: Vec<String> = self
                .processes
                .iter()
                .filter(|p| is_server(p) && p.source.label != *label)
                .map(|p| p.source.label.clone())
                .collect();
            // Frontend and engines may log apart.
            let engines = |label: &str| {
                self.of(label).any(|p| matches!(p.source.process, Process::Engine { .. } | Process::Other))
            };
            if !labels.is_empty() && engines(label) {
                for api in self.processes.iter().filter(|p| p.is_api() && p.source.label != *label) {
                    others.push(other(api, None));
                }
                self.processes.retain(|p| !labels.contains(&p.source.label));
            }
        }
        let apis: Vec<usize> = (0..self.processes.len()).filter(|at| self.processes[*at].is_api()).collect();
        let api = apis
            .iter()
            .rev()
            .copied()
            .find(|at| self.processes[*at].said.flags.is_some())
            .or(apis.last().copied());
        let mut log = api.map_or_else(ServerLog::default, |at| self.processes[at].said.clone());
        if self.are_several() {
            self.take_one(api, &apis, &mut log, &mut others);
        } else {
            self.take_first_engine(&mut log);
        }
        log.starts = self.starts;
        log.other_servers = others;
        log
    }

    /// Whether two processes are the same engine, so that they are of two servers.
    fn are_several(&self) -> bool {
        let engines: Vec<&Teller> = self
            .processes
            .iter()
            .filter(|p| matches!(p.source.process, Process::Engine { .. }))
            .filter(|p| p.own > 0 || p.said.config.is_some())
            .collect();
        engines.iter().enumerate().any(|(i, a)| {
            engines[..i].iter().any(|b| {
                a.source.process.engine() == b.source.process.engine() && a.source.label == b.source.label
            })
        })
    }

    /// Of several servers the engine that goes with the last frontend.
    fn take_one(
        &self,
        api: Option<usize>,
        apis: &[usize],
        log: &mut ServerLog,
        others: &mut Vec<OtherServer>,
    ) {
        let engines: Vec<&Teller> =
            self.processes.iter().filter(|p| matches!(p.source.process, Process::Engine { .. })).collect();
        let chosen = engines.iter().enumerate().max_by_key(|(i, engine)| (likeness(log, &engine.said), *i));
        for at in apis.iter().filter(|at| Some(**at) != api) {
            others.push(other(&self.processes[*at], None));
        }
        for (i, engine) in engines.iter().enumerate() {
            if Some(i) == chosen.map(|(chosen, _)| chosen) {
                merge(log, &engine.said);
            } else if apis.len() < 2 {
                others.push(other(engine, Some(engine)));
            }
        }
        // Workers do not say whose they are.
        log.untold_workers = self
            .processes
            .iter()
            .filter(|p| matches!(p.source.process, Process::Other | Process::Rank(_) | Process::Actor { .. }))
            .map(|p| p.own)
            .sum();
    }

    /// Of several data parallel engines the first, and what all say of the server.
    fn take_first_engine(&self, log: &mut ServerLog) {
        let first = self
            .processes
            .iter()
            .filter(|p| p.spoke.is_some() && p.source.process.engine().is_some())
            .min_by_key(|p| p.spoke)
            .and_then(|p| p.source.process.engine());
        for process in self.processes.iter().filter(|p| !p.is_api()) {
            let engine = process.source.process.engine();
            let another = matches!((&engine, &first), (Some(a), Some(b)) if a != b);
            if another {
                log.other_engines += process.own;
                merge(log, &shared(&process.said));
            } else {
                merge(log, &process.said);
            }
        }
    }
}

fn other(process: &Teller, engine: Option<&Teller>) -> OtherServer {
    let model = process.said.model.as_ref().map(|model| model.value.clone());
    let pid = match (&process.source.process, engine) {
        (Process::Api { pid, .. } | Process::Engine { pid, .. }, _) => Some(*pid),
        _ => None,
    };
    OtherServer { model, pid, line: process.line }
}

/// How well an engine's statements go with a frontend's arguments.
fn likeness(api: &ServerLog, engine: &ServerLog) -> i32 {
    let agree = |same: Option<bool>| same.map_or(0, |same| if same { 1 } else { -1 });
    let model = match (&api.model, &engine.model) {
        (Some(a), Some(b)) => Some(a.value == b.value),
        _ => None,
    };
    let length = match (api.count("max_model_len"), engine.concurrency.first()) {
        (Some(a), Some(b)) => Some(a.value == b.value.max_model_len),
        _ => None,
    };
    2 * agree(model) + agree(length)
}

/// Without what an engine says of its own cache.
fn shared(said: &ServerLog) -> ServerLog {
    ServerLog {
        available_memory: Vec::new(),
        tokens: Vec::new(),
        concurrency: Vec::new(),
        blocks: Vec::new(),
        blocks_override: None,
        padding: Vec::new(),
        group_block_sizes: None,
        lcm_block_size: None,
        refusal: None,
        auto_fit: None,
        ..said.clone()
    }
}

/// Whether an engine says it of its own cache, so that it differs between data parallel ranks.
fn of_one_engine(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::AvailableMemory(_)
            | Fact::Tokens(_)
            | Fact::TokensAndConcurrency(..)
            | Fact::Concurrency(_)
            | Fact::Blocks(_)
            | Fact::Override(_)
            | Fact::Padding(_)
            | Fact::GroupBlockSizes(_)
            | Fact::LcmBlockSize(_)
            | Fact::Refusal(_)
            | Fact::AutoFit(_)
    )
}

/// Joins what two processes of a server said: the first mention counts.
fn merge(log: &mut ServerLog, said: &ServerLog) {
    let flags_first = match (&log.flags, &said.flags) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a.line <= b.line,
    };
    if !flags_first {
        log.flags_whole = said.flags_whole;
    }
    first(&mut log.version, &said.version);
    first(&mut log.model, &said.model);
    first(&mut log.architecture, &said.architecture);
    first(&mut log.flags, &said.flags);
    first(&mut log.config, &said.config);
    first(&mut log.max_model_len, &said.max_model_len);
    first(&mut log.max_num_batched_tokens, &said.max_num_batched_tokens);
    first(&mut log.layout, &said.layout);
    first(&mut log.attention_block_size, &said.attention_block_size);
    first(&mut log.backend_block_size, &said.backend_block_size);
    first(&mut log.mamba_cache_mode, &said.mamba_cache_mode);
    first(&mut log.mamba_page_padding, &said.mamba_page_padding);
    first(&mut log.full_allocation, &said.full_allocation);
    first(&mut log.hybrid_off, &said.hybrid_off);
    first(&mut log.draft_group_unknown, &said.draft_group_unknown);
    first(&mut log.blocks_override, &said.blocks_override);
    first(&mut log.group_block_sizes, &said.group_block_sizes);
    first(&mut log.lcm_block_size, &said.lcm_block_size);
    first(&mut log.auto_fit, &said.auto_fit);
    first(&mut log.refusal, &said.refusal);
    join(&mut log.weights, &said.weights, true);
    join(&mut log.padding, &said.padding, false);
    join(&mut log.available_memory, &said.available_memory, true);
    join(&mut log.tokens, &said.tokens, true);
    join(&mut log.concurrency, &said.concurrency, true);
    join(&mut log.blocks, &said.blocks, true);
}

fn first<T: Clone>(slot: &mut Option<Found<T>>, other: &Option<Found<T>>) {
    if let Some(other) = other
        && slot.as_ref().is_none_or(|found| other.line < found.line)
    {
        *slot = Some(other.clone());
    }
}

fn join<T: Clone + PartialEq>(list: &mut Vec<Found<T>>, others: &[Found<T>], once: bool) {
    list.extend_from_slice(others);
    list.sort_by_key(|found| found.line);
    if once {
        let mut kept: Vec<Found<T>> = Vec::with_capacity(list.len());
        for found in list.drain(..) {
            if kept.iter().all(|known| known.value != found.value) {
                kept.push(found);
            }
        }
        *list = kept;
    }
    list.truncate(ENTRIES);
}

/// The model that arguments name.
pub(super) fn model_of(entries: &[(String, Value)]) -> Option<&str> {
    let named = |key: &str| entries.iter().find(|(name, _)| name == key).and_then(|(_, value)| value.text());
    named("model").or_else(|| named("model_tag"))
}
