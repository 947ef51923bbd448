// The block tables of all KV cache groups: append what changed, gather the batch's rows.
//
// One buffer holds every group's table: group g's starts at table_offsets[g], and a row has strides[g] ids.
// vLLM: v1/worker/gpu/block_table.py, v1/worker/gpu/buffer_utils.py (0.32).
#pragma once

struct K3Append {
  const i32* groups;         // [writes]
  const i32* rows;           // [writes]
  const i32* starts;         // [writes] first column
  const i32* cu_lens;        // [writes + 1] into ids
  const i32* ids;            // [ids_len]
  i32* tables;               // [tables_len]
  const i64* table_offsets;  // [num_groups]
  const i64* strides;        // [num_groups]
  i32* num_blocks;           // [num_groups, max_num_reqs]
  i64 writes, num_groups, max_num_reqs, ids_len, tables_len;
};

// Grid: x = writes. A write outside its table is left out.
K3_KERNEL(k3_block_table_append, K3Append) {
  const i64 write = K3_BLOCK_X;
  if (write >= a.writes) return;
  const i64 group = a.groups[write], row = a.rows[write], start = a.starts[write];
  const i64 from = a.cu_lens[write], len = (i64)a.cu_lens[write + 1] - from;
  if (group < 0 || group >= a.num_groups || row < 0 || row >= a.max_num_reqs) return;
  if (start < 0 || from < 0 || len < 0 || from + len > a.ids_len) return;
  const i64 stride = a.strides[group];
  const i64 first = a.table_offsets[group] + row * stride;
  if (start + len > stride || first < 0 || first + stride > a.tables_len) return;
  i32* to = a.tables + first + start;
  const i32* ids = a.ids + from;
  for (i64 i = K3_THREAD; i < len; i += K3_THREADS) to[i] = ids[i];
  if (K3_THREAD == 0) a.num_blocks[group * a.max_num_reqs + row] = (i32)(start + len);
}

struct K3Gather {
  const i32* idx_mapping;    // [num_reqs] batch row to request row; -1 owns no blocks
  const i32* tables;         // [tables_len]
  i32* input_tables;         // [tables_len]
  const i64* table_offsets;  // [num_groups]
  const i64* strides;        // [num_groups]
  const i32* num_blocks;     // [num_groups, max_num_reqs]
  i64 num_reqs, num_reqs_padded, num_groups, max_num_reqs, tables_len;
};

// Grid: x = num_reqs_padded, y = num_groups. Rows of padding and of dummies become zero, other rows keep what
// stands behind their blocks.
K3_KERNEL(k3_block_table_gather, K3Gather) {
  const i64 batch = K3_BLOCK_X, group = K3_BLOCK_Y;
  if (batch >= a.num_reqs_padded || batch >= a.max_num_reqs || group >= a.num_groups) return;
  const i64 stride = a.strides[group], table = a.table_offsets[group];
  if (table < 0 || stride < 0 || table + a.max_num_reqs * stride > a.tables_len) return;
  i32* to = a.input_tables + table + batch * stride;
  const i64 row = batch < a.num_reqs ? (i64)a.idx_mapping[batch] : -1;
  if (row < 0 || row >= a.max_num_reqs) {
    for (i64 i = K3_THREAD; i < stride; i += K3_THREADS) to[i] = 0;
    return;
  }
  const i32* from = a.tables + table + row * stride;
  const i64 len = k3_min(a.num_blocks[group * a.max_num_reqs + row], stride);
  for (i64 i = K3_THREAD; i < len; i += K3_THREADS) to[i] = from[i];
}
