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

// Tokens [start, end) of a request, as all groups see them: looked at once, used by every group.
struct K3Unit {
  i64 start, end, row;
  i64 position;  // of the first token, where those of the others count up from it; else -1
};

// Eight tokens that follow one another, as groups of one block size and stride see them: in one block of the table,
// or the first `room` of them in one and the others in the next.
struct K3Chunk {
  K3Slots offsets;  // each in its own block
  i64 start, place, room;
  const K3Unit* unit;
};

struct K3SlotTile {
  static constexpr i64 UNITS = 64;
  K3Unit units[UNITS];
  K3Chunk one[UNITS], two[UNITS];
  const K3Unit* rest[UNITS];
  i64 num_units, num_one, num_two, num_rest;
  i64 size, stride;  // that the chunks were made for
};

// Whether positions count up.
K3_INLINE bool k3_in_order(const i64* positions, i64 start, i64 end) {
  const K3Slots count = {0, 1, 2, 3, 4, 5, 6, 7};
  u64 next = (u64)positions[start];
  K3Slots differ = {};
  i64 t = start, rest = 0;
  for (; t + 8 <= end; t += 8, next += 8) differ |= (K3Slots)(*(const K3LooseSlots*)(positions + t)) ^ (count + (i64)next);
  for (; t < end; ++t) rest |= positions[t] ^ (i64)next++;
  for (int i = 0; i < 8; ++i) rest |= differ[i];
  return !rest;
}

K3_INLINE void k3_no_slots(i64* slots, i64 from, i64 to) {
  for (; from + 8 <= to; from += 8) *(K3LooseSlots*)(slots + from) = K3LooseSlots{} - 1;
  for (; from < to; ++from) slots[from] = -1;
}

// The slots of tokens that follow one another, a block after the other.
K3_INLINE void k3_slots_in_order(const K3SlotGroup& g, const K3Unit& unit, i64* slots) {
  const i32* blocks = g.table + unit.row * g.stride;
  i64 block = k3_block_of(unit.position, g.size), offset = unit.position - block * g.size;
  for (i64 t = unit.start; t < unit.end; ++block, offset = 0) {
    const i64 to = k3_min(t + (g.size - offset), unit.end);
    const i64 id = block < g.stride ? (i64)blocks[block] : -1;
    if (id < 0) {
      k3_no_slots(slots, t, to);
      t = to;
    } else {
      for (i64 slot = id * g.size + offset; t < to; ++t) slots[t] = slot++;
    }
  }
}

// Sorts the units for groups like this one.
K3_INLINE void k3_sort_units(K3SlotTile& tile, const K3SlotGroup& g) {
  const K3Slots count = {0, 1, 2, 3, 4, 5, 6, 7};
  tile.size = g.size;
  tile.stride = g.stride;
  tile.num_one = tile.num_two = tile.num_rest = 0;
  for (const K3Unit* unit = tile.units; unit < tile.units + tile.num_units; ++unit) {
    if (unit->row >= 0 && unit->position >= 0 && unit->end - unit->start == 8 && g.size >= 8) {
      const i64 block = k3_block_of(unit->position, g.size), offset = unit->position - block * g.size;
      const i64 room = g.size - offset;
      if (block + (room < 8) < g.stride) {
        K3Chunk& chunk = room < 8 ? tile.two[tile.num_two++] : tile.one[tile.num_one++];
        chunk.offsets = count < room ? count + offset : count - room;
        chunk.start = unit->start;
        chunk.place = unit->row * g.stride + block;
        chunk.room = room;
        chunk.unit = unit;
        continue;
      }
    }
    tile.rest[tile.num_rest++] = unit;
  }
}

