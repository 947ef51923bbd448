//! Why a config cannot be imported, and what to do instead.

use crate::engine::EngineVersion;
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
    /// A field that the config's class does not take.
    #[error(
        "`{field}` must be {wanted}, not {found}: the class of `{model_type}` checks its fields when vLLM reads the \
         config"
    )]
    FieldType {
        /// The field, with the path to it.
        field: String,
        /// Whose class.
        model_type: String,
        /// What it must be.
        wanted: String,
        /// What it is, shortened.
        found: String,
    },
    /// A dtype that `PyTorch` has none of.
    #[error("`{field}` is `{value}`, which is no dtype of PyTorch: vLLM ends as it reads the config")]
    UnknownDtype {
        /// The field, with the path to it.
        field: String,
        /// What it is, shortened.
        value: String,
    },
    /// A window of less than no tokens.
    #[error("`sliding_window` is {window}, which vLLM takes for a window of so many tokens, not for none")]
    NegativeWindow {
        /// The window, tokens.
        window: i64,
    },
    /// A model type that no class goes by.
    #[error(
        "`model_type` is {found}, which neither transformers nor vLLM has a class for: vLLM refuses the config as it reads \
         it"
    )]
    UnknownModelType {
        /// What it is, or that it is missing.
        found: String,
        /// The model type that the architecture belongs to.
        similar: Option<&'static str>,
    },
    /// A way of quantising that the engine does not know.
    #[error("`quant_method` is `{method}`, which vLLM {version} does not know")]
    UnknownQuantization {
        /// The way.
        method: String,
        /// The engine.
        version: EngineVersion,
    },
    /// A block that no backend of attention takes.
    #[error(
        "`--block-size` is {asked}: every backend of attention on {platform} takes multiples of {multiple} tokens"
    )]
    BlockSize {
        /// The block, tokens.
        asked: u64,
        /// What it must be a multiple of, tokens.
        multiple: u64,
        /// Where.
        platform: &'static str,
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
            Self::FieldType { wanted, found, .. } => {
                let whole = found.strip_suffix(".0").filter(|_| wanted.contains("a whole number"));
                vec![whole.map_or_else(
                    || "leave the field out, and its class fills in a value of its own".to_owned(),
                    |digits| format!("write it as `{digits}`"),
                )]
            }
            Self::UnknownDtype { value, .. } => {
                let bare = value.trim().trim_start_matches("torch.").to_ascii_lowercase();
                let known = ["bfloat16", "float16", "float32", "half"].contains(&bare.as_str());
                let name = if known { bare.as_str() } else { "bfloat16" };
                vec![format!("write the bare name in lower case, such as `{name}`")]
            }
            Self::UnknownQuantization { version, .. } => {
                let known: Vec<_> = version.quantisations().collect();
                vec![format!("vLLM {version} knows {}", known.join(", "))]
            }
            Self::BlockSize { asked, multiple, .. } => {
                let below = asked.checked_div(*multiple).unwrap_or(0).saturating_mul(*multiple);
                let above = below.saturating_add(*multiple);
                vec![if below == 0 { format!("take {above}") } else { format!("take {below} or {above}") }]
            }
            Self::NegativeWindow { .. } => {
                vec!["write null where there is no window, in the file that vLLM reads, too".to_owned()]
            }
            Self::UnknownModelType { similar, .. } => {
                let named = similar.map(|name| format!("the architecture's own is `{name}`"));
                let class = "a class that the checkpoint brings along is named by `auto_map`, and vLLM runs it with \
                             `--trust-remote-code`"
                    .to_owned();
                named.into_iter().chain([class]).collect()
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
