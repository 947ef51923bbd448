// Decode attention's reads: walk the block tables and read each key and value of a batch once.
//
// The result is, for each request, the sum over its tokens of the rows, dequantised: what proves that every
// byte was read, and from the right place. It has attention's traffic, none of its arithmetic, so its time is
// that of the memory. A split is a range of a request's tokens, a part one worker's share of a split;
// k3_read_combine adds the parts. GQA reads keys and values of every KV head, MLA one latent row a token.
#pragma once

struct K3Read {
  const u8* cache;      // [num_blocks] x block_stride bytes
  const i32* table;     // [num_reqs, stride]
  const i32* seq_lens;  // [num_reqs]
  float* sums;          // [num_reqs, parts, 1 or 2 (keys, values), kv_heads, head_size]
  i64 num_reqs, stride, num_blocks, block_size, kv_heads, head_size;
  i64 splits, workers;                                        // parts = splits x workers
  i64 block_stride, value_offset, token_stride, head_stride;  // bytes, multiples of 16
  double scale;                                               // of the cache
};

struct K3Range {
  i64 from, to;
};

// The tokens of a split: whole runs of 64, so that most splits start where a block does.
K3_INLINE K3Range k3_split(i64 seq_len, i64 splits, i64 split) {
  const i64 runs = (seq_len + 63) / 64;
  const K3Range range = {k3_min(runs * split / splits * 64, seq_len),
                         k3_min(runs * (split + 1) / splits * 64, seq_len)};
  return range;
}

// The first byte of a block; one outside the cache or the table reads as the null block.
K3_INLINE const u8* k3_block(const K3Read& a, i64 request, i64 block) {
  i64 id = block < a.stride ? (i64)a.table[request * a.stride + block] : 0;
  if (id < 0 || id >= a.num_blocks) id = 0;
  return a.cache + id * a.block_stride;
}

// The rows of the `COUNT` tokens from `token` on, none past `to`.
template <int COUNT>
K3_INLINE void k3_rows(const K3Read& a, i64 request, i64 token, i64 to, const u8** rows) {
  i64 block = (i64)((u32)token / (u32)a.block_size);
  i64 offset = token - block * a.block_size;
  const u8* base = k3_block(a, request, block);
  K3_UNROLL
  for (int u = 0; u < COUNT; ++u) {
    rows[u] = base + offset * a.token_stride;
    if (++offset == a.block_size && token + u + 1 < to) {
      offset = 0;
      base = k3_block(a, request, ++block);
    }
  }
}

struct K3Bf16 {
  static constexpr int SIZE = 2;
  static constexpr bool FP8 = false;
};
struct K3E4m3 {
  static constexpr int SIZE = 1;
  static constexpr bool FP8 = true;
};

#define K3_TILE 4

#if defined(K3_CPU)

// The floats in a vector of the cache's bytes, in the cheapest order; it is laid back at the end.
template <class F>
struct K3Floats;
template <>
struct K3Floats<K3Bf16> {
  K3F x[2];
};
template <>
struct K3Floats<K3E4m3> {
  K3F x[4];
};
K3_INLINE void k3_unpack(K3U w, K3Floats<K3Bf16>& to) {
  to.x[0] = (K3F)(w << 16);
  to.x[1] = (K3F)(w & 0xffff0000u);
}
K3_INLINE void k3_unpack(K3U w, K3Floats<K3E4m3>& to) {
  // As `k3_from_e4m3_raw`, two codes at a time while they still fit 16 bits.
  const K3U even = (K3U)(((K3S)((K3S)w << 8) >> 4) & (short)0x87f0), odd = (K3U)(((K3S)w >> 4) & (short)0x87f0);
  to.x[0] = (K3F)(even << 16);
  to.x[1] = (K3F)(odd << 16);
  to.x[2] = (K3F)(even & 0xffff0000u);
  to.x[3] = (K3F)(odd & 0xffff0000u);
}

// Bytes: within the second cache, and far enough for memory to answer.
#ifndef K3_AHEAD
#define K3_AHEAD 24576
#endif
#define K3_SLICE 2048  // bytes of a row at a time, so that the sums stay in the first cache

// `ahead` are the rows some tiles on: read one after the other into the second cache, which four rows read side
// by side keep the hardware from doing itself.
template <class F>
static __attribute__((noinline)) void k3_add_rows(K3F* __restrict sum, const u8* const* rows, const u8* const* ahead,
                                                  i64 offset, i64 vectors) {
  constexpr int EACH = 4 / F::SIZE;
  const u8 *r0 = rows[0] + offset, *r1 = rows[1] + offset, *r2 = rows[2] + offset, *r3 = rows[3] + offset;
  K3_UNROLL
  for (int u = 0; u < K3_TILE; ++u)
    for (i64 at = 0; at < vectors * K3_WIDTH; at += 64) __builtin_prefetch(ahead[u] + offset + at, 0, 2);
  for (i64 p = 0; p < vectors; ++p) {
    const i64 at = p * K3_WIDTH;
    K3Floats<F> x0, x1, x2, x3;
    k3_unpack(k3_load_wide(r0 + at), x0);
    k3_unpack(k3_load_wide(r1 + at), x1);
    k3_unpack(k3_load_wide(r2 + at), x2);
    k3_unpack(k3_load_wide(r3 + at), x3);
    K3_UNROLL
    for (int v = 0; v < EACH; ++v) sum[p * EACH + v] += (x0.x[v] + x1.x[v]) + (x2.x[v] + x3.x[v]);
  }
}

