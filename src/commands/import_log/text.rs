//! What the log says, as people read it.

use std::io;

use planner::import::beside::{Agreement, Verdict};
use planner::import::log::{Found, ServerLog, Value};

use super::Side;
use crate::render::number::{bytes, thousands};
use crate::render::table::{Side as Edge, Table};
use crate::render::words::wrap;
use crate::terminal::{Style, Terminal};

/// One thing that a log can say: its name here, and what it says, with the line.
pub(super) struct Said {
    /// The name.
    pub(super) name: &'static str,
    /// The key in JSON.
    pub(super) key: &'static str,
    /// Each mention: text, line.
    pub(super) found: Vec<(String, u64)>,
}

fn one<T>(found: Option<&Found<T>>, text: impl Fn(&T) -> String) -> Vec<(String, u64)> {
    found.iter().map(|found| (text(&found.value), found.line)).collect()
}

fn all<T>(found: &[Found<T>], text: impl Fn(&T) -> String) -> Vec<(String, u64)> {
    found.iter().map(|found| (text(&found.value), found.line)).collect()
}

/// Everything that a log can say, said or not.
pub(super) fn said(log: &ServerLog) -> Vec<Said> {
    let own = |text: &String| text.clone();
    let number = |number: &u64| thousands(*number);
    let said = |name, key, found| Said { name, key, found };
    vec![
        said("vLLM version", "version", one(log.version.as_ref(), own)),
        said("model", "model", one(log.model.as_ref(), own)),
        said("architecture", "architecture", one(log.architecture.as_ref(), own)),
        said(
            "speculative decoding",
            "speculative",
            one(log.speculative().as_ref(), |(method, tokens)| {
                let method = method.as_deref().unwrap_or("?");
                tokens.map_or_else(|| method.to_owned(), |tokens| format!("{method}, {tokens} tokens"))
            }),
        ),
        said("max_model_len", "max_model_len", one(log.max_model_len.as_ref(), number)),
        said(
            "max_num_batched_tokens",
            "max_num_batched_tokens",
            one(log.max_num_batched_tokens.as_ref(), number),
        ),
        said("weights", "weights_gib", all(&log.weights, |gib| format!("{gib} GiB"))),
        said("KV cache layout", "kv_cache_layout", one(log.layout.as_ref(), own)),
        said("backend block size", "backend_block_size", one(log.backend_block_size.as_ref(), number)),
        said("attention block size", "attention_block_size", one(log.attention_block_size.as_ref(), number)),
        said(
            "state page padding",
            "mamba_page_padding",
            one(log.mamba_page_padding.as_ref(), |p| format!("{p}%")),
        ),
        said("state cache mode", "mamba_cache_mode", one(log.mamba_cache_mode.as_ref(), own)),
        said(
            "padding layers",
            "padding_layers",
            all(&log.padding, |padding| format!("{}, at most {}%", padding.layers, padding.percent)),
        ),
        said(
            "full allocation for windows",
            "full_allocation",
            one(log.full_allocation.as_ref(), |()| "yes".to_owned()),
        ),
        said("hybrid manager off", "hybrid_off", one(log.hybrid_off.as_ref(), |()| "yes".to_owned())),
        said(
            "no group is the draft's",
            "draft_group_unknown",
            one(log.draft_group_unknown.as_ref(), |()| "yes".to_owned()),
        ),
        said(
            "memory for the KV cache",
            "available_memory",
            all(&log.available_memory, |gib| format!("{gib} GiB")),
        ),
        said(
            "KV cache size",
            "kv_cache_size",
            all(&log.tokens, |tokens| format!("{} tokens ({})", thousands(tokens.tokens), tokens.device)),
        ),
        said(
            "maximum concurrency",
            "max_concurrency",
            all(&log.concurrency, |concurrency| {
                format!("{}x at {} tokens", concurrency.requests, thousands(concurrency.max_model_len))
            }),
        ),
        said("blocks", "num_gpu_blocks", all(&log.blocks, number)),
        said(
            "blocks overridden",
            "num_gpu_blocks_override",
            one(log.blocks_override.as_ref(), |blocks| {
                format!("{} -> {}", thousands(blocks.profiled_blocks), thousands(blocks.blocks))
            }),
        ),
        said(
            "group block sizes",
            "group_block_sizes",
            one(log.group_block_sizes.as_ref(), |sizes| {
                let words: Vec<String> = sizes.iter().map(u64::to_string).collect();
                words.join(", ")
            }),
        ),
        said("lcm of block sizes", "lcm_block_size", one(log.lcm_block_size.as_ref(), number)),
        said(
            "auto-fit",
            "auto_fit",
            one(log.auto_fit.as_ref(), |fit| {
                format!("{} -> {} tokens", thousands(fit.derived), thousands(fit.fitted))
            }),
        ),
        said(
            "vLLM refused",
            "refusal",
            one(log.refusal.as_ref(), |refusal| match refusal.estimated_max_model_len {
                Some(tokens) => {
                    format!("{}; the longest that fits is {} tokens", refusal.message, thousands(tokens))
                }
                None => refusal.message.clone(),
            }),
        ),
    ]
}

