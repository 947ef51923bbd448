//! What is the sum of a batch's rows in the paged cache, and how far off may a kernel be?

use super::kv_cache_write::{CacheLayout, Store};
use super::numbers::{from_bf16, from_e4m3};

/// How far a read's sum may be from the reference, as a part of the sum of the sizes: the kernels add in f32,
/// in another order. A chain of n additions errs by at most n x 2^-24 of that sum; 1e-3 covers 16,000 tokens a
/// part.
pub const TOLERANCE: f64 = 1e-3;

/// A sum, and the sum of the sizes, which its error is measured by.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sum {
    /// The sum.
    pub value: f64,
    /// The sum of the sizes.
    pub size: f64,
}

impl Sum {
    /// Whether a kernel's sum is near enough.
    pub fn accepts(&self, got: f32) -> bool {
        (f64::from(got) - self.value).abs() <= TOLERANCE * self.size + f64::from(f32::MIN_POSITIVE)
    }
}

/// [requests, keys (and values), heads, `head_size`], of the last `window` tokens where there is one. A block outside
/// the cache or the table reads as block 0.
#[expect(clippy::too_many_arguments, reason = "the arrays and sizes of one kernel")]
pub fn paged_read(
    cache: &[u8],
    table: &[i32],
    stride: usize,
    seq_lens: &[i32],
    window: Option<usize>,
    heads: usize,
    head_size: usize,
    values: bool,
    layout: CacheLayout,
    store: Store,
    scale: f64,
) -> Vec<Sum> {
    let mut sums = Vec::new();
    for (request, len) in seq_lens.iter().enumerate() {
        let len = usize::try_from(*len).unwrap_or(0);
        let tokens = len.saturating_sub(window.unwrap_or(len))..len;
        for value in 0..=usize::from(values) {
            for element in 0..heads * head_size {
                let mut sum = Sum::default();
                for token in tokens.clone() {
                    let block = token / layout.block_size;
                    let id = if block < stride { table[request * stride + block] } else { 0 };
                    let id = usize::try_from(id).ok().filter(|id| *id < layout.num_blocks).unwrap_or(0);
                    let at = layout.row(id * layout.block_size + token % layout.block_size)
                        + value * layout.value_offset
                        + element / head_size * layout.head_stride
                        + element % head_size * store.size();
                    let number = match store {
                        Store::Bf16 => f64::from(from_bf16(u16::from_le_bytes([cache[at], cache[at + 1]]))),
                        Store::Fp8 { .. } => from_e4m3(cache[at]),
                    };
                    sum.value += number * scale;
                    sum.size += (number * scale).abs();
                }
                sums.push(sum);
            }
        }
    }
    sums
}
