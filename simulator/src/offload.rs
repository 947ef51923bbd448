//! What offloading the KV cache to host memory moves: blocks, bytes and copies, a group and a step.

use crate::engine::Engine;
use crate::group::{Group, Manager, StateMode};
use crate::step::Step;

/// Blocks moved for one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Blocks that became full and are stored.
    pub stored_blocks: u64,
    /// Bytes of them, all layers of the group, one rank.
    pub stored_bytes: u64,
    /// Blocks that a resumed request takes back instead of computing them anew.
    pub loaded_blocks: u64,
    /// Bytes of them.
    pub loaded_bytes: u64,
    /// Copies: one a request, layer and direction.
    pub copies: u64,
}

/// Adds up what offloading moves.
#[derive(Debug, Clone)]
pub struct Offload {
    groups: Vec<(u32, u64, u64, bool)>,
    /// Sums a group.
    pub by_group: Vec<Moved>,
    /// Tensor parallel ranks that hold the same bytes: only one of them stores.
    pub kv_tp_replicas: u64,
    capacity_bytes: u64,
}

impl Offload {
    /// Offloading of `groups` into `capacity_bytes` of host memory a rank.
    pub fn new(engine: &Engine, groups: &[Group], capacity_bytes: u64, kv_tp_replicas: u64) -> Self {
        let fixed = groups
            .iter()
            .map(|group| {
                let keeps = match group.manager {
                    Manager::State { mode, .. } => mode != StateMode::None,
                    Manager::Cross | Manager::Ring => false,
                    _ => true,
                };
                let block = engine.tokens_of_block(group).max(1);
                (block, group.page_size_bytes * u64::from(group.layers), u64::from(group.layers), keeps)
            })
            .collect();
        Self {
            groups: fixed,
            by_group: vec![Moved::default(); groups.len()],
            kv_tp_replicas: kv_tp_replicas.max(1),
            capacity_bytes,
        }
    }

    /// Adds a step.
    pub fn step(&mut self, step: &Step) {
        for part in &step.scheduled {
            for (&(block, bytes, layers, keeps), moved) in self.groups.iter().zip(&mut self.by_group) {
                let settled = part.computed + part.tokens - part.drafts.min(part.tokens);
                let full = u64::from(settled / block - part.computed.min(settled) / block);
                if keeps && full > 0 {
                    moved.stored_blocks += full;
                    moved.stored_bytes += full * bytes;
                    moved.copies += layers;
                }
            }
        }
        for &(id, found) in &step.resumed {
            let Some(part) = step.scheduled.iter().find(|part| part.id == id) else { continue };
            for (&(block, bytes, layers, keeps), moved) in self.groups.iter().zip(&mut self.by_group) {
                let blocks = u64::from((found + part.tokens) / block - found / block);
                if keeps && blocks > 0 {
                    moved.loaded_blocks += blocks;
                    moved.loaded_bytes += blocks * bytes;
                    moved.copies += layers;
                }
            }
        }
    }

    /// Blocks of each group that the host memory holds if the groups share it evenly by blocks.
    pub fn capacity_blocks(&self) -> Vec<u64> {
        let all: u64 = self.groups.iter().filter(|group| group.3).map(|group| group.1).sum();
        let each = self.capacity_bytes.saturating_mul(self.kv_tp_replicas).checked_div(all).unwrap_or(0);
        self.groups.iter().map(|group| if group.3 { each } else { 0 }).collect()
    }

    /// Bytes stored over all groups by one rank; replicas store a share each.
    pub fn stored_bytes(&self) -> u64 {
        self.by_group.iter().map(|moved| moved.stored_bytes).sum::<u64>() / self.kv_tp_replicas
    }

    /// Bytes that the replicas need not store.
    pub fn saved_bytes(&self) -> u64 {
        self.by_group.iter().map(|moved| moved.stored_bytes).sum::<u64>() - self.stored_bytes()
    }
}
