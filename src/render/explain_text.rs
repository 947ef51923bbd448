//! An explanation as people read it: what happened, because of which field of which layers, what to change.

use std::io;

use planner::explain::{Change, Edit, Explanation, Node, Numbers, Outcome, Relation};
use planner::{Decision, EngineSettings, Model, Rules};

use super::plan_text::{capacity_words, count, decision_words, rule_words};
use super::table::{Side, Table};
use super::words::{
    all_layers, arrow_concurrency, change_row, change_words, deed, short_layers, value, wrap,
};
use crate::terminal::{Style, Terminal};

/// One explanation and what it is about.
pub(crate) struct Explained<'a> {
    /// The scenario's name.
    pub(crate) name: &'a str,
    /// The layers.
    pub(crate) model: &'a Model,
    /// The engine settings.
    pub(crate) settings: &'a EngineSettings,
    /// The engine's rules.
    pub(crate) rules: &'a Rules,
    /// The explanation.
    pub(crate) explanation: &'a Explanation,
    /// Rules of the group size that give fewer groups, by their names for `--grouping`, the fewest first.
    pub(crate) fewer: &'a [(&'static str, Numbers)],
}

/// Writes the whole explanation.
///
/// # Errors
/// If the output cannot be written.
pub(crate) fn write(explained: &Explained<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    headline(explained, terminal)?;
    cause(explained, terminal)?;
    changes(explained, terminal)?;
    since(explained, terminal)?;
    apart(explained, terminal)?;
    sizes(explained, terminal)
}

fn headline(explained: &Explained<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Explained { name, model, rules, explanation, .. } = explained;
    let head = terminal.paint(Style::Bold, name);
    match &explanation.outcome {
        Outcome::Planned(plan) => {
            let grouping = &plan.grouping;
            let groups = count(grouping.groups.len() as u64, "group");
            writeln!(
                terminal.out,
                "{head}: {groups} from {} (vLLM {})",
                count(model.len() as u64, "layer"),
                rules.version
            )?;
            if grouping.decision != Decision::UniformPageSize {
                writeln!(terminal.out, "because {}", decision_words(grouping.decision))?;
            }
            if let Some(Err(error)) = &plan.pool {
                let text = wrap(&format!("vLLM would refuse to start: {}", capacity_words(error)), 0);
                writeln!(terminal.out, "{}", terminal.paint(Style::Bad, &text))?;
            }
            Ok(())
        }
        Outcome::Refused(error) => {
            writeln!(terminal.out, "{head}: vLLM {} refuses to group these layers", rules.version)?;
            writeln!(terminal.out, "{}", wrap(&format!("because {error}"), 0))
        }
    }
}

