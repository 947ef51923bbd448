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

// A group's table, as far as slots need it.
struct K3SlotGroup {
  const i32* table;
  i64 size, stride;
  bool known, sharded;
};

K3_INLINE K3SlotGroup k3_slot_group(const K3SlotMapping& a, i64 group) {
  const i64 table = a.table_offsets[group], stride = a.strides[group], size = a.block_sizes[group];
  const bool known = a.enabled[group] && size > 0 && table >= 0 && stride >= 0 &&
                     table + a.max_num_reqs * stride <= a.tables_len;
  return {a.tables + (known ? table : 0), size, stride, known, a.cp_size > 1 && a.dcp_sharded[group]};
}

// The block of a position: a shift where the size is a power of two, else a division, of 32 bits where that does.
K3_INLINE i64 k3_block_of(i64 position, i64 size) {
  if (!(size & (size - 1))) return position >> k3_log2(size);
  return (u64)(position | size) >> 32 ? position / size : (i64)((u32)position / (u32)size);
}

// The slots of tokens [start, end) of a request, any positions.
K3_INLINE void k3_slots_by_token(K3_PLACE_PARAM at, const K3SlotMapping& a, const K3SlotGroup& g, const i32* blocks,
                                 i64* slots, i64 start, i64 end) {
  (void)at;
  i64 base = 0, slot = -1;  // of the block that the last position was in
  i64 room = 0;
  for (i64 t = start + K3_THREAD; t < end; t += K3_THREADS) {
    i64 position = a.positions[t];
    bool local = position >= 0;
    if (g.sharded && local) {
      const i64 wide = g.size * a.cp_size;
      const i64 offset = position % wide;
      local = offset / a.cp_interleave % a.cp_size == a.cp_rank;
      position = position / wide * g.size + offset / (a.cp_interleave * a.cp_size) * a.cp_interleave +
                 offset % a.cp_interleave;
    }
    if (!local) {
      slots[t] = -1;
      continue;
    }
    if ((u64)(position - base) >= (u64)room) {
      const i64 block = k3_block_of(position, g.size);
      base = block * g.size;
      room = g.size;
      slot = block < g.stride ? (i64)blocks[block] * g.size : -1;
    }
    slots[t] = slot < 0 ? -1 : slot + (position - base);
  }
}

#if defined(K3_CPU)

// Eight slots: one store where vectors are that wide.
typedef i64 K3Slots __attribute__((vector_size(64)));
typedef i64 K3LooseSlots __attribute__((vector_size(64), aligned(8), may_alias));

// A request, as all groups see it: looked at once, used by every group.
struct K3Row {
  i64 start, end, row;
  i64 position;  // of the first token, where those of the others count up from it; else -1
};

K3_INLINE K3Row k3_row(const K3SlotMapping& a, i64 batch) {
  const i64 start = k3_max(a.query_start_loc[batch], 0), end = k3_min(a.query_start_loc[batch + 1], a.max_num_tokens);
  const i64 row = a.idx_mapping[batch];
  K3Row made = {start, end, row < a.max_num_reqs ? row : -1, -1};
  if (start >= end) return made;
  const i64 first = a.positions[start];
  i64 differ = first < 0;
  for (i64 t = start; t < end; ++t) differ |= a.positions[t] ^ (i64)((u64)first + (u64)(t - start));
  if (!differ) made.position = first;
  return made;
}

K3_INLINE void k3_no_slots(i64* slots, i64 from, i64 to) {
  for (; from + 8 <= to; from += 8) *(K3LooseSlots*)(slots + from) = K3LooseSlots{} - 1;
  for (; from < to; ++from) slots[from] = -1;
}

