//! What a real vLLM answered, and the same answer from a plan.

use planner::error::format_gib;
use planner::{CapacityError, EngineSettings, GroupingError, Model, Plan, Rules};
use serde::{Deserialize, Deserializer, Serialize};

/// An answer. A key that is absent was not recorded; groups name layers by index.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expect {
    /// Layers of each group, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) groups: Option<Vec<Vec<u32>>>,
    /// vLLM's class of each group's spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group_types: Option<Vec<String>>,
    /// Tokens of each group's block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) block_sizes: Option<Vec<u64>>,
    /// Bytes of each group's page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) page_sizes: Option<Vec<u64>>,
    /// Layers of the largest group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group_size: Option<u64>,
    /// Empty layer slots; null where groups of mixed specs have none.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub(crate) padding_layers: Option<Option<u64>>,
    /// Tensor parallel ranks with identical KV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kv_tp_replicas: Option<u64>,
    /// Blocks of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) num_blocks: Option<u64>,
    /// Requests of the longest length that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_concurrency: Option<f64>,
    /// Bytes of a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_per_block: Option<u64>,
    /// Blocks of a request of the longest length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocks_per_max_len_request: Option<u64>,
    /// Layers of each group on each pipeline stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker_group_sizes: Option<Vec<Vec<u64>>>,
    /// The longest request after fitting it, tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_model_len: Option<u64>,
    /// Declared fields that this version does not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dropped: Option<Vec<String>>,
    /// The exception's class, where there is no plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The stage of that exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stage: Option<String>,
    /// Its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// The exception where the groups do not fit the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capacity_error: Option<RecordedError>,
}

/// A recorded exception.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedError {
    /// Its class.
    pub(crate) error: String,
    /// Its text, perhaps cut.
    pub(crate) detail: String,
}

/// Tells a null from an absent key.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// One field in which a recorded and a planned answer differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The field.
    pub(crate) field: &'static str,
    /// What was recorded.
    pub(crate) recorded: String,
    /// What was planned.
    pub(crate) planned: String,
}

/// What an exception's text says that can be compared: the layer, or the sizes.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    class: String,
    layer: Option<String>,
    needed_gib: Option<String>,
    available_gib: Option<String>,
    estimated: Option<String>,
}

impl Said {
    fn by(class: &str, detail: &str) -> Self {
        let between = |from: &str, to: &str| {
            let rest = detail.split_once(from)?.1;
            Some(rest.split_once(to)?.0.trim().to_owned())
        };
        Self {
            class: class.to_owned(),
            layer: between("Layer ", ":"),
            // "(131072), (4.0 GiB KV cache is needed, ... KV cache memory (3.2 GiB)."
            needed_gib: between("), (", " GiB KV cache is needed"),
            available_gib: between("available KV cache memory (", " GiB)"),
            estimated: between("estimated maximum model length is ", "."),
        }
    }

    fn text(&self) -> String {
        let mut text = self.class.clone();
        for (name, value) in [
            ("layer", &self.layer),
            ("needed GiB", &self.needed_gib),
            ("available GiB", &self.available_gib),
            ("estimated length", &self.estimated),
        ] {
            if let Some(value) = value {
                text.push_str(&format!(", {name} {value}"));
            }
        }
        text
    }
}

/// The text of an exception in vLLM's own pattern, so that its numbers compare.
fn capacity_detail(error: &CapacityError) -> String {
    match error {
        CapacityError::NotEnough {
            needed_bytes,
            available_bytes,
            max_model_len,
            estimated_max_model_len,
        } => {
            let mut text = format!(
                "({max_model_len}), ({} GiB KV cache is needed; available KV cache memory ({} GiB). ",
                format_gib(*needed_bytes),
                format_gib(*available_bytes)
            );
            if *estimated_max_model_len > 0 {
                text.push_str(&format!("estimated maximum model length is {estimated_max_model_len}. "));
            }
            text
        }
        other => other.to_string(),
    }
}

