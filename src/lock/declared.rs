//! What was a locked plan made of? Settings and layers as they were declared, so that a later change has a name.

use planner::explain::{Edit, Numbers, apply};
use planner::spec::Field;
use planner::{EngineSettings, KvCacheSpec, Model, RawSpec, Rules};

use super::Entry;
use crate::render::words::{deed, short_layers, value};

/// One thing that is declared otherwise than in the lock.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    /// The field or the engine flag; `kind` or `layers` where the layers themselves are others.
    pub(crate) what: String,
    /// The layers that it is about; none for a setting.
    pub(crate) layers: Vec<u32>,
    /// In the lock.
    pub(crate) locked: String,
    /// Now.
    pub(crate) now: String,
    /// What brings the locked value back.
    pub(crate) fix: String,
    /// It and the rest, in a sentence.
    pub(crate) text: String,
    /// The field, where one of a layer changed.
    pub(crate) field: Option<Field>,
}

/// The settings that are not vLLM's defaults, and the length, as `flag=value flag=value`.
pub(crate) fn settings_text(settings: &EngineSettings) -> String {
    let defaults = listed(&EngineSettings::default());
    let texts: Vec<String> = listed(settings)
        .into_iter()
        .zip(defaults)
        .filter(|((name, now), (_, default))| now != default || *name == "max-model-len")
        .map(|((name, now), _)| format!("{name}={now}"))
        .collect();
    texts.join(" ")
}

/// Every setting by its flag, without spaces in the values.
fn listed(settings: &EngineSettings) -> Vec<(&'static str, String)> {
    let EngineSettings {
        tensor_parallel_size,
        decode_context_parallel_size,
        prefill_context_parallel_size,
        pipeline_parallel_size,
        pipeline_stage_layers,
        disable_hybrid_kv_cache_manager,
        mamba_cache_mode,
        kv_cache_layout,
        max_model_len,
        auto_fit_max_model_len,
        max_num_batched_tokens,
        max_concurrent_batches,
        max_num_encoder_input_tokens,
        num_prefill_lookahead_tokens,
        num_gpu_blocks_override,
        available_memory_bytes,
        group_size_rule,
    } = settings;
    let numbers = |all: &[u64]| {
        let texts: Vec<String> = all.iter().map(u64::to_string).collect();
        if texts.is_empty() { "none".to_owned() } else { texts.join(",") }
    };
    let rule = group_size_rule.and_then(|rule| serde_json::to_string(&rule).ok());
    vec![
        ("max-model-len", max_model_len.to_string()),
        ("max-model-len-auto", auto_fit_max_model_len.to_string()),
        ("kv-cache-memory", numbers(available_memory_bytes)),
        (
            "num-gpu-blocks-override",
            num_gpu_blocks_override.map_or_else(|| "none".to_owned(), |n| n.to_string()),
        ),
        ("tensor-parallel-size", tensor_parallel_size.to_string()),
        ("decode-context-parallel-size", decode_context_parallel_size.to_string()),
        ("prefill-context-parallel-size", prefill_context_parallel_size.to_string()),
        ("pipeline-parallel-size", pipeline_parallel_size.to_string()),
        ("pipeline-stage-layers", numbers(pipeline_stage_layers)),
        ("disable-hybrid-kv-cache-manager", disable_hybrid_kv_cache_manager.to_string()),
        ("mamba-cache-mode", format!("{mamba_cache_mode:?}").to_lowercase()),
        ("kv-cache-layout", kv_cache_layout.name().to_owned()),
        ("max-num-batched-tokens", max_num_batched_tokens.to_string()),
        ("max-concurrent-batches", max_concurrent_batches.to_string()),
        ("max-num-encoder-input-tokens", max_num_encoder_input_tokens.to_string()),
        ("num-prefill-lookahead-tokens", num_prefill_lookahead_tokens.to_string()),
        ("grouping", rule.unwrap_or_else(|| "default".to_owned()).replace('"', "")),
    ]
}

