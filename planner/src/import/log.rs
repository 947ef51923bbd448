//! What does a vLLM server's log say about its KV cache, and on which line?
//!
//! A reader takes a log line by line and keeps what it knows of it: no file is read here, and the memory it
//! needs does not grow with the log. Colours, process names, timestamps and whatever a container runtime puts
//! before a line are of no matter: a statement is found by its own words. A statement that a terminal broke
//! over several lines is put together again; one that is cut is not guessed.
//!
//! Where a log holds several starts, the last one counts; where several data parallel engines log, the first;
//! where several servers do, the last. Users' own words, which a server in use may log, are no statements of it.

mod cursor;
mod line;
mod python;
mod secrets;
mod servers;
mod source;
mod statement;

use std::io::{self, BufRead};

pub use cursor::Hundredths;
pub use python::Value;

use super::encoding;
use cursor::{Cursor, Short};
use servers::Servers;
use source::{Prefix, Source};
use statement::{Fact, STATEMENTS};

/// A value, and where the log says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<T> {
    /// The value.
    pub value: T,
    /// The line, from 1.
    pub line: u64,
}

/// The size of the cache in tokens, as logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens {
    /// `GPU`, `CPU`, `TPU`, `XPU`, `NPU` or `GPU + host`.
    pub device: &'static str,
    /// Tokens.
    pub tokens: u64,
}

/// The concurrency line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// The longest request, tokens.
    pub max_model_len: u64,
    /// Such requests that fit.
    pub requests: Hundredths,
}

/// A padding line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaddingLine {
    /// Padding layers.
    pub layers: u64,
    /// Of the bucket's layers, percent.
    pub percent: Hundredths,
}

/// The line that the number of blocks is overridden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlocksOverride {
    /// Blocks that the memory would hold.
    pub profiled_blocks: u64,
    /// Blocks that are made.
    pub blocks: u64,
}

/// What the engine made of `--max-model-len -1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoFit {
    /// The model's own length, tokens.
    pub derived: u64,
    /// The length that fits, tokens.
    pub fitted: u64,
    /// The memory that it was fitted to, GiB.
    pub memory: Option<Hundredths>,
}

/// Why the engine did not start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// In words.
    pub message: String,
    /// The length that was asked for, tokens.
    pub max_model_len: Option<u64>,
    /// Memory that it needs, GiB.
    pub needed: Option<Hundredths>,
    /// Memory that there is for it, GiB.
    pub available: Option<Hundredths>,
    /// The longest length that would fit, tokens; 0 is none.
    pub estimated_max_model_len: Option<u64>,
    /// Blocks of the pool.
    pub blocks: Option<u64>,
}

/// A server that is not reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherServer {
    /// Its model.
    pub model: Option<String>,
    /// Its process.
    pub pid: Option<u64>,
    /// The first line that it wrote, from 1.
    pub line: u64,
}

