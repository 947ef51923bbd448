//! The table of specs that grouping works on: equal specs share an entry, and each knows its page.

use std::collections::HashMap;

use crate::engine::Rules;
use crate::error::GroupingError;
use crate::model::{Model, SpecId};
use crate::spec::{KvCacheSpec, known_fields};

/// Below this many specs a look at each is faster than a hash.
const LINEAR: usize = 12;

/// Specs with their page sizes; equal specs share an entry.
#[derive(Debug, Clone, Default)]
pub struct SpecTable {
    entries: Vec<Entry>,
    index: HashMap<KvCacheSpec, SpecId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    spec: KvCacheSpec,
    page_size_bytes: u64,
}

impl PartialEq for SpecTable {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Eq for SpecTable {}

impl SpecTable {
    /// The spec of `id`.
    ///
    /// # Panics
    /// If `id` is not from this table.
    pub fn spec(&self, id: SpecId) -> &KvCacheSpec {
        &self.entries[id.index()].spec
    }

    /// Bytes of the page of `id`.
    ///
    /// # Panics
    /// If `id` is not from this table.
    pub fn page_size_bytes(&self, id: SpecId) -> u64 {
        self.entries[id.index()].page_size_bytes
    }

    /// Number of specs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every spec with its page in bytes.
    pub fn iter(&self) -> impl Iterator<Item = (SpecId, &KvCacheSpec, u64)> {
        self.entries.iter().enumerate().map(|(i, entry)| (id(i), &entry.spec, entry.page_size_bytes))
    }

    /// The entry of a spec equal to `spec`, made for `layer` if there is none.
    pub(super) fn add(
        &mut self,
        rules: &Rules,
        layer: usize,
        mut spec: KvCacheSpec,
    ) -> Result<SpecId, GroupingError> {
        align(rules, &mut spec)?;
        if let Some(known) = self.find(&spec) {
            return Ok(known);
        }
        let page_size_bytes =
            spec.page_size_bytes(rules).map_err(|source| GroupingError::Page { layer, source })?;
        Ok(self.insert(spec, page_size_bytes))
    }

    fn find(&self, spec: &KvCacheSpec) -> Option<SpecId> {
        if self.index.is_empty() {
            self.entries.iter().position(|entry| entry.spec == *spec).map(id)
        } else {
            self.index.get(spec).copied()
        }
    }

    fn insert(&mut self, spec: KvCacheSpec, page_size_bytes: u64) -> SpecId {
        let new = id(self.entries.len());
        if !self.index.is_empty() {
            self.index.insert(spec.clone(), new);
        }
        self.entries.push(Entry { spec, page_size_bytes });
        if self.index.is_empty() && self.entries.len() > LINEAR {
            self.index =
                self.entries.iter().enumerate().map(|(i, entry)| (entry.spec.clone(), id(i))).collect();
        }
        new
    }
}

fn id(index: usize) -> SpecId {
    SpecId(u32::try_from(index).unwrap_or(u32::MAX))
}

/// Refuses a kind or a quantisation that came with a later version, as vLLM would not construct it.
fn known(spec: &KvCacheSpec, layer: usize, rules: &Rules) -> Result<(), GroupingError> {
    let minor = rules.version.minor();
    let kind = spec.kind();
    if minor < kind.since() {
        return Err(GroupingError::KindUnknown { layer, kind });
    }
    match spec.attention().map(|spec| spec.kv_quant_mode) {
        Some(mode) if minor < mode.since() => {
            Err(GroupingError::QuantModeUnknown { layer, mode: mode.name() })
        }
        _ => Ok(()),
    }
}

/// Pads a page to its format's alignment, as the dataclass does when it is made.
fn align(rules: &Rules, spec: &mut KvCacheSpec) -> Result<(), GroupingError> {
    if let Some(aligned) = spec.aligned_page_size_bytes(rules)?
        && let KvCacheSpec::Attention(attention) = spec
    {
        attention.page_size_padded = Some(aligned);
    }
    Ok(())
}

/// The model's specs as an engine of this version sees them, and each layer's entry.
pub(super) fn load(model: &Model, rules: &Rules) -> Result<(SpecTable, Vec<SpecId>), GroupingError> {
    let mut table = SpecTable::default();
    let mut map: Vec<Option<SpecId>> = vec![None; model.specs.len()];
    let mut layers = Vec::with_capacity(model.layers.len());
    for (layer, old) in model.layers.iter().enumerate() {
        let index = old.index();
        let new = match map.get(index).copied().flatten() {
            Some(new) => new,
            None => {
                let mut spec = model.specs[index].clone();
                known(&spec, layer, rules)?;
                spec.retain_known(known_fields(spec.kind(), rules.version));
                let new = table.add(rules, layer, spec)?;
                map[index] = Some(new);
                new
            }
        };
        layers.push(new);
    }
    Ok((table, layers))
}
