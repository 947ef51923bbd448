//! A model: its config, the spec of each of its layers for one rank, and the plan that vLLM made of them.

use std::collections::BTreeMap;

use planner::{KvCacheSpec, Model, RawSpec};
use serde::{Deserialize, Serialize};

use super::engine::RecordedEngine;
use super::expect::{Expect, RecordedError};

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelLine {
    /// Which engine answered, such as `vllm 0.32.0`.
    pub(crate) oracle: String,
    /// The case's name.
    pub(crate) id: String,
    /// The model's config.
    #[serde(deserialize_with = "planner::import::json::config")]
    pub(crate) config: serde_json::Value,
    /// The draft model's config.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "planner::import::json::optional_config"
    )]
    pub(crate) draft_config: Option<serde_json::Value>,
    /// The engine settings.
    #[serde(default)]
    pub(crate) engine: RecordedEngine,
    /// The answer.
    pub(crate) expect: ModelExpect,
}

/// What a real vLLM answered for a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelExpect {
    /// Each layer with a cache of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) layers: Option<Vec<RawSpec>>,
    /// Layers that use another layer's cache, and whose.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) shared: BTreeMap<String, String>,
    /// The block size after alignment, tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) block_size: Option<u64>,
    /// The padded state page, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mamba_page_size_padded: Option<u64>,
    /// The plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<NamedExpect>,
    /// The exception's class, where the model could not be built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

/// An answer whose groups name their layers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NamedExpect {
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<NamedGroup>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_size: Option<u64>,
    padding_layers: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_tp_replicas: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_concurrency: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks_per_max_len_request: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_group_sizes: Option<Vec<Vec<u64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity_error: Option<RecordedError>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedGroup {
    layers: Vec<String>,
    r#type: String,
    block_size: u64,
    page_size_bytes: u64,
}

impl NamedExpect {
    /// The same answer with layers by index in `model`.
    ///
    /// # Errors
    /// If a group names a layer that the model does not have.
    pub(crate) fn by_index(&self, model: &Model) -> Result<Expect, String> {
        let index: BTreeMap<&str, u32> =
            (0..).zip(&model.names).map(|(i, name)| (name.as_str(), i)).collect();
        let mut answer = Expect {
            group_size: self.group_size,
            kv_tp_replicas: self.kv_tp_replicas,
            num_blocks: self.num_blocks,
            max_concurrency: self.max_concurrency,
            bytes_per_block: self.bytes_per_block,
            blocks_per_max_len_request: self.blocks_per_max_len_request,
            worker_group_sizes: self.worker_group_sizes.clone(),
            max_model_len: self.max_model_len,
            dropped: self.dropped.clone(),
            error: self.error.clone(),
            stage: self.stage.clone(),
            detail: self.detail.clone(),
            capacity_error: self.capacity_error.clone(),
            ..Expect::default()
        };
        if let Some(groups) = &self.groups {
            answer.padding_layers = Some(self.padding_layers);
            let mut named = Vec::with_capacity(groups.len());
            for group in groups {
                let layers: Result<Vec<u32>, String> = group
                    .layers
                    .iter()
                    .map(|name| {
                        index.get(name.as_str()).copied().ok_or_else(|| format!("no layer is named `{name}`"))
                    })
                    .collect();
                named.push(layers?);
            }
            answer.groups = Some(named);
            answer.group_types = Some(groups.iter().map(|group| group.r#type.clone()).collect());
            answer.block_sizes = Some(groups.iter().map(|group| group.block_size).collect());
            answer.page_sizes = Some(groups.iter().map(|group| group.page_size_bytes).collect());
        }
        Ok(answer)
    }
}

impl ModelLine {
    /// The recorded layers.
    ///
    /// # Errors
    /// If none were recorded, or a spec is not valid.
    pub(crate) fn recorded_model(&self) -> Result<Model, String> {
        let layers = self.expect.layers.as_ref().ok_or("no layers were recorded")?;
        let mut model = Model::default();
        for (i, raw) in layers.iter().enumerate() {
            let mut spec = raw.clone();
            let name = spec.name.take().unwrap_or_else(|| format!("model.layers.{i}.attn"));
            // The state's backend is recorded, and left out where vLLM plans the recorded specs again.
            spec.mamba_type = None;
            let spec =
                KvCacheSpec::try_from(spec).map_err(|error| format!("layer {i}, `{name}`: {error}"))?;
            if name.starts_with("draft.") && model.draft_from.is_none() {
                model.draft_from = Some(i);
            }
            model.push(spec);
            model.names.push(name);
        }
        Ok(model)
    }
}
