//! How many consecutive tensor parallel ranks hold identical KV for every layer.

use crate::group::Grouping;
use crate::model::SpecId;
use crate::settings::EngineSettings;
use crate::size::gcd;

/// Ranks that hold identical KV of one layer: 1 if unknown or sharded.
pub fn layer_tp_replicas(grouping: &Grouping, id: SpecId, settings: &EngineSettings) -> u64 {
    let Some(spec) = grouping.specs.spec(id).attention() else { return 1 };
    let Some(shards) = spec.max_tp_shards else { return 1 };
    if spec.dcp_sharded && settings.decode_context_parallel_size > 1 {
        return 1;
    }
    (settings.tensor_parallel_size / shards.max(1)).max(1)
}

/// `kv_tp_replicas`: the greatest common divisor over all groups' specs, from the tensor parallel size.
///
/// # Source
/// `kv_cache_groups_tp_replicas`, vLLM 0.33.
pub fn kv_tp_replicas(grouping: &Grouping, settings: &EngineSettings) -> u64 {
    if grouping.groups.is_empty() {
        return 1;
    }
    grouping
        .groups
        .iter()
        .flat_map(|group| group.spec.specs())
        .fold(settings.tensor_parallel_size, |replicas, id| {
            gcd(layer_tp_replicas(grouping, *id, settings), replicas)
        })
}
