//! States beside MLA layers with an indexer, in 0.30 and 0.31: states take the slots of the MLA pages.
//!
//! # Source
//! `_get_kv_cache_groups_glm5_next`, vLLM 0.30 and 0.31, without its ring caches.

use super::uniform::all_uniform;
use super::{Group, GroupSpec, SpecTable};
use crate::engine::Rules;
use crate::error::GroupingError;
use crate::merge;
use crate::model::SpecId;
use crate::pool;
use crate::settings::EngineSettings;
use crate::spec::{KvCacheSpec, SpecKind};

/// The groups, or `None` where the layers are not states, MLA and an indexer.
pub(super) fn groups(
    rules: &Rules,
    settings: &EngineSettings,
    table: &mut SpecTable,
    layers: &mut [SpecId],
) -> Result<Option<Vec<Group>>, GroupingError> {
    let uneven = GroupingError::StateSlotsUneven;
    let mut states: Vec<u32> = Vec::new();
    let mut attention: Vec<u32> = Vec::new();
    for (layer, id) in (0..).zip(layers.iter()) {
        match table.spec(*id).kind() {
            SpecKind::Mamba => states.push(layer),
            SpecKind::Mla => attention.push(layer),
            _ => return Ok(None),
        }
    }
    let tokens_per_state = |layer: &u32| {
        let spec = table.spec(layers[*layer as usize]);
        spec.attention().map_or((1, 1), |spec| spec.tokens_per_state.parts())
    };
    let indexer = |layer: &&u32| {
        let (tokens, states) = tokens_per_state(layer);
        tokens > states
    };
    let latents: Vec<u32> =
        attention.iter().copied().filter(|layer| tokens_per_state(layer) == (1, 1)).collect();
    if states.is_empty() || !attention.iter().any(|layer| indexer(&layer)) {
        return Ok(None);
    }
    let page = |layer: &u32| table.page_size_bytes(layers[*layer as usize]);
    let padded =
        attention.iter().any(|layer| table.spec(layers[*layer as usize]).page_size_padded().is_some());
    let one_page = |pages: Vec<u64>| {
        let first = pages.first().copied();
        first.filter(|first| pages.iter().all(|page| page == first))
    };
    let index_page = one_page(attention.iter().filter(indexer).map(page).collect());
    let latent_page = one_page(latents.iter().map(page).collect());
    let (false, Some(_), Some(latent_page)) = (padded, index_page, latent_page) else { return Err(uneven) };
    let first = attention[0];
    let ids: Vec<SpecId> = attention.iter().map(|layer| layers[*layer as usize]).collect();
    if !all_uniform(rules, table, ids[0], first, ids.iter().copied())? {
        return Err(uneven);
    }
    let state = layers[states[0] as usize];
    if states.iter().any(|layer| layers[*layer as usize] != state) {
        return Err(uneven);
    }
    let state_bytes = table.spec(state).unpadded_page_size_bytes(rules)?;
    if state_bytes > latent_page {
        return Err(GroupingError::StateExceedsPage { state_bytes, page_size_bytes: latent_page });
    }
    let num_groups = group_count(settings, layers.len(), &states, &latents)?;
    let spec: KvCacheSpec = table.spec(state).with_page_size_padded(latent_page);
    let spec = merge::merge_alone(rules, &spec).map_err(|_refusal| GroupingError::GroupDoesNotMerge)?;
    let state = table.add(rules, states[0] as usize, spec)?;
    for layer in &states {
        layers[*layer as usize] = state;
    }
    let mut groups = vec![Group { layers: attention, spec: GroupSpec::UniformType(ids) }];
    groups.extend((0..num_groups).map(|i| Group {
        layers: states.iter().copied().skip(i).step_by(num_groups).collect(),
        spec: GroupSpec::One(state),
    }));
    Ok(Some(groups))
}

/// Groups of states, so that on every pipeline stage each state has a slot.
fn group_count(
    settings: &EngineSettings,
    layers: usize,
    states: &[u32],
    latents: &[u32],
) -> Result<usize, GroupingError> {
    let mut groups = states.len().div_ceil(latents.len().max(1));
    if settings.pipeline_parallel_size <= 1 {
        return Ok(groups);
    }
    let mut from = 0;
    for count in pool::stage_layers(settings, layers) {
        let stage = from..from + count;
        let on_stage = |of: &[u32]| of.iter().filter(|layer| stage.contains(&(**layer as usize))).count();
        let (states, latents) = (on_stage(states), on_stage(latents));
        if states > 0 {
            if latents == 0 {
                return Err(GroupingError::StageWithoutSlots);
            }
            groups = groups.max(states.div_ceil(latents));
        }
        from += count;
    }
    Ok(groups)
}
