//! Start-up logs that people posted: groups, tokens and concurrency to the last printed digit.
//!
//! A log is held where its inputs are complete: the model's sizes are public, and the log prints the memory
//! or the number of blocks, or they follow from its other integers. Memory is printed to two digits, so some
//! memory that rounds to it has to give every other printed number.
//!
//! Most are held from the model's own `config.json` under `tests/data/configs/` and the flags that the log
//! states: [`HELD`] writes them as arguments of `k3plan plan`. The configs are those of the wheel
//! `aiconfigurator-core`, or name the model's class in Transformers, whose defaults are the model's
//! (`gemma-3-*`, `starcoder2-3b`, `voxtral-mini-4b-realtime`, `kimi-linear-48b-a3b-instruct`; `glm-5.3-flash` with the
//! pool of 4 tokens that vLLM 0.31's own class has from the checkpoint), or hold the sizes that public code quotes from
//! the model's config (`qwen3.8-flash-next`, `deepseek-v4.1-flash`, the drafts). Where no config gives the layers, they
//! stand under `tests/data/logs/`; where such a file says "assumed", and where a comment beside a row says so, the value
//! is the only one that gives the printed integers. An input that the log leaves out and a page of its owner states is
//! named beside the row.
//! Logs of before 0.24, the oldest version that is planned for, are planned as 0.24; their tokens line is counted as
//! it then was. The states' mode and the drafts' tokens, where a log leaves them out, follow from its block sizes.

mod held;
mod not_held;

use crate::support;
use held::{CODER_32GB, HELD, VLLM_47272};
use not_held::NOT_HELD;

/// Which of the two meanings the tokens of a log have.
#[derive(Clone, Copy)]
enum Tokens {
    /// vLLM up to 0.20: blocks a group times the smallest block.
    ByBlocks(u64),
    /// Since 0.21: concurrency times the longest request.
    ByConcurrency(u64),
    NotPrinted,
}

struct Log {
    id: &'static str,
    /// Arguments of `k3plan plan`; a scenario is a file under `tests/data/logs/` and its arm.
    plan: &'static str,
    /// Printed memory, hundredths of a GiB; `None` where the arguments give the number of blocks.
    memory: Option<u64>,
    /// Parts of other lines, such as "Add 8 padding layers, may waste at most 15.38%".
    lines: &'static [&'static str],
    tokens: Tokens,
    concurrency: Option<&'static str>,
    num_blocks: Option<u64>,
}

const fn log(id: &'static str, plan: &'static str, memory: Option<u64>) -> Log {
    Log { id, plan, memory, lines: &[], tokens: Tokens::NotPrinted, concurrency: None, num_blocks: None }
}

fn path(file: &str) -> String {
    let (name, arm) = file.split_once('#').unwrap_or((file, ""));
    let hash = if arm.is_empty() { "" } else { "#" };
    format!("tests/data/logs/{name}.yaml{hash}{arm}")
}

fn plan(arguments: &str, memory_bytes: Option<u64>) -> serde_json::Value {
    let mut all = vec!["plan".to_owned(), "--json".to_owned()];
    let mut words = arguments.split_whitespace();
    match words.next().unwrap() {
        "--model" => {
            all.extend(["--model".to_owned(), format!("tests/data/configs/{}.json", words.next().unwrap())]);
        }
        file => all.push(path(file)),
    }
    all.extend(words.map(str::to_owned));
    if let Some(bytes) = memory_bytes {
        all.extend(["--set".to_owned(), format!("kv-cache-memory={bytes}")]);
    }
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    support::json(&all)["plans"][0].clone()
}

/// Every memory that prints as `hundredths` of a GiB and holds another number of blocks.
fn memories(hundredths: u64, bytes_per_block: u64) -> impl Iterator<Item = u64> {
    let gib = 1_u64 << 30;
    // The first byte that rounds to it, and the first that rounds to the next.
    let (from, to) = ((2 * hundredths - 1) * gib / 200 + 1, (2 * hundredths + 1) * gib / 200);
    let blocks = from / bytes_per_block + 1..=to / bytes_per_block;
    std::iter::once(from)
        .chain(blocks.map(move |blocks| blocks * bytes_per_block))
        .filter(move |bytes| *bytes < to)
}

impl Log {
    /// Whether a plan gives every number that the log prints.
    fn is_given_by(&self, plan: &serde_json::Value) -> bool {
        let pool = &plan["pool"];
        let logged = plan["log_lines"].as_array().unwrap();
        let lines = self.lines.iter().all(|text| logged.iter().any(|l| l.as_str().unwrap().contains(text)));
        let tokens = match self.tokens {
            Tokens::ByBlocks(tokens) => pool["kv_cache_size_tokens_by_blocks"] == tokens,
            Tokens::ByConcurrency(tokens) => pool["kv_cache_size_tokens"] == tokens,
            Tokens::NotPrinted => true,
        };
        let concurrency = self.concurrency.is_none_or(|text| {
            pool["max_concurrency"].as_f64().is_some_and(|value| format!("{value:.2}") == text)
        });
        let blocks = self.num_blocks.is_none_or(|blocks| pool["num_blocks"] == blocks);
        lines && tokens && concurrency && blocks
    }
}

