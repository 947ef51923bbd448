//! What of a plan does a replay need?

use planner::spec::{AttentionKind, AttentionSpec, StateShapes};
use planner::{KvCacheSpec, Layout, MambaSpec, Plan};

use super::ReplayError;

/// What a layer keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Keys and values.
    Attention {
        /// KV heads.
        kv_heads: usize,
        /// Elements of a head.
        head_size: usize,
        /// fp8, or bf16.
        fp8: bool,
        /// The last tokens that are read; `None` is all. Of a chunk, as many as a full one has.
        window: Option<usize>,
    },
    /// One latent row a token, its rotary part last.
    Mla {
        /// Elements of a row.
        head_size: usize,
        /// fp8, or bf16.
        fp8: bool,
        /// The last tokens that are read; `None` is all.
        window: Option<usize>,
    },
    /// A recurrent state.
    State {
        /// Bytes of the convolution's state.
        conv_bytes: usize,
        /// Bytes of the recurrent state.
        state_bytes: usize,
        /// Blocks beside the first that a request's state has.
        num_speculative_blocks: usize,
        /// Whether states are found by position (cache mode `align` or `all`).
        aligned: bool,
    },
    /// Something that has no kernel here: its block tables and slots are replayed, its cache is not.
    Other(&'static str),
}

impl Kept {
    /// Whether tokens have slots in it.
    pub fn has_slots(&self) -> bool {
        !matches!(self, Self::State { .. })
    }
}

/// A layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayLayer {
    /// What it keeps.
    pub kept: Kept,
    /// Bytes of its page: a block of this layer.
    pub page_bytes: usize,
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayGroup {
    /// Tokens a block.
    pub block_size: usize,
    /// Its layers, one at least.
    pub layers: Vec<ReplayLayer>,
}

impl ReplayGroup {
    /// What its first layer keeps: its builder and its block tables are those of that kind.
    pub fn kept(&self) -> Kept {
        self.layers.first().map_or(Kept::Other("a group without layers"), |layer| layer.kept)
    }
}

/// Where the layers' pages of a block lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// A tensor a layer slot: the n-th layers of all groups share the n-th tensor.
    TensorALayer,
    /// One tensor, a block after the other; the layers of a group stand side by side in it.
    BlockOutermost {
        /// From a block to the next.
        block_bytes: usize,
    },
}

/// A plan to replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayPlan {
    /// Its name.
    pub name: String,
    /// Its groups.
    pub groups: Vec<ReplayGroup>,
    /// Where pages lie.
    pub arrangement: Arrangement,
    /// Blocks of its pool, where the memory is known.
    pub num_blocks: Option<u64>,
}

impl ReplayPlan {
    /// Takes a plan's groups, for the layout of its pool.
    ///
    /// # Errors
    /// [`ReplayError`] without groups, or where a size does not fit this machine.
    pub fn new(name: &str, plan: &Plan, layout: Layout) -> Result<Self, ReplayError> {
        let grouping = &plan.grouping;
        if grouping.groups.is_empty() {
            return Err(ReplayError::NoGroups);
        }
        let mut groups = Vec::new();
        for group in &grouping.groups {
            // One spec for all layers, or one each.
            let specs = group.spec.specs();
            let of = |layer: usize| specs.get(layer).or(specs.first()).copied().unwrap_or(group.first_spec());
            let layer = |index| {
                let id = of(index);
                let page_bytes = size("a page", grouping.specs.page_size_bytes(id))?;
                Ok(ReplayLayer { kept: kept(grouping.specs.spec(id))?, page_bytes })
            };
            let layers = (0..group.layers.len()).map(layer).collect::<Result<_, ReplayError>>()?;
            groups
                .push(ReplayGroup { block_size: size("a block size", grouping.block_size(group))?, layers });
        }
        let mut plan = Self {
            name: name.to_owned(),
            groups,
            arrangement: Arrangement::TensorALayer,
            num_blocks: plan.fitting_pool().map(|pool| pool.num_blocks),
        };
        if layout.is_block_outermost() {
            let widest = plan.groups.iter().map(|group| group.layers.iter().map(stride).sum::<usize>()).max();
            plan.arrangement = Arrangement::BlockOutermost { block_bytes: widest.unwrap_or(0) };
        }
        Ok(plan)
    }

