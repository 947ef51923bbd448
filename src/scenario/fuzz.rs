//! Do the readers of scenarios and of recorded lines stand whatever a file holds?
//!
//! A short run is part of the tests. `K3PLAN_FUZZ=1000000 cargo test --release --bin k3plan fuzz -- --nocapture` is a
//! longer one; `K3PLAN_FUZZ_SEED` starts it elsewhere. An input that panics is left in `fuzz-crash`.

use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::{Scenario, load, recorded, zoo};

#[path = "../../planner/fuzz/mutate.rs"]
mod mutate;

use mutate::{Random, mutate, peak_kib};

/// Models of more layers are read, and not planned.
const PLANNED: usize = 64;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Some recorded lines of each kind.
fn recorded_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (name, take) in [("k3", 4), ("live", 14), ("models", 12), ("plans", 12)] {
        let path = format!("{}/tests/golden/{name}.jsonl.gz", env!("CARGO_MANIFEST_DIR"));
        let mut text = String::new();
        if let Ok(file) = std::fs::File::open(path) {
            let _ = flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text);
        }
        // A long line is slow to change and says no more.
        let short = text.lines().filter(|line| line.len() < 24_000).take(take);
        seeds.extend(short.map(|line| line.as_bytes().to_vec()));
    }
    seeds
}

fn plan(scenario: &Scenario) {
    if scenario.model.layers.len() <= PLANNED {
        let _ = planner::plan(&scenario.model, &scenario.settings, &scenario.engine().rules());
    }
}

fn feed(text: &str) {
    if let Ok(written) = recorded::line(Path::new("fuzz.jsonl"), 1, text)
        && let Ok(scenario) = written.resolve()
    {
        plan(&scenario);
    }
    // A scenario may extend another file, and standard input is one.
    if !text.contains("extends") {
        load::of_text("fuzz", text.to_owned()).unwrap_or_default().iter().for_each(plan);
    }
}

/// Found by fuzzing: as many stages as a number holds.
#[test]
fn more_stages_than_layers() {
    let seeds = recorded_seeds();
    let texts = seeds.iter().map(|seed| String::from_utf8_lossy(seed));
    let changed = texts.filter(|text| text.contains("\"pp\":1,"));
    let changed: Vec<_> =
        changed.map(|text| text.replace("\"pp\":1,", "\"pp\":18446744073709551615,")).collect();
    assert!(!changed.is_empty());
    for text in changed {
        feed(&text);
    }
}

#[test]
fn readers_stand_whatever_a_file_holds() {
    let count = number("K3PLAN_FUZZ", 300);
    let mut random = Random(number("K3PLAN_FUZZ_SEED", 1).max(1));
    let mut seeds = recorded_seeds();
    seeds.extend(zoo::names().filter_map(zoo::source).map(|source| source.text.as_bytes().to_vec()));
    assert!(seeds.len() > 20);
    for round in 0..count {
        let (seed, other) = (random.below(seeds.len()), random.below(seeds.len()));
        let bytes = mutate(&seeds[seed], &seeds[other], &mut random);
        let text = String::from_utf8_lossy(&bytes);
        if catch_unwind(AssertUnwindSafe(|| feed(&text))).is_err() {
            let _ = std::fs::write("fuzz-crash", text.as_bytes());
            panic!("input {round} panics; it is in fuzz-crash");
        }
    }
    let peak = peak_kib().unwrap_or(0);
    assert!(peak < 500 << 10, "{peak} KiB");
}