/// The likeliest slip: the field, both values, both sets of layers, and what it does.
fn cause(explained: &Explained<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Explained { model, explanation, .. } = explained;
    let Some(edit) = &explanation.cause else {
        let text = match &explanation.outcome {
            Outcome::Planned(plan) if plan.grouping.groups.len() <= 1 => {
                "There is one group: fewer is not possible."
            }
            Outcome::Planned(plan)
                if explanation
                    .sizes
                    .iter()
                    .any(|row| row.numbers.groups < plan.grouping.groups.len() as u64) =>
            {
                "The groups are as few as the rules allow for this group size: no change of declared fields merges \
                 two buckets. A larger size gives fewer groups, at the cost in the table below."
            }
            Outcome::Planned(_) => {
                "The groups are as few as the rules allow: no change of declared fields merges two buckets."
            }
            Outcome::Refused(_) => "No change of a declared field makes these layers plannable.",
        };
        writeln!(terminal.out, "{}", wrap(text, 0))?;
        return writeln!(terminal.out);
    };
    let change = explanation.changes.iter().find(|change| change.edits.first() == Some(edit));
    let before = explanation.outcome.numbers();
    // A change of several fields is said in full, so that its count and its fields agree.
    let edits = change.map_or(std::slice::from_ref(edit), |change| change.edits.as_slice());
    for edit in edits {
        said(model, edit, terminal)?;
    }
    let deeds: Vec<String> = edits.iter().map(deed).collect();
    let deeds = deeds.join(", ");
    let verdict = match (change, before) {
        (Some(change), Some(before)) if change.after.groups < before.groups => {
            let fields = if change.edits.len() == 1 {
                "This one field turns".to_owned()
            } else {
                format!("These {} fields turn", change.edits.len())
            };
            format!(
                "{fields} {} into {}: {deeds} in {} and {} back{}.",
                count(change.after.groups, "group"),
                before.groups,
                short_layers(model, &edit.layers),
                if change.after.groups == 1 {
                    "1 comes".to_owned()
                } else {
                    format!("{} come", change.after.groups)
                },
                caveat(change)
            )
        }
        (Some(change), None) => format!(
            "With one value vLLM plans these layers: {deeds} in {} and there {}.",
            short_layers(model, &edit.layers),
            if change.after.groups == 1 {
                "is 1 group".to_owned()
            } else {
                format!("are {} groups", change.after.groups)
            }
        ),
        (Some(change), Some(before)) => format!(
            "One value gives no fewer groups, but concurrency {}: {deeds} in {}{}.",
            arrow_concurrency(before.max_concurrency, change.after.max_concurrency),
            short_layers(model, &edit.layers),
            if change.is_of_own_shape() { ", which a trained model cannot" } else { "" }
        ),
        (None, _) => {
            "It costs no group: the layers share groups anyway, or stay apart for other reasons.".to_owned()
        }
    };
    writeln!(terminal.out, "{}", wrap(&verdict, 0))?;
    writeln!(terminal.out)
}

/// One field: both values, and the layers that declare each.
fn said(model: &Model, edit: &Edit, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let field = terminal.paint(Style::Bold, &format!("`{}`", edit.field));
    let is = |side: Option<&planner::FieldValue>| match side {
        Some(value) => format!("is {value}"),
        None => "is unset".to_owned(),
    };
    let here = format!("{} in {}", is(edit.from.as_ref()), all_layers(model, &edit.layers));
    let there = format!("and {} in {}", is(edit.to.as_ref()), all_layers(model, &edit.like));
    writeln!(terminal.out, "{field} {}", wrap(&here, edit.field.name().len() + 3))?;
    writeln!(terminal.out, "  {}", wrap(&there, 2))
}

/// What speaks against a change: what it costs, and that it cannot be made.
fn caveat(change: &Change) -> String {
    let mut text = String::new();
    if let Some((before, after)) = change.concurrency_lost() {
        text.push_str(&format!(", at the cost of concurrency: {before:.2} -> {after:.2}"));
    }
    if change.is_of_own_shape() {
        text.push_str("; but that is the model's own shape, fixed once trained");
    }
    text
}

/// All changes that give something, best first: those that can be made, then those of the model's own shape. Both keep
/// their numbers in the whole list.
fn changes(explained: &Explained<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let numbered = || (1..).zip(&explained.explanation.changes);
    for (title, own_shape) in [
        ("Changes that help, and what each gives", false),
        ("What also stands apart, but is the model's own shape, fixed once trained", true),
    ] {
        let some: Vec<(usize, &Change)> =
            numbered().filter(|(_, change)| change.is_of_own_shape() == own_shape).collect();
        if !some.is_empty() {
            list(explained.model, title, &some, terminal)?;
        }
    }
    by_other_rules(explained, terminal)
}

fn list(
    model: &Model,
    title: &str,
    changes: &[(usize, &Change)],
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    writeln!(terminal.out, "{}", terminal.paint(Style::Bold, title))?;
    let mut table = Table::new(vec![
        ("", Side::Right),
        ("groups", Side::Left),
        ("padding", Side::Left),
        ("blocks", Side::Left),
        ("blocks/request", Side::Left),
        ("concurrency", Side::Left),
    ]);
    for (number, change) in changes {
        let mut row = vec![number.to_string()];
        row.extend(change_row(change.before, &change.after));
        table.row(row);
        let cost = match change.concurrency_lost() {
            Some((before, after)) => format!(" (costs concurrency: {before:.2} -> {after:.2})"),
            None => String::new(),
        };
        let words = format!("{number}. {}{cost}", change_words(model, change));
        writeln!(terminal.out, "  {}", wrap(&words, 5))?;
    }
    table.write(2, terminal)?;
    writeln!(terminal.out)
}