// Bytes of a row that no whole vector covers, and tokens that no whole tile does.
template <class F>
K3_INLINE void k3_add_elements(float* sum, const u8* row, i64 count) {
  for (i64 i = 0; i < count; ++i)
    sum[i] += F::FP8 ? k3_from_e4m3_raw((u32)row[i] << 24) : k3_float((u32)row[2 * i] << 16 | (u32)row[2 * i + 1] << 24);
}

template <class F, bool VALUES>
K3_INLINE void k3_read(const K3Place& at, const K3Read& a) {
  constexpr int EACH = 4 / F::SIZE;
  const i64 request = K3_BLOCK_X, split = K3_BLOCK_Y;
  if (request >= a.num_reqs || split >= a.splits) return;
  const K3Range range = k3_split(a.seq_lens[request], a.splits, split);
  const float up = (float)a.scale * (F::FP8 ? 0x1p60f : 1.0f), up2 = F::FP8 ? 0x1p60f : 1.0f;
  // Heads that lie side by side are one long row.
  const bool together = a.head_stride == a.head_size * F::SIZE;
  const i64 rows_each = together ? 1 : a.kv_heads;
  const i64 row_bytes = (together ? a.kv_heads : 1) * a.head_size * F::SIZE;
  float* out = a.sums + (request * a.splits * a.workers + split * a.workers) * (VALUES ? 2 : 1) * a.kv_heads * a.head_size;
  for (i64 row = 0; row < rows_each; ++row) {
    for (i64 from = 0; from < row_bytes; from += K3_SLICE) {
      const i64 bytes = k3_min(row_bytes - from, K3_SLICE), vectors = bytes / K3_WIDTH;
      const i64 rest = (bytes - vectors * K3_WIDTH) / F::SIZE;
      K3F sum[VALUES ? 2 : 1][K3_SLICE / K3_WIDTH * EACH];
      float tail[VALUES ? 2 : 1][K3_SLICE / F::SIZE];  // whole rows of the last tokens, and ends of all rows
      for (int kv = 0; kv < (VALUES ? 2 : 1); ++kv) {
        for (i64 i = 0; i < vectors * EACH; ++i) sum[kv][i] = K3F{};
        for (i64 i = 0; i < bytes / F::SIZE; ++i) tail[kv][i] = 0.0f;
      }
      const i64 offset = row * a.head_stride + from;
      const u8 *rows[K3_TILE], *ahead[K3_TILE];
      i64 token = range.from;
      const i64 far = k3_max(K3_AHEAD / (a.token_stride > 0 ? a.token_stride : 1) / K3_TILE, 1) * K3_TILE;
      for (; token + K3_TILE <= range.to; token += K3_TILE) {
        k3_rows<K3_TILE>(a, request, token, range.to, rows);
        k3_rows<K3_TILE>(a, request, k3_min(token + far, range.to - K3_TILE), range.to, ahead);
        K3_UNROLL
        for (int kv = 0; kv < (VALUES ? 2 : 1); ++kv) {
          const i64 start = offset + kv * a.value_offset;
          k3_add_rows<F>(sum[kv], rows, ahead, start, vectors);
          if (rest)
            for (int u = 0; u < K3_TILE; ++u)
              k3_add_elements<F>(tail[kv] + vectors * K3_WIDTH / F::SIZE, rows[u] + start + vectors * K3_WIDTH, rest);
        }
      }
      for (; token < range.to; ++token) {
        k3_rows<1>(a, request, token, range.to, rows);
        for (int kv = 0; kv < (VALUES ? 2 : 1); ++kv)
          k3_add_elements<F>(tail[kv], rows[0] + offset + kv * a.value_offset, bytes / F::SIZE);
      }
      for (int kv = 0; kv < (VALUES ? 2 : 1); ++kv) {
        float* to = out + (kv * a.kv_heads + row) * a.head_size + from / F::SIZE;
        for (i64 v = 0; v < vectors * EACH; ++v)
          for (int i = 0; i < K3_FLOATS; ++i) tail[kv][v / EACH * EACH * K3_FLOATS + EACH * i + v % EACH] += sum[kv][v][i];
        for (i64 i = 0; i < bytes / F::SIZE; ++i) to[i] = tail[kv][i] * up * up2;
      }
    }
  }
}

#else