// The slots of tokens that follow one another: a multiplication and an addition a block, eight slots a store.
K3_INLINE void k3_slots_in_order(const K3SlotGroup& g, const i32* blocks, const K3Row& r, i64* slots) {
  const K3Slots count = {0, 1, 2, 3, 4, 5, 6, 7};
  i64 block = k3_block_of(r.position, g.size), offset = r.position - block * g.size, t = r.start;
  while (t < r.end) {
    const i64 room = g.size - offset;
    if (t + 8 <= r.end && g.size >= 8) {
      // Eight tokens lie in one block or in two.
      const i64 other = block + (room < 8);
      const bool inside = other < g.stride;
      const i64 id = inside ? blocks[block] : -1, next = inside ? blocks[other] : -1;
      if ((id | next) >= 0) {
        const K3Slots here = count + (id * g.size + offset), there = count + (next * g.size - room);
        *(K3LooseSlots*)(slots + t) = (K3LooseSlots)(count < room ? here : there);
        t += 8;
        offset += 8;
        if (offset >= g.size) {
          offset -= g.size;
          ++block;
        }
        continue;
      }
    }
    const i64 to = k3_min(t + room, r.end);
    const i64 id = block < g.stride ? (i64)blocks[block] : -1;
    if (id < 0) {
      k3_no_slots(slots, t, to);
    } else {
      const i64 slot = id * g.size + offset - t;
      for (i64 i = t; i < to; ++i) slots[i] = slot + i;
    }
    t = to;
    offset = 0;
    ++block;
  }
}

// Grid: any; a program takes its share of the requests, and every so-manieth group.
K3_KERNEL(k3_slot_mapping, K3SlotMapping) {
  const i64 rows = a.num_reqs + 1;  // the last pads
  const i64 first = rows * K3_BLOCK_X / K3_GRID_X, last = rows * (K3_BLOCK_X + 1) / K3_GRID_X;
  constexpr i64 TILE = 64;
  K3Row tile[TILE];
  for (i64 from = first; from < last; from += TILE) {
    const i64 to = k3_min(k3_min(from + TILE, last), a.num_reqs);
    for (i64 batch = from; batch < to; ++batch) tile[batch - from] = k3_row(a, batch);
    for (i64 group = K3_BLOCK_Y; group < a.num_groups; group += K3_GRID_Y) {
      const K3SlotGroup g = k3_slot_group(a, group);
      i64* slots = a.slots + group * a.max_num_tokens;
      for (const K3Row* r = tile; r < tile + (to - from); ++r) {
        const i32* blocks = g.table + r->row * g.stride;
        if (g.known && r + 12 < tile + (to - from)) {
          const K3Row& later = r[12];
          if (later.row >= 0 && later.position >= 0) {
            const i64 b = k3_min(k3_block_of(later.position, g.size), g.stride - 1);
            __builtin_prefetch(g.table + later.row * g.stride + b);
          }
        }
        if (!g.known || r->row < 0) k3_no_slots(slots, r->start, r->end);
        else if (g.sharded || r->position < 0) k3_slots_by_token(at, a, g, blocks, slots, r->start, r->end);
        else k3_slots_in_order(g, blocks, *r, slots);
      }
      if (from + TILE >= last && last == rows)
        k3_no_slots(slots, k3_max(a.query_start_loc[a.num_reqs], 0), a.max_num_tokens);
    }
  }
}

#else

// Grid: x = num_reqs + 1 (the last pads), y = num_groups.
K3_KERNEL(k3_slot_mapping, K3SlotMapping) {
  const i64 batch = K3_BLOCK_X, group = K3_BLOCK_Y;
  if (batch > a.num_reqs || group >= a.num_groups) return;
  i64* slots = a.slots + group * a.max_num_tokens;
  const i64 start = k3_max(a.query_start_loc[batch], 0);
  const bool padding = batch == a.num_reqs;
  const i64 end = padding ? a.max_num_tokens : k3_min(a.query_start_loc[batch + 1], a.max_num_tokens);
  const i64 row = padding ? -1 : (i64)a.idx_mapping[batch];
  const K3SlotGroup g = k3_slot_group(a, group);
  if (!g.known || row < 0 || row >= a.max_num_reqs) {
    for (i64 t = start + K3_THREAD; t < end; t += K3_THREADS) slots[t] = -1;
    return;
  }
  k3_slots_by_token(K3_PLACE, a, g, g.table + row * g.stride, slots, start, end);
}

#endif
