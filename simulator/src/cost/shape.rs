//! What a model computes and reads for a token, layer by layer, from its `config.json`.

mod keys;
mod mixer;
mod mlp;
mod pattern;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use keys::Keys;

/// The most layers that a config may ask for.
const MAX_LAYERS: u64 = 10_000;

/// A model, as far as a step's time depends on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Hidden size.
    pub hidden: f64,
    /// Rows of the output matrix.
    pub vocab: f64,
    /// Whether input and output matrices are one.
    pub tied: bool,
    /// Equal layers once, with their number.
    pub layers: Vec<(u32, LayerShape)>,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LayerShape {
    /// Weights that tensor parallelism splits, outside routed experts.
    pub split: f64,
    /// Weights that every rank keeps whole.
    pub whole: f64,
    /// Routed experts, if any.
    pub experts: Option<Experts>,
    /// FLOP for one query and one key, all heads, in prompts.
    pub pair_flops: f64,
    /// What it keeps between steps.
    pub kept: Kept,
    /// Kernels a step, quantisation aside.
    pub kernels: f64,
    /// All-reduces a step over tensor parallel ranks.
    pub all_reduces: f64,
}

/// Routed experts of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    /// Their number.
    pub count: f64,
    /// How many a token uses.
    pub top_k: f64,
    /// Weights of one.
    pub weights: f64,
    /// Columns of one's matrices.
    pub width: f64,
}

/// What a layer keeps between steps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Kept {
    /// KV elements a token.
    pub elements: f64,
    /// Ranks it is split over at most.
    pub split_at_most: f64,
    /// Tokens that a query reads at most.
    pub reads_at_most: Option<f64>,
    /// Elements a token that an indexer reads of all tokens.
    pub indexed: f64,
    /// Bytes of a recurrent state, all ranks together.
    pub state_bytes: f64,
}

/// Why a config gives no shape.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// It is no JSON object.
    #[error("the config is not a JSON object")]
    NotAnObject,
    /// A key is missing.
    #[error("the config has no `{keys}`, which its weights are counted from")]
    Missing {
        /// The key, or the keys of which one would do.
        keys: String,
    },
    /// A key is no whole number in range.
    #[error("`{key}` is {found}; it must be a whole number between 1 and {most}")]
    Number {
        /// The key.
        key: String,
        /// What it is.
        found: String,
        /// The largest that is taken.
        most: u64,
    },
    /// A layer is of a kind that is not known.
    #[error("layer {layer} is `{kind}`, which is not known; known are {known}")]
    Kind {
        /// 0-based.
        layer: usize,
        /// What it is called.
        kind: String,
        /// What is known.
        known: &'static str,
    },
}

#[derive(Deserialize)]
struct KernelFile {
    parts: BTreeMap<String, Vec<String>>,
    quantization: BTreeMap<String, Vec<String>>,
}

static KERNELS: LazyLock<KernelFile> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/kernels.json"))
        .unwrap_or(KernelFile { parts: BTreeMap::new(), quantization: BTreeMap::new() })
});

/// Kernels of a part of a layer (`data/kernels.json`).
fn kernels(part: &str) -> f64 {
    KERNELS.parts.get(part).map_or(0.0, |list| f64::from(u32::try_from(list.len()).unwrap_or(0)))
}

/// Kernels a layer that a weight format adds (`data/kernels.json`).
pub(super) fn quantization_kernels(format: &str) -> f64 {
    KERNELS.quantization.get(format).map_or(0.0, |list| f64::from(u32::try_from(list.len()).unwrap_or(0)))
}

impl Shape {
    /// Reads a Hugging Face config, its nested text config where it has one.
    ///
    /// # Errors
    /// [`ShapeError`] names the key.
    pub fn read(config: &Value) -> Result<Self, ShapeError> {
        let keys = Keys::of(config)?;
        let hidden = keys.number(&["hidden_size", "n_embd", "d_model"])?;
        let plan = pattern::layers(&keys)?;
        let mut layers: Vec<(u32, LayerShape)> = Vec::new();
        for (mixer, mlp) in plan {
            let mut layer = LayerShape::default();
            mixer::add(&keys, hidden, mixer, &mut layer)?;
            mlp::add(&keys, hidden, mlp, &mut layer)?;
            match layers.iter_mut().find(|(_, known)| *known == layer) {
                Some((count, _)) => *count += 1,
                None => layers.push((1, layer)),
            }
        }
        Ok(Self {
            hidden,
            vocab: keys.number(&["vocab_size"])?,
            tied: keys.flag("tie_word_embeddings"),
            layers,
        })
    }

    /// Layers.
    pub fn num_layers(&self) -> f64 {
        self.layers.iter().map(|(count, _)| f64::from(*count)).sum()
    }

    /// All weights, embeddings included.
    pub fn weights(&self) -> f64 {
        let head = self.hidden * self.vocab * if self.tied { 1.0 } else { 2.0 };
        self.sum(|layer| layer.split + layer.whole + layer.experts.map_or(0.0, |e| e.count * e.weights))
            + head
    }

    /// Weights that one token uses, the input embedding aside.
    pub fn active_weights(&self) -> f64 {
        self.sum(|layer| layer.split + layer.whole + layer.experts.map_or(0.0, |e| e.top_k * e.weights))
            + self.hidden * self.vocab
    }

    fn sum(&self, of: impl Fn(&LayerShape) -> f64) -> f64 {
        self.layers.iter().map(|(count, layer)| f64::from(*count) * of(layer)).sum()
    }

    /// Whether any layer has routed experts.
    pub fn has_experts(&self) -> bool {
        self.layers.iter().any(|(_, layer)| layer.experts.is_some())
    }
}
