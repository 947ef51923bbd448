// What a device can do at best: a launch that does nothing, a plain read of memory, and a plain write.
#pragma once

struct K3Noop {
  i64 nothing;
};

// Grid: 1.
K3_KERNEL(k3_noop, K3Noop) { (void)a; }

struct K3StreamRead {
  const u8* from;  // [bytes], a multiple of 64
  u32* sums;       // [programs]
  i64 bytes, programs;
};

// Grid: x = programs. Each reads its share once, in order, and keeps the sum of the 32-bit words.
K3_KERNEL(k3_stream_read, K3StreamRead) {
  const i64 program = K3_BLOCK_X;
  if (program >= a.programs) return;
  const i64 lines = a.bytes / 64;
  const i64 from = lines * program / a.programs * 64, to = lines * (program + 1) / a.programs * 64;
#if defined(K3_CPU)
  K3U four[4] = {};
  i64 i = from;
  for (; i + 4 * K3_WIDTH <= to; i += 4 * K3_WIDTH)
    K3_UNROLL
    for (int v = 0; v < 4; ++v) four[v] += k3_load_wide(a.from + i + K3_WIDTH * v);
  for (; i < to; i += K3_WIDTH) four[0] += k3_load_wide(a.from + i);
  const K3U all = (four[0] + four[1]) + (four[2] + four[3]);
  u32 sum = 0;
  for (int w = 0; w < K3_FLOATS; ++w) sum += all[w];
  a.sums[program] = sum;
#else
  K3_SHARED(u32, sums, K3_MAX_THREADS);
  u32 sum = 0;
  i64 i = from + 16 * (i64)K3_THREAD;
  const i64 step = 16 * (i64)K3_THREADS;
  for (; i + 3 * step < to; i += 4 * step) {
    const K3Vec v0 = k3_load16(a.from + i), v1 = k3_load16(a.from + i + step);
    const K3Vec v2 = k3_load16(a.from + i + 2 * step), v3 = k3_load16(a.from + i + 3 * step);
    K3_UNROLL
    for (int w = 0; w < 4; ++w) sum += K3_WORD(v0, w) + K3_WORD(v1, w) + K3_WORD(v2, w) + K3_WORD(v3, w);
  }
  for (; i < to; i += step) {
    const K3Vec v = k3_load16(a.from + i);
    K3_UNROLL
    for (int w = 0; w < 4; ++w) sum += K3_WORD(v, w);
  }
  sums[K3_THREAD] = sum;
  K3_SYNC();
  if (K3_THREAD != 0) return;
  for (int t = 1; t < K3_THREADS; ++t) sum += sums[t];
  a.sums[program] = sum;
#endif
}

struct K3StreamWrite {
  u8* to;  // [bytes], a multiple of 64
  i64 bytes, programs, value;
};

// Grid: x = programs. Each writes its share once, in order, with the low 32 bits of `value`.
K3_KERNEL(k3_stream_write, K3StreamWrite) {
  const i64 program = K3_BLOCK_X;
  if (program >= a.programs) return;
  const i64 lines = a.bytes / 64;
  const i64 from = lines * program / a.programs * 64, to = lines * (program + 1) / a.programs * 64;
#if defined(K3_CPU)
  const K3U all = K3U{} + (u32)a.value;
  for (i64 i = from; i < to; i += K3_WIDTH) *(K3Loose*)(a.to + i) = (K3Loose)all;
#else
  const K3Vec all = k3_plus(K3Vec(), (u32)a.value);
  for (i64 i = from + 16 * (i64)K3_THREAD; i < to; i += 16 * (i64)K3_THREADS) k3_store16(a.to + i, all);
#endif
}