/// One line a distinct spec: its layers, with `/` and the step where they are evenly spaced, and what they declare.
pub(crate) fn layers_text(model: &Model) -> Vec<String> {
    let mut of_spec: Vec<Vec<u32>> = vec![Vec::new(); model.specs.len()];
    for (layer, id) in (0..).zip(&model.layers) {
        if let Some(layers) = of_spec.get_mut(id.index()) {
            layers.push(layer);
        }
    }
    let mut lines: Vec<(u32, String)> = Vec::new();
    for (spec, layers) in model.specs.iter().zip(&of_spec) {
        let (Some(first), Ok(json)) = (layers.first(), serde_json::to_string(&RawSpec::from(spec))) else {
            continue;
        };
        lines.push((*first, format!("{} {json}", spaced(layers))));
    }
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

/// `0-34/2,35`.
fn spaced(layers: &[u32]) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut rest = layers;
    while let [first, tail @ ..] = rest {
        let step = tail.first().map_or(1, |second| second - first);
        let mut length = 1;
        while rest.get(length).is_some_and(|next| next - rest[length - 1] == step) {
            length += 1;
        }
        if length == 2 && step > 1 {
            length = 1;
        }
        let last = rest[length - 1];
        out.push(match (length, step) {
            (1, _) => first.to_string(),
            (_, 1) => format!("{first}-{last}"),
            _ => format!("{first}-{last}/{step}"),
        });
        rest = &rest[length..];
    }
    out.join(",")
}

/// Each layer's spec of `lines`; `None` if they are not what [`layers_text`] writes.
fn read_layers(lines: &[String]) -> Option<Vec<RawSpec>> {
    // As many layers as a scenario can have at most.
    const MOST: u32 = 1 << 20;
    let mut found: Vec<(u32, RawSpec)> = Vec::new();
    for line in lines {
        let (layers, json) = line.split_once(' ')?;
        let raw: RawSpec = serde_json::from_str(json).ok()?;
        for part in layers.split(',') {
            let (range, step) = part.split_once('/').unwrap_or((part, "1"));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            let step: usize = step.parse().ok().filter(|step| *step > 0)?;
            if last >= MOST || found.len() >= MOST as usize {
                return None;
            }
            found.extend((first..=last).step_by(step).map(|layer| (layer, raw.clone())));
        }
    }
    found.sort_by_key(|(layer, _)| *layer);
    let whole = (0..).zip(&found).all(|(expected, (layer, _))| expected == *layer);
    whole.then(|| found.into_iter().map(|(_, raw)| raw).collect())
}

/// What `model` and `settings` declare otherwise than the plan that `locked` holds; none where the lock does not say.
pub(crate) fn differences(
    locked: &Entry,
    model: &Model,
    settings: &EngineSettings,
    rules: &Rules,
) -> Vec<Difference> {
    let mut found = Vec::new();
    if let Some(before) = locked.layers.as_deref().and_then(read_layers) {
        if before.len() == model.layers.len() {
            fields(&before, model, settings, rules, &mut found);
        } else {
            other_layers(&before, model, &mut found);
        }
    }
    if let Some(text) = &locked.settings {
        let given: Vec<(&str, &str)> = text.split(' ').filter_map(|part| part.split_once('=')).collect();
        for ((name, now), (_, default)) in
            listed(settings).into_iter().zip(listed(&EngineSettings::default()))
        {
            let before =
                given.iter().find(|(known, _)| *known == name).map_or(default.as_str(), |(_, value)| value);
            if before != now {
                let fix = format!("set `{name}` back to {before}");
                found.push(Difference {
                    text: format!("`{name}` is {now} and was {before}; {fix}"),
                    what: name.to_owned(),
                    layers: Vec::new(),
                    locked: before.to_owned(),
                    now,
                    fix,
                    field: None,
                });
            }
        }
    }
    found
}

