//! What do the metadata builders fill before a step?

/// `query_start_loc` [padded + 1] and `seq_lens` [padded].
pub fn sequence_starts(num_computed: &[i32], query_lens: &[i32], padded: usize) -> (Vec<i32>, Vec<i32>) {
    let mut starts = vec![0];
    let mut lens = Vec::new();
    let mut end = 0;
    for i in 0..padded {
        let len = query_lens.get(i).copied().unwrap_or(0);
        end += len;
        starts.push(end);
        lens.push(num_computed.get(i).map_or(0, |computed| computed + len));
    }
    (starts, lens)
}

/// The position of each token, by request.
pub fn positions(num_computed: &[i32], query_lens: &[i32]) -> Vec<i64> {
    let each = num_computed.iter().zip(query_lens);
    each.flat_map(|(computed, len)| (0..*len).map(move |i| i64::from(*computed) + i64::from(i))).collect()
}

/// What `split_decodes_and_prefills` is asked for.
#[derive(Debug, Clone, Copy)]
pub struct SplitRule {
    /// The longest query of a decode.
    pub decode_threshold: i32,
    /// Whether all decodes must have one length.
    pub require_uniform: bool,
    /// Whether short queries of requests that still prefill count as decodes.
    pub short_extends_are_decodes: bool,
}

/// Decodes, prefills, decode tokens, prefill tokens of a batch that has its decodes first.
///
/// # Source
/// vLLM 0.32, `v1/attention/backends/utils.py`, `split_decodes_and_prefills`.
pub fn decode_prefill_split(query_lens: &[i32], is_prefilling: &[i32], rule: SplitRule) -> [i32; 4] {
    let count = i32::try_from(query_lens.len()).unwrap_or(i32::MAX);
    let tokens: i32 = query_lens.iter().sum();
    let all_decodes = [count, 0, tokens, 0];
    let longest = query_lens.iter().copied().max().unwrap_or(0);
    let uniform_is_free = !rule.require_uniform || rule.decode_threshold <= 1;
    if rule.short_extends_are_decodes && longest <= rule.decode_threshold && uniform_is_free {
        return all_decodes;
    }
    let Some(&lead) = query_lens.first() else { return all_decodes };
    if lead > rule.decode_threshold {
        return [0, count, 0, tokens];
    }
    let differs = |len: i32| len != lead && len != 0;
    if rule.require_uniform && rule.short_extends_are_decodes && !query_lens.iter().any(|l| differs(*l)) {
        return all_decodes;
    }
    let is_prefill = |i: usize| {
        let long =
            if rule.require_uniform { differs(query_lens[i]) } else { query_lens[i] > rule.decode_threshold };
        long || (!rule.short_extends_are_decodes && is_prefilling[i] != 0)
    };
    let Some(first) = (0..query_lens.len()).find(|i| is_prefill(*i)) else { return all_decodes };
    let decode_tokens: i32 = query_lens[..first].iter().sum();
    let decodes = i32::try_from(first).unwrap_or(i32::MAX);
    [decodes, count - decodes, decode_tokens, tokens - decode_tokens]
}

/// Chunk indices (sequence, chunk of the sequence) and chunk offsets [sequences + 1].
pub fn chunk_indices(seq_lens: &[i32], chunk_size: i32) -> (Vec<[i32; 2]>, Vec<i64>) {
    let mut indices = Vec::new();
    let mut offsets = vec![0];
    for (sequence, len) in (0..).zip(seq_lens) {
        indices.extend(
            (0..*len).step_by(usize::try_from(chunk_size).unwrap_or(1)).zip(0..).map(|(_, c)| [sequence, c]),
        );
        offsets.push(i64::try_from(indices.len()).unwrap_or(i64::MAX));
    }
    (indices, offsets)
}

/// The state indices of a group of KDA layers, [padded, 1 + `num_spec`]; `block_size` is `None` in cache mode
/// `none`, where a row holds only states.
pub fn kda_state_indices(
    table: &[i32],
    stride: usize,
    seq_lens: &[i32],
    padded: usize,
    num_spec: usize,
    block_size: Option<i32>,
) -> Vec<i32> {
    let mut indices = Vec::new();
    for batch in 0..padded {
        let first = match (seq_lens.get(batch), block_size) {
            (Some(len), Some(size)) => usize::try_from((len - 1) / size).unwrap_or(0),
            _ => 0,
        };
        for column in first..=first + num_spec {
            let known = batch < seq_lens.len() && column < stride;
            indices.push(if known { table[batch * stride + column] } else { 0 });
        }
    }
    indices
}
