//! Step 5: windows, and sparse layers that keep summaries of eight tokens and a ring beside their keys and values.
//!
//! # Source
//! vLLM 0.33: `Step5DecoderLayer` and `Step5Attention` in `vllm/models/step5/nvidia/model.py`, its
//! `config.py`, `sparse_attention.py`, `sparse_summary_cache.py` and `csa_tail_ring.py`,
//! `vllm/transformers_utils/configs/step5.py`.

use serde_json::{Map, Value};

use super::super::config::{Config, whole_value};
use super::super::dense::{index, window};
use super::super::error::ImportError;
use super::super::finish::keys_and_values;
use super::super::layer::{Attention, Cache, Layer, Layers};
use super::super::platform::Kernels;
use super::super::settings::Context;
use crate::dtype::DType;
use crate::size;
use crate::spec::{RawSpec, SpecKind, StrideAlignment, TokensPerState};

/// Tokens of a region that one summary stands for.
const REGION: u64 = 8;
/// Bytes of a raw row: the indexer's key and gate, 256 elements each.
const ROW_BYTES: u64 = 1024;
/// Elements of a summary.
const SUMMARY: u64 = 256;

pub(super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let model = Model::of(config, context)?;
    let mut layers = Layers::default();
    for i in 0..n {
        model.push(&format!("{prefix}layers.{i}.self_attn.attn"), i, &mut layers.layers)?;
    }
    Ok(layers)
}

/// The prediction heads: `n` layers after the target's, whose types stand in the same list.
pub(in super::super) fn heads(
    config: &Config<'_>,
    context: &Context<'_>,
    start: u64,
    n: u64,
) -> Result<Vec<Layer>, ImportError> {
    let model = Model::of(config, context)?;
    let mut layers = Vec::new();
    for i in start..start.saturating_add(n) {
        model.push(&format!("model.layers.{i}.mtp_block.self_attn.attn"), i, &mut layers)?;
    }
    Ok(layers)
}

/// What the layers have in common.
struct Model<'a> {
    config: &'a Config<'a>,
    context: &'a Context<'a>,
    /// The types of the layers and of the heads after them; empty where the file has none.
    types: Vec<&'a str>,
    window: Option<u64>,
    other: Option<&'a Map<String, Value>>,
    /// Groups of the indexer's heads and the heads themselves, where it is not switched off.
    indexer: Option<(u64, u64)>,
}

impl<'a> Model<'a> {
    fn of(config: &'a Config<'a>, context: &'a Context<'a>) -> Result<Self, ImportError> {
        let sparse = config.object("sparse_config").ok_or_else(|| {
            ImportError::Refused("vLLM takes a Step 5 with a `sparse_config` only".to_owned())
        })?;
        let read = |key: &str| {
            sparse.get(key).map_or(Ok(None), |value| whole_value(&format!("sparse_config.{key}"), value))
        };
        let indexer = if sparse.get("enabled") == Some(&Value::Bool(false)) {
            None
        } else {
            let groups = match read("index_tp_size")? {
                Some(groups) => Some(groups),
                None => read("num_provider_groups")?,
            };
            Some((groups.unwrap_or(4), read("sparse_indexer_num_heads")?.unwrap_or(16)))
        };
        let types = match config.texts("layer_types_with_mtp")? {
            Some(types) => types,
            None => config.texts("layer_types")?.unwrap_or_default(),
        };
        Ok(Self {
            config,
            context,
            types,
            window: window(config)?,
            other: config.object("attention_other_setting"),
            indexer,
        })
    }

    fn push(&self, name: &str, i: u64, layers: &mut Vec<Layer>) -> Result<(), ImportError> {
        let kind = match self.types.get(index(i)) {
            Some(kind) => *kind,
            None if self.types.is_empty() => "full_attention",
            None => {
                return Err(ImportError::ListTooShort {
                    key: "layer_types".to_owned(),
                    length: self.types.len(),
                    layers: i.saturating_add(1),
                });
            }
        };
        let mut attention = self.attention(i, kind)?;
        let Some(indexer) = self.indexer.filter(|_| kind == "full_attention") else {
            attention.window = self.window.filter(|_| kind == "sliding_attention");
            layers.push(Layer::new(name, Cache::Attention(attention)));
            return Ok(());
        };
        self.check(&attention, indexer, i)?;
        let mut main = keys_and_values(SpecKind::Full, &attention, self.context);
        main.block_stride_alignment = Some(StrideAlignment::MultipleOf { multiple_of: REGION });
        let ring = self.ring(&main)?;
        let mut summary = RawSpec::empty(SpecKind::Full);
        summary.num_kv_heads = Some(1);
        summary.head_size = Some(SUMMARY);
        summary.head_size_v = Some(0);
        summary.dtype = Some(DType::UInt8);
        summary.tokens_per_state = Some(TokensPerState::Whole(REGION));
        for (tail, raw) in [("", main), (".sparse_summary_cache", summary), (".csa_tail_ring", ring)] {
            layers.push(Layer::new(format!("{name}{tail}"), Cache::OwnWithBlock(Box::new(raw))));
        }
        Ok(())
    }

