//! Does what a server logged agree with the plan of a model?
//!
//! The log's version, lengths and memory are laid over the settings, and each figure that the log prints is
//! set beside the plan's. Memory is printed in GiB with two decimals: every block count that a memory which
//! rounds to it can give is tried, and the log agrees if one of them gives all figures.

use std::collections::BTreeSet;

use super::log::{Hundredths, PaddingLine, ServerLog, Value};
use crate::capacity::{self, Pool};
use crate::engine::{EngineVersion, Rule, Rules, holds_in_minor};
use crate::error::{CapacityError, GroupingError, format_gib};
use crate::group::{self, Grouping};
use crate::model::Model;
use crate::pool;
use crate::settings::{EngineSettings, Layout, MambaCacheMode};
use crate::size;
use crate::spec::{KvCacheSpec, RequestShape};

/// How a figure of the log and the plan's compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The same, whatever the memory behind the printed figure is.
    Equal,
    /// The same for some memory that rounds to the printed figure.
    Possible,
    /// Never the same.
    Different,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What it is.
    pub name: &'static str,
    /// Where the log says it.
    pub line: u64,
    /// As logged.
    pub log: String,
    /// As planned; a range where memory decides.
    pub plan: String,
    /// Whether they agree.
    pub verdict: Verdict,
}

/// The memory and blocks that give all figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreement {
    /// The least and the most memory tried that does, bytes; `None` where the log says no memory.
    pub memory_bytes: Option<(u64, u64)>,
    /// The fewest and the most blocks; `None` where the engine refuses.
    pub num_blocks: Option<(u64, u64)>,
}

/// A log beside a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beside {
    /// The version that was planned for.
    pub version: EngineVersion,
    /// The settings that were planned with.
    pub settings: EngineSettings,
    /// What was taken from the log, and what was not.
    pub notes: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
    /// What gives all figures that memory decides, if there are any and something does.
    pub agreement: Option<Agreement>,
    /// Whether memory decides any figure of the log.
    pub has_capacity: bool,
}

impl Beside {
    /// Whether something cannot agree.
    pub fn disagrees(&self) -> bool {
        self.rows.iter().any(|row| row.verdict == Verdict::Different)
            || (self.has_capacity && self.agreement.is_none())
    }
}

/// Memories and block counts tried at most.
const CANDIDATES: u64 = 1 << 16;
const LAYOUTS: [Layout; 6] =
    [Layout::Lbhnc, Layout::Lbnhc, Layout::Lhbnc, Layout::Blhnc, Layout::Blnhc, Layout::Bhlnc];

/// Sets `log` beside the plan of `model` under `settings`, the log's own settings laid over them.
///
/// # Errors
/// If vLLM would refuse to group the layers.
pub fn beside(
    log: &ServerLog,
    model: &Model,
    settings: &EngineSettings,
    version: Option<EngineVersion>,
) -> Result<Beside, GroupingError> {
    let mut notes = Vec::new();
    let version = engine(log, version, &mut notes);
    let rules = version.rules();
    let mut settings = settings.clone();
    let mut rows = Vec::new();
    parallel_rows(log, &settings, &mut rows);
    overlay(log, &mut settings, &mut notes);
    let declared = group::group(model, &settings, &rules)?;
    grouping_rows(log, model, &declared, &settings, &rules, &mut rows);
    let grouping = match capacity::allocated_grouping(model, &settings, &rules) {
        Ok(allocated) => allocated.unwrap_or(declared),
        Err(_) => declared,
    };
    let mut beside = Beside { version, settings, notes, rows, agreement: None, has_capacity: false };
    if !grouping.groups.is_empty() {
        capacity_rows(log, &rules, &grouping, &mut beside);
    }
    Ok(beside)
}

/// The engine that a log is planned for: its own, or the nearest that is known.
pub fn engine(log: &ServerLog, version: Option<EngineVersion>, notes: &mut Vec<String>) -> EngineVersion {
    let scenario = version.unwrap_or_default();
    let Some(found) = &log.version else {
        notes.push(format!("the log names no version; planned as vLLM {scenario}"));
        return scenario;
    };
    match found.value.parse::<EngineVersion>() {
        Ok(version) => version,
        Err(_) => {
            let text = &found.value;
            let minor = minor(text);
            let nearest = match minor {
                Some(minor) if minor < EngineVersion::OLDEST.minor() => EngineVersion::OLDEST,
                Some(minor) if minor > EngineVersion::LATEST.minor() => EngineVersion::LATEST,
                _ => scenario,
            };
            notes.push(format!("the rules of vLLM {text} are not known; planned as vLLM {nearest}"));
            nearest
        }
    }
}