#[test]
fn start_up_logs_come_out_to_the_last_digit() {
    for log in HELD {
        let Some(hundredths) = log.memory else {
            let plan = plan(log.plan, None);
            assert!(log.is_given_by(&plan), "{}: {:?} {:?}", log.id, plan["pool"], plan["log_lines"]);
            continue;
        };
        let printed = plan(log.plan, Some(hundredths * (1 << 30) / 100));
        let bytes_per_block = printed["bytes_per_block"].as_u64().unwrap();
        let given = log.is_given_by(&printed)
            || memories(hundredths, bytes_per_block)
                .any(|bytes| log.is_given_by(&plan(log.plan, Some(bytes))));
        assert!(given, "{}: {:?} {:?}", log.id, printed["pool"], printed["log_lines"]);
    }
}

#[test]
fn gemma_3_27b_at_109_86_gib() {
    let plan = support::json(&["plan", "--json", "gemma-3-27b", "--engine", "0.24"])["plans"][0].clone();
    assert_eq!(plan["padding_layers"], 8);
    assert_eq!(plan["pool"]["kv_cache_size_tokens_by_blocks"], 205_696);
    assert_eq!(format!("{:.2}", plan["pool"]["max_concurrency"].as_f64().unwrap()), "50.05");
}

#[test]
fn groups_and_block_sizes_that_logs_print() {
    let groups = plan("--model gemma-3-1b-it --max-model-len 32768 --engine 0.31", None)["groups"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(groups, 7);
    let block_sizes = |file: &str| -> Vec<u64> {
        let plan = plan(file, None);
        plan["groups"].as_array().unwrap().iter().map(|g| g["block_size"].as_u64().unwrap()).collect()
    };
    let mut mimo = block_sizes(
        "--model mimo-v2-flash --platform rocm --method mtp --num-speculative-tokens 3 --max-model-len 200000 --engine 0.31",
    );
    // The log prints the full layers' group first, where the model's first layer is.
    mimo.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(mimo, [32, 16, 16, 16, 16, 16]);
    let layers = |file: &str| -> Vec<usize> {
        let plan = plan(file, None);
        plan["groups"].as_array().unwrap().iter().map(|g| g["layers"].as_array().unwrap().len()).collect()
    };
    // vllm-56871: 9 groups, and with DSpark one more of 32 tokens.
    let v41 = "--model deepseek-v4.1-flash --tp 8 --max-model-len 1048576 --engine 0.30";
    assert_eq!(block_sizes(v41), [32, 32, 32, 32, 32, 32, 32, 64, 8]);
    let lines = plan(v41, Some(40 << 30))["log_lines"].as_array().unwrap().clone();
    assert_eq!(lines.last().unwrap(), "kv lcm block sizes 64");
    let drafts = block_sizes(&format!("{v41} --method dspark --num-speculative-tokens 5"));
    assert_eq!(drafts.iter().filter(|size| **size == 32).count(), 8);
    // lmcache-3261: five groups of 256, 64, 4 and 8 tokens.
    let mut v4 = block_sizes("--model deepseek-v4-flash --max-model-len 1048576 --engine 0.27");
    v4.sort_unstable();
    assert_eq!(v4, [4, 8, 64, 64, 256]);
    // lmcache-5042 and lmcache-5042-glm: layers, and tokens of an attention block, at TP4.
    let flash_next = "--model qwen3.8-flash-next --tp 4 --max-model-len 262144 --engine 0.30";
    assert_eq!(layers(flash_next).iter().sum::<usize>(), 73);
    assert_eq!(block_sizes(flash_next), [784, 784, 784, 784, 4, 784]);
    let glm = "--model glm-5.3-flash --tp 4 --max-model-len 262144 --engine 0.30";
    assert_eq!(block_sizes(glm), [1152, 1152, 1152, 1152, 1152, 4]);
    // ucm-1371, and lmcache-5042-glm's 67 layers: 11 latents with 11 indexes, and 11 tails.
    assert_eq!(layers(glm), [9, 9, 8, 8, 22, 11]);
    let mut kvcached = block_sizes("kvcached-396");
    kvcached.dedup();
    kvcached.sort_unstable();
    assert_eq!(kvcached, [16, 64]);
    assert_eq!(block_sizes(CODER_32GB), [2848; 4]);
}

/// Logs of an engine that refuses to start.
#[test]
fn refusals_that_logs_print() {
    // 9.28 GiB: 9.29 GiB are needed for 262,144 tokens, and 260,800 would fit.
    let refused = plan(VLLM_47272, Some(928 * (1 << 30) / 100));
    let needed = refused["error"]["needed_bytes"].as_u64().unwrap();
    assert_eq!((needed * 100 + (1 << 29)) >> 30, 929);
    assert_eq!(refused["error"]["estimated_max_model_len"], 260_800);
    // gptoss-27508: 1.71 GiB do not hold the model's own length.
    let refused = plan(
        "--model gpt-oss-120b --max-model-len 131072 --engine 0.24 --set max-num-batched-tokens=1024",
        Some(171 * (1 << 30) / 100),
    );
    assert_eq!(refused["error"]["stage"], "capacity");
}

/// Which logs there are is known: none is forgotten or counted twice.
#[test]
fn each_log_is_held_or_has_a_reason() {
    let elsewhere = [
        "vllm-28228",
        "vllm-54483",
        "mimo26-rl-rocm",
        "kvcached-396",
        "gptoss-27508",
        "vllm-56871",
        "lmcache-3261",
        "lmcache-5042",
        "lmcache-5042-glm",
        "ucm-1371",
    ];
    let mut ids: Vec<&str> = HELD.iter().map(|log| log.id).collect();
    ids.dedup();
    ids.extend(elsewhere);
    ids.extend(NOT_HELD.iter().map(|(id, _)| *id));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    assert_eq!(count, 74);
}