// A multiplication and an addition a block, eight slots a store. The tables' rows are fetched ahead: no two lie
// side by side.
K3_INLINE void k3_slots_of_chunks(const K3SlotTile& tile, const K3SlotGroup& g, i64* slots) {
  constexpr int AHEAD = 8;
  const K3Slots count = {0, 1, 2, 3, 4, 5, 6, 7};
  for (const K3Chunk *c = tile.one, *end = c + tile.num_one; c < end; ++c) {
    if (c + AHEAD < end) __builtin_prefetch(g.table + c[AHEAD].place);
    const i64 id = g.table[c->place];
    if (__builtin_expect(id < 0, 0)) k3_slots_in_order(g, *c->unit, slots);
    else *(K3LooseSlots*)(slots + c->start) = (K3LooseSlots)(c->offsets + id * g.size);
  }
  for (const K3Chunk *c = tile.two, *end = c + tile.num_two; c < end; ++c) {
    if (c + AHEAD < end) __builtin_prefetch(g.table + c[AHEAD].place);
    const i64 id = g.table[c->place], next = g.table[c->place + 1];
    if (__builtin_expect((id | next) < 0, 0)) k3_slots_in_order(g, *c->unit, slots);
    else *(K3LooseSlots*)(slots + c->start) = (K3LooseSlots)(c->offsets + (count < c->room ? K3Slots{} + id * g.size : K3Slots{} + next * g.size));
  }
}

K3_INLINE void k3_slots_of_tile(const K3Place& at, const K3SlotMapping& a, K3SlotTile& tile) {
  tile.size = -1;
  for (i64 group = K3_BLOCK_Y; group < a.num_groups; group += K3_GRID_Y) {
    const K3SlotGroup g = k3_slot_group(a, group);
    i64* slots = a.slots + group * a.max_num_tokens;
    if (!g.known || g.sharded) {
      for (const K3Unit* unit = tile.units; unit < tile.units + tile.num_units; ++unit) {
        if (!g.known || unit->row < 0) k3_no_slots(slots, unit->start, unit->end);
        else k3_slots_by_token(at, a, g, g.table + unit->row * g.stride, slots, unit->start, unit->end);
      }
      continue;
    }
    if (tile.size != g.size || tile.stride != g.stride) k3_sort_units(tile, g);
    k3_slots_of_chunks(tile, g, slots);
    for (i64 i = 0; i < tile.num_rest; ++i) {
      const K3Unit& unit = *tile.rest[i];
      if (unit.row < 0) k3_no_slots(slots, unit.start, unit.end);
      else if (unit.position >= 0) k3_slots_in_order(g, unit, slots);
      else k3_slots_by_token(at, a, g, g.table + unit.row * g.stride, slots, unit.start, unit.end);
    }
  }
  tile.num_units = 0;
}

// Grid: any; a program takes its share of the requests, and of each grid's height of groups one.
K3_KERNEL(k3_slot_mapping, K3SlotMapping) {
  const i64 rows = a.num_reqs + 1;  // the last pads
  const i64 first = rows * K3_BLOCK_X / K3_GRID_X, last = rows * (K3_BLOCK_X + 1) / K3_GRID_X;
  K3SlotTile tile;
  tile.num_units = 0;
  for (i64 batch = first; batch < last; ++batch) {
    const bool padding = batch == a.num_reqs;
    const i64 start = k3_max(a.query_start_loc[batch], 0);
    const i64 end = padding ? a.max_num_tokens : k3_min(a.query_start_loc[batch + 1], a.max_num_tokens);
    if (start >= end) continue;
    i64 row = padding ? -1 : (i64)a.idx_mapping[batch];
    if (row >= a.max_num_reqs) row = -1;
    const bool in_order = row >= 0 && a.positions[start] >= 0 && k3_in_order(a.positions, start, end);
    for (i64 t = start; t < end;) {
      const i64 to = in_order ? k3_min(t + 8, end) : end;
      tile.units[tile.num_units++] = {t, to, row, in_order ? a.positions[t] : -1};
      if (tile.num_units == K3SlotTile::UNITS) k3_slots_of_tile(at, a, tile);
      t = to;
    }
  }
  k3_slots_of_tile(at, a, tile);
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