/// N of 0.N.
fn minor(version: &str) -> Option<u16> {
    let rest = version.strip_prefix("0.")?;
    let (minor, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    // 0.1.dev20073 is a build of nobody knows which version.
    if rest.starts_with(".dev") { None } else { minor.parse().ok() }
}

/// Ranks shape the specs of a scenario, so that they are compared and not laid over it.
fn parallel_rows(log: &ServerLog, settings: &EngineSettings, rows: &mut Vec<Row>) {
    for (name, flag, plan) in [
        ("tensor parallel size", "tensor_parallel_size", settings.tensor_parallel_size),
        ("pipeline parallel size", "pipeline_parallel_size", settings.pipeline_parallel_size),
        (
            "decode context parallel size",
            "decode_context_parallel_size",
            settings.decode_context_parallel_size,
        ),
        (
            "prefill context parallel size",
            "prefill_context_parallel_size",
            settings.prefill_context_parallel_size,
        ),
    ] {
        if let Some(found) = log.count(flag) {
            rows.push(exact(name, found.line, &found.value, &plan));
        }
    }
}

fn exact<T: PartialEq + ToString>(name: &'static str, line: u64, log: &T, plan: &T) -> Row {
    let verdict = if log == plan { Verdict::Equal } else { Verdict::Different };
    Row { name, line, log: log.to_string(), plan: plan.to_string(), verdict }
}

fn overlay(log: &ServerLog, settings: &mut EngineSettings, notes: &mut Vec<String>) {
    settings.auto_fit_max_model_len = log.auto_fit.is_some();
    let asked = log.refusal.as_ref().and_then(|refusal| refusal.value.max_model_len);
    let length = match &log.auto_fit {
        Some(fit) => Some(fit.value.derived),
        None => asked
            .or_else(|| log.concurrency.first().map(|found| found.value.max_model_len))
            .or_else(|| log.count("max_seq_len").map(|found| found.value))
            .or_else(|| log.flag("max_model_len").and_then(|found| found.value.count()))
            .or_else(|| log.max_model_len.as_ref().map(|found| found.value)),
    };
    match length {
        Some(length) => settings.max_model_len = length,
        None => notes.push(format!("the log names no length; planned for {} tokens", settings.max_model_len)),
    }
    let batched = log
        .flag("max_num_batched_tokens")
        .and_then(|found| found.value.count())
        .or_else(|| log.max_num_batched_tokens.as_ref().map(|found| found.value));
    match batched {
        Some(batched) => settings.max_num_batched_tokens = batched,
        None => notes.push(format!(
            "the log names no max_num_batched_tokens; planned with {}",
            settings.max_num_batched_tokens
        )),
    }
    if let Some(layout) = &log.layout
        && let Some(known) = LAYOUTS.iter().find(|known| known.name() == layout.value)
    {
        settings.kv_cache_layout = *known;
    }
    let disabled =
        log.flag("disable_hybrid_kv_cache_manager").is_some_and(|on| *on.value == Value::Bool(true));
    if disabled || log.hybrid_off.is_some() {
        settings.disable_hybrid_kv_cache_manager = true;
    }
    let mode = log
        .flag("mamba_cache_mode")
        .and_then(|found| found.value.text().map(str::to_owned))
        .or_else(|| log.mamba_cache_mode.as_ref().map(|found| found.value.clone()));
    match mode.as_deref() {
        Some("none") => settings.mamba_cache_mode = MambaCacheMode::None,
        Some("align") => settings.mamba_cache_mode = MambaCacheMode::Align,
        Some("all") => settings.mamba_cache_mode = MambaCacheMode::All,
        _ => {}
    }
    settings.num_gpu_blocks_override = log.blocks_override.as_ref().map(|found| found.value.blocks);
}

fn grouping_rows(
    log: &ServerLog,
    model: &Model,
    grouping: &Grouping,
    settings: &EngineSettings,
    rules: &Rules,
    rows: &mut Vec<Row>,
) {
    let ranks = settings.decode_context_parallel_size;
    if let Some(found) = &log.group_block_sizes {
        let sizes: Vec<u64> = grouping
            .groups
            .iter()
            .map(|group| {
                let spec = grouping.specs.spec(group.first_spec());
                spec.block_size().saturating_mul(if spec.dcp_sharded() { ranks } else { 1 })
            })
            .collect();
        rows.push(exact("group block sizes", found.line, &sizes_words(&found.value), &sizes_words(&sizes)));
        if let Some(lcm) = &log.lcm_block_size {
            let own = sizes.iter().try_fold(1, |lcm, size| size::lcm("block size", lcm, *size).ok());
            rows.push(exact("lcm of block sizes", lcm.line, &lcm.value, &own.unwrap_or(0)));
        }
    }
    if let Some(first) = log.padding.first() {
        let logged: Vec<PaddingLine> = log.padding.iter().map(|found| found.value).collect();
        let plan: Vec<PaddingLine> = grouping
            .warnings
            .iter()
            .filter_map(|warning| {
                let percent = percent(warning.padding_layers, warning.layers)?;
                Some(PaddingLine { layers: warning.padding_layers, percent })
            })
            .collect();
        // An engine that groups twice warns twice.
        let again = !plan.is_empty() && logged.chunks(plan.len()).all(|chunk| chunk == plan);
        rows.push(Row {
            name: "padding layers",
            line: first.line,
            log: padding_words(&logged),
            plan: padding_words(&plan),
            verdict: if again { Verdict::Equal } else { Verdict::Different },
        });
    }
    if let Some(found) = &log.attention_block_size {
        let sizes: BTreeSet<u64> =
            model.specs.iter().filter_map(|spec| spec.attention().map(|spec| spec.block_size)).collect();
        let words: Vec<String> = sizes.iter().map(u64::to_string).collect();
        rows.push(Row {
            name: "attention block size",
            line: found.line,
            log: found.value.to_string(),
            plan: words.join(" or "),
            verdict: if sizes.contains(&found.value) { Verdict::Equal } else { Verdict::Different },
        });
    }
    if let Some(found) = &log.mamba_page_padding {
        let all: BTreeSet<Hundredths> = model
            .specs
            .iter()
            .filter(|spec| matches!(spec, KvCacheSpec::Mamba(_)))
            .filter_map(|spec| {
                let own = spec.unpadded_page_size_bytes(rules).ok()?;
                let page = spec.page_size_bytes(rules).ok()?;
                percent(page.checked_sub(own)?, own)
            })
            .collect();
        let words: Vec<String> = all.iter().map(|percent| format!("{percent}%")).collect();
        rows.push(Row {
            name: "state page padding",
            line: found.line,
            log: format!("{}%", found.value),
            plan: if words.is_empty() { "no state layers".to_owned() } else { words.join(" or ") },
            verdict: if all.contains(&found.value) { Verdict::Equal } else { Verdict::Different },
        });
    }
}

fn sizes_words(sizes: &[u64]) -> String {
    let words: Vec<String> = sizes.iter().map(u64::to_string).collect();
    words.join(", ")
}

fn padding_words(lines: &[PaddingLine]) -> String {
    let words: Vec<String> =
        lines.iter().map(|line| format!("{} ({}%)", line.layers, line.percent)).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// A share as Python's `%.2f` prints it.
#[expect(clippy::cast_precision_loss, reason = "the engine divides in floating point too")]
fn percent(part: u64, whole: u64) -> Option<Hundredths> {
    if whole == 0 {
        return None;
    }
    Hundredths::parse(&format!("{:.2}", part as f64 / whole as f64 * 100.0))
}

/// What memory the log allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// One of these bytes, both ends included.
    Between(u64, u64),
    /// Not said; blocks follow from the tokens.
    Unknown,
}

/// The bytes that print as `gib`, both ends included.
fn bytes_of(gib: Hundredths) -> (u64, u64) {
    // Hundredths of a GiB are no whole bytes: a step outwards, then inwards until the text is the same.
    let middle = u128::from(gib.0) * (1 << 30) / 100;
    let half = (1_u128 << 30) / 200 + 2;
    let clamp = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
    let (mut low, mut high) = (clamp(middle.saturating_sub(half)), clamp(middle + half));
    let same = |bytes: u64| Hundredths::parse(&format_gib(bytes)) == Some(gib);
    for _ in 0..6 {
        if !same(low) && low < high {
            low += 1;
        }
        if !same(high) && high > low {
            high -= 1;
        }
    }
    (low, high)
}

/// What the pool prints for one memory.
#[derive(Debug, Clone, PartialEq)]
struct Printed {
    blocks: Option<u64>,
    tokens: Option<(u64, u64)>,
    concurrency: Option<Hundredths>,
    fitted: Option<u64>,
    needed: Option<Hundredths>,
    available: Option<Hundredths>,
    estimated: Option<u64>,
}

impl Printed {
    fn of(pool: Result<Pool, CapacityError>) -> Self {
        let none = Self {
            blocks: None,
            tokens: None,
            concurrency: None,
            fitted: None,
            needed: None,
            available: None,
            estimated: None,
        };
        match pool {
            Ok(pool) => Self {
                blocks: Some(pool.num_blocks),
                tokens: Some((pool.kv_cache_size_tokens, pool.kv_cache_size_tokens_by_blocks)),
                concurrency: Hundredths::parse(&format!("{:.2}", pool.max_concurrency)),
                fitted: Some(pool.max_model_len),
                ..none
            },
            Err(CapacityError::NotEnough {
                needed_bytes, available_bytes, estimated_max_model_len, ..
            }) => Self {
                needed: Hundredths::parse(&format_gib(needed_bytes)),
                available: Hundredths::parse(&format_gib(available_bytes)),
                estimated: Some(estimated_max_model_len),
                ..none
            },
            Err(_) => none,
        }
    }
}

/// How a figure came out over all candidates.
#[derive(Debug, Clone)]
struct Tried {
    ever: bool,
    always: bool,
    range: Option<(u64, u64)>,
}

/// Name, line, text in the log; whether the plan's is the same, and its number; how to print that.
type Figure = (&'static str, u64, String, Box<dyn Fn(&Printed) -> (bool, Option<u64>)>, fn(u64) -> String);

fn plain(number: u64) -> String {
    number.to_string()
}

fn decimal(number: u64) -> String {
    Hundredths(number).to_string()
}

/// How the engine counts the tokens that it logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    ByConcurrency,
    ByBlocks,
    /// The log does not say which engine it is of.
    Either,
}

impl Counts {
    fn of(log: &ServerLog) -> Self {
        let Some(found) = &log.version else { return Self::Either };
        match minor(&found.value) {
            Some(minor) if holds_in_minor(Rule::TokensByBlocks, minor) => Self::ByBlocks,
            Some(_) => Self::ByConcurrency,
            None => Self::Either,
        }
    }
}

/// The figures of the log that memory decides.
fn figures(log: &ServerLog) -> Vec<Figure> {
    let counts = Counts::of(log);
    let mut figures: Vec<Figure> = Vec::new();
    if let Some(found) = log.blocks.iter().min_by_key(|found| found.value) {
        let own = found.value;
        let read = move |printed: &Printed| (printed.blocks == Some(own), printed.blocks);
        figures.push(("blocks", found.line, own.to_string(), Box::new(read), plain));
    }
    if let Some(found) = log.tokens.iter().min_by_key(|found| found.value.tokens) {
        let own = found.value.tokens;
        let read = move |printed: &Printed| match printed.tokens {
            Some((tokens, by_blocks)) => match counts {
                Counts::ByConcurrency => (tokens == own, Some(tokens)),
                Counts::ByBlocks => (by_blocks == own, Some(by_blocks)),
                Counts::Either => (tokens == own || by_blocks == own, Some(tokens)),
            },
            None => (false, None),
        };
        figures.push(("KV cache size, tokens", found.line, own.to_string(), Box::new(read), plain));
    }
    if let Some(found) = log.concurrency.iter().min_by_key(|found| found.value.requests) {
        let own = found.value.requests;
        let read = move |printed: &Printed| {
            (printed.concurrency == Some(own), printed.concurrency.map(|concurrency| concurrency.0))
        };
        figures.push(("maximum concurrency", found.line, own.to_string(), Box::new(read), decimal));
    }
    if let Some(found) = &log.auto_fit {
        let own = found.value.fitted;
        let read = move |printed: &Printed| (printed.fitted == Some(own), printed.fitted);
        figures.push(("fitted max_model_len", found.line, own.to_string(), Box::new(read), plain));
    }
    if let Some(found) = &log.refusal {
        let line = found.line;
        if let Some(own) = found.value.needed {
            let read =
                move |printed: &Printed| (printed.needed == Some(own), printed.needed.map(|gib| gib.0));
            figures.push(("memory needed, GiB", line, own.to_string(), Box::new(read), decimal));
        }
        if let Some(own) = found.value.available {
            let read =
                move |printed: &Printed| (printed.available == Some(own), printed.available.map(|gib| gib.0));
            figures.push(("memory available, GiB", line, own.to_string(), Box::new(read), decimal));
        }
        if let (Some(own), true) = (found.value.estimated_max_model_len, found.value.needed.is_some()) {
            let read = move |printed: &Printed| (printed.estimated == Some(own), printed.estimated);
            figures.push(("estimated max_model_len", line, own.to_string(), Box::new(read), plain));
        }
    }
    figures
}

fn capacity_rows(log: &ServerLog, rules: &Rules, grouping: &Grouping, beside: &mut Beside) {
    let figures = figures(log);
    if figures.is_empty() {
        return;
    }
    beside.has_capacity = true;
    let memory = memory(log, rules, grouping, beside);
    let mut ranges = vec![Tried { ever: false, always: true, range: None }; figures.len()];
    let mut agreement: Option<Agreement> = None;
    let mut tried = 0_u64;
    let mut settings = beside.settings.clone();
    for candidate in candidates(log, memory, &settings, rules, grouping) {
        match candidate {
            Candidate::Bytes(bytes) => settings.available_memory_bytes = vec![bytes],
            Candidate::Blocks(blocks) => settings.num_gpu_blocks_override = Some(blocks),
        }
        let mut length = settings.max_model_len;
        let printed = Printed::of(capacity::pool(&settings, rules, grouping, &mut length));
        tried += 1;
        let mut all = true;
        for ((_, _, _, read, _), Tried { ever, always, range }) in figures.iter().zip(&mut ranges) {
            let (same, value) = read(&printed);
            all &= same;
            *ever |= same;
            *always &= same;
            if let Some(value) = value {
                let (low, high) = range.unwrap_or((value, value));
                *range = Some((low.min(value), high.max(value)));
            }
        }
        if all {
            let bytes = match candidate {
                Candidate::Bytes(bytes) => Some((bytes, bytes)),
                Candidate::Blocks(_) => None,
            };
            let blocks = printed.blocks.map(|blocks| (blocks, blocks));
            agreement = Some(match agreement {
                None => Agreement { memory_bytes: bytes, num_blocks: blocks },
                Some(known) => Agreement {
                    memory_bytes: spanned(known.memory_bytes, bytes),
                    num_blocks: spanned(known.num_blocks, blocks),
                },
            });
        }
    }
    for ((name, line, own, _, show), Tried { ever, always, range }) in figures.into_iter().zip(ranges) {
        beside.rows.push(Row {
            name,
            line,
            log: own,
            plan: match range {
                None => "none".to_owned(),
                Some((low, high)) if low == high => show(low),
                Some((low, high)) => format!("{} to {}", show(low), show(high)),
            },
            verdict: match (ever, always && tried > 0) {
                (true, true) => Verdict::Equal,
                (true, false) => Verdict::Possible,
                (false, _) => Verdict::Different,
            },
        });
    }
    beside.agreement = agreement;
}

fn spanned(a: Option<(u64, u64)>, b: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (a, b) {
        (Some((low, high)), Some((other_low, other_high))) => {
            Some((low.min(other_low), high.max(other_high)))
        }
        (known, None) | (None, known) => known,
    }
}

fn memory(log: &ServerLog, rules: &Rules, grouping: &Grouping, beside: &mut Beside) -> Memory {
    let flagged = log.flag("kv_cache_memory_bytes").and_then(|found| found.value.count());
    if let Some(bytes) = flagged.filter(|bytes| *bytes > 0) {
        beside.notes.push(format!("the memory is {bytes} bytes, as `kv_cache_memory_bytes` says"));
        return Memory::Between(bytes, bytes);
    }
    let refused = log.refusal.as_ref().and_then(|found| found.value.available);
    let printed = log.least_memory().map(|found| found.value).map(bytes_of);
    let fitted = log.auto_fit.as_ref().and_then(|found| found.value.memory).map(bytes_of);
    // The error counts without the null block where the engine holds it back.
    let checked = refused.map(bytes_of).map(|(low, high)| {
        let null_block =
            if rules.null_block_reserved { smallest_block(&beside.settings, rules, grouping) } else { 0 };
        (low.saturating_add(null_block), high.saturating_add(null_block))
    });
    let all = [printed, fitted, checked].into_iter().flatten();
    match all.reduce(|(low, high), (other_low, other_high)| (low.max(other_low), high.min(other_high))) {
        Some((low, high)) if low <= high => Memory::Between(low, high),
        Some(_) => {
            beside.notes.push("the log names different memories; the smallest worker's is taken".to_owned());
            let (low, high) = printed.or(fitted).or(checked).unwrap_or((0, 0));
            Memory::Between(low, high)
        }
        None => match beside.settings.available_memory_bytes.iter().min() {
            Some(bytes) => {
                beside
                    .notes
                    .push(format!("the log names no memory; planned with the scenario's {bytes} bytes"));
                Memory::Between(*bytes, *bytes)
            }
            None => {
                beside.notes.push("the log names no memory; blocks follow from its tokens".to_owned());
                Memory::Unknown
            }
        },
    }
}

fn smallest_block(settings: &EngineSettings, rules: &Rules, grouping: &Grouping) -> u64 {
    blocks_bytes(settings, rules, grouping).into_iter().min().unwrap_or(0)
}

/// Bytes of a block of each stage.
fn blocks_bytes(settings: &EngineSettings, rules: &Rules, grouping: &Grouping) -> BTreeSet<u64> {
    pool::stages(settings, grouping)
        .iter()
        .filter_map(|stage| pool::bytes_per_block(rules, settings.kv_cache_layout, grouping, stage).ok())
        .filter(|bytes| *bytes > 0)
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Candidate {
    Bytes(u64),
    Blocks(u64),
}

/// Each memory in the interval at which the pool changes, or the block counts near the logged tokens.
fn candidates(
    log: &ServerLog,
    memory: Memory,
    settings: &EngineSettings,
    rules: &Rules,
    grouping: &Grouping,
) -> BTreeSet<Candidate> {
    let mut all = BTreeSet::new();
    match memory {
        Memory::Between(low, high) => {
            all.insert(Candidate::Bytes(low));
            all.insert(Candidate::Bytes(high));
            for block in blocks_bytes(settings, rules, grouping) {
                let first = low / block + 1;
                let last = high / block;
                // A block of a few bytes has more counts than can be tried: evenly spread ones then.
                let step = ((last.saturating_sub(first)) / CANDIDATES).max(1);
                let mut count = first;
                while count <= last {
                    all.insert(Candidate::Bytes(count * block));
                    count += step;
                }
            }
        }
        Memory::Unknown => {
            all.extend(log.blocks.iter().map(|found| Candidate::Blocks(found.value)));
            let shape = RequestShape { tokens: settings.max_model_len, settings, rules };
            let per_request = capacity::request_blocks(grouping, shape).unwrap_or(0);
            for tokens in log.tokens.iter().map(|found| found.value.tokens) {
                let around = u128::from(tokens) * u128::from(per_request) / u128::from(shape.tokens.max(1));
                let around = u64::try_from(around).unwrap_or(u64::MAX / 2);
                all.extend((around.saturating_sub(2)..=around + 2).map(Candidate::Blocks));
                // As versions up to about 0.20 counted.
                let smallest =
                    grouping.groups.iter().map(|group| grouping.block_size(group)).min().unwrap_or(1);
                let groups = grouping.groups.len() as u64;
                let from = (tokens / smallest.max(1)).saturating_mul(groups);
                all.extend((from..from.saturating_add(groups.min(CANDIDATES))).map(Candidate::Blocks));
            }
            if let (Some(found), true) = (log.concurrency.first(), log.tokens.is_empty()) {
                let around = u128::from(found.value.requests.0) * u128::from(per_request) / 100;
                let around = u64::try_from(around).unwrap_or(u64::MAX / 2);
                let reach = (per_request / 100 + 2).min(CANDIDATES);
                let blocks = around.saturating_sub(reach)..=around.saturating_add(reach);
                all.extend(blocks.map(Candidate::Blocks));
            }
        }
    }
    all
}
