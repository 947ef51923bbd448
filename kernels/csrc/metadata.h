// What a metadata builder fills before a step: sequence starts, lengths, positions, the split between decodes
// and prefills, chunk indices, and the state indices of KDA layers.
#pragma once

// Inclusive sum over the block's threads; `sums` has one place a thread. Every thread must call it.
K3_INLINE i64 k3_block_sum(K3_PLACE_PARAM at, i64 value, i64* sums) {
  (void)at;
  sums[K3_THREAD] = value;
  K3_SYNC();
  for (int step = 1; step < K3_THREADS; step *= 2) {
    const i64 left = K3_THREAD >= step ? sums[K3_THREAD - step] : 0;
    K3_SYNC();
    sums[K3_THREAD] += left;
    K3_SYNC();
  }
  return sums[K3_THREAD];
}

#define K3_MAX_THREADS 1024

struct K3SequenceStarts {
  const i32* num_computed;  // [num_reqs]
  const i32* query_lens;    // [num_reqs]
  i32* query_start_loc;     // [num_reqs_padded + 1]; padding repeats the end
  i32* seq_lens;            // [num_reqs_padded]; padding is 0
  i64 num_reqs, num_reqs_padded;
};

// Grid: 1.
K3_KERNEL(k3_sequence_starts, K3SequenceStarts) {
  K3_SHARED(i64, sums, K3_MAX_THREADS);
  i64 carry = 0;
  if (K3_THREAD == 0) a.query_start_loc[0] = 0;
  for (i64 base = 0; base < a.num_reqs_padded; base += K3_THREADS) {
    const i64 i = base + K3_THREAD;
    const bool real = i < a.num_reqs;
    const i64 len = real ? a.query_lens[i] : 0;
    const i64 sum = carry + k3_block_sum(K3_PLACE, len, sums);
    if (i < a.num_reqs_padded) {
      a.query_start_loc[i + 1] = (i32)sum;
      a.seq_lens[i] = real ? (i32)(a.num_computed[i] + len) : 0;
    }
    carry += sums[K3_THREADS - 1];
    K3_SYNC();
  }
}

struct K3Positions {
  const i32* num_computed;     // [num_reqs]
  const i32* query_start_loc;  // [num_reqs + 1]
  i64* positions;              // [max_num_tokens]
  i64 num_reqs, max_num_tokens;
};

// Grid: x = num_reqs.
K3_KERNEL(k3_positions, K3Positions) {
  const i64 batch = K3_BLOCK_X;
  if (batch >= a.num_reqs) return;
  const i64 start = k3_max(a.query_start_loc[batch], 0);
  const i64 end = k3_min(a.query_start_loc[batch + 1], a.max_num_tokens);
  const i64 first = a.num_computed[batch];
  for (i64 t = start + K3_THREAD; t < end; t += K3_THREADS) a.positions[t] = first + (t - start);
}

struct K3Split {
  const i32* query_start_loc;  // [num_reqs + 1]
  const i32* is_prefilling;    // [num_reqs]
  i32* counts;                 // decodes, prefills, decode tokens, prefill tokens
  i64 num_reqs, decode_threshold, require_uniform, short_extends_are_decodes;
};

