//! What a request's tokens are, without any token: segments of named streams, hashed a block at a time.

/// A part of a token sequence: position `p` below `end` (and past the segment before) is token `p` of
/// `stream`. Equal streams at equal positions are equal tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Exclusive end, in tokens.
    pub end: u32,
    /// Name of the stream.
    pub stream: u64,
}

/// A request's token sequence and the prefix hashes of its first blocks, made when asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tokens {
    segments: Vec<Segment>,
    output: u64,
    hashes: Vec<u64>,
    segment: usize,
}

/// Mixes one word into a hash (the finaliser of MurmurHash3 between two multiplications).
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let mut x = (hash ^ word).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x ^= x >> 32;
    x = x.wrapping_add(word).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ (x >> 29)
}

impl Tokens {
    /// Takes the place of another request: a prompt of `segments`, then outputs of stream `output`.
    pub(crate) fn reset(&mut self, segments: &[Segment], output: u64) {
        self.hashes.clear();
        self.segments.clear();
        self.segment = 0;
        self.output = output;
        let mut start = 0;
        for &segment in segments {
            if segment.end <= start {
                continue;
            }
            start = segment.end;
            match self.segments.last_mut() {
                // One stream, one segment: equal tokens must hash alike.
                Some(last) if last.stream == segment.stream => last.end = segment.end,
                _ => self.segments.push(segment),
            }
        }
        match self.segments.last_mut() {
            Some(last) if last.stream == output => last.end = u32::MAX,
            _ => self.segments.push(Segment { end: u32::MAX, stream: output }),
        }
    }

    /// The chained hash of the tokens up to the end of block `index` of `size` tokens.
    pub(crate) fn hash(&mut self, index: u32, size: u32) -> u64 {
        let index = index as usize;
        while self.hashes.len() <= index {
            let start = u32::try_from(self.hashes.len()).unwrap_or(u32::MAX) * size;
            let end = start + size;
            let mut hash = self.hashes.last().copied().unwrap_or(0x243F_6A88_85A3_08D3);
            let mut at = self.segment;
            loop {
                let segment = self.segments[at];
                let part = segment.end.min(end);
                hash =
                    mix(hash, segment.stream.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(part - start));
                if segment.end >= end {
                    if segment.end == end {
                        at += 1;
                    }
                    break;
                }
                at += 1;
            }
            self.segment = at;
            self.hashes.push(hash);
        }
        self.hashes[index]
    }
}
