//! What does a file describe, before overrides: from the tree to layers, specs and settings by name.

use super::complaint::Complaint;
use super::engine::Engine;
use super::fields::{self, Fields};
use super::layers::{LIMIT, Reader};
use super::quantity;
use super::spec::{self, WrittenSpec};
use super::tree::{Node, Value};
use super::{Hardware, Scenario};
use planner::{Model, SpecId};

/// A scenario as written: specs still have names, and every layer is one of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Written {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) source: Option<String>,
    pub(super) assumed: Vec<String>,
    /// What vLLM logs of the model before it plans.
    pub(super) logged: Vec<String>,
    pub(super) hardware: Option<Hardware>,
    pub(super) engine: Engine,
    pub(super) specs: Vec<WrittenSpec>,
    /// A spec a layer; layers without a cache are left out.
    pub(super) layers: Vec<u32>,
    /// A name a layer, or nothing.
    pub(super) names: Vec<String>,
    /// The first layer of the draft.
    pub(super) draft_from: Option<usize>,
}

/// Reads one scenario; `name` is its file's, perhaps with an arm.
pub(super) fn read(name: String, tree: Node) -> Result<Written, Complaint> {
    let mut entries = Fields::of("scenario", "scenario entry", tree)?;
    let place = entries.place.clone();
    let title = entries.text("title")?.unwrap_or_else(|| name.clone());
    let source = entries.text("source")?;
    let assumed = match entries.take("assumed") {
        None => Vec::new(),
        Some(node) => match &node.value {
            Value::List(items) => {
                items.iter().map(|item| fields::text("assumed", item)).collect::<Result<_, _>>()?
            }
            _ => vec![fields::text("assumed", &node)?],
        },
    };
    let hardware = entries.take("hardware").map(hardware).transpose()?;
    let engine = match entries.take("engine") {
        Some(node) => Engine::default().overlaid(node)?,
        None => Engine::default(),
    };
    let mut specs: Vec<WrittenSpec> = Vec::new();
    if let Some(node) = entries.take("specs") {
        for (key, node) in Fields::of("specs", "spec", node)?.rest() {
            // An arm takes a spec back with a null.
            if node.value != Value::Null {
                specs.push(spec::read(&key, node)?);
            }
        }
    }
    // Both are gone by now, and named for a person who misspelt them.
    for laid_over in ["extends", "arms"] {
        entries.take(laid_over);
    }
    let model = entries.take("model");
    let draft = entries.take("draft");
    entries.end()?;
    let Some(model) = model else {
        return Err(Complaint::at(&place, "the scenario has no `model`")
            .hint("write the layers, such as `model: {layers: 93, pattern: [3 kda, 1 mla], last: mla}`"));
    };
    let mut reader = Reader { specs: &mut specs };
    let model_place = model.place.clone();
    let target = reader.read("model", model)?;
    let draft = draft.map(|node| Ok((node.place.clone(), reader.read("draft", node)?))).transpose()?;
    let with_cache = |layers: &[Option<u32>]| layers.iter().flatten().count();
    if with_cache(&target) == 0 {
        return Err(Complaint::at(&model_place, "no layer of the model has a KV cache"));
    }
    if let Some((place, draft)) = &draft
        && (target.len() + draft.len()) as u64 > LIMIT
    {
        return Err(Complaint::at(place, format!("with the draft there are more than {LIMIT} layers")));
    }
    let draft = draft.map(|(_, draft)| draft).unwrap_or_default();
    // A layer keeps its own number where some before it have no cache.
    let names = if target.iter().chain(&draft).any(Option::is_none) {
        let named = |prefix: &'static str, layers: &[Option<u32>]| {
            let some = layers.iter().enumerate().filter(|(_, layer)| layer.is_some());
            some.map(|(i, _)| format!("{prefix}.layers.{i}.attn")).collect::<Vec<_>>()
        };
        [named("model", &target), named("draft", &draft)].concat()
    } else {
        Vec::new()
    };
    Ok(Written {
        name,
        title,
        source,
        assumed,
        logged: Vec::new(),
        hardware,
        engine,
        specs,
        draft_from: (with_cache(&draft) > 0).then(|| with_cache(&target)),
        layers: target.into_iter().chain(draft).flatten().collect(),
        names,
    })
}

fn hardware(node: Node) -> Result<Hardware, Complaint> {
    if let Value::Text(name) = &node.value {
        return Ok(Hardware { name: name.clone(), devices: None, memory_bytes: None });
    }
    let mut entries = Fields::of("hardware", "entry of the hardware", node)?;
    let place = entries.place.clone();
    let name = entries.text("name")?;
    let devices = entries.count("devices")?;
    let memory_bytes = entries.take("memory").map(|node| quantity::memory("memory", &node)).transpose()?;
    entries.end()?;
    let name = name.ok_or_else(|| Complaint::at(&place, "the hardware has no `name`"))?;
    Ok(Hardware { name, devices, memory_bytes })
}

impl Written {
    /// The form that planning reads.
    ///
    /// # Errors
    /// If a spec lacks a field or has one of another kind.
    pub(super) fn resolve(self) -> Result<Scenario, Complaint> {
        let mut model = Model { draft_from: self.draft_from, names: self.names, ..Model::default() };
        let mut ids: Vec<Option<SpecId>> = vec![None; self.specs.len()];
        // Every spec of the file is checked, used or not.
        let resolved = self.specs.iter().map(WrittenSpec::resolve).collect::<Result<Vec<_>, Complaint>>()?;
        let mut spec_names = Vec::new();
        model.layers.reserve(self.layers.len());
        for layer in self.layers {
            let index = layer as usize;
            let (Some(slot), Some(spec)) = (ids.get_mut(index), resolved.get(index)) else { continue };
            let id = match *slot {
                Some(id) => id,
                None => {
                    let known = model.specs.iter().position(|known| known == spec);
                    let at = known.unwrap_or_else(|| {
                        model.specs.push(spec.clone());
                        spec_names.push(self.specs[index].name.clone());
                        model.specs.len() - 1
                    });
                    SpecId(u32::try_from(at).unwrap_or(u32::MAX))
                }
            };
            *slot = Some(id);
            model.layers.push(id);
        }
        Ok(Scenario {
            name: self.name,
            title: self.title,
            source: self.source,
            assumed: self.assumed,
            notes: Vec::new(),
            imported: None,
            hardware: self.hardware,
            version: self.engine.version,
            model,
            spec_names,
            logged: self.logged,
            settings: self.engine.settings,
            num_speculative_tokens: self.engine.num_speculative_tokens,
            max_num_seqs: self.engine.max_num_seqs,
        })
    }
}