/// Layer by layer, where there are as many as before.
fn fields(
    before: &[RawSpec],
    model: &Model,
    settings: &EngineSettings,
    rules: &Rules,
    found: &mut Vec<Difference>,
) {
    let mut edits: Vec<Edit> = Vec::new();
    let mut kinds: Vec<(&RawSpec, RawSpec, Vec<u32>)> = Vec::new();
    let now: Vec<RawSpec> = model.specs.iter().map(RawSpec::from).collect();
    for (layer, (old, id)) in (0..).zip(before.iter().zip(&model.layers)) {
        let Some(new) = now.get(id.index()).filter(|new| *new != old) else { continue };
        if new.kind != old.kind {
            match kinds.iter_mut().find(|(a, b, _)| a.kind == old.kind && b.kind == new.kind) {
                Some((_, _, layers)) => layers.push(layer),
                None => kinds.push((old, new.clone(), vec![layer])),
            }
            continue;
        }
        for field in Field::ALL {
            let (from, to) = (new.get(*field), old.get(*field));
            if from == to {
                continue;
            }
            match edits.iter_mut().find(|edit| edit.field == *field && edit.from == from && edit.to == to) {
                Some(edit) => edit.layers.push(layer),
                None => edits.push(Edit { layers: vec![layer], field: *field, from, to, like: Vec::new() }),
            }
        }
    }
    for edit in edits {
        let gain = gain(model, settings, rules, &edit);
        let fix = format!("{} in {}", deed(&edit), short_layers(model, &edit.layers));
        found.push(Difference {
            text: format!(
                "`{}` is {} in {} and was {}; {}{gain}",
                edit.field,
                value(edit.from.as_ref()),
                short_layers(model, &edit.layers),
                value(edit.to.as_ref()),
                deed(&edit),
            ),
            what: edit.field.name().to_owned(),
            locked: value(edit.to.as_ref()),
            now: value(edit.from.as_ref()),
            layers: edit.layers,
            fix,
            field: Some(edit.field),
        });
    }
    for (old, new, layers) in kinds {
        let (was, is) = (old.kind.class_name(), new.kind.class_name());
        let fix = format!("declare {was} in {}", short_layers(model, &layers));
        found.push(Difference {
            text: format!(
                "{} {} {is} and {} {was}; declare {was} there again",
                short_layers(model, &layers),
                if layers.len() == 1 { "is" } else { "are" },
                if layers.len() == 1 { "was" } else { "were" },
            ),
            what: "kind".to_owned(),
            layers,
            locked: was.to_owned(),
            now: is.to_owned(),
            fix,
            field: None,
        });
    }
}

/// "; and 20 groups become 4", or what one value alone brings back.
fn gain(model: &Model, settings: &EngineSettings, rules: &Rules, edit: &Edit) -> String {
    let plan = |model: &Model| planner::plan(model, settings, rules).ok().map(|plan| Numbers::of(&plan));
    let after = apply(model, std::slice::from_ref(edit)).and_then(|changed| plan(&changed));
    match (plan(model), after) {
        (Some(before), Some(after)) if after.groups < before.groups => {
            format!(" and {} groups become {}", before.groups, after.groups)
        }
        (
            Some(Numbers { max_concurrency: Some(before), .. }),
            Some(Numbers { max_concurrency: Some(after), .. }),
        ) if after > before => {
            format!(" and a concurrency of {before:.2} becomes {after:.2}")
        }
        (None, Some(after)) => format!(" and vLLM plans {} groups", after.groups),
        _ => String::new(),
    }
}

/// How many layers of each class there were and are.
fn other_layers(before: &[RawSpec], model: &Model, found: &mut Vec<Difference>) {
    let counts = |classes: &[&'static str]| {
        let mut distinct: Vec<&str> = classes.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let texts: Vec<String> = distinct
            .iter()
            .map(|class| format!("{} {class}", classes.iter().filter(|known| *known == class).count()))
            .collect();
        texts.join(", ")
    };
    let old: Vec<&'static str> = before.iter().map(|raw| raw.kind.class_name()).collect();
    let new: Vec<&'static str> = (0..model.len())
        .filter_map(|layer| model.spec_of(layer).map(KvCacheSpec::kind))
        .map(|kind| kind.class_name())
        .collect();
    let (locked, now) =
        (format!("{} ({})", old.len(), counts(&old)), format!("{} ({})", new.len(), counts(&new)));
    let fix = format!("bring the {} layers back", old.len());
    found.push(Difference {
        text: format!("there are {now} layers, and were {locked}"),
        what: "layers".to_owned(),
        layers: Vec::new(),
        locked,
        now,
        fix,
        field: None,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_written_in_short_and_read_back() {
        for layers in [vec![0], vec![0, 2, 4, 6], vec![0, 1, 2, 5, 9], vec![3, 7], vec![3, 7, 11, 12, 13]] {
            let text = spaced(&layers);
            let others: Vec<u32> = (0..14).filter(|layer| !layers.contains(layer)).collect();
            let json = |window: u64| {
                format!(
                    r#"{{"kind":"sliding","block_size":16,"num_kv_heads":1,"head_size":8,"dtype":"bfloat16","sliding_window":{window}}}"#
                )
            };
            let lines = [format!("{text} {}", json(1)), format!("{} {}", spaced(&others), json(2))];
            let read = read_layers(&lines).unwrap();
            let found: Vec<u32> =
                (0..14).filter(|layer| read[*layer as usize].sliding_window == Some(1)).collect();
            assert_eq!(found, layers, "{text}");
        }
        assert_eq!(spaced(&[0, 2, 4, 6, 9]), "0-6/2,9");
        assert_eq!(read_layers(&["0-4294967295 {}".to_owned()]), None);
    }
}
