//! The spec of a recurrent state.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;

/// The spec of a layer that keeps a recurrent state instead of keys and values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MambaSpec {
    /// Tokens of one block.
    pub block_size: u64,
    /// The state tensors of one rank.
    pub state: Arc<StateShapes>,
    /// Bytes that the page is padded to; `None` is no padding.
    pub page_size_padded: Option<u64>,
    /// The attention backend of the state, as vLLM names it; `None` is its default, `MAMBA2`.
    pub mamba_type: Option<Arc<str>>,
    /// The mode that the layer declares; `None` is vLLM's default, `none`.
    pub mamba_cache_mode: Option<Arc<str>>,
    /// Blocks that draft tokens need beside the state's own.
    pub num_speculative_blocks: u64,
    /// Blocks for checkpoints of a prefill, in mode `align`.
    pub num_prefill_checkpoint_blocks: u64,
    /// Tokens that a checkpoint's position is a multiple of.
    pub prefill_checkpoint_alignment: Option<u64>,
    /// Whether every tensor parallel rank holds the whole state.
    pub tp_replicated: bool,
    /// Whether decode context parallelism shards it.
    pub dcp_sharded: bool,
    /// Head slots of the state's page; vLLM's default is 1.
    pub num_heads: u64,
}

/// The tensors of a state: shapes in elements, one dtype each.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateShapes {
    /// One shape a tensor.
    pub shapes: Vec<Vec<u64>>,
    /// One dtype a tensor.
    pub dtypes: Vec<DType>,
}