impl Expect {
    /// The answer that a plan gives, in the form in which vLLM's is recorded.
    pub(crate) fn of_plan(
        model: &Model,
        settings: &EngineSettings,
        rules: &Rules,
        plan: Result<&Plan, &GroupingError>,
    ) -> Self {
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                let layer = error.layer().filter(|_| {
                    // vLLM names a layer only where its page cannot be unified.
                    matches!(error, GroupingError::PageNotUnifiable { .. })
                });
                return Self {
                    error: Some(error.class().name().to_owned()),
                    stage: Some(
                        match error {
                            GroupingError::KindUnknown { .. } | GroupingError::QuantModeUnknown { .. } => {
                                "spec"
                            }
                            _ => "grouping",
                        }
                        .to_owned(),
                    ),
                    detail: Some(layer.map_or_else(String::new, |layer| {
                        format!("Layer {}: {error}", model.name_of(layer))
                    })),
                    ..Self::default()
                };
            }
        };
        let grouping = &plan.grouping;
        let mut answer = Self {
            groups: Some(grouping.groups.iter().map(|group| group.layers.clone()).collect()),
            group_types: Some(
                grouping.groups.iter().map(|group| grouping.class_name(group).to_owned()).collect(),
            ),
            block_sizes: Some(grouping.groups.iter().map(|group| grouping.block_size(group)).collect()),
            page_sizes: grouping.groups.iter().map(|group| grouping.page_size_bytes(group).ok()).collect(),
            group_size: Some(grouping.group_size()),
            padding_layers: Some(grouping.padding_layers()),
            kv_tp_replicas: plan.kv_tp_replicas,
            ..Self::default()
        };
        if let Some(pool) = &plan.pool {
            answer.bytes_per_block = plan.bytes_per_block;
            answer.blocks_per_max_len_request = plan.blocks_per_max_len_request(settings, rules).ok();
            match pool {
                Ok(pool) => {
                    answer.num_blocks = Some(pool.num_blocks);
                    if settings.pipeline_parallel_size > 1 {
                        answer.worker_group_sizes = Some(pool.stage_group_sizes.clone());
                    } else {
                        answer.max_concurrency = Some(pool.max_concurrency);
                    }
                    if settings.auto_fit_max_model_len {
                        answer.max_model_len = Some(pool.max_model_len);
                    }
                }
                Err(error) => {
                    answer.capacity_error = Some(RecordedError {
                        error: error.class().name().to_owned(),
                        detail: capacity_detail(error),
                    });
                }
            }
        }
        answer
    }

    /// Every recorded field in which `planned` differs, and what it adds that was not recorded.
    pub(crate) fn differences(&self, planned: &Self) -> Vec<Difference> {
        let mut found = Vec::new();
        let Self {
            groups,
            group_types,
            block_sizes,
            page_sizes,
            group_size,
            padding_layers,
            kv_tp_replicas,
            num_blocks,
            max_concurrency,
            bytes_per_block,
            blocks_per_max_len_request,
            worker_group_sizes,
            max_model_len,
            dropped,
            error,
            stage,
            detail,
            capacity_error,
        } = self;
        let said = |error: Option<&String>, detail: Option<&String>| {
            error.map(|class| Said::by(class, detail.map_or("", String::as_str)).text())
        };
        compare(
            &mut found,
            "error",
            &said(error.as_ref(), detail.as_ref()),
            &said(planned.error.as_ref(), planned.detail.as_ref()),
            true,
        );
        compare(&mut found, "stage", stage, &planned.stage, true);
        compare(&mut found, "groups", groups, &planned.groups, false);
        compare(&mut found, "group_types", group_types, &planned.group_types, false);
        compare(&mut found, "block_sizes", block_sizes, &planned.block_sizes, false);
        compare(&mut found, "page_sizes", page_sizes, &planned.page_sizes, false);
        compare(&mut found, "group_size", group_size, &planned.group_size, false);
        compare(&mut found, "padding_layers", padding_layers, &planned.padding_layers, false);
        compare(&mut found, "kv_tp_replicas", kv_tp_replicas, &planned.kv_tp_replicas, false);
        compare(&mut found, "num_blocks", num_blocks, &planned.num_blocks, false);
        compare(&mut found, "max_concurrency", max_concurrency, &planned.max_concurrency, false);
        compare(&mut found, "bytes_per_block", bytes_per_block, &planned.bytes_per_block, false);
        compare(
            &mut found,
            "blocks_per_max_len_request",
            blocks_per_max_len_request,
            &planned.blocks_per_max_len_request,
            false,
        );
        compare(&mut found, "worker_group_sizes", worker_group_sizes, &planned.worker_group_sizes, false);
        compare(&mut found, "max_model_len", max_model_len, &planned.max_model_len, false);
        if error.is_none() {
            compare(&mut found, "dropped", dropped, &planned.dropped, true);
        }
        let capacity = |error: &Option<RecordedError>| {
            error.as_ref().map(|error| Said::by(&error.error, &error.detail).text())
        };
        let both = self.num_blocks.is_some() || capacity_error.is_some();
        compare(
            &mut found,
            "capacity_error",
            &capacity(capacity_error),
            &capacity(&planned.capacity_error),
            both,
        );
        found
    }
}

/// Notes a difference; an absent recorded value counts only where absence is itself an answer.
fn compare<T: PartialEq + std::fmt::Debug>(
    found: &mut Vec<Difference>,
    field: &'static str,
    recorded: &Option<T>,
    planned: &Option<T>,
    absence_counts: bool,
) {
    if recorded == planned || (recorded.is_none() && !absence_counts) {
        return;
    }
    let text = |value: &Option<T>| match value {
        Some(value) => format!("{value:?}"),
        None => "nothing".to_owned(),
    };
    found.push(Difference { field, recorded: text(recorded), planned: text(planned) });
}
