//! Mutates seeds and feeds them to the importers: `fuzz_import SEEDS_FOLDER COUNT [SEED]`.
//!
//! Deterministic: the same seeds, count and seed give the same inputs. A panic ends the run with the input
//! written to `fuzz-crash`. The peak of the process's memory is printed at the end, where the system tells.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use planner::import::hf_config::{ImportSettings, Platform, Speculative, import};
use planner::import::{json, log};

#[path = "../fuzz/mutate.rs"]
mod mutate;

use mutate::{Random, mutate, peak_kib};

fn feed(input: &str, round: u64) {
    let _ = log::read(input.as_bytes());
    let Ok(config) = json::parse(input) else { return };
    let settings = ImportSettings {
        tensor_parallel_size: [1, 2, 8, 3][usize::try_from(round % 4).unwrap_or(0)],
        max_model_len: [1, 8192, u64::MAX][usize::try_from(round % 3).unwrap_or(0)],
        block_size: [None, Some(16), Some(u64::MAX / 2)][usize::try_from(round % 3).unwrap_or(0)],
        platform: Platform::ALL[usize::try_from(round % 5).unwrap_or(0)],
        speculative: round.is_multiple_of(3).then(|| Speculative {
            method: ["mtp", "eagle3", "dflash", "dspark", "draft_model"]
                [usize::try_from(round % 15 / 3).unwrap_or(0)]
            .to_owned(),
            num_speculative_tokens: round % 8,
        }),
        ..ImportSettings::default()
    };
    let draft = round.is_multiple_of(3).then_some(&config);
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
    match peak_kib() {
        Some(peak) => writeln!(out, "{count} inputs, no panic; at most {peak} KiB"),
        None => writeln!(out, "{count} inputs, no panic"),
    }
}
