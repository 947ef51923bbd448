// A step's update of recurrent states (KDA, GDN, Mamba), found by state index.
//
// A page holds the state of the convolution, then the recurrent state. The convolution's is read and written back in
// the first page of a request. The recurrent state is read from the page of the last token that was accepted; a decode
// writes a state for each of its tokens, each to a page of its own, a longer query one state to the first page. The
// traffic is that of the layer, its arithmetic is not: a word of a state grows by one a token.
// vLLM: causal_conv1d_update (model_executor/layers/mamba/ops/causal_conv1d.py) and the in-place states of
// fused_recurrent_gated_delta_rule (third_party/flash_linear_attention/ops/fused_recurrent.py), 0.32.
#pragma once

struct K3StateUpdate {
  u8* cache;                   // [num_blocks] x block_stride bytes
  const i32* indices;          // [num_reqs, width] pages; 0, the null block, is padding
  const i32* accepted;         // [num_reqs] tokens that the last step gave, from 1
  const i32* query_start_loc;  // [num_reqs + 1]
  i64 num_reqs, width, num_blocks;
  i64 block_stride, conv_bytes, state_bytes;  // multiples of 16
  i64 pieces;                                 // of a state, a program each
};

// The first byte of a page; none for padding and for what is outside the cache.
K3_INLINE u8* k3_page(const K3StateUpdate& a, i64 id) {
  return id > 0 && id < a.num_blocks ? a.cache + id * a.block_stride : (u8*)0;
}

// Bytes [from, to) of the recurrent state: one read, a write a token.
K3_INLINE void k3_states(K3_PLACE_PARAM at, const K3StateUpdate& a, const i32* own, i64 column, i64 states, i64 from,
                         i64 to) {
  (void)at;
  const u8* old = k3_page(a, own[column]);
  if (!old) return;
#if defined(K3_CPU)
  // So much at a time that what was read is still in the first cache when it is written for the last token.
  constexpr i64 STRIP = 4096;
  for (i64 strip = from; strip < to; strip += STRIP) {
    const i64 end = k3_min(strip + STRIP, to);
    // The page that is read comes last: it is overwritten with its own successor.
    for (i64 i = 0; i < states; ++i) {
      const i64 t = column >= states ? i : (column + 1 + i) % states;
      u8* page = k3_page(a, own[t]);
      if (!page) continue;
      i64 o = strip;
      for (; o + K3_WIDTH <= end; o += K3_WIDTH)
        *(K3Loose*)(page + o) = (K3Loose)(k3_load_wide(old + o) + (u32)(t + 1));
      for (; o < end; o += 16) k3_store16(page + o, k3_plus(k3_load16(old + o), (u32)(t + 1)));
    }
  }
#else
  for (i64 o = from + 16 * (i64)K3_THREAD; o < to; o += 16 * (i64)K3_THREADS) {
    const K3Vec v = k3_load16(old + o);
    for (i64 t = 0; t < states; ++t)
      if (u8* page = k3_page(a, own[t])) k3_store16(page + o, k3_plus(v, (u32)(t + 1)));
  }
#endif
}

// The piece `piece` of a request's states.
K3_INLINE void k3_state_piece(K3_PLACE_PARAM at, const K3StateUpdate& a, i64 request, i64 piece) {
  (void)at;
  const i64 len = (i64)a.query_start_loc[request + 1] - a.query_start_loc[request];
  if (len <= 0) return;
  const i32* own = a.indices + request * a.width;
  const i64 conv = a.conv_bytes / 16, from = conv * piece / a.pieces * 16, to = conv * (piece + 1) / a.pieces * 16;
  if (u8* page = k3_page(a, own[0]))
    for (i64 o = from + 16 * (i64)K3_THREAD; o < to; o += 16 * (i64)K3_THREADS)
      k3_store16(page + o, k3_plus(k3_load16(page + o), 1));
  const i64 column = k3_min(k3_max((i64)a.accepted[request] - 1, 0), a.width - 1);
  const i64 state = a.state_bytes / 16, states = len <= a.width ? len : 1;
  k3_states(K3_PLACE, a, own, column, states, a.conv_bytes + state * piece / a.pieces * 16,
            a.conv_bytes + state * (piece + 1) / a.pieces * 16);
}

#if defined(K3_CPU)

// Grid: x any, y = pieces; a program takes its piece of its share of the requests. With x = 1 two programs never
// touch the same bytes, whatever pages the requests name.
K3_KERNEL(k3_state_update, K3StateUpdate) {
  if (K3_BLOCK_Y >= a.pieces) return;
  const i64 first = a.num_reqs * K3_BLOCK_X / K3_GRID_X, last = a.num_reqs * (K3_BLOCK_X + 1) / K3_GRID_X;
  for (i64 request = first; request < last; ++request) k3_state_piece(at, a, request, K3_BLOCK_Y);
}

#else

// Grid: x = num_reqs, y = pieces.
K3_KERNEL(k3_state_update, K3StateUpdate) {
  if (K3_BLOCK_X >= a.num_reqs || K3_BLOCK_Y >= a.pieces) return;
  k3_state_piece(K3_PLACE, a, K3_BLOCK_X, K3_BLOCK_Y);
}

#endif
