//! What a fuzzer needs: random numbers, and pieces of seeds put in the place of others.
//!
//! One file for `planner/examples/fuzz_import.rs` and the command's own readers (`src/scenario/fuzz.rs`).

/// A small generator of random numbers (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { usize::try_from(self.next() % n as u64).unwrap_or(0) }
    }
}

/// What is put in the place of a piece of a seed.
const PIECES: &[&str] = &[
    "null",
    "true",
    "-1",
    "0",
    "1",
    "3",
    "1e308",
    "18446744073709551615",
    "99999999999999999999",
    "\"32\"",
    "[]",
    "{}",
    "[[[[",
    "\"sliding_attention\"",
    "\"auto\"",
    "NaN",
    "Infinity",
    ",",
    ":",
    "\"",
    "\\u0000",
    "0.5",
    "4294967296",
    "- ",
    "&a ",
    "*a",
    "<<: ",
    "|\n ",
    "64 GiB",
    "{layers: 93, pattern: [3 kda, 1 mla]}",
    "\n",
    "  ",
];

/// `seed` with one to five changes, some of them pieces of `other`.
pub(crate) fn mutate(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(out.len() + 1);
        match random.below(6) {
            0 if !out.is_empty() => {
                let i = at.min(out.len() - 1);
                out[i] = u8::try_from(random.next() & 0x7f).unwrap_or(b'x');
            }
            1 => {
                let to = (at + random.below(16)).min(out.len());
                out.drain(at..to);
            }
            2 => {
                let piece = PIECES[random.below(PIECES.len())];
                out.splice(at..at, piece.bytes());
            }
            3 => {
                // The value after the next colon.
                if let Some(colon) = out.get(at..).and_then(|rest| rest.iter().position(|c| *c == b':')) {
                    let from = at + colon + 1;
                    let to =
                        out[from..].iter().position(|c| matches!(c, b',' | b'}')).map_or(from, |n| from + n);
                    let piece = PIECES[random.below(PIECES.len())];
                    out.splice(from..to, piece.bytes());
                }
            }
            4 => {
                let from = random.below(other.len());
                let to = (from + random.below(64)).min(other.len());
                out.splice(at..at, other[from..to].iter().copied());
            }
            _ => {
                let to = (at + random.below(64)).min(out.len());
                let again = out[at..to].to_vec();
                out.splice(at..at, again);
            }
        }
    }
    out
}

/// The most memory that this process had so far, KiB, where the system tells.
pub(crate) fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
