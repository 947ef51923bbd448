//! How often does the verdict raise a false alarm, and how often does it find a true effect?
//!
//! `cargo run --release -p k3plan-executor --example compare_calibration [PAIRS [SEED]]` prints the table of
//! docs/compare.md.

use std::io::Write as _;

#[path = "../tests/compare/simulate.rs"]
mod simulate;

use executor::compare::verdict::Rules;
use simulate::{Noise, Setup, found, found_by};

const CASES: [(&str, Noise); 15] = [
    ("normal", Noise::Normal),
    ("Student's t, 2 degrees of freedom", Noise::Heavy(2.0)),
    ("Student's t, 3 degrees of freedom", Noise::Heavy(3.0)),
    ("interleaved, drift of 0.5 a run", Noise::Interleaved(0.5)),
    ("interleaved, drift of 3 a run", Noise::Interleaved(3.0)),
    ("drift shared by seed, 2 a seed", Noise::SharedBySeed(2.0)),
    ("seeds differ by 3", Noise::Seeds(3.0)),
    ("one arm's first run cold by 2", Noise::ColdOne(2.0)),
    ("one arm's first run cold by 8", Noise::ColdOne(8.0)),
    ("both arms' first runs cold by 4", Noise::ColdBoth(4.0)),
    ("back to back, drift of 0.1 a run", Noise::BackToBack(0.1)),
    ("back to back, drift of 0.25 a run", Noise::BackToBack(0.25)),
    ("back to back, drift of 0.5 a run", Noise::BackToBack(0.5)),
    ("back to back, drift of 1 a run", Noise::BackToBack(1.0)),
    ("back to back, drift of 4 a run", Noise::BackToBack(4.0)),
];

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let pairs =
        arguments.next().and_then(Result::ok).and_then(|pairs| u32::try_from(pairs).ok()).unwrap_or(20_000);
    let seed = arguments.next().and_then(Result::ok).unwrap_or(1);
    let mut out = std::io::stdout().lock();
    let columns = [(3, 0.0071), (3, 0.02), (4, 0.01), (5, 0.0071), (5, 0.02), (10, 0.01)];
    writeln!(
        out,
        "| noise | {} |",
        columns.map(|(runs, sd)| format!("{runs} runs, {:.2}%", sd * 100.0)).join(" | ")
    )?;
    writeln!(out, "|---|{}", "---:|".repeat(columns.len()))?;
    for (name, noise) in CASES {
        let cells = columns.map(|(runs, sd)| {
            format!("{:.1}%", found(&Setup { runs, sd, effect: 0.0, noise }, pairs, seed) * 100.0)
        });
        writeln!(out, "| {name} | {} |", cells.join(" | "))?;
    }
    let strict = Rules { rule_out_drift: true, ..Rules::STANDARD };
    let effect = 1.03_f64.ln();
    let cells = columns.map(|(runs, sd)| {
        format!("{:.1}%", found(&Setup { runs, sd, effect, noise: Noise::Normal }, pairs, seed) * 100.0)
    });
    writeln!(out, "| **a true 3%, normal** | {} |", cells.join(" | "))?;
    for drift in [0.25, 0.5, 1.0, 4.0] {
        let cells = columns.map(|(runs, sd)| {
            let setup = Setup { runs, sd, effect: 0.0, noise: Noise::BackToBack(drift) };
            format!("{:.1}%", found_by(&setup, pairs, seed, &strict) * 100.0)
        });
        writeln!(
            out,
            "| `--rule-out-drift`: back to back, drift of {drift} a run | {} |",
            cells.join(" | ")
        )?;
    }
    for (name, noise) in [("back to back", Noise::Normal), ("interleaved", Noise::Interleaved(0.0))] {
        let cells = columns.map(|(runs, sd)| {
            format!("{:.1}%", found_by(&Setup { runs, sd, effect, noise }, pairs, seed, &strict) * 100.0)
        });
        writeln!(out, "| **`--rule-out-drift`: a true 3%, {name}** | {} |", cells.join(" | "))?;
    }
    Ok(())
}
