//! A plan as people read it: groups, the pool, and the lines that vLLM would log.

use std::io;

use planner::error::format_gib;
use planner::{
    CapacityError, Decision, EngineSettings, GroupSizeRule, GroupSpec, Grouping, Model, Plan, Pool, Rules,
    SpecKind,
};

use super::number::{bytes, percent, thousands};
use super::table::{Side, Table};
use crate::terminal::{Style, Terminal};

/// One plan and what it was made of.
pub(crate) struct Planned<'a> {
    /// The scenario's name.
    pub(crate) name: &'a str,
    /// What it is, in a line.
    pub(crate) title: Option<&'a str>,
    /// The layers.
    pub(crate) model: &'a Model,
    /// The engine settings.
    pub(crate) settings: &'a EngineSettings,
    /// The engine's rules.
    pub(crate) rules: &'a Rules,
    /// The plan.
    pub(crate) plan: &'a Plan,
    /// What vLLM logs of the model before it plans.
    pub(crate) logged: &'a [String],
}

/// Which step of vLLM's answered, in a few words.
pub(crate) const fn decision_words(decision: Decision) -> &'static str {
    match decision {
        Decision::AttentionFree => "no layer has a KV cache",
        Decision::UniformSpec => "all specs merge into one",
        Decision::UniformType => "one type at one block size: one group of mixed specs",
        Decision::Tuples => "tuples of MLA and sliding-window MLA layers",
        Decision::StateSlots => "states in the slots of the MLA layers",
        Decision::Packed => "pages of different sizes packed into one block",
        Decision::UniformPageSize => "buckets of one page size, cut into groups of one size",
        Decision::FullAllocation => "pages do not unify: windows get full allocation",
    }
}

/// A group size rule in a few words.
pub(crate) fn rule_words(rule: GroupSizeRule) -> String {
    match rule {
        GroupSizeRule::MinOrMax { numerator: 3, denominator: 2 } => {
            "smallest bucket, or the largest if below 1.5 times the smallest".to_owned()
        }
        GroupSizeRule::MinOrMax { numerator: 5, denominator: 4 } => {
            "smallest bucket, or the largest if below 1.25 times the smallest".to_owned()
        }
        GroupSizeRule::MinOrMax { numerator, denominator } => {
            format!("smallest bucket, or the largest if below {numerator}/{denominator} times the smallest")
        }
        GroupSizeRule::PaddingPlusGroups { .. } => {
            "least padding plus a cost per group (vLLM 49472)".to_owned()
        }
        GroupSizeRule::SkipSingleLayers => "buckets of one layer left out (vLLM 51742)".to_owned(),
        GroupSizeRule::Fixed(size) => format!("set to {size} (vLLM 36143)"),
        GroupSizeRule::LeastPadding => "largest size with at most 10% padding (vLLM 31275)".to_owned(),
        GroupSizeRule::DivideFullAttention => {
            "a divisor of the full-attention layers (vLLM 58175)".to_owned()
        }
    }
}

/// A plural where there is not one.
pub(crate) fn count(n: u64, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{} {word}s", thousands(n)) }
}

/// Writes the whole plan.
///
/// # Errors
/// If the output cannot be written.
pub(crate) fn write(planned: &Planned<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Planned { name, title, model, settings, rules, plan, .. } = planned;
    let grouping = &plan.grouping;
    let head = terminal.paint(Style::Bold, name);
    let title = title.map(|title| format!(": {title}")).unwrap_or_default();
    writeln!(terminal.out, "{head}{title} (vLLM {})", plan.version)?;
    let groups = grouping.groups.len() as u64;
    let mut line = format!("{} from {}", count(groups, "group"), count(model.len() as u64, "layer"));
    if grouping.decision == Decision::UniformPageSize {
        line.push_str(&format!(
            ", {} a group, {}",
            grouping.group_size(),
            count(grouping.padding_layers().unwrap_or(0), "padding layer")
        ));
    }
    writeln!(terminal.out, "{line}")?;
    writeln!(terminal.out, "  because: {}", decision_words(grouping.decision))?;
    if grouping.decision == Decision::UniformPageSize {
        let rule = settings.group_size_rule.unwrap_or(rules.group_size);
        let sizes: Vec<String> = grouping.buckets.iter().map(|b| b.layers.len().to_string()).collect();
        writeln!(terminal.out, "  buckets: {}; group size: {}", sizes.join(", "), rule_words(rule))?;
    }
    if grouping.promoted {
        writeln!(terminal.out, "  the hybrid KV cache manager is off: windows are kept as full attention")?;
    }
    writeln!(terminal.out)?;
    if !grouping.groups.is_empty() {
        groups_table(planned).write(0, terminal)?;
        writeln!(terminal.out)?;
        pool(planned, terminal)?;
    }
    Ok(())
}