/// What a log of a start that came to its end says.
const EXPECTED: &[&str] = &["version", "model", "available_memory", "kv_cache_size", "max_concurrency"];

/// The names of what is expected and not said.
pub(super) fn missing(log: &ServerLog, said: &[Said]) -> Vec<&'static str> {
    let mut missing: Vec<&'static str> = said
        .iter()
        .filter(|said| said.found.is_empty() && EXPECTED.contains(&said.key))
        .filter(|said| log.refusal.is_none() || !matches!(said.key, "kv_cache_size" | "max_concurrency"))
        .map(|said| said.name)
        .collect();
    if log.flags.is_none() && log.config.is_none() {
        missing.push("arguments");
    }
    missing
}

/// Whether a log says anything at all.
pub(super) fn says_anything(log: &ServerLog) -> bool {
    log.flags.is_some() || log.config.is_some() || said(log).iter().any(|said| !said.found.is_empty())
}

/// "1 line", "12 lines".
pub(super) fn lines(n: u64) -> String {
    if n == 1 { "1 line".to_owned() } else { format!("{} lines", thousands(n)) }
}

/// A Python value in one line.
pub(super) fn value_words(value: &Value) -> String {
    match value {
        Value::None => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(value) => value.to_string(),
        Value::Text(text) | Value::Other(text) => text.clone(),
        Value::List(items) => {
            let words: Vec<String> = items.iter().map(value_words).collect();
            format!("[{}]", words.join(", "))
        }
        Value::Map(entries) => {
            let words: Vec<String> =
                entries.iter().map(|(key, value)| format!("{key}={}", value_words(value))).collect();
            format!("{{{}}}", words.join(", "))
        }
    }
}

/// Control characters of a log do not reach a terminal, and a long text is cut.
fn clean(text: &str) -> String {
    let clean: String = text.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(200).is_some() { format!("{clean}...") } else { clean }
}

