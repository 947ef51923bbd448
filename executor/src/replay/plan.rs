//! What of a plan does a replay need?

use planner::{GroupSpec, KvCacheSpec, Plan};

use super::ReplayError;

/// What a group's layers keep.
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
    },
    /// One latent row a token, its rotary part last.
    Mla {
        /// Elements of a row.
        head_size: usize,
        /// fp8, or bf16.
        fp8: bool,
    },
    /// A recurrent state.
    State {
        /// Blocks beside the first that a request's state has.
        num_speculative_blocks: usize,
        /// Whether states are found by position (cache mode `align` or `all`).
        aligned: bool,
    },
    /// Something that has no kernel here: its block tables and slots are replayed, its cache is not.
    Other(&'static str),
}

/// A group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayGroup {
    /// What its layers keep.
    pub kept: Kept,
    /// Its layers.
    pub layers: usize,
    /// Tokens a block.
    pub block_size: usize,
    /// Bytes of a block of one layer.
    pub page_bytes: usize,
}

/// A plan to replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayPlan {
    /// Its name.
    pub name: String,
    /// Its groups.
    pub groups: Vec<ReplayGroup>,
    /// Blocks of its pool, where the memory is known.
    pub num_blocks: Option<u64>,
}

impl ReplayPlan {
    /// Takes a plan's groups. A group of mixed specs is taken as if all its layers were its first.
    ///
    /// # Errors
    /// [`ReplayError`] without groups, or where a size does not fit this machine.
    pub fn new(name: &str, plan: &Plan) -> Result<Self, ReplayError> {
        let grouping = &plan.grouping;
        if grouping.groups.is_empty() {
            return Err(ReplayError::NoGroups);
        }
        let mut groups = Vec::new();
        for group in &grouping.groups {
            let first = group.first_spec();
            let spec = grouping.specs.spec(first);
            let kept = match &group.spec {
                GroupSpec::One(_) | GroupSpec::UniformType(_) => kept(spec)?,
            };
            groups.push(ReplayGroup {
                kept,
                layers: group.layers.len(),
                block_size: size("a block size", spec.block_size())?,
                page_bytes: size("a page", grouping.specs.page_size_bytes(first))?,
            });
        }
        Ok(Self {
            name: name.to_owned(),
            groups,
            num_blocks: plan.fitting_pool().map(|pool| pool.num_blocks),
        })
    }

    /// KV cache tensors: layers of the largest group.
    pub fn tensors(&self) -> usize {
        self.groups.iter().map(|group| group.layers).max().unwrap_or(0)
    }

    /// Bytes of a block in each tensor.
    pub fn page_bytes(&self) -> usize {
        self.groups.iter().map(|group| group.page_bytes).max().unwrap_or(0)
    }
}

fn size(what: &'static str, value: u64) -> Result<usize, ReplayError> {
    usize::try_from(value)
        .ok()
        .filter(|n| i32::try_from(*n).is_ok())
        .ok_or(ReplayError::TooLarge { what, value })
}

fn kept(spec: &KvCacheSpec) -> Result<Kept, ReplayError> {
    let attention = match spec {
        KvCacheSpec::Mamba(state) => {
            return Ok(Kept::State {
                num_speculative_blocks: size("speculative blocks", state.num_speculative_blocks)?,
                aligned: state.mamba_cache_mode.as_deref().is_some_and(|mode| mode != "none"),
            });
        }
        KvCacheSpec::Attention(attention) => attention,
    };
    let fp8 = match attention.dtype.size_bytes() {
        1 => true,
        2 => false,
        _ => return Ok(Kept::Other("elements of other sizes than one or two bytes")),
    };
    let head_size = size("a head", attention.head_size)?;
    if !(head_size * if fp8 { 1 } else { 2 }).is_multiple_of(16) {
        return Ok(Kept::Other("heads that are not a multiple of 16 bytes"));
    }
    if spec.kind().is_mla_family() {
        return Ok(Kept::Mla { head_size, fp8 });
    }
    if attention.head_size != attention.head_size_v {
        return Ok(Kept::Other("values of another size than keys"));
    }
    Ok(Kept::Attention { kv_heads: size("KV heads", attention.num_kv_heads)?, head_size, fp8 })
}