/// What a log says; of each thing the first mention, or all different ones where workers may differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerLog {
    /// Lines read.
    pub lines: u64,
    /// Starts of a server in the log; 0 is none that could be told.
    pub starts: u64,
    /// Statements of other data parallel engines, which are left out.
    pub other_engines: u64,
    /// Servers that ran beside the one that is reported.
    pub other_servers: Vec<OtherServer>,
    /// Statements of workers that are left out, since any of several servers may have them.
    pub untold_workers: u64,
    /// Statements whose number does not fit 64 bits, by their first words.
    pub too_large: Vec<Found<&'static str>>,
    /// vLLM's version, such as `0.32.0` or `0.31.1rc1.dev50+g554340f3d`.
    pub version: Option<Found<String>>,
    /// The model as it was named.
    pub model: Option<Found<String>>,
    /// Its class.
    pub architecture: Option<Found<String>>,
    /// The arguments that are not vLLM's defaults, by vLLM's names; secrets are left out.
    pub flags: Option<Found<Vec<(String, Value)>>>,
    /// Whether [`Self::flags`] came to its end.
    pub flags_whole: bool,
    /// The engine's settings as it prints them itself.
    pub config: Option<Found<Vec<(String, Value)>>>,
    /// The longest request, tokens, before it is fitted.
    pub max_model_len: Option<Found<u64>>,
    /// Tokens of a step.
    pub max_num_batched_tokens: Option<Found<u64>>,
    /// Memory of the weights, GiB, of each worker that differs.
    pub weights: Vec<Found<Hundredths>>,
    /// The cache layout.
    pub layout: Option<Found<String>>,
    /// The block size that attention layers got so that their page covers a state, tokens.
    pub attention_block_size: Option<Found<u64>>,
    /// The block size that the attention backend prefers, tokens.
    pub backend_block_size: Option<Found<u64>>,
    /// How states are cached, where vLLM chose it.
    pub mamba_cache_mode: Option<Found<String>>,
    /// How much larger than a state its page is, percent.
    pub mamba_page_padding: Option<Found<Hundredths>>,
    /// The padding lines, in their order.
    pub padding: Vec<Found<PaddingLine>>,
    /// Windows got full allocation, since pages could not be unified.
    pub full_allocation: Option<Found<()>>,
    /// The hybrid manager is off for a hybrid model.
    pub hybrid_off: Option<Found<()>>,
    /// No group was recognised as the draft's.
    pub draft_group_unknown: Option<Found<()>>,
    /// Memory for the cache, GiB, of each worker that differs.
    pub available_memory: Vec<Found<Hundredths>>,
    /// Tokens, of each worker that differs.
    pub tokens: Vec<Found<Tokens>>,
    /// Concurrency, of each worker that differs.
    pub concurrency: Vec<Found<Concurrency>>,
    /// Blocks, of each worker that differs.
    pub blocks: Vec<Found<u64>>,
    /// The number of blocks is overridden.
    pub blocks_override: Option<Found<BlocksOverride>>,
    /// Tokens of a block of each group.
    pub group_block_sizes: Option<Found<Vec<u64>>>,
    /// Their least common multiple.
    pub lcm_block_size: Option<Found<u64>>,
    /// The longest request was fitted to the memory.
    pub auto_fit: Option<Found<AutoFit>>,
    /// Why the engine did not start.
    pub refusal: Option<Found<Refusal>>,
}

/// More of a line is not looked at, bytes.
pub const LINE_BYTES: usize = 256 << 10;
/// Lines that a broken statement may go on over.
const CONTINUATIONS: u32 = 8;
/// Entries of a list at most.
const ENTRIES: usize = 64;
/// How often an opening is tried in one message, where other words follow it.
const TRIES: u16 = 256;

/// How a piece of a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With a line feed.
    Feed,
    /// With a carriage return, as progress bars end.
    Return,
    /// The log ends inside it.
    Cut,
}

/// Reads a log line by line.
#[derive(Debug, Default)]
pub struct Reader {
    lines: u64,
    servers: Servers,
    too_large: Vec<Found<&'static str>>,
    pending: Option<Pending>,
    /// Whether the piece before ended with a carriage return.
    returned: bool,
    /// What stands before vLLM's messages in this log.
    prefix: Prefix,
    /// A cache's size was told, or a request came: from here on users' words may be logged.
    serves: bool,
}

/// A statement that its line ended inside.
#[derive(Debug)]
struct Pending {
    statement: usize,
    rest: String,
    line: u64,
    source: Source,
    more: u32,
}

