//! The layers of a model in their order, as references into a table of distinct specs.

use std::borrow::Cow;

use crate::spec::KvCacheSpec;

/// Index of a spec in [`Model::specs`], or in a plan's own table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpecId(pub u32);

impl SpecId {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The layers that have a KV cache, in the order in which vLLM's workers report them.
///
/// A target's layers come first, a draft model's last. Names play no part in planning.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// Specs, usually distinct.
    pub specs: Vec<KvCacheSpec>,
    /// One spec a layer.
    pub layers: Vec<SpecId>,
    /// One name a layer, or empty: then layer i is `model.layers.i.attn`, or `draft.layers.i.attn`.
    pub names: Vec<String>,
    /// The first layer of the draft model.
    pub draft_from: Option<usize>,
}

impl Model {
    /// Number of layers.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether no layer has a KV cache.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The spec of layer `layer`, if there is such a layer.
    pub fn spec_of(&self, layer: usize) -> Option<&KvCacheSpec> {
        self.specs.get(self.layers.get(layer)?.index())
    }

    /// The name of layer `layer`.
    pub fn name_of(&self, layer: usize) -> Cow<'_, str> {
        match self.names.get(layer) {
            Some(name) => Cow::Borrowed(name),
            None if self.is_draft(layer) => Cow::Owned(format!("draft.layers.{layer}.attn")),
            None => Cow::Owned(format!("model.layers.{layer}.attn")),
        }
    }

    /// Whether layer `layer` belongs to the draft model.
    pub fn is_draft(&self, layer: usize) -> bool {
        self.draft_from.is_some_and(|from| layer >= from)
    }

    /// Adds a layer, sharing the entry of an equal spec.
    pub fn push(&mut self, spec: KvCacheSpec) {
        let index = self.specs.iter().position(|known| *known == spec).unwrap_or_else(|| {
            self.specs.push(spec);
            self.specs.len() - 1
        });
        self.layers.push(SpecId(u32::try_from(index).unwrap_or(u32::MAX)));
    }
}
