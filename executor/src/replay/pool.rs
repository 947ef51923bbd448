//! How large is the pool, and what is shared where a plan's own does not fit the memory?
//!
//! A batch needs blocks that no other request or group has. Where they do not fit, groups share blocks first, as they
//! are used one after the other; then layers share tensors; a group's requests share blocks last, since one launch
//! reads them all, and states not at all.

use super::calibrate::fill;
use super::plan::{Kept, ReplayGroup, ReplayPlan};
use super::{Batch, ReplayError};
use crate::device::{Device, Memory};

/// Who has a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Each block is one request's in one group, as in vLLM.
    Nothing,
    /// Groups have the same blocks.
    Groups,
    /// Requests of one group have the same blocks.
    Requests,
}

/// The KV cache, laid out.
pub struct Pool {
    /// Its tensors.
    pub tensors: Vec<Memory>,
    /// Tensors of the plan; where more, layers share.
    pub tensors_planned: usize,
    /// Blocks of each.
    pub num_blocks: usize,
    /// What is shared.
    pub sharing: Sharing,
    /// Bytes of a block in each tensor.
    pub block_bytes: Vec<usize>,
}

/// The blocks of a request in a group.
pub(super) fn blocks_of(group: &ReplayGroup, batch: &Batch, request: usize) -> usize {
    let tokens = batch.requests.get(request).map_or(0, |r| r.num_computed.saturating_add(r.query_len));
    let by_tokens = usize::try_from(tokens).unwrap_or(0).div_ceil(group.block_size.max(1));
    match group.kept() {
        Kept::State { num_speculative_blocks, aligned: false, .. } => 1 + num_speculative_blocks,
        Kept::State { num_speculative_blocks, aligned: true, .. } => by_tokens + num_speculative_blocks,
        _ => by_tokens,
    }
}

fn blocks_of_group(group: &ReplayGroup, batch: &Batch) -> usize {
    (0..batch.requests.len()).map(|request| blocks_of(group, batch, request)).sum()
}

impl Pool {
    /// A pool for the largest of the batches, of at most `budget_bytes`, filled.
    ///
    /// # Errors
    /// [`ReplayError::Budget`] where two blocks of a tensor do not fit, or what the device says.
    pub fn new(
        device: &dyn Device,
        plan: &ReplayPlan,
        batches: &[Batch],
        budget_bytes: usize,
    ) -> Result<Self, ReplayError> {
        let mut block_bytes = plan.tensors();
        let tensors_planned = block_bytes.len();
        // Block 0 is the null block.
        let (mut alone, mut together) = (2, 2);
        for batch in batches {
            let each = plan.groups.iter().map(|group| blocks_of_group(group, batch));
            alone = each.clone().max().unwrap_or(0).saturating_add(1).max(alone);
            together = each.fold(1, usize::saturating_add).max(together);
        }
        let planned = plan.num_blocks.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX).max(2);
        let fits = |tensors: &[usize]| budget_bytes / tensors.iter().sum::<usize>().max(1);
        let wanted = alone.min(planned);
        if fits(&block_bytes) < wanted {
            // A tensor that several layers share is as wide as the widest.
            let widest = block_bytes.iter().copied().max().unwrap_or(0);
            let kept = budget_bytes / widest.saturating_mul(wanted).max(1);
            block_bytes = vec![widest; kept.clamp(1, tensors_planned.max(1))];
        }
        let num_blocks = together.min(planned).min(fits(&block_bytes));
        if num_blocks < 2 {
            let block_bytes = block_bytes.iter().sum();
            return Err(ReplayError::Budget { block_bytes, budget_bytes });
        }
        let sharing = match num_blocks {
            n if n >= together => Sharing::Nothing,
            n if n >= alone => Sharing::Groups,
            _ => Sharing::Requests,
        };
        let tensor = |bytes: &usize| -> Result<Memory, ReplayError> {
            let tensor = device.allocate(num_blocks.saturating_mul(*bytes))?;
            fill(device, &tensor)?;
            Ok(tensor)
        };
        let tensors = block_bytes.iter().map(tensor).collect::<Result<_, _>>()?;
        Ok(Self { tensors, tensors_planned, num_blocks, sharing, block_bytes })
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> usize {
        self.tensors.iter().map(Memory::bytes).sum()
    }

    /// A tensor of the plan: its memory, and bytes of a block in it.
    pub(super) fn tensor(&self, planned: usize) -> Option<(&Memory, usize)> {
        let index = planned % self.tensors.len().max(1);
        Some((self.tensors.get(index)?, *self.block_bytes.get(index)?))
    }
}
