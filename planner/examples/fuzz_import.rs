//! Mutates seeds and feeds them to the importers: `fuzz_import SEEDS_FOLDER COUNT [SEED]`.
//!
//! Deterministic: the same seeds, count and seed give the same inputs. A panic ends the run with the input
//! written to `fuzz-crash`. The peak of the process's memory is printed at the end, where the system tells.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use planner::import::hf_config::{ImportSettings, Platform, Speculative, import};
use planner::import::{json, log};

/// A small generator of random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: usize) -> usize {
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
];

fn mutate(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
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

fn feed(input: &str, round: u64) {
    let _ = log::read(input.as_bytes());
    let Ok(config) = json::parse(input) else { return };
    let settings = ImportSettings {
        tensor_parallel_size: [1, 2, 8, 3][usize::try_from(round % 4).unwrap_or(0)],
        max_model_len: [1, 8192, u64::MAX][usize::try_from(round % 3).unwrap_or(0)],
        block_size: [None, Some(16), Some(u64::MAX / 2)][usize::try_from(round % 3).unwrap_or(0)],
        platform: Platform::ALL[usize::try_from(round % 4).unwrap_or(0)],
        speculative: round.is_multiple_of(5).then(|| Speculative {
            method: ["mtp", "eagle3", "dflash", "dspark", "draft_model"]
                [usize::try_from(round % 25 / 5).unwrap_or(0)]
            .to_owned(),
            num_speculative_tokens: round % 8,
        }),
        ..ImportSettings::default()
    };
    let draft = round.is_multiple_of(5).then_some(&config);
    let _ = import(&config, draft, &settings);
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| "planner/fuzz/seeds".to_owned());
    let count: u64 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let mut random = Random(arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1).max(1));
    let mut files: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    let seeds: Vec<Vec<u8>> =
        files.iter().map(|file| std::fs::read(file.path())).collect::<Result<_, _>>()?;
    let mut out = std::io::stdout().lock();
    for round in 0..count {
        let seed = &seeds[random.below(seeds.len())];
        let other = &seeds[random.below(seeds.len())];
        let bytes = mutate(seed, other, &mut random);
        let text = String::from_utf8_lossy(&bytes);
        if catch_unwind(AssertUnwindSafe(|| feed(&text, round))).is_err() {
            std::fs::write("fuzz-crash", text.as_bytes())?;
            writeln!(out, "input {round} panics; it is in fuzz-crash")?;
            return Err(std::io::Error::other("a panic"));
        }
    }
    let peak = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = peak.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: unknown").to_owned();
    writeln!(out, "{count} inputs, no panic; {peak}")
}
