//! What does the paged cache hold after a step's keys and values, or latents, were written?

use super::numbers::{from_bf16, to_e4m3};

/// What a cache keeps its elements as.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Store {
    /// As they come.
    Bf16,
    /// As e4m3fn codes of the numbers times this.
    Fp8 {
        /// One over the cache's scale.
        inverse_scale: f32,
    },
}

impl Store {
    /// Bytes an element.
    pub fn size(self) -> usize {
        match self {
            Self::Bf16 => 2,
            Self::Fp8 { .. } => 1,
        }
    }

    fn bytes(self, code: u16) -> Vec<u8> {
        match self {
            Self::Bf16 => code.to_le_bytes().to_vec(),
            Self::Fp8 { inverse_scale } => vec![to_e4m3(from_bf16(code) * inverse_scale)],
        }
    }
}

/// Where a block's rows lie, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLayout {
    /// Tokens a block.
    pub block_size: usize,
    /// Blocks.
    pub num_blocks: usize,
    /// From a block to the next.
    pub block_stride: usize,
    /// From a token's key to its value.
    pub value_offset: usize,
    /// From a token to the next.
    pub token_stride: usize,
    /// From a head to the next.
    pub head_stride: usize,
}

impl CacheLayout {
    /// The first byte of a slot's row.
    pub fn row(&self, slot: usize) -> usize {
        slot / self.block_size * self.block_stride + slot % self.block_size * self.token_stride
    }

    fn slot(&self, slot: i64) -> Option<usize> {
        usize::try_from(slot).ok().filter(|slot| slot / self.block_size < self.num_blocks)
    }
}

/// Writes `rows` (heads x elements of one token, bf16) at `offset` bytes from the token's row.
fn write_token(cache: &mut [u8], store: Store, at: usize, elements: &[u16]) {
    for (i, code) in elements.iter().enumerate() {
        let first = at + i * store.size();
        cache[first..first + store.size()].copy_from_slice(&store.bytes(*code));
    }
}

/// Keys and values, each [tokens, heads, `head_size`] in bf16.
#[expect(clippy::too_many_arguments, reason = "the arrays and sizes of one kernel")]
pub fn kv_cache_write(
    key: &[u16],
    value: &[u16],
    slots: &[i64],
    heads: usize,
    head_size: usize,
    layout: CacheLayout,
    store: Store,
    cache: &mut [u8],
) {
    for (token, slot) in slots.iter().enumerate() {
        let Some(slot) = layout.slot(*slot) else { continue };
        for head in 0..heads {
            let from = (token * heads + head) * head_size;
            let at = layout.row(slot) + head * layout.head_stride;
            write_token(cache, store, at, &key[from..from + head_size]);
            write_token(cache, store, at + layout.value_offset, &value[from..from + head_size]);
        }
    }
}

/// Latents [tokens, `latent_size`] and their rotary parts [tokens, `rope_size`], one row a token.
pub fn mla_cache_write(
    latent: &[u16],
    rope: &[u16],
    slots: &[i64],
    layout: CacheLayout,
    store: Store,
    cache: &mut [u8],
) {
    if slots.is_empty() {
        return;
    }
    let (latent_size, rope_size) = (latent.len() / slots.len(), rope.len() / slots.len());
    for (token, slot) in slots.iter().enumerate() {
        let Some(slot) = layout.slot(*slot) else { continue };
        let at = layout.row(slot);
        write_token(cache, store, at, &latent[token * latent_size..(token + 1) * latent_size]);
        let behind = at + latent_size * store.size();
        write_token(cache, store, behind, &rope[token * rope_size..(token + 1) * rope_size]);
    }
}
