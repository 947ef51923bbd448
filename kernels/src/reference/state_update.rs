//! What do the pages of recurrent states hold after a step?

/// Where states lie in a cache, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateLayout {
    /// Pages; page 0 is the null block.
    pub num_blocks: usize,
    /// From a page to the next.
    pub block_stride: usize,
    /// The convolution's state, first in a page.
    pub conv_bytes: usize,
    /// The recurrent state behind it.
    pub state_bytes: usize,
}

impl StateLayout {
    fn page(&self, id: i32) -> Option<usize> {
        let id = usize::try_from(id).ok().filter(|id| (1..self.num_blocks).contains(id))?;
        Some(id * self.block_stride)
    }
}

/// Updates the states of requests whose pages, a row of `width` in `indices`, are all different. `accepted` counts
/// the tokens that the last step gave each; a query of up to `width` tokens leaves a state for each token.
pub fn state_update(
    cache: &mut [u8],
    layout: StateLayout,
    indices: &[i32],
    width: usize,
    accepted: &[i32],
    query_lens: &[i32],
) {
    for (request, len) in query_lens.iter().enumerate() {
        let Some(tokens) = usize::try_from(*len).ok().filter(|len| *len > 0) else { continue };
        let own = &indices[request * width..(request + 1) * width];
        if let Some(page) = layout.page(own[0]) {
            let conv = grown(&cache[page..page + layout.conv_bytes], 1);
            cache[page..page + layout.conv_bytes].copy_from_slice(&conv);
        }
        let column = usize::try_from(accepted[request] - 1).unwrap_or(0).min(width - 1);
        let Some(from) = layout.page(own[column]).map(|page| page + layout.conv_bytes) else { continue };
        let old = cache[from..from + layout.state_bytes].to_vec();
        let states = if tokens <= width { tokens } else { 1 };
        for (id, token) in own.iter().zip(1..).take(states) {
            if let Some(to) = layout.page(*id).map(|page| page + layout.conv_bytes) {
                cache[to..to + layout.state_bytes].copy_from_slice(&grown(&old, token));
            }
        }
    }
}

/// Each 32-bit word plus a number.
fn grown(words: &[u8], by: u32) -> Vec<u8> {
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    words.chunks_exact(4).flat_map(|bytes| word(bytes).wrapping_add(by).to_le_bytes()).collect()
}
