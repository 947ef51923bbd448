//! Which slot does each scheduled token have in each group?

use super::block_table::Layout;

/// The groups' part of a slot mapping.
#[derive(Debug, Clone, Copy)]
pub struct Groups<'a> {
    /// Tokens a block.
    pub block_sizes: &'a [i32],
    /// Whether tokens have slots: not in groups of state layers.
    pub enabled: &'a [i32],
    /// Whether decode context parallelism shards the group.
    pub dcp_sharded: &'a [i32],
}

/// Context parallelism.
#[derive(Debug, Clone, Copy)]
pub struct ContextParallel {
    /// Ranks.
    pub size: i64,
    /// This rank.
    pub rank: i64,
    /// Tokens that stay together.
    pub interleave: i64,
}

/// The slots, [groups, `max_num_tokens`]; -1 where there is none.
#[expect(clippy::too_many_arguments, reason = "the arrays and sizes of one kernel")]
pub fn slot_mapping(
    idx_mapping: &[i32],
    query_start_loc: &[i32],
    positions: &[i64],
    layout: Layout<'_>,
    tables: &[i32],
    groups: Groups<'_>,
    parallel: ContextParallel,
    max_num_tokens: usize,
) -> Vec<i64> {
    let mut slots = vec![-1; groups.block_sizes.len() * max_num_tokens];
    for group in 0..groups.block_sizes.len() {
        let size = i64::from(groups.block_sizes[group]);
        for (batch, &request) in idx_mapping.iter().enumerate() {
            let Ok(row) = usize::try_from(request) else { continue };
            if groups.enabled[group] == 0 || row >= layout.max_num_reqs {
                continue;
            }
            let tokens = query_start_loc[batch]..query_start_loc[batch + 1];
            for token in tokens.filter_map(|t| usize::try_from(t).ok()).take_while(|t| *t < max_num_tokens) {
                let mut position = positions[token];
                if position < 0 {
                    continue;
                }
                if parallel.size > 1 && groups.dcp_sharded[group] != 0 {
                    // Tokens go around the ranks, `interleave` at a time.
                    let turn = position / parallel.interleave;
                    if turn % parallel.size != parallel.rank {
                        continue;
                    }
                    position = turn / parallel.size * parallel.interleave + position % parallel.interleave;
                }
                let Ok(block) = usize::try_from(position / size) else { continue };
                if block < layout.stride(group) {
                    let id = i64::from(tables[layout.row(group, row) + block]);
                    slots[group * max_num_tokens + token] =
                        if id < 0 { -1 } else { id * size + position % size };
                }
            }
        }
    }
    slots
}