impl Reader {
    /// A reader that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads one line without its end, at most [`LINE_BYTES`] of it. Lines are counted by line feeds.
    pub fn line(&mut self, bytes: &[u8], end: End) {
        let goes_on = std::mem::replace(&mut self.returned, end == End::Return);
        if !goes_on {
            self.lines += 1;
        } else if bytes.is_empty() {
            // Between a carriage return and a line feed is no line.
            return;
        }
        let whole = end != End::Cut;
        let bytes = bytes.get(..LINE_BYTES).unwrap_or(bytes);
        if self.pending.is_none() && !may_matter(bytes) {
            return;
        }
        let text = line::text(bytes);
        if let Some(pending) = self.pending.take() {
            self.go_on(pending, &text, whole);
        }
        for message in text.split('\n') {
            // What users ask a model about may be a log too; the rest of the record is still theirs.
            if message.contains(REQUEST) {
                self.serves = true;
                break;
            }
            self.message(message, whole);
        }
    }

    /// What the log said.
    pub fn finish(self) -> ServerLog {
        ServerLog { lines: self.lines, too_large: self.too_large, ..self.servers.finish() }
    }

    fn message(&mut self, text: &str, line_ends: bool) {
        let mut tries = [TRIES; STATEMENTS.len()];
        let logo = statement::logo(text);
        for at in words(text) {
            let Some(rest) = text.get(at..) else { continue };
            for (i, (opening, read)) in STATEMENTS.iter().enumerate() {
                // One statement of a kind a line, and not any number of attempts: what it takes to read a line
                // stays in proportion to it.
                if tries[i] == 0 || !rest.starts_with(opening) {
                    continue;
                }
                let mut cursor = Cursor { rest: &rest[opening.len()..], line_ends };
                let found = read(&mut cursor, logo.is_some_and(|logo| logo < at));
                if matches!(found, Err(Short::Other)) {
                    tries[i] -= 1;
                    continue;
                }
                tries[i] = 0;
                let before = &text[..at];
                if self.is_from_user(before) {
                    continue;
                }
                match found {
                    Ok(fact) => self.fact(fact, &source::source(before), self.lines),
                    Err(Short::TooLarge) => self.too_large(opening, self.lines),
                    Err(Short::Ended | Short::Other) => {
                        self.pending = Some(Pending {
                            statement: i,
                            rest: rest[opening.len()..].to_owned(),
                            line: self.lines,
                            source: source::source(before),
                            more: 0,
                        });
                    }
                }
                self.prefix = self.prefix.max(source::prefix(before));
            }
        }
    }

    /// Whether a line that a server in use logs has less before it than vLLM's own lines, or what logs requests
    /// wrote it.
    fn is_from_user(&self, before: &str) -> bool {
        (self.serves && source::prefix(before) < self.prefix) || source::is_request(before)
    }

    fn go_on(&mut self, mut pending: Pending, text: &str, line_ends: bool) {
        if line::begins_message(text) || pending.more >= CONTINUATIONS || pending.rest.len() > LINE_BYTES {
            return;
        }
        pending.rest.push_str(text);
        pending.more += 1;
        let (opening, read) = STATEMENTS[pending.statement];
        match read(&mut Cursor { rest: &pending.rest, line_ends }, false) {
            Ok(fact) => self.fact(fact, &pending.source, pending.line),
            Err(Short::Ended) => self.pending = Some(pending),
            Err(Short::TooLarge) => self.too_large(opening, pending.line),
            Err(Short::Other) => {}
        }
    }

    fn fact(&mut self, fact: Fact, source: &Source, line: u64) {
        let sized = matches!(fact, Fact::Concurrency(_) | Fact::TokensAndConcurrency(..));
        if self.servers.keep(fact, source, line) {
            self.serves = false;
        }
        self.serves |= sized;
    }

    fn too_large(&mut self, opening: &'static str, line: u64) {
        if self.too_large.len() < ENTRIES {
            self.too_large.push(Found { value: opening.trim_end_matches([' ', ':', '(']), line });
        }
    }
}

/// What the frontend says where a request comes.
const REQUEST: &str = "Received request ";

/// Reads a whole text, in UTF-8 or UTF-16.
pub fn read(bytes: &[u8]) -> ServerLog {
    // Reading from memory does not fail.
    read_from(bytes).unwrap_or_default()
}

