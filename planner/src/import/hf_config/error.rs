//! Why a config cannot be imported, and what to do instead.

use crate::size::SizeError;
use crate::spec::SpecError;

/// Why a config cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The config is no JSON object.
    #[error("the config is not a JSON object")]
    NotAnObject,
    /// The config names no architecture.
    #[error("the config names no architecture: `architectures` is missing or empty")]
    NoArchitecture,
    /// An architecture that is not known.
    #[error("the architecture `{name}` is not known")]
    UnknownArchitecture {
        /// The architecture.
        name: String,
        /// Known names that resemble it.
        similar: Vec<&'static str>,
    },
    /// A draft model that is not known.
    #[error("the draft architecture `{name}` is not known for method `{method}`")]
    UnknownDraft {
        /// The architecture.
        name: String,
        /// The speculative method.
        method: String,
    },
    /// A draft method that needs its own config.
    #[error("speculative method `{method}` needs the draft model's config")]
    DraftConfigMissing {
        /// The method.
        method: String,
    },
    /// A key that is needed.
    #[error("the config has no `{key}`")]
    Missing {
        /// The key.
        key: String,
    },
    /// A key of another type.
    #[error("`{key}` must be {wanted}, not {found}")]
    WrongType {
        /// The key.
        key: String,
        /// What it must be.
        wanted: &'static str,
        /// What it is, shortened.
        found: String,
    },
    /// A value that is not known.
    #[error("`{key}` is `{value}`, which is not known")]
    UnknownValue {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Layers without end.
    #[error("the config asks for {asked} layers, more than {limit}")]
    TooManyLayers {
        /// The number.
        asked: u64,
        /// The most.
        limit: u64,
    },
    /// A list that is shorter than the layers.
    #[error("`{key}` has {length} entries for {layers} layers")]
    ListTooShort {
        /// The key.
        key: String,
        /// Its length.
        length: usize,
        /// The layers.
        layers: u64,
    },
    /// Heads or channels that do not divide over the tensor parallel ranks.
    #[error("{what} of {size} does not divide over {tensor_parallel_size} tensor parallel ranks")]
    NotDivisible {
        /// What.
        what: &'static str,
        /// How many.
        size: u64,
        /// Ranks.
        tensor_parallel_size: u64,
    },
    /// Query heads that are no multiple of the KV heads.
    #[error("{heads} attention heads are no multiple of {kv_heads} KV heads")]
    HeadsNotDivisible {
        /// Attention heads.
        heads: u64,
        /// KV heads.
        kv_heads: u64,
    },
    /// An encoder's size that does not divide over the tensor parallel ranks.
    #[error(
        "`{key}` is {size}, which does not divide over {tensor_parallel_size} tensor parallel ranks: vLLM splits the \
         encoder of images or sound as it splits the language model"
    )]
    EncoderNotDivisible {
        /// The key of the encoder's config.
        key: String,
        /// How many.
        size: u64,
        /// Ranks.
        tensor_parallel_size: u64,
    },
    /// A combination that vLLM refuses.
    #[error("{0}")]
    Refused(String),
    /// The arithmetic left 64 bits.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// A spec that cannot be.
    #[error("layer `{layer}`: {source}")]
    Spec {
        /// The layer.
        layer: String,
        /// What is wrong.
        source: SpecError,
    },
}

impl ImportError {
    /// What to do, a sentence each.
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::UnknownArchitecture { similar, .. } => {
                let mut hints = Vec::new();
                if !similar.is_empty() {
                    hints.push(format!("known architectures like it: {}", similar.join(", ")));
                }
                hints.push(
                    "start vLLM with the k3plan plugin and `K3PLAN_DUMP=path`, and plan from the dump"
                        .to_owned(),
                );
                hints.push("or write the layers as a scenario in YAML".to_owned());
                hints
            }
            Self::NoArchitecture => {
                vec!["give the model's own config.json, or add `architectures` to it".to_owned()]
            }
            Self::DraftConfigMissing { .. } => {
                vec!["name the draft model's config.json with `--draft`".to_owned()]
            }
            Self::EncoderNotDivisible { .. } => vec![
                "keep the encoder whole on each rank with `--mm-encoder-tp-mode data`, here and in vLLM, where the \
                 model can"
                    .to_owned(),
                "or leave it out with `--language-model-only`, or take fewer ranks".to_owned(),
            ],
            _ => Vec::new(),
        }
    }
}
