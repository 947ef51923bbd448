//! Layers, fields and values in words, and lines that fit.

use planner::Model;
use planner::explain::{Change, Edit, Numbers};
use planner::spec::FieldValue;

use super::number::{runs, thousands};

/// Columns that a line fits.
pub(crate) const COLUMNS: usize = 100;

/// Breaks `text` at spaces into lines that fit after `indent` columns; the first line has no indent.
pub(crate) fn wrap(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut column = indent;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > indent && column + 1 + width > COLUMNS {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out
}

/// "draft layers", "layers" or "layers (5 of them draft)".
pub(crate) fn whose(model: &Model, layers: &[u32]) -> String {
    let drafts = layers.iter().filter(|layer| model.is_draft(**layer as usize)).count();
    let one = if layers.len() == 1 { "layer" } else { "layers" };
    match drafts {
        0 => one.to_owned(),
        n if n == layers.len() => format!("draft {one}"),
        n => format!("{one} ({n} of them draft)"),
    }
}

/// The layers in full: "draft layers 93-97".
pub(crate) fn all_layers(model: &Model, layers: &[u32]) -> String {
    format!("{} {}", whose(model, layers), runs(layers))
}

/// The layers in short: "24 layers (3, 7, 11, ...)".
pub(crate) fn short_layers(model: &Model, layers: &[u32]) -> String {
    let full = runs(layers);
    if full.len() <= 20 {
        return format!("{} {full}", whose(model, layers));
    }
    let first: Vec<&str> = full.split(", ").take(3).collect();
    format!("{} {} ({}, ...)", layers.len(), whose(model, layers), first.join(", "))
}

/// A declared value, or "unset".
pub(crate) fn value(value: Option<&FieldValue>) -> String {
    value.map_or_else(|| "unset".to_owned(), ToString::to_string)
}

/// "set `max_tp_shards` to 1", "leave `max_tp_shards` unset".
pub(crate) fn deed(edit: &Edit) -> String {
    match &edit.to {
        Some(to) => format!("set `{}` to {to}", edit.field),
        None => format!("leave `{}` unset", edit.field),
    }
}

/// "20 -> 4", or one number where nothing changes.
pub(crate) fn arrow(before: Option<u64>, after: Option<u64>) -> String {
    let text = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), thousands);
    if before == after { text(after) } else { format!("{} -> {}", text(before), text(after)) }
}

/// The same for requests, two decimals.
pub(crate) fn arrow_concurrency(before: Option<f64>, after: Option<f64>) -> String {
    let text = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.2}"));
    let (before, after) = (text(before), text(after));
    if before == after { after } else { format!("{before} -> {after}") }
}

/// What a change does, by field and layers.
pub(crate) fn change_words(model: &Model, change: &Change) -> String {
    let edits: Vec<String> = change
        .edits
        .iter()
        .map(|edit| format!("`{}` {} -> {}", edit.field, value(edit.from.as_ref()), value(edit.to.as_ref())))
        .collect();
    let layers = change.edits.first().map_or_else(String::new, |edit| short_layers(model, &edit.layers));
    format!("{} in {layers}", edits.join(", "))
}

/// The numbers of a change, before and after, as a table row.
pub(crate) fn change_row(before: Option<Numbers>, after: &Numbers) -> Vec<String> {
    vec![
        arrow(before.map(|before| before.groups), Some(after.groups)),
        arrow(before.and_then(|before| before.padding_layers), after.padding_layers),
        arrow(before.and_then(|before| before.num_blocks), after.num_blocks),
        arrow(before.and_then(|before| before.blocks_per_request), after.blocks_per_request),
        arrow_concurrency(before.and_then(|before| before.max_concurrency), after.max_concurrency),
    ]
}
