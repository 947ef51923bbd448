// Decode attention's reads: walk the block tables and read each key and value of a batch once.
//
// The result is, for each request, the sum over its tokens of the rows, dequantised: what proves that every
// byte was read, and from the right place. It has attention's traffic, none of its arithmetic, so its time is
// that of the memory. Sliding windows read their last tokens. A split is a range of a request's tokens, a part one worker's share of a split;
// k3_read_combine adds the parts. GQA reads keys and values of every KV head, MLA one latent row a token.
#pragma once

struct K3Read {
  const u8* cache;      // [num_blocks] x block_stride bytes
  const i32* table;     // [num_reqs, stride]
  const i32* seq_lens;  // [num_reqs]
  float* sums;          // [num_reqs, parts, 1 or 2 (keys, values), kv_heads, head_size]
  i64 num_reqs, stride, num_blocks, block_size, kv_heads, head_size;
  i64 splits, workers;                                        // parts = splits x workers
  i64 window;                                                 // the last tokens that are read; 0 is all
  i64 block_stride, value_offset, token_stride, head_stride;  // bytes, multiples of 16
  double scale;                                               // of the cache
};

struct K3Range {
  i64 from, to;
};

// The tokens of a split: whole runs of 64, so that most splits start where a block does.
K3_INLINE K3Range k3_split(const K3Read& a, i64 request, i64 split) {
  const i64 seq_len = k3_max(a.seq_lens[request], 0), start = a.window > 0 ? k3_max(seq_len - a.window, 0) : 0;
  const i64 first = start / 64, runs = (seq_len + 63) / 64 - first;
  const K3Range range = {k3_max(k3_min((first + runs * split / a.splits) * 64, seq_len), start),
                         k3_max(k3_min((first + runs * (split + 1) / a.splits) * 64, seq_len), start)};
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

// Vectors of WIDTH bytes of the cache, and of the floats in them.
template <int WIDTH>
struct K3Wide {
  typedef float F __attribute__((vector_size(WIDTH)));
  typedef u32 U __attribute__((vector_size(WIDTH)));
  typedef short S __attribute__((vector_size(WIDTH)));
  typedef u32 Loose __attribute__((vector_size(WIDTH), aligned(1), may_alias));
};

// The floats in a vector of the cache's bytes, in the cheapest order: part p of lane l is element EACH x l + p.
template <int WIDTH>
K3_INLINE void k3_unpack(K3Bf16, typename K3Wide<WIDTH>::U w, typename K3Wide<WIDTH>::F* to) {
  to[0] = (typename K3Wide<WIDTH>::F)(w << 16);
  to[1] = (typename K3Wide<WIDTH>::F)(w & 0xffff0000u);
}
template <int WIDTH>
K3_INLINE void k3_unpack(K3E4m3, typename K3Wide<WIDTH>::U w, typename K3Wide<WIDTH>::F* to) {
  // As `k3_from_e4m3_raw`, two codes at a time while they still fit 16 bits.
  typedef typename K3Wide<WIDTH>::U U;
  typedef typename K3Wide<WIDTH>::S S;
  typedef typename K3Wide<WIDTH>::F F;
  const U even = (U)(((S)((S)w << 8) >> 4) & (short)0x87f0), odd = (U)(((S)w >> 4) & (short)0x87f0);
  to[0] = (F)(even << 16);
  to[1] = (F)(odd << 16);
  to[2] = (F)(even & 0xffff0000u);
  to[3] = (F)(odd & 0xffff0000u);
}

// Bytes: within the second cache, and far enough for memory to answer.
#ifndef K3_AHEAD
#define K3_AHEAD 24576
#endif
#define K3_SLICE 2048  // bytes of a row at a time, so that its sums stay in the first cache
#define K3_RUN 64      // tokens at most whose sum stays in registers

// Adds `COLUMNS` vectors of each of `count` rows to `sum`; in registers, as the sums of few columns fit there. The
// rows `ahead` bytes on are fetched meanwhile: columns of rows are not the order that the hardware foresees.
template <class F, int WIDTH, int COLUMNS>
static __attribute__((noinline)) void k3_add_columns(typename K3Wide<WIDTH>::F* sum, const u8* row, i64 stride,
                                                     i64 count, i64 ahead) {
  constexpr int EACH = 4 / F::SIZE;
  typename K3Wide<WIDTH>::F own[COLUMNS * EACH] = {};
  for (i64 t = 0; t < count; ++t, row += stride) {
    K3_UNROLL
    for (int c = 0; c < COLUMNS; ++c) {
      if (c * WIDTH % 64 == 0) __builtin_prefetch(row + ahead + c * WIDTH, 0, 2);
      typename K3Wide<WIDTH>::F x[EACH];
      k3_unpack<WIDTH>(F(), (typename K3Wide<WIDTH>::U) * (const typename K3Wide<WIDTH>::Loose*)(row + c * WIDTH), x);
      K3_UNROLL
      for (int e = 0; e < EACH; ++e) own[c * EACH + e] += x[e];
    }
  }
  K3_UNROLL
  for (int i = 0; i < COLUMNS * EACH; ++i) sum[i] += own[i];
}

template <class F, int WIDTH, int MOST>
K3_INLINE void k3_add_some(i64 columns, typename K3Wide<WIDTH>::F* sum, const u8* row, i64 stride, i64 count, i64 ahead) {
  if constexpr (MOST > 0) {
    if (columns == MOST) k3_add_columns<F, WIDTH, MOST>(sum, row, stride, count, ahead);
    else k3_add_some<F, WIDTH, MOST - 1>(columns, sum, row, stride, count, ahead);
  }
}

// The sums of a slice of a row: of its whole vectors, and of the pieces of 16 bytes behind them.
template <class F>
struct K3Sums {
  static constexpr int EACH = 4 / F::SIZE, SMALL = 16;
  // Registers for sums: half of those there are.
  static constexpr int MOST = (K3_WIDTH == 64 ? 16 : 8) / EACH;
  K3F wide[K3_SLICE / K3_WIDTH * EACH];
  K3Wide<SMALL>::F small[K3_WIDTH / SMALL * EACH];

  K3_INLINE_MEMBER void clear(i64 vectors) {
    for (i64 i = 0; i < vectors * EACH; ++i) wide[i] = K3F{};
    for (i64 i = 0; i < K3_WIDTH / SMALL * EACH; ++i) small[i] = K3Wide<SMALL>::F{};
  }
  K3_INLINE_MEMBER void add(const u8* row, i64 vectors, i64 pieces, i64 stride, i64 count, i64 ahead) {
    i64 done = 0;
    for (i64 left = (vectors + MOST - 1) / MOST; left > 0; --left) {
      const i64 columns = (vectors - done + left - 1) / left;
      k3_add_some<F, K3_WIDTH, MOST>(columns, wide + done * EACH, row + done * K3_WIDTH, stride, count, ahead);
      done += columns;
    }
    if (pieces) k3_add_some<F, SMALL, K3_WIDTH / SMALL - 1>(pieces, small, row + done * K3_WIDTH, stride, count, ahead);
  }
  // Back in the order of the row.
  K3_INLINE_MEMBER void put(float* to, i64 vectors, i64 pieces, float up, float up2) const {
    for (i64 v = 0; v < vectors * EACH; ++v)
      for (int i = 0; i < K3_FLOATS; ++i) to[v / EACH * EACH * K3_FLOATS + EACH * i + v % EACH] = wide[v][i] * up * up2;
    to += vectors * EACH * K3_FLOATS;
    for (i64 v = 0; v < pieces * EACH; ++v)
      for (int i = 0; i < SMALL / 4; ++i) to[v / EACH * EACH * (SMALL / 4) + EACH * i + v % EACH] = small[v][i] * up * up2;
  }
};

// A place in a request's blocks.
struct K3Cursor {
  i64 block, offset;
  const u8* base;
};
K3_INLINE K3Cursor k3_cursor(const K3Read& a, i64 request, i64 token) {
  const i64 block = (i64)((u32)token / (u32)a.block_size);
  return {block, token - block * a.block_size, k3_block(a, request, block)};
}
// On by at most a block.
K3_INLINE void k3_move(K3Cursor& at, const K3Read& a, i64 request, i64 tokens) {
  at.offset += tokens;
  if (at.offset < a.block_size) return;
  at.offset -= a.block_size;
  at.base = k3_block(a, request, ++at.block);
}

template <class F, bool VALUES>
K3_INLINE void k3_read(const K3Place& at, const K3Read& a) {
  const i64 request = K3_BLOCK_X, split = K3_BLOCK_Y;
  if (request >= a.num_reqs || split >= a.splits) return;
  const K3Range range = k3_split(a, request, split);
  const float up = (float)a.scale * (F::FP8 ? 0x1p60f : 1.0f), up2 = F::FP8 ? 0x1p60f : 1.0f;
  // Heads that lie side by side are one long row.
  const bool together = a.head_stride == a.head_size * F::SIZE;
  const i64 rows_each = together ? 1 : a.kv_heads;
  const i64 row_bytes = (together ? a.kv_heads : 1) * a.head_size * F::SIZE;
  const i64 far = K3_AHEAD / row_bytes / (VALUES ? 2 : 1) + 1;
  float* out = a.sums + (request * a.splits * a.workers + split * a.workers) * (VALUES ? 2 : 1) * a.kv_heads * a.head_size;
  for (i64 row = 0; row < rows_each; ++row) {
    for (i64 from = 0; from < row_bytes; from += K3_SLICE) {
      const i64 bytes = k3_min(row_bytes - from, K3_SLICE), vectors = bytes / K3_WIDTH;
      const i64 pieces = bytes % K3_WIDTH / K3Sums<F>::SMALL;
      const i64 offset = row * a.head_stride + from;
      K3Sums<F> sums[VALUES ? 2 : 1];
      for (int kv = 0; kv < (VALUES ? 2 : 1); ++kv) sums[kv].clear(vectors);
      K3Cursor here = k3_cursor(a, request, range.from);
      K3Cursor there = k3_cursor(a, request, range.from + far);
      for (i64 token = range.from; token < range.to;) {
        const i64 count = k3_min(k3_min(a.block_size - here.offset, range.to - token), K3_RUN);
        const u8* first = here.base + here.offset * a.token_stride + offset;
        const i64 ahead =
            token + far < range.to ? (there.base + there.offset * a.token_stride) - (here.base + here.offset * a.token_stride) : 0;
        for (int kv = 0; kv < (VALUES ? 2 : 1); ++kv)
          sums[kv].add(first + kv * a.value_offset, vectors, pieces, a.token_stride, count, ahead);
        token += count;
        k3_move(here, a, request, count);
        k3_move(there, a, request, count);
      }
      for (int kv = 0; kv < (VALUES ? 2 : 1); ++kv)
        sums[kv].put(out + (kv * a.kv_heads + row) * a.head_size + from / F::SIZE, vectors, pieces, up, up2);
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
  const K3Range range = k3_split(a, request, split);
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