/// Rules of the group size that give fewer groups.
fn by_other_rules(explained: &Explained<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    if explained.fewer.is_empty() {
        return Ok(());
    }
    let before = explained.explanation.outcome.numbers();
    writeln!(terminal.out, "{}", terminal.paint(Style::Bold, "Grouping rules that give fewer groups"))?;
    let mut table = Table::new(vec![
        ("", Side::Left),
        ("groups", Side::Left),
        ("padding", Side::Left),
        ("blocks", Side::Left),
        ("blocks/request", Side::Left),
        ("concurrency", Side::Left),
    ]);
    for (name, numbers) in explained.fewer {
        let mut row = vec![format!("--grouping {name}")];
        row.extend(change_row(before, numbers));
        table.row(row);
    }
    table.write(2, terminal)?;
    writeln!(terminal.out)
}

/// The versions in which the groups changed.
fn since(explained: &Explained<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let steps = &explained.explanation.versions;
    let groups = |i: usize| {
        steps.get(i).map(|step| match step.numbers {
            Some(numbers) => count(numbers.groups, "group"),
            None => "a refusal".to_owned(),
        })
    };
    let mut any = false;
    for (i, step) in steps.iter().enumerate() {
        let Some(before) = i.checked_sub(1).and_then(groups).filter(|_| step.changed) else { continue };
        if !any {
            writeln!(terminal.out, "{}", terminal.paint(Style::Bold, "Since when"))?;
            any = true;
        }
        let fields: Vec<String> = step.new_fields.iter().map(|field| format!("`{field}`")).collect();
        let because = if fields.is_empty() {
            let rules: Vec<&str> = step.rule_changes().map(|change| change.what).take(2).collect();
            rules.join(" ")
        } else {
            format!("This version is the first to know {}, which the layers declare.", fields.join(", "))
        };
        let now = groups(i).unwrap_or_default();
        let text = format!("vLLM {}: {before} became {now}. {because}", step.version);
        writeln!(terminal.out, "  {}", wrap(&text, 2))?;
    }
    if any {
        writeln!(terminal.out)?;
    }
    Ok(())
}

/// Buckets, and the fields between those of one kind.
fn apart(explained: &Explained<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Explained { model, explanation, .. } = explained;
    let graph = &explanation.compatibility.graph;
    if graph.node_count() < 2 {
        return Ok(());
    }
    writeln!(terminal.out, "{}", terminal.paint(Style::Bold, "Distinct specs"))?;
    let mut table = Table::new(vec![
        ("spec", Side::Right),
        ("kind", Side::Left),
        ("block size", Side::Right),
        ("bucket", Side::Right),
        ("layers", Side::Left),
    ]);
    let shown = 30;
    for (i, node) in graph.node_weights().enumerate().take(shown) {
        table.row(vec![
            i.to_string(),
            node.spec.kind().class_name().to_owned(),
            node.spec.block_size().to_string(),
            node.bucket.map_or_else(|| "-".to_owned(), |bucket| bucket.to_string()),
            short_layers(model, &node.layers),
        ]);
    }
    table.write(2, terminal)?;
    if graph.node_weights().take(shown).any(|node| node.bucket.is_none()) {
        let why = match &explanation.outcome {
            Outcome::Planned(_) => "no bucket, since these groups are not made of buckets of equal specs",
            Outcome::Refused(_) => "no bucket, since vLLM refuses to group these layers",
        };
        writeln!(terminal.out, "  -: {why}")?;
    }
    if graph.node_count() > shown {
        writeln!(terminal.out, "  and {} more (see --json)", graph.node_count() - shown)?;
    }
    let mut lines = 0;
    for edge in graph.edge_indices() {
        let (Some((a, b)), Some(relation)) = (graph.edge_endpoints(edge), graph.edge_weight(edge)) else {
            continue;
        };
        let Relation::Forbidden(fields) = relation else { continue };
        let words: Vec<String> = fields
            .iter()
            .map(|f| format!("`{}` {} / {}", f.field, value(f.left.as_ref()), value(f.right.as_ref())))
            .collect();
        let text = format!("{} and {} do not merge: {}", a.index(), b.index(), words.join(", "));
        writeln!(terminal.out, "  {}", wrap(&text, 4))?;
        lines += 1;
        if lines == shown {
            writeln!(terminal.out, "  (more pairs: see --json)")?;
            break;
        }
    }
    writeln!(terminal.out)
}

