//! What a family says about a layer before block sizes and dtypes are settled.

use crate::dtype::DType;
use crate::spec::RawSpec;

/// A layer and the cache that it keeps.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    pub(super) name: String,
    pub(super) cache: Cache,
}

impl Layer {
    pub(super) fn new(name: impl Into<String>, cache: Cache) -> Self {
        Self { name: name.into(), cache }
    }
}

/// What is cached, for one rank.
#[derive(Debug, Clone)]
pub(super) enum Cache {
    /// Keys and values.
    Attention(Attention),
    /// MLA latents.
    Latent(Latent),
    /// Keys of a sparse indexer.
    Indexer {
        /// Bytes of one token.
        head_size: u64,
    },
    /// A recurrent state.
    State(State),
    /// A spec that a model writes itself; block sizes are its own.
    Own(Box<RawSpec>),
    /// A spec of a model's own whose block is the engine's.
    OwnWithBlock(Box<RawSpec>),
    /// Cross attention over an encoder's output.
    Cross(Attention),
    /// The cache of another layer.
    Shared(String),
}

/// Keys and values of one rank.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Attention {
    pub(super) kv_heads: u64,
    pub(super) head_size: u64,
    /// `None` is as the key's.
    pub(super) head_size_v: Option<u64>,
    pub(super) window: Option<u64>,
    pub(super) chunk: Option<u64>,
    /// What the blocks of its kernels are multiples of, tokens, where they are not the platform's.
    pub(super) kernel_block: Option<u64>,
    /// Whether a prompt's tokens see each other.
    pub(super) non_causal: bool,
}

/// Latents of MLA.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Latent {
    pub(super) head_size: u64,
    pub(super) window: Option<u64>,
    /// Whether an indexer of its own chooses the tokens.
    pub(super) leads_index_group: bool,
    pub(super) non_causal_multi_token_decode: bool,
}

/// A recurrent state of one rank.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) shapes: Vec<Vec<u64>>,
    pub(super) dtypes: Vec<DType>,
    /// `None` is `MAMBA2`.
    pub(super) mamba_type: Option<&'static str>,
    /// Tokens that checkpoints inside a prefill are aligned to, where the layer can make them.
    pub(super) checkpoint_alignment: Option<u64>,
    /// Whether these are at the ends of blocks alone.
    pub(super) checkpoints_end_blocks: bool,
    pub(super) tp_replicated: bool,
}

/// The layers of a model, and what its class tells the engine about them.
#[derive(Debug, Clone, Default)]
pub(super) struct Layers {
    pub(super) layers: Vec<Layer>,
    /// Where the draft's begin.
    pub(super) draft_from: Option<usize>,
    /// How the attention block is aligned to states, for hybrid models.
    pub(super) align: Option<Align>,
    /// Whether the engine takes the model for an MLA model.
    pub(super) use_mla: bool,
}

/// The engine's own view of a hybrid model's sizes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Align {
    /// KV heads of one rank; 1 for MLA.
    pub(super) kv_heads: u64,
    /// Elements of one head, or of a latent.
    pub(super) head_size: u64,
    /// Bytes of the largest state.
    pub(super) state_bytes: u64,
}