/// Reads a log of any size line by line; of a very long line the start is kept.
///
/// # Errors
/// If reading fails.
pub fn read_from(from: impl BufRead) -> io::Result<ServerLog> {
    let mut from = encoding::reader(from)?;
    let mut reader = Reader::new();
    let mut line = Vec::new();
    let mut some = false;
    loop {
        let buffer = from.fill_buf()?;
        if buffer.is_empty() {
            if some {
                reader.line(&line, End::Cut);
            }
            return Ok(reader.finish());
        }
        let end = buffer.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let piece = &buffer[..end.unwrap_or(buffer.len())];
        let room = LINE_BYTES.saturating_sub(line.len());
        line.extend_from_slice(&piece[..piece.len().min(room)]);
        some = true;
        let how = end.map(|end| if buffer[end] == b'\n' { End::Feed } else { End::Return });
        let used = piece.len() + usize::from(end.is_some());
        from.consume(used);
        if let Some(how) = how {
            reader.line(&line, how);
            line.clear();
            some = false;
        }
    }
}

/// The places where words begin.
fn words(text: &str) -> impl Iterator<Item = usize> + '_ {
    let bytes = text.as_bytes();
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (0..bytes.len()).filter(move |at| FIRST[bytes[*at] as usize] && (*at == 0 || !word(bytes[at - 1])))
}

/// The bytes that statements begin with.
static FIRST: [bool; 256] = first_bytes();

const fn first_bytes() -> [bool; 256] {
    let mut first = [false; 256];
    let mut i = 0;
    while i < STATEMENTS.len() {
        first[STATEMENTS[i].0.as_bytes()[0] as usize] = true;
        i += 1;
    }
    first
}

/// A quick look at the raw bytes: whether any statement may open in them.
fn may_matter(bytes: &[u8]) -> bool {
    // An escape ends in a letter, so that a word may begin after one.
    let dressed = bytes.iter().any(|byte| matches!(byte, b'\x1b' | b'\\'));
    let mut before = b' ';
    for (at, byte) in bytes.iter().enumerate() {
        if FIRST[*byte as usize] && (dressed || !before.is_ascii_alphabetic()) {
            let rest = &bytes[at..];
            if STATEMENTS.iter().any(|(opening, _)| rest.starts_with(opening.as_bytes())) {
                return true;
            }
        }
        before = *byte;
    }
    false
}

impl ServerLog {
    /// The argument `name`, if it was given.
    pub fn flag(&self, name: &str) -> Option<Found<&Value>> {
        self.flags.as_ref().and_then(|flags| entry(flags, name))
    }

    /// The setting `name` as the engine prints it.
    pub fn setting(&self, name: &str) -> Option<Found<&Value>> {
        self.config.as_ref().and_then(|config| entry(config, name))
    }

    /// A number from the engine's settings, or else from the arguments.
    pub fn count(&self, name: &str) -> Option<Found<u64>> {
        [self.setting(name), self.flag(name)]
            .into_iter()
            .flatten()
            .find_map(|found| found.value.count().map(|value| Found { value, line: found.line }))
    }

    /// The method and the draft tokens of speculative decoding.
    pub fn speculative(&self) -> Option<Found<(Option<String>, Option<u64>)>> {
        let found = [self.flag("speculative_config"), self.setting("speculative_config")]
            .into_iter()
            .flatten()
            .find(|found| matches!(found.value, Value::Map(_)))?;
        let map = found.value;
        let tokens = map.get("num_speculative_tokens").or_else(|| map.get("num_spec_tokens"));
        let method = map.get("method").and_then(Value::text).map(str::to_owned);
        Some(Found { value: (method, tokens.and_then(Value::count)), line: found.line })
    }

