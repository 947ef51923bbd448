//! Replays recordings of vLLM's scheduler and times them: `replay FILE.jsonl`.
use std::time::Instant;
fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).expect("a file")).expect("it reads");
    let recordings: Vec<_> =
        text.lines().map(|line| simulator::Recording::parse(line).expect("a recording")).collect();
    let mut bad = 0;
    for r in &recordings {
        match r.replay() {
            Ok(simulator::Replay { difference: None, .. }) => {}
            Ok(simulator::Replay { difference: Some(d), .. }) => {
                bad += 1;
                println!(
                    "{}: step {} {}\n   vllm {}\n   ours {}",
                    r.id, d.step, d.field, d.recorded, d.simulated
                );
            }
            Err(e) => {
                bad += 1;
                println!("{}: {e}", r.id);
            }
        }
    }
    println!("{bad} of {} differ", recordings.len());
    let groups: Vec<_> = recordings.iter().map(|r| r.groups().unwrap()).collect();
    let start = Instant::now();
    let mut steps = 0;
    for _ in 0..10 {
        for (r, g) in recordings.iter().zip(&groups) {
            steps += r.simulate(g).unwrap();
        }
    }
    let t = start.elapsed().as_secs_f64();
    println!("{steps} steps in {t:.3} s: {:.0} steps/s", steps as f64 / t);
}