// Grid: 1. vLLM: split_decodes_and_prefills in v1/attention/backends/utils.py (0.32).
K3_KERNEL(k3_decode_prefill_split, K3Split) {
  K3_SHARED(i64, first_of, K3_MAX_THREADS);
  K3_SHARED(i64, longest_of, K3_MAX_THREADS);
  K3_SHARED(i64, odd_of, K3_MAX_THREADS);
  const i64 lead = a.num_reqs > 0 ? (i64)a.query_start_loc[1] - a.query_start_loc[0] : 0;
  i64 first = a.num_reqs, longest = 0, odd = 0;
  for (i64 i = K3_THREAD; i < a.num_reqs; i += K3_THREADS) {
    const i64 len = (i64)a.query_start_loc[i + 1] - a.query_start_loc[i];
    longest = k3_max(longest, len);
    const bool differs = len != lead && len != 0;
    if (differs) odd = 1;
    const bool prefill = (a.require_uniform ? differs : len > a.decode_threshold) ||
                         (!a.short_extends_are_decodes && a.is_prefilling[i]);
    if (prefill && i < first) first = i;
  }
  first_of[K3_THREAD] = first;
  longest_of[K3_THREAD] = longest;
  odd_of[K3_THREAD] = odd;
  K3_SYNC();
  if (K3_THREAD != 0) return;
  for (int i = 1; i < K3_THREADS; ++i) {
    first = k3_min(first, first_of[i]);
    longest = k3_max(longest, longest_of[i]);
    odd |= odd_of[i];
  }
  const i64 tokens = a.query_start_loc[a.num_reqs];
  const bool all_short = longest <= a.decode_threshold && (!a.require_uniform || a.decode_threshold <= 1);
  i64 decodes = first;
  if (a.short_extends_are_decodes && all_short) decodes = a.num_reqs;
  else if (lead > a.decode_threshold) decodes = 0;
  else if (a.require_uniform && a.short_extends_are_decodes && !odd) decodes = a.num_reqs;
  const i64 decode_tokens = decodes == a.num_reqs ? tokens : (decodes == 0 ? 0 : (i64)a.query_start_loc[decodes]);
  a.counts[0] = (i32)decodes;
  a.counts[1] = (i32)(a.num_reqs - decodes);
  a.counts[2] = (i32)decode_tokens;
  a.counts[3] = (i32)(tokens - decode_tokens);
}

struct K3ChunkIndices {
  const i32* cu_seqlens;  // [num_seqs + 1]
  i32* chunk_indices;     // [max_num_chunks, 2]: sequence, chunk of the sequence
  i64* chunk_offsets;     // [num_seqs + 1]
  i64 num_seqs, chunk_size, max_num_chunks;
};

// Grid: 1. vLLM: _chunk_metadata_kernel in models/kimi_k3/amd/kda_metadata.py (0.32).
K3_KERNEL(k3_chunk_indices, K3ChunkIndices) {
  K3_SHARED(i64, sums, K3_MAX_THREADS);
  i64 carry = 0;
  if (K3_THREAD == 0) a.chunk_offsets[0] = 0;
  for (i64 base = 0; base < a.num_seqs; base += K3_THREADS) {
    const i64 i = base + K3_THREAD;
    const i64 len = i < a.num_seqs ? k3_max((i64)a.cu_seqlens[i + 1] - a.cu_seqlens[i], 0) : 0;
    const i64 chunks = (len + a.chunk_size - 1) / a.chunk_size;
    const i64 end = carry + k3_block_sum(K3_PLACE, chunks, sums);
    if (i < a.num_seqs) {
      a.chunk_offsets[i + 1] = end;
      for (i64 c = 0; c < chunks; ++c) {
        const i64 at_chunk = end - chunks + c;
        if (at_chunk >= a.max_num_chunks) break;
        a.chunk_indices[2 * at_chunk] = (i32)i;
        a.chunk_indices[2 * at_chunk + 1] = (i32)c;
      }
    }
    carry += sums[K3_THREADS - 1];
    K3_SYNC();
  }
}

struct K3StateIndices {
  const i32* table;     // [max_num_reqs, stride] of one group
  const i32* seq_lens;  // [num_reqs]
  i32* indices;         // [num_reqs_padded, 1 + num_spec]; padding is the null block, 0
  i64 num_reqs, num_reqs_padded, stride, num_spec;
  i64 block_size;       // of cache mode "align"; 0 in mode "none"
};

// Grid: x = num_reqs_padded. vLLM: mamba_get_block_table_tensor and the GDN builder (0.32).
K3_KERNEL(k3_kda_state_indices, K3StateIndices) {
  const i64 batch = K3_BLOCK_X, width = 1 + a.num_spec;
  if (batch >= a.num_reqs_padded) return;
  i64 first = 0;
  if (batch < a.num_reqs && a.block_size > 0)
    first = k3_max(((i64)a.seq_lens[batch] - 1) / a.block_size, 0);
  for (i64 i = K3_THREAD; i < width; i += K3_THREADS) {
    const i64 column = first + i;
    const bool known = batch < a.num_reqs && column < a.stride;
    a.indices[batch * width + i] = known ? a.table[batch * a.stride + column] : 0;
  }
}
