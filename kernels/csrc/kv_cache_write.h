// Writes the keys and values of a step's tokens into the paged KV cache, as bf16 or as fp8 (e4m3fn).
//
// vLLM: reshape_and_cache_flash and concat_and_cache_mla (csrc/cache_kernels.cu). A slot outside the cache,
// -1 first of all, is left out.
#pragma once

K3_INLINE void k3_store(u8* to, u32 bf16, double inverse_scale, bool fp8) {
  if (fp8) {
    *to = (u8)k3_to_e4m3(k3_from_bf16(bf16) * (float)inverse_scale);
  } else {
    to[0] = (u8)(bf16 & 0xff);
    to[1] = (u8)(bf16 >> 8);
  }
}

K3_INLINE void k3_store_row(K3_PLACE_PARAM at, u8* to, const u16* from, i64 count, double inverse_scale,
                            bool fp8) {
  (void)at;
  if (fp8) {
    for (i64 i = K3_THREAD; i < count; i += K3_THREADS) k3_store(to + i, from[i], inverse_scale, true);
  } else {
    for (i64 i = K3_THREAD; i < count; i += K3_THREADS) k3_store(to + 2 * i, from[i], inverse_scale, false);
  }
}

struct K3CacheWrite {
  const u16* key;    // [num_tokens, num_heads, head_size] bf16
  const u16* value;  // the same
  const i64* slots;  // [num_tokens]
  u8* cache;         // [num_blocks] x block_stride bytes
  i64 num_tokens, num_heads, head_size, block_size, num_blocks;
  i64 block_stride, value_offset, token_stride, head_stride;  // bytes
  i64 fp8;
  double inverse_scale;
};

// Grid: x = num_tokens.
K3_KERNEL(k3_kv_cache_write, K3CacheWrite) {
  const i64 token = K3_BLOCK_X;
  if (token >= a.num_tokens) return;
  const i64 slot = a.slots[token];
  if (slot < 0 || slot / a.block_size >= a.num_blocks) return;
  u8* to = a.cache + slot / a.block_size * a.block_stride + slot % a.block_size * a.token_stride;
  for (i64 head = 0; head < a.num_heads; ++head) {
    const i64 from = (token * a.num_heads + head) * a.head_size;
    k3_store_row(K3_PLACE, to + head * a.head_stride, a.key + from, a.head_size, a.inverse_scale, a.fp8 != 0);
    k3_store_row(K3_PLACE, to + a.value_offset + head * a.head_stride, a.value + from, a.head_size,
                 a.inverse_scale, a.fp8 != 0);
  }
}

struct K3MlaWrite {
  const u16* latent;  // [num_tokens, latent_size] bf16
  const u16* rope;    // [num_tokens, rope_size] bf16
  const i64* slots;   // [num_tokens]
  u8* cache;          // [num_blocks] x block_stride bytes
  i64 num_tokens, latent_size, rope_size, block_size, num_blocks;
  i64 block_stride, token_stride;  // bytes
  i64 fp8;
  double inverse_scale;
};

// Grid: x = num_tokens.
K3_KERNEL(k3_mla_cache_write, K3MlaWrite) {
  const i64 token = K3_BLOCK_X;
  if (token >= a.num_tokens) return;
  const i64 slot = a.slots[token];
  if (slot < 0 || slot / a.block_size >= a.num_blocks) return;
  u8* to = a.cache + slot / a.block_size * a.block_stride + slot % a.block_size * a.token_stride;
  k3_store_row(K3_PLACE, to, a.latent + token * a.latent_size, a.latent_size, a.inverse_scale, a.fp8 != 0);
  k3_store_row(K3_PLACE, to + a.latent_size * (a.fp8 ? 1 : 2), a.rope + token * a.rope_size, a.rope_size,
               a.inverse_scale, a.fp8 != 0);
}