/// Writes it all.
pub(super) fn write(log: &ServerLog, side: Option<&Side>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let said = said(log);
    if log.starts > 1 {
        writeln!(terminal.out, "{} starts in the log; this is the last", log.starts)?;
    }
    let mut table = Table::new(vec![("the log says", Edge::Left), ("line", Edge::Right), ("", Edge::Left)]);
    for said in &said {
        for (i, (text, line)) in said.found.iter().enumerate() {
            let name = if i == 0 { said.name } else { "" };
            table.row(vec![name.to_owned(), line.to_string(), clean(text)]);
        }
    }
    if let Some(flags) = &log.flags {
        for (i, (name, value)) in flags.value.iter().enumerate() {
            let head = if i == 0 { "arguments" } else { "" };
            let line = if i == 0 { flags.line.to_string() } else { String::new() };
            table.row(vec![head.to_owned(), line, clean(&format!("{name} = {}", value_words(value)))]);
        }
    }
    table.write(0, terminal)?;
    if log.flags.is_some() && !log.flags_whole {
        writeln!(terminal.out, "the arguments are cut")?;
    }
    if log.other_engines > 0 {
        writeln!(
            terminal.out,
            "{} statements of other data parallel engines are left out",
            log.other_engines
        )?;
    }
    if !log.other_servers.is_empty() {
        let others: Vec<String> = log
            .other_servers
            .iter()
            .map(|server| {
                let model = server.model.as_deref().unwrap_or("one that does not name its model");
                let pid = server.pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
                clean(&format!("{model} (line {}{pid})", server.line))
            })
            .collect();
        writeln!(
            terminal.out,
            "the log holds several servers; this is the last; left out: {}",
            others.join(", ")
        )?;
    }
    if log.untold_workers > 0 {
        writeln!(
            terminal.out,
            "{} statements of workers are left out: they do not say whose they are",
            log.untold_workers
        )?;
    }
    for found in &log.too_large {
        writeln!(
            terminal.out,
            "line {}: `{}` says a number above 64 bits, which is left out",
            found.line, found.value
        )?;
    }
    let missing = missing(log, &said);
    if !missing.is_empty() {
        writeln!(terminal.out, "not in the log: {}", missing.join(", "))?;
    }
    match side {
        Some(side) => beside(side, terminal),
        None => Ok(()),
    }
}

fn beside(side: &Side, terminal: &mut Terminal<'_>) -> io::Result<()> {
    writeln!(terminal.out)?;
    let beside = match &side.beside {
        Ok(beside) => beside,
        Err(error) => {
            let refuses = terminal.paint(Style::Bad, "vLLM refuses to group these layers");
            return writeln!(terminal.out, "{}: {refuses}: {error}", side.scenario);
        }
    };
    writeln!(
        terminal.out,
        "{}",
        terminal
            .paint(Style::Bold, &format!("beside the plan of {} (vLLM {})", side.scenario, beside.version))
    )?;
    for note in &beside.notes {
        writeln!(terminal.out, "  {}", wrap(note, 2))?;
    }
    let mut table = Table::new(vec![
        ("figure", Edge::Left),
        ("line", Edge::Right),
        ("log", Edge::Right),
        ("plan", Edge::Right),
        ("", Edge::Left),
    ]);
    for row in &beside.rows {
        let verdict = match row.verdict {
            Verdict::Equal => "equal",
            Verdict::Possible => "equal for some memory",
            Verdict::Different => "DIFFERENT",
        };
        table.row(vec![
            row.name.to_owned(),
            row.line.to_string(),
            row.log.clone(),
            row.plan.clone(),
            verdict.to_owned(),
        ]);
    }
    if table.is_empty() {
        return writeln!(terminal.out, "the log holds no figure that a plan gives");
    }
    table.write(0, terminal)?;
    let sentence = match beside.agreement {
        Some(agreement) => agreement_words(agreement),
        None if beside.has_capacity => {
            "no memory that rounds to the printed one gives all of these figures".to_owned()
        }
        None => "the log holds no figure that memory decides".to_owned(),
    };
    let style = if beside.disagrees() { Style::Bad } else { Style::Good };
    let verdict =
        if beside.disagrees() { "the log and the plan cannot agree" } else { "the log and the plan agree" };
    writeln!(terminal.out, "{}: {sentence}", terminal.paint(style, verdict))
}

fn agreement_words(agreement: Agreement) -> String {
    let range = |(low, high): (u64, u64)| {
        if low == high { thousands(low) } else { format!("{} to {}", thousands(low), thousands(high)) }
    };
    let blocks = agreement.num_blocks.map(|blocks| format!("{} blocks", range(blocks)));
    let memory =
        agreement.memory_bytes.map(|memory| format!("{} bytes ({})", range(memory), bytes(memory.0)));
    match (memory, blocks) {
        (Some(memory), Some(blocks)) => format!("a memory of {memory} gives all of them, with {blocks}"),
        (Some(memory), None) => format!("a memory of {memory} gives all of them"),
        (None, Some(blocks)) => format!("{blocks} give all of them"),
        (None, None) => "all of them come out".to_owned(),
    }
}