    /// The heads of layer `i`.
    fn attention(&self, i: u64, kind: &str) -> Result<Attention, ImportError> {
        let (total, groups, head_size) = self.heads(i, kind)?;
        self.context.divide("the attention heads", total)?;
        Ok(Attention {
            kv_heads: self.context.kv_heads(groups)?,
            head_size,
            // Its windows run on FlashAttention on every platform.
            kernel_block: Some(16),
            ..Attention::default()
        })
    }

    /// Attention heads, KV heads and the head size of layer `i`, over all ranks.
    fn heads(&self, i: u64, kind: &str) -> Result<(u64, u64, u64), ImportError> {
        let of = |key: &str, default: u64| -> Result<u64, ImportError> {
            Ok(self.config.whole(key)?.unwrap_or(default))
        };
        let own = self.other.filter(|other| {
            self.types.get(index(i)).is_some()
                && other.get("attention_type").and_then(Value::as_str) == Some(kind)
        });
        let other = |key: &str| -> Result<Option<u64>, ImportError> {
            let value = own.and_then(|other| other.get(key));
            Ok(value.map_or(Ok(None), |v| whole_value(key, v))?.filter(|value| *value > 0))
        };
        let mut total = other("num_attention_heads")?.unwrap_or(of("num_attention_heads", 40)?);
        if kind == "sliding_attention" && self.window.is_some() {
            total = self.config.whole("swa_num_attention_heads")?.unwrap_or(total);
        }
        let groups = other("num_attention_groups")?.unwrap_or(of("num_attention_groups", 8)?);
        let head = match other("head_dim")? {
            Some(head) => Some(head),
            None => self.config.whole("head_dim")?.filter(|head| *head > 0),
        };
        Ok((total, groups, head.unwrap_or(of("hidden_size", 5120)? / total.max(1))))
    }

    /// What vLLM checks of a sparse layer.
    fn check(&self, attention: &Attention, indexer: (u64, u64), i: u64) -> Result<(), ImportError> {
        let refused = |why: String| Err(ImportError::Refused(why));
        let (total, groups, _) = self.heads(i, "full_attention")?;
        let (providers, heads) = indexer;
        if self.types.is_empty() && self.window.is_some() {
            return refused("a sparse layer of a Step 5 has no window: name the `layer_types`".to_owned());
        }
        if providers != groups {
            return refused(format!(
                "the {providers} groups of a Step 5's indexer must be as many as its {groups} KV heads"
            ));
        }
        if heads.checked_rem(providers) != Some(0) || !matches!(heads / providers.max(1), 2 | 4) {
            return refused(format!(
                "a Step 5's indexer has 2 or 4 heads a group, not {heads} / {providers}"
            ));
        }
        let ranks = self.context.tp;
        let queries = (total / ranks) / attention.kv_heads.max(1);
        if !matches!(queries, 4 | 8 | 16) {
            return refused(format!(
                "a Step 5's sparse kernels take 4, 8 or 16 attention heads a KV head, not {queries} ({total} \
                 heads over {ranks} ranks)"
            ));
        }
        if attention.head_size != 192 {
            return refused(format!(
                "a Step 5's sparse kernels take heads of 192 elements, not {}",
                attention.head_size
            ));
        }
        let kept = &*self.context.kv.name;
        if !matches!(kept, "auto" | "bfloat16" | "fp8" | "fp8_e4m3") {
            return refused(format!("a Step 5's sparse layers keep bfloat16 or FP8 (E4M3), not `{kept}`"));
        }
        Ok(())
    }

    /// The open region's raw rows, in a page as large as the layer's own.
    fn ring(&self, main: &RawSpec) -> Result<RawSpec, ImportError> {
        let settings = self.context.settings;
        let element = main.dtype.map_or(1, DType::size_bytes);
        let (heads, head) = (main.num_kv_heads.unwrap_or(1), main.head_size.unwrap_or(1));
        let token = size::product("a ring", &[heads, head, 2, element])?;
        let kernels = Kernels::of(settings, self.config, false, &self.context.kv.name);
        let page = size::mul("a ring", kernels.block_size(settings.block_size), token)?;
        let is_mtp = settings.speculative.as_ref().is_some_and(|s| s.method.ends_with("mtp"));
        let drafts = if is_mtp { self.context.num_speculative_tokens } else { 0 };
        let rows = size::add("a ring", drafts, 7)?;
        if !page.is_multiple_of(ROW_BYTES) || page / ROW_BYTES < rows {
            return Err(ImportError::Refused(format!(
                "a Step 5's ring needs {rows} rows of {ROW_BYTES} bytes in one page of {page} bytes: increase \
                 --block-size"
            )));
        }
        let mut raw = RawSpec::empty(SpecKind::CircularBuffer);
        raw.num_kv_heads = Some(1);
        raw.head_size = Some(token / DType::BFloat16.size_bytes());
        raw.head_size_v = Some(0);
        raw.dtype = Some(DType::BFloat16);
        raw.block_stride_alignment = Some(StrideAlignment::Bytes(ROW_BYTES));
        Ok(raw)
    }
}