/// What a group caches, in vLLM's words.
pub(crate) fn kind_words(grouping: &Grouping, spec: &GroupSpec) -> String {
    let word = |kind: SpecKind| match kind {
        SpecKind::Mamba => "state (mamba)",
        SpecKind::Full => "full",
        SpecKind::Mla => "MLA",
        SpecKind::Sliding => "sliding window",
        SpecKind::SlidingMla => "sliding window MLA",
        SpecKind::Chunked => "chunked local",
        SpecKind::Cross => "cross",
        SpecKind::Sink => "full with sinks",
        SpecKind::EncoderOnly => "encoder only",
        SpecKind::Rswa => "reference sliding window",
        SpecKind::HiddenState => "hidden states",
        SpecKind::CircularBuffer => "circular buffer",
    };
    match spec {
        GroupSpec::One(id) => {
            let spec = grouping.specs.spec(*id);
            let window = spec.attention().and_then(|spec| spec.kind.sliding()).map(|s| s.sliding_window);
            match window {
                Some(window) => format!("{} {window}", word(spec.kind())),
                None => word(spec.kind()).to_owned(),
            }
        }
        GroupSpec::UniformType(ids) => {
            let mut kinds: Vec<&str> = Vec::new();
            for id in ids {
                let kind = word(grouping.specs.spec(*id).kind());
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            format!("mixed: {}", kinds.join(" + "))
        }
    }
}

/// Groups in order; consecutive ones that look alike share a line.
fn groups_table(planned: &Planned<'_>) -> Table {
    let grouping = &planned.plan.grouping;
    let mut table = Table::new(vec![
        ("group", Side::Left),
        ("kind", Side::Left),
        ("layers", Side::Right),
        ("block size", Side::Right),
        ("page size", Side::Right),
        ("padding", Side::Right),
        ("blocks/request", Side::Right),
        ("grows every", Side::Right),
    ]);
    let size = grouping.group_size();
    let one_size = grouping.padding_layers().is_some();
    let rows: Vec<Vec<String>> = grouping
        .groups
        .iter()
        .enumerate()
        .map(|(i, group)| {
            let layers = group.layers.len() as u64;
            let drafts = group.layers.iter().filter(|layer| planned.model.is_draft(**layer as usize)).count();
            let layers_text = match drafts {
                0 => layers.to_string(),
                n if n as u64 == layers => format!("{layers} draft"),
                n => format!("{layers} ({n} draft)"),
            };
            let capacity = planned.plan.capacity.get(i);
            vec![
                kind_words(grouping, &group.spec),
                layers_text,
                thousands(grouping.block_size(group)),
                grouping.page_size_bytes(group).map_or_else(|_| "?".to_owned(), bytes),
                if one_size { (size - layers).to_string() } else { "-".to_owned() },
                capacity.map_or_else(|| "-".to_owned(), |capacity| thousands(capacity.max_blocks)),
                match capacity.and_then(|capacity| capacity.tokens_per_block) {
                    Some(tokens) => format!("{} tokens", thousands(tokens)),
                    None => "fixed".to_owned(),
                },
            ]
        })
        .collect();
    let mut from = 0;
    while let Some(row) = rows.get(from) {
        let alike = rows[from..].iter().take_while(|other| *other == row).count();
        let label = if alike == 1 { from.to_string() } else { format!("{from}-{}", from + alike - 1) };
        let mut cells = vec![label];
        cells.extend(row.iter().cloned());
        table.row(cells);
        from += alike;
    }
    table
}

fn pool(planned: &Planned<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Planned { model, settings, rules, plan, logged, .. } = planned;
    if let Some(bytes_per_block) = plan.bytes_per_block {
        writeln!(
            terminal.out,
            "bytes per block        {} ({})",
            thousands(bytes_per_block),
            bytes(bytes_per_block)
        )?;
    }
    if let Some(replicas) = plan.kv_tp_replicas {
        writeln!(terminal.out, "kv_tp_replicas         {replicas}")?;
    }
    match &plan.pool {
        None => writeln!(
            terminal.out,
            "blocks                 unknown: the scenario states no memory for the KV cache"
        ),
        Some(Err(error)) => {
            let text = terminal.paint(Style::Bad, "vLLM would refuse to start");
            writeln!(terminal.out, "{text}: {}", capacity_words(error))?;
            for line in padding_lines(&plan.grouping) {
                writeln!(terminal.out, "  {line}")?;
            }
            Ok(())
        }
        Some(Ok(pool)) => {
            writeln!(
                terminal.out,
                "blocks                 {} (one of them the null block)",
                thousands(pool.num_blocks)
            )?;
            if settings.auto_fit_max_model_len {
                writeln!(
                    terminal.out,
                    "longest request        {} tokens, fitted",
                    thousands(pool.max_model_len)
                )?;
            }
            writeln!(
                terminal.out,
                "blocks per request     {} at {} tokens",
                thousands(pool.blocks_per_max_len_request),
                thousands(pool.max_model_len)
            )?;
            writeln!(terminal.out, "maximum concurrency    {:.2}", pool.max_concurrency)?;
            capacity_line(plan, pool, terminal)?;
            if !pool.stage_group_sizes.is_empty() {
                for (stage, (sizes, blocks)) in
                    pool.stage_group_sizes.iter().zip(&pool.stage_blocks).enumerate()
                {
                    let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
                    writeln!(
                        terminal.out,
                        "stage {stage}                {} blocks alone, layers by group {}",
                        thousands(*blocks),
                        sizes.join(" ")
                    )?;
                }
            }
            writeln!(terminal.out)?;
            writeln!(terminal.out, "vLLM logs:")?;
            for line in logged.iter().cloned().chain(log_lines(model, settings, rules, plan, pool)) {
                writeln!(terminal.out, "  {line}")?;
            }
            Ok(())
        }
    }
}

/// What a request takes: blocks for states, one for every so many tokens, and windows up to their reservation.
fn capacity_line(plan: &Plan, pool: &Pool, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let (mut fixed, mut bounded) = (0_u64, 0_u64);
    let mut slopes: Vec<(u64, u64)> = Vec::new();
    for (group, takes) in plan.grouping.groups.iter().zip(&plan.capacity) {
        match takes.tokens_per_block {
            None if plan.grouping.specs.spec(group.first_spec()).has_window() => {
                bounded = bounded.saturating_add(takes.max_blocks);
            }
            None => fixed = fixed.saturating_add(takes.max_blocks),
            Some(tokens) => {
                fixed = fixed.saturating_add(takes.fixed_blocks);
                match slopes.iter_mut().find(|(known, _)| *known == tokens) {
                    Some((_, groups)) => *groups += 1,
                    None => slopes.push((tokens, 1)),
                }
            }
        }
    }
    let mut parts = Vec::new();
    if fixed > 0 || (slopes.is_empty() && bounded == 0) {
        parts.push(count(fixed, "block"));
    }
    parts.extend(
        slopes.iter().map(|(tokens, groups)| {
            format!("{} every {} tokens", count(*groups, "block"), thousands(*tokens))
        }),
    );
    if bounded > 0 {
        parts.push(format!("at most {} of windows", thousands(bounded)));
    }
    writeln!(terminal.out, "a request takes        {}", parts.join(", and "))?;
    let usable = pool.num_blocks.saturating_sub(1);
    writeln!(terminal.out, "usable blocks          {}", thousands(usable))
}

/// The warnings about padding, as vLLM logs them.
pub(crate) fn padding_lines(grouping: &Grouping) -> Vec<String> {
    grouping
        .warnings
        .iter()
        .map(|warning| {
            format!(
                "Add {} padding layers, may waste at most {} KV cache memory",
                warning.padding_layers,
                percent(warning.padding_layers, warning.layers)
            )
        })
        .collect()
}

/// The lines about the KV cache, as vLLM of this version logs them.
pub(crate) fn log_lines(
    _model: &Model,
    settings: &EngineSettings,
    rules: &Rules,
    plan: &Plan,
    pool: &Pool,
) -> Vec<String> {
    let mut lines = padding_lines(&plan.grouping);
    let tokens = format!("GPU KV cache size: {} tokens", thousands(pool.kv_cache_size_tokens));
    let concurrency = format!(
        "Maximum concurrency for {} tokens per request: {:.2}x",
        thousands(pool.max_model_len),
        pool.max_concurrency
    );
    if rules.one_capacity_line {
        lines.push(format!("{tokens}, {concurrency}"));
    } else {
        lines.push(tokens);
        lines.push(concurrency);
    }
    if rules.group_sizes_logged && plan.grouping.groups.len() > 1 {
        let ranks = settings.decode_context_parallel_size;
        let sizes: Vec<u64> = plan
            .grouping
            .groups
            .iter()
            .map(|group| {
                let spec = plan.grouping.specs.spec(group.first_spec());
                spec.block_size().saturating_mul(if spec.dcp_sharded() { ranks } else { 1 })
            })
            .collect();
        let words: Vec<String> = sizes.iter().map(u64::to_string).collect();
        let lcm = sizes.iter().try_fold(1, |lcm, size| planner::size::lcm("block size", lcm, *size).ok());
        // A list until 0.31, a tuple since.
        let (open, close) = if rules.version.minor() >= 32 { ('(', ')') } else { ('[', ']') };
        lines.push(format!("kv cache group sizes {open}{}{close}", words.join(", ")));
        if let Some(lcm) = lcm {
            lines.push(format!("kv lcm block sizes {lcm}"));
        }
    }
    lines
}

/// A capacity error with its numbers as vLLM prints them, and what would fit.
pub(crate) fn capacity_words(error: &CapacityError) -> String {
    match error {
        CapacityError::NotEnough {
            needed_bytes,
            available_bytes,
            max_model_len,
            estimated_max_model_len,
        } => {
            let fits = match estimated_max_model_len {
                0 => "not even one token fits".to_owned(),
                n => format!("the longest that fits is {} tokens", thousands(*n)),
            };
            format!(
                "a request of {} tokens needs {} GiB, and {} GiB are available; {fits}",
                thousands(*max_model_len),
                format_gib(*needed_bytes),
                format_gib(*available_bytes)
            )
        }
        other => other.to_string(),
    }
}