    /// The smallest memory for the cache of a worker, GiB.
    pub fn least_memory(&self) -> Option<&Found<Hundredths>> {
        self.available_memory.iter().min_by_key(|found| found.value)
    }

    fn keep(&mut self, fact: Fact, line: u64) {
        match fact {
            Fact::Version(version) => once(&mut self.version, version, line),
            Fact::Model(mut model) => {
                secrets::hide(&mut model);
                once(&mut self.model, model, line);
            }
            Fact::Architecture(name) => once(&mut self.architecture, name, line),
            Fact::Flags(mut flags, whole) => {
                secrets::leave_out(&mut flags);
                if let Some(model) = servers::model_of(&flags) {
                    once(&mut self.model, model.to_owned(), line);
                }
                if self.flags.is_none() {
                    self.flags_whole = whole;
                }
                once(&mut self.flags, flags, line);
            }
            Fact::Config(version, mut config) => {
                secrets::leave_out(&mut config);
                once(&mut self.version, version, line);
                if let Some(model) = servers::model_of(&config) {
                    once(&mut self.model, model.to_owned(), line);
                }
                once(&mut self.config, config, line);
            }
            Fact::MaxModelLen(tokens) => once(&mut self.max_model_len, tokens, line),
            Fact::MaxNumBatchedTokens(tokens) => once(&mut self.max_num_batched_tokens, tokens, line),
            Fact::Weights(gib) => each(&mut self.weights, gib, line),
            Fact::Layout(name) => once(&mut self.layout, name, line),
            Fact::AttentionBlockSize(size) => once(&mut self.attention_block_size, size, line),
            Fact::BackendBlockSize(size) => once(&mut self.backend_block_size, size, line),
            Fact::MambaCacheMode(mode) => once(&mut self.mamba_cache_mode, mode, line),
            Fact::MambaPagePadding(percent) => once(&mut self.mamba_page_padding, percent, line),
            Fact::Padding(padding) => {
                // Two buckets may be padded alike, so that every line counts.
                if self.padding.len() < ENTRIES {
                    self.padding.push(Found { value: padding, line });
                }
            }
            Fact::FullAllocation => once(&mut self.full_allocation, (), line),
            Fact::HybridOff => once(&mut self.hybrid_off, (), line),
            Fact::DraftGroupUnknown => once(&mut self.draft_group_unknown, (), line),
            Fact::AvailableMemory(gib) => each(&mut self.available_memory, gib, line),
            Fact::Tokens(tokens) => each(&mut self.tokens, tokens, line),
            Fact::TokensAndConcurrency(tokens, concurrency) => {
                each(&mut self.tokens, tokens, line);
                each(&mut self.concurrency, concurrency, line);
            }
            Fact::Concurrency(concurrency) => each(&mut self.concurrency, concurrency, line),
            Fact::Blocks(blocks) => each(&mut self.blocks, blocks, line),
            Fact::Override(blocks) => once(&mut self.blocks_override, blocks, line),
            Fact::GroupBlockSizes(sizes) => once(&mut self.group_block_sizes, sizes, line),
            Fact::LcmBlockSize(size) => once(&mut self.lcm_block_size, size, line),
            Fact::AutoFit(fit) => once(&mut self.auto_fit, fit, line),
            Fact::Refusal(refusal) => once(&mut self.refusal, refusal, line),
        }
    }
}

fn entry<'a>(entries: &'a Found<Vec<(String, Value)>>, name: &str) -> Option<Found<&'a Value>> {
    let (_, value) = entries.value.iter().find(|(key, _)| key == name)?;
    Some(Found { value, line: entries.line })
}

fn once<T>(slot: &mut Option<Found<T>>, value: T, line: u64) {
    slot.get_or_insert(Found { value, line });
}

fn each<T: PartialEq>(list: &mut Vec<Found<T>>, value: T, line: u64) {
    if list.len() < ENTRIES && list.iter().all(|known| known.value != value) {
        list.push(Found { value, line });
    }
}