/// What every group size would give.
fn sizes(explained: &Explained<'_>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Explained { settings, rules, explanation, .. } = explained;
    let Some(chosen) = explanation.sizes.iter().find(|row| row.chosen) else { return Ok(()) };
    let rule = settings.group_size_rule.unwrap_or(rules.group_size);
    let head = terminal.paint(Style::Bold, "Group size");
    writeln!(terminal.out, "{head} {}, by the rule: {}", chosen.size, rule_words(rule))?;
    let mut table = Table::new(vec![
        ("size", Side::Right),
        ("groups", Side::Right),
        ("padding", Side::Right),
        ("blocks", Side::Right),
        ("blocks/request", Side::Right),
        ("concurrency", Side::Right),
        ("tokens", Side::Right),
        ("", Side::Left),
    ]);
    let text = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), super::number::thousands);
    for row in &explanation.sizes {
        let numbers = &row.numbers;
        table.row(vec![
            row.size.to_string(),
            numbers.groups.to_string(),
            text(numbers.padding_layers),
            text(numbers.num_blocks),
            text(numbers.blocks_per_request),
            numbers.max_concurrency.map_or_else(|| "-".to_owned(), |n| format!("{n:.2}")),
            text(numbers.kv_cache_size_tokens),
            if row.chosen { "chosen".to_owned() } else { String::new() },
        ]);
    }
    table.write(2, terminal)?;
    if explanation.sizes.iter().any(|row| row.numbers.max_concurrency.is_none()) {
        let memory =
            !settings.available_memory_bytes.is_empty() || settings.num_gpu_blocks_override.is_some();
        let why = if memory {
            "vLLM would refuse to start: one request of the longest length does not fit the memory"
        } else {
            "not known, since the scenario gives no `kv-cache-memory`"
        };
        writeln!(terminal.out, "  -: {why}")?;
    }
    Ok(())
}

/// The layers of a node, for graph drawings.
pub(crate) fn node_label(model: &Model, node: &Node) -> String {
    format!("{}\n{}", node.spec.kind().class_name(), short_layers(model, &node.layers))
}

/// The cause in one line, for reports.
pub(crate) fn cause_line(model: &Model, explanation: &Explanation) -> Option<String> {
    let edit: &Edit = explanation.cause.as_ref()?;
    let change = explanation.changes.iter().find(|change| change.edits.first() == Some(edit));
    let gain = match (change, explanation.outcome.numbers()) {
        (Some(change), Some(before)) if change.after.groups < before.groups => {
            let deeds: Vec<String> = change.edits.iter().map(deed).collect();
            let (deeds, after) = (deeds.join(", "), change.after.groups);
            format!("; {deeds} and {} groups become {after}{}", before.groups, caveat(change))
        }
        _ => String::new(),
    };
    Some(format!(
        "`{}` is {} in {} and {} in {}{gain}",
        edit.field,
        value(edit.from.as_ref()),
        short_layers(model, &edit.layers),
        value(edit.to.as_ref()),
        short_layers(model, &edit.like)
    ))
}
