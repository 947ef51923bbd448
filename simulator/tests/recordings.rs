//! Every step of the real vLLM's scheduler, from the recordings in `tests/golden/`.

#![expect(clippy::expect_used, clippy::panic, reason = "a test")]

use std::io::Read;
use std::path::Path;

use simulator::{Recording, Replay};

fn lines(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name);
    let file = std::fs::File::open(&path).expect("a recorded file");
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("text");
    text
}

fn hold(name: &str, cases: usize) {
    let text = lines(name);
    let mut seen = 0;
    for line in text.lines() {
        let recording = Recording::parse(line).expect("a recording");
        seen += 1;
        match recording.replay() {
            Ok(Replay { difference: None, .. }) => {}
            Ok(Replay { difference: Some(d), .. }) => {
                panic!(
                    "{}: step {} {}: vLLM {}, simulated {}",
                    recording.id, d.step, d.field, d.recorded, d.simulated
                )
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(seen, cases);
}

#[test]
fn every_step_of_two_hundred_runs() {
    hold("schedules.jsonl.gz", 200);
}

#[test]
fn every_step_with_prefix_caching_over_several_groups() {
    hold("schedules-wide.jsonl.gz", 250);
}

#[test]
fn every_step_of_many_groups_under_eviction_of_cross_attention_and_rings() {
    hold("schedules-groups.jsonl.gz", 100);
}

#[test]
fn a_changed_step_is_found() {
    let text = lines("schedules.jsonl.gz");
    let line = text.lines().next().expect("a line");
    let changed = line.replacen("\"free_blocks\":", "\"free_blocks\":1", 1);
    let replay = Recording::parse(&changed).expect("a recording").replay().expect("it runs");
    assert_eq!(replay.difference.map(|d| (d.step, d.field)), Some((0, "free_blocks")));
}

#[test]
fn a_cut_line_is_no_recording() {
    let text = lines("schedules.jsonl.gz");
    let line = text.lines().next().expect("a line");
    assert!(Recording::parse(&line[..line.len() / 2]).is_err());
}