    /// Bytes of a block in each KV cache tensor.
    pub fn tensors(&self) -> Vec<usize> {
        match self.arrangement {
            Arrangement::BlockOutermost { block_bytes } => vec![block_bytes],
            Arrangement::TensorALayer => {
                let slots = self.groups.iter().map(|group| group.layers.len()).max().unwrap_or(0);
                let widest =
                    |slot: usize| self.groups.iter().filter_map(|g| g.layers.get(slot)).map(stride).max();
                (0..slots).map(|slot| widest(slot).unwrap_or(0)).collect()
            }
        }
    }

    /// Which tensor a group's layer is in, and its first byte there.
    pub fn place(&self, group: &ReplayGroup, layer: usize) -> (usize, usize) {
        match self.arrangement {
            Arrangement::TensorALayer => (layer, 0),
            Arrangement::BlockOutermost { .. } => (0, group.layers.iter().take(layer).map(stride).sum()),
        }
    }
}

/// A page as the kernels find it.
fn stride(layer: &ReplayLayer) -> usize {
    layer.page_bytes.next_multiple_of(16)
}

fn size(what: &'static str, value: u64) -> Result<usize, ReplayError> {
    usize::try_from(value)
        .ok()
        .filter(|n| i32::try_from(*n).is_ok())
        .ok_or(ReplayError::TooLarge { what, value })
}

fn kept(spec: &KvCacheSpec) -> Result<Kept, ReplayError> {
    match spec {
        KvCacheSpec::Mamba(state) => kept_state(state),
        KvCacheSpec::Attention(attention) => kept_tokens(attention),
    }
}

fn kept_tokens(attention: &AttentionSpec) -> Result<Kept, ReplayError> {
    let fp8 = match attention.dtype.size_bytes() {
        1 => true,
        2 => false,
        _ => return Ok(Kept::Other("elements of other sizes than one or two bytes")),
    };
    let head_size = size("a head", attention.head_size)?;
    if !(head_size * if fp8 { 1 } else { 2 }).is_multiple_of(16) {
        return Ok(Kept::Other("heads that are not a multiple of 16 bytes"));
    }
    let window = match &attention.kind {
        AttentionKind::Sliding(window) | AttentionKind::SlidingMla(window, _) => Some(window.sliding_window),
        AttentionKind::Chunked { attention_chunk_size } => Some(*attention_chunk_size),
        kind => kind.full().and_then(|full| full.sliding_window.or(full.attention_chunk_size)),
    };
    let window = window.map(|tokens| size("a window", tokens)).transpose()?.filter(|tokens| *tokens > 0);
    let kind = attention.kind.kind();
    if kind.is_mla_family() || matches!(attention.kind, AttentionKind::SlidingMla(..)) {
        return Ok(Kept::Mla { head_size, fp8, window });
    }
    if attention.head_size != attention.head_size_v {
        return Ok(Kept::Other("values of another size than keys"));
    }
    Ok(Kept::Attention { kv_heads: size("KV heads", attention.num_kv_heads)?, head_size, fp8, window })
}

/// The state of the convolution comes first, one tensor or several; the last tensor is the recurrent state, where
/// the layer has one.
fn kept_state(state: &MambaSpec) -> Result<Kept, ReplayError> {
    let StateShapes { shapes, dtypes } = &*state.state;
    let mut bytes = Vec::new();
    for (shape, dtype) in shapes.iter().zip(dtypes) {
        let elements = shape.iter().try_fold(dtype.size_bytes(), |n, axis| n.checked_mul(*axis));
        bytes.push(size("a state", elements.unwrap_or(u64::MAX))?);
    }
    let conv_alone = state.mamba_type.as_deref().is_some_and(|name| name.contains("conv"));
    let state_bytes = if conv_alone { 0 } else { bytes.pop().unwrap_or(0) };
    let conv_bytes = bytes.iter().sum::<usize>();
    if !conv_bytes.is_multiple_of(16) || !state_bytes.is_multiple_of(16) {
        return Ok(Kept::Other("states that are not a multiple of 16 bytes"));
    }
    Ok(Kept::State {
        conv_bytes,
        state_bytes,
        num_speculative_blocks: size("speculative blocks", state.num_speculative_blocks)?,
        aligned: state.mamba_cache_mode.as_deref().is_some_and(|mode| mode != "none"),
    })
}