template <class F>
K3_INLINE void k3_add16(float* sum, K3Vec v) {
  K3_UNROLL
  for (int w = 0; w < 4; ++w) {
    const u32 word = K3_WORD(v, w);
    if (F::FP8) {
      sum[4 * w] += k3_from_e4m3_raw(word << 24);
      sum[4 * w + 1] += k3_from_e4m3_raw(word << 16);
      sum[4 * w + 2] += k3_from_e4m3_raw(word << 8);
      sum[4 * w + 3] += k3_from_e4m3_raw(word);
    } else {
      sum[2 * w] += k3_float(word << 16);
      sum[2 * w + 1] += k3_float(word & 0xffff0000u);
    }
  }
}

// A thread takes one piece of 16 bytes of the rows of every worker-th tile of tokens.
template <class F, bool VALUES>
K3_INLINE void k3_read(K3_PLACE_PARAM at, const K3Read& a) {
  (void)at;
  constexpr int EACH = 16 / F::SIZE;
  const i64 request = K3_BLOCK_X, split = K3_BLOCK_Y;
  if (request >= a.num_reqs || split >= a.splits) return;
  const int head_pieces = (int)(a.head_size / EACH);
  const int pieces = (int)a.kv_heads * head_pieces;
  const int each = pieces < K3_THREADS ? pieces : K3_THREADS;  // threads of a worker
  const i64 worker = K3_THREAD / each;
  if (worker >= a.workers) return;
  const K3Range range = k3_split(a.seq_lens[request], a.splits, split);
  const i64 row_size = a.kv_heads * a.head_size;
  float* out = a.sums + ((request * a.splits + split) * a.workers + worker) * (VALUES ? 2 : 1) * row_size;
  const float up = (float)a.scale * (F::FP8 ? 0x1p60f : 1.0f), up2 = F::FP8 ? 0x1p60f : 1.0f;
  for (int piece = K3_THREAD % each; piece < pieces; piece += each) {
    const i64 head = piece / head_pieces;
    const i64 offset = head * a.head_stride + (i64)(piece % head_pieces) * 16;
    float key[EACH], value[VALUES ? EACH : 1];
    K3_UNROLL
    for (int i = 0; i < EACH; ++i) {
      key[i] = 0.0f;
      if (VALUES) value[VALUES ? i : 0] = 0.0f;
    }
    const i64 step = a.workers * K3_TILE;
    for (i64 token = range.from + worker * K3_TILE; token < range.to; token += step) {
      const u8* rows[K3_TILE];
      K3Vec keys[K3_TILE], values[VALUES ? K3_TILE : 1];
      k3_rows<K3_TILE>(a, request, token, range.to, rows);
      if (token + K3_TILE <= range.to) {
        K3_UNROLL
        for (int u = 0; u < K3_TILE; ++u) {
          keys[u] = k3_load16(rows[u] + offset);
          if (VALUES) values[VALUES ? u : 0] = k3_load16(rows[u] + offset + a.value_offset);
        }
        K3_UNROLL
        for (int u = 0; u < K3_TILE; ++u) {
          k3_add16<F>(key, keys[u]);
          if (VALUES) k3_add16<F>(value, values[VALUES ? u : 0]);
        }
      } else {
        K3_UNROLL
        for (int u = 0; u < K3_TILE; ++u) {
          if (token + u >= range.to) break;
          k3_add16<F>(key, k3_load16(rows[u] + offset));
          if (VALUES) k3_add16<F>(value, k3_load16(rows[u] + offset + a.value_offset));
        }
      }
    }
    K3_UNROLL
    for (int i = 0; i < EACH; ++i) {
      out[(i64)piece * EACH + i] = key[i] * up * up2;
      if (VALUES) out[row_size + (i64)piece * EACH + i] = value[VALUES ? i : 0] * up * up2;
    }
  }
}

#endif

// Grid: x = num_reqs, y = splits.
K3_KERNEL(k3_gqa_read_bf16, K3Read) { k3_read<K3Bf16, true>(K3_PLACE, a); }
K3_KERNEL(k3_gqa_read_fp8, K3Read) { k3_read<K3E4m3, true>(K3_PLACE, a); }
K3_KERNEL(k3_mla_read_bf16, K3Read) { k3_read<K3Bf16, false>(K3_PLACE, a); }
K3_KERNEL(k3_mla_read_fp8, K3Read) { k3_read<K3E4m3, false>(K3_PLACE, a); }

struct K3Combine {
  const float* sums;  // [rows, parts, row_size]
  float* out;         // [rows, row_size]
  i64 rows, parts, row_size;
};

// Grid: x = rows (num_reqs).
K3_KERNEL(k3_read_combine, K3Combine) {
  const i64 row = K3_BLOCK_X;
  if (row >= a.rows) return;
  for (i64 i = K3_THREAD; i < a.row_size; i += K3_THREADS) {
    float sum = 0.0f;
    for (i64 p = 0; p < a.parts; ++p) sum += a.sums[(row * a.parts + p) * a.row_size + i];
    a.out[row * a.row_size + i] = sum;
  }
}
