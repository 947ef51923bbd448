//! Which KV cache groups are simulated: what the scheduler side of vLLM reads of a group's spec.

/// One KV cache group, as the block managers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Which manager hands out its blocks.
    pub manager: Manager,
    /// Tokens a block, as the spec says it (not yet multiplied by DCP).
    pub block_size: u32,
    /// Layers in the group, padding included.
    pub layers: u32,
    /// Bytes of one block of one layer.
    pub page_size_bytes: u64,
    /// Groups with equal specs carry equal numbers: vLLM looks their cached blocks up together.
    pub spec: u32,
    /// Whether a drafter that reads hidden states lives here, so that hits drop their last block.
    pub eagle: bool,
    /// Whether decode context parallelism spreads a block's tokens over the ranks.
    pub dcp_sharded: bool,
}

/// A manager of blocks (vLLM's `single_type_kv_cache_manager.py`, 0.32).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// Keeps every block until the request ends: full attention, MLA, sink attention.
    Full,
    /// Gives blocks back once they leave the window.
    SlidingWindow {
        /// Tokens a query sees, itself included.
        window: u32,
        /// Tokens kept below the window, unread, for multi-module MTP.
        extra_retained_tokens: u32,
    },
    /// Gives blocks back once their chunk is done.
    ChunkedLocal {
        /// Tokens a chunk.
        chunk: u32,
    },
    /// A recurrent state a request (Mamba, GDN, KDA, short convolutions).
    State {
        /// When states are kept for prefix caching.
        mode: StateMode,
        /// Extra state blocks a request, one a draft token.
        speculative_blocks: u32,
        /// Extra blocks for a checkpoint inside the last prefill chunk (align mode).
        checkpoint_blocks: u32,
        /// Tokens a checkpoint's distance from the chunk's start must be a multiple of.
        checkpoint_alignment: Option<u32>,
    },
    /// One fixed allocation for the encoder's tokens.
    Cross,
    /// One block a request, rewritten as a ring; never shared.
    Ring,
}

/// vLLM's `mamba_cache_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateMode {
    /// The running state only.
    None,
    /// States at block boundaries that prefill chunks are cut to end at.
    Align,
    /// A state for every block.
    All,
}

impl Manager {
    /// vLLM asks `isinstance(spec, FullAttentionSpec)`.
    pub(crate) fn is_full(self) -> bool {
        matches!(self, Self::Full)
    }

    /// Whether hits may end inside a block (`supports_fine_grained_hash_lookup`).
    pub(crate) fn finds_inside_blocks(self) -> bool {
        matches!(self, Self::Full | Self::State { .. })
    }

    /// Whether the group takes part in prefix caching at all (`prefix_cacheable`).
    pub(crate) fn prefix_cacheable(self) -> bool {
        !matches!(self, Self::Ring)
    }

    /// Whether the group is a state group in align mode.
    pub(crate) fn is_aligned_state(self) -> bool {
        matches!(self, Self::State { mode: StateMode::Align, .. })
    }

    /// Whether the group is a state group.
    pub(crate) fn is_state(self) -> bool {
        matches!(self, Self::State { .. })
    }
}
