// The slot of each scheduled token in each KV cache group, in one launch.
//
// Slot = block id x block size + offset; -1 is padding. vLLM: v1/worker/gpu/block_table.py (0.32).
#pragma once

struct K3SlotMapping {
  const i32* idx_mapping;      // [num_reqs] batch row to request row; -1 owns no blocks
  const i32* query_start_loc;  // [num_reqs + 1]
  const i64* positions;        // [num_tokens]
  const i32* tables;           // [tables_len]
  const i64* table_offsets;    // [num_groups]
  const i64* strides;          // [num_groups]
  const i32* block_sizes;      // [num_groups]
  const i32* enabled;          // [num_groups] 0 for state groups: all their slots are padding
  const i32* dcp_sharded;      // [num_groups]
  i64* slots;                  // [num_groups, max_num_tokens]
  i64 num_reqs, num_groups, max_num_reqs, max_num_tokens, tables_len;
  i64 cp_size, cp_rank, cp_interleave;
};

// The exponent of a power of two.
K3_INLINE int k3_log2(i64 power) {
#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
  return __ffsll(power) - 1;
#else
  return __builtin_ctzll((u64)power);
#endif
}

// Grid: x = num_reqs + 1 (the last pads), y = num_groups.
K3_KERNEL(k3_slot_mapping, K3SlotMapping) {
  const i64 batch = K3_BLOCK_X, group = K3_BLOCK_Y;
  if (batch > a.num_reqs || group >= a.num_groups) return;
  i64* slots = a.slots + group * a.max_num_tokens;
  const i64 start = k3_max(a.query_start_loc[batch], 0);
  if (batch == a.num_reqs) {
    for (i64 t = start + K3_THREAD; t < a.max_num_tokens; t += K3_THREADS) slots[t] = -1;
    return;
  }
  const i64 end = k3_min(a.query_start_loc[batch + 1], a.max_num_tokens);
  const i64 row = a.idx_mapping[batch], size = a.block_sizes[group], stride = a.strides[group];
  const i64 table = a.table_offsets[group];
  const bool known = a.enabled[group] && row >= 0 && row < a.max_num_reqs && size > 0 && table >= 0 &&
                     stride >= 0 && table + a.max_num_reqs * stride <= a.tables_len;
  if (!known) {
    for (i64 t = start + K3_THREAD; t < end; t += K3_THREADS) slots[t] = -1;
    return;
  }
  const i32* blocks = a.tables + table + row * stride;
  const bool sharded = a.cp_size > 1 && a.dcp_sharded[group];
  i64 base = 0, slot = -1;  // of the block that the last position was in
  i64 room = 0;
  for (i64 t = start + K3_THREAD; t < end; t += K3_THREADS) {
    i64 position = a.positions[t];
    bool local = position >= 0;
    if (sharded && local) {
      const i64 wide = size * a.cp_size;
      const i64 offset = position % wide;
      local = offset / a.cp_interleave % a.cp_size == a.cp_rank;
      position = position / wide * size + offset / (a.cp_interleave * a.cp_size) * a.cp_interleave +
                 offset % a.cp_interleave;
    }
    if (!local) {
      slots[t] = -1;
      continue;
    }
    if ((u64)(position - base) >= (u64)room) {
      const i64 block = size & (size - 1) ? ((u64)(position | size) >> 32 ? position / size : (i64)((u32)position / (u32)size))
                                          : position >> k3_log2(size);
      base = block * size;
      room = size;
      slot = block < stride ? (i64)blocks[block] * size : -1;
    }
    slots[t] = slot < 0 ? -1 : slot + (position - base);
  }
}
