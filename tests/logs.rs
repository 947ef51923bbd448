//! Start-up logs that people posted: groups, tokens and concurrency to the last printed digit.
//!
//! A log is held where its inputs are complete: the model's sizes are public, and the log prints the memory
//! or the number of blocks, or they follow from its other integers. Memory is printed to two digits, so some
//! memory that rounds to it has to give every other printed number.
//!
//! Most are held from the model's own `config.json` under `tests/data/configs/` and the flags that the log
//! states: [`HELD`] writes them as arguments of `k3plan plan`. The configs are those of the wheel
//! `aiconfigurator-core`, or name the model's class in Transformers, whose defaults are the model's
//! (`gemma-3-*`, `starcoder2-3b`, `voxtral-mini-4b-realtime`, `kimi-linear-48b-a3b-instruct`). Where no config is
//! public, the layers stand under `tests/data/logs/` by the id of `validation/cases.json`; where such a file says
//! "assumed", and where a comment beside a row says so, the value is the only one that gives the printed integers.
//! Logs of before 0.24, the oldest version that is planned for, are planned as 0.24; their tokens line is counted as
//! it then was. The states' mode and the drafts' tokens, where a log leaves them out, follow from its block sizes.

use crate::support;

/// Which of the two meanings the tokens of a log have.
#[derive(Clone, Copy)]
enum Tokens {
    /// vLLM up to 0.20: blocks a group times the smallest block.
    ByBlocks(u64),
    /// Since 0.21: concurrency times the longest request.
    ByConcurrency(u64),
    NotPrinted,
}
use Tokens::{ByBlocks, ByConcurrency, NotPrinted};

struct Log {
    id: &'static str,
    /// Arguments of `k3plan plan`; a scenario is a file under `tests/data/logs/` and its arm.
    plan: &'static str,
    /// Printed memory, hundredths of a GiB; `None` where the arguments give the number of blocks.
    memory: Option<u64>,
    /// "Add 8 padding layers, may waste at most 15.38%".
    padding: Option<&'static str>,
    tokens: Tokens,
    concurrency: Option<&'static str>,
    num_blocks: Option<u64>,
}

const fn log(id: &'static str, plan: &'static str, memory: Option<u64>) -> Log {
    Log { id, plan, memory, padding: None, tokens: NotPrinted, concurrency: None, num_blocks: None }
}

/// Qwen3.5 27B with MTP k = 3, FP8 KV and states at block boundaries: 1600 tokens a block.
const VLLM_47272: &str = "--model qwen3.5-27b --method mtp --num-speculative-tokens 3 --kv-cache-dtype fp8 \
                          --max-model-len 262144 --engine 0.24 --set max-num-batched-tokens=2048";

/// The same with NVFP4 KV: 2848 tokens a block.
const CODER_32GB: &str = "--model qwen3.5-27b --method mtp --num-speculative-tokens 3 --kv-cache-dtype nvfp4 \
                          --platform cuda-sm120 --max-model-len 131072 --engine 0.24";

#[rustfmt::skip]
const HELD: &[Log] = &[
    Log { padding: Some("8 padding layers, may waste at most 15.38%"), tokens: ByBlocks(205_696),
          concurrency: Some("50.05"), num_blocks: Some(89_994), ..log("gemma3-27b-rocm", "--model gemma-3-27b-it --platform rocm --engine 0.24 --max-model-len 4096 --set max-num-batched-tokens=8192", Some(10986)) },
    // Its kernels took blocks of 64 tokens, and the states beside latents a multiple of that.
    Log { tokens: ByBlocks(715_072), ..log("recipes-115", "--model kimi-k2-instruct --tp 8 --max-model-len 262144 --block-size 64 --engine 0.24", Some(4680)) },
    // The second row of this log does not fit its own longest request, which V0 only warned of.
    Log { concurrency: Some("1.56"), num_blocks: Some(1952), ..log("vllm-10517", "--model llama-3.1-8b --max-model-len 20000 --engine 0.24", Some(381)) },
    Log { concurrency: Some("10.79"), ..log("llama70b-12569", "--model llama-3.1-70b --max-model-len 2048 --engine 0.24 --set num-gpu-blocks-override=1381", None) },
    Log { tokens: ByBlocks(2_198_512), concurrency: Some("178.68"), ..log("vllm-19029", "--model starcoder2-3b --max-model-len 16384 --engine 0.24 --set max-num-batched-tokens=8192 --set num-gpu-blocks-override=137407", None) },
    Log { padding: Some("1 padding layers, may waste at most 4.35%"), tokens: ByConcurrency(5_769_184),
          concurrency: Some("22.01"), ..log("nemotron-gb10", "--model nemotron-3-nano-30b-a3b --platform cuda-sm120 --mamba-cache-mode none --max-model-len 262144 --engine 0.24", Some(3432)) },
    Log { padding: Some("3 padding layers, may waste at most 10.00%"), tokens: ByConcurrency(5_747_892),
          concurrency: Some("21.93"), ..log("qwen-mtp-56757617998", "--model qwen3.6-35b-a3b-nvfp4 --method mtp --num-speculative-tokens 2 --kv-cache-dtype fp8 --max-model-len 262144 --engine 0.24 --set max-num-batched-tokens=65536", Some(6658)) },
    Log { padding: Some("6 padding layers, may waste at most 15.38%"), tokens: ByConcurrency(6_969_972),
          ..log("h100-mimo26", "--model mimo-v2-flash --tp 8 --max-model-len 262144 --engine 0.31 --set max-num-batched-tokens=8192 --set async-scheduling=true", Some(4918)) },
    // vllm-28228 is the report that this log belongs to.
    Log { padding: Some("1 padding layers, may waste at most 5.00%"), tokens: ByBlocks(75_840),
          concurrency: Some("2.48"), ..log("kimi-linear-log", "--model kimi-linear-48b-a3b-instruct --tp 2 --block-size 64 --mamba-cache-mode none --max-model-len 120000 --engine 0.24 --set max-num-batched-tokens=64000", Some(230)) },
    Log { tokens: ByBlocks(290_864), concurrency: Some("33.04"), ..log("vllm-40691", "--model qwen3.5-27b --mamba-cache-mode none --max-model-len 32768 --engine 0.24 --set max-num-batched-tokens=16384 --set num-gpu-blocks-override=1487", None) },
    Log { tokens: ByConcurrency(255_975), concurrency: Some("1.95"),
          ..log("qwen36-27b-3090-mtp1", "--model qwen3.5-27b --method mtp --num-speculative-tokens 1 --mamba-cache-mode none --max-model-len 131072 --engine 0.24", Some(1725)) },
    Log { tokens: ByConcurrency(262_144), concurrency: Some("1.00"), ..log("vllm-47272", VLLM_47272, Some(930)) },
    Log { tokens: ByConcurrency(263_608), concurrency: Some("1.01"), ..log("vllm-47272", VLLM_47272, Some(938)) },
    Log { tokens: ByConcurrency(265_072), concurrency: Some("1.01"), ..log("vllm-47272", VLLM_47272, Some(939)) },
    Log { tokens: ByConcurrency(265_072), concurrency: Some("1.01"), ..log("vllm-47272", VLLM_47272, Some(941)) },
    Log { padding: Some("3 padding layers, may waste at most 6.25%"), tokens: ByConcurrency(202_950),
          concurrency: Some("1.55"), ..log("coder-32gb-2848", CODER_32GB, Some(500)) },
    Log { tokens: ByConcurrency(605_495), concurrency: Some("2.31"),
          ..log("club3090-int8-qwen", "--model qwen3.5-27b --tp 2 --method mtp --num-speculative-tokens 4 --kv-cache-dtype int8_per_token_head --max-model-len 262144 --engine 0.24", Some(1110)) },
    Log { tokens: ByConcurrency(620_944), concurrency: Some("2.37"), ..log("club3090-295", "--model qwen3.5-27b --tp 2 --method mtp --num-speculative-tokens 3 --kv-cache-dtype fp8 --max-model-len 262144 --engine 0.24 --set num-gpu-blocks-override=424", None) },
    Log { tokens: ByBlocks(410_128), concurrency: Some("3.13"), ..log("eagle-h100-8b", "eagle-h100-8b", Some(5163)) },
    Log { tokens: ByBlocks(643_232), concurrency: Some("15.70"),
          ..log("qwen3-parallelism-doc", "one-group#qwen3-parallelism-doc", None) },
    Log { tokens: ByBlocks(138_064), concurrency: Some("1.05"), ..log("dense-rtx5090", "one-group#dense-rtx5090", None) },
    Log { tokens: ByBlocks(463_136), concurrency: Some("3.53"), ..log("a-llm-463136", "one-group#a-llm-463136", None) },
    Log { tokens: ByBlocks(244_576), concurrency: Some("1.87"), ..log("minimax-m2.7", "--model minimax-m2.7 --tp 4 --max-model-len 131072 --engine 0.24 --set num-gpu-blocks-override=15286", None) },
    Log { padding: Some("6 padding layers, may waste at most 23.08%"), tokens: ByBlocks(4_896), concurrency: Some("2.54"),
          ..log("voxtral-rt", "--model voxtral-mini-4b-realtime --max-model-len 8192 --engine 0.24 --set max-num-batched-tokens=2048", Some(958)) },
    Log { tokens: ByConcurrency(132_096), concurrency: Some("1.01"),
          ..log("glm52-spark-dcp4", "--model glm-5.2-nvfp4 --tp 4 --method mtp --num-speculative-tokens 1 --kv-cache-dtype fp8 --platform cuda-sm120 --max-model-len 131072 --engine 0.31 --set decode-context-parallel-size=4 --set max-num-batched-tokens=1024 --set kv-cache-memory=1810000000", None) },
    // As h100-mimo26, with async scheduling, vLLM's default.
    Log { tokens: ByConcurrency(1_728_531),
          ..log("h100-dsv4-0731", "--model deepseek-v4-flash --tp 8 --max-model-len 262144 --engine 0.31 --set max-num-batched-tokens=8192 --set async-scheduling=true", Some(4743)) },
    // Batches of 8192 with async scheduling, or of 16384 without: the only ones that give the printed integers.
    Log { tokens: ByConcurrency(2_740_813), concurrency: Some("2.61"),
          ..log("dsv4flash-spark-0731", "--model deepseek-v4-flash --tp 2 --method dspark --num-speculative-tokens 5 --max-model-len 1048576 --engine 0.27 --set max-num-batched-tokens=8192 --set async-scheduling=true", Some(2630)) },
];

/// Why each other log cannot be held.
#[rustfmt::skip]
const NOT_HELD: &[(&str, &str)] = &[
    ("club3090-int8-gemma4", "batch and block not stated; that nightly doubled the full layers' block, which no version from 0.24 does with scales in the page"),
    ("tpu-1285", "another engine for TPU, and the model is not named"),
    ("lil-238", "a fork with its own planner; no memory printed"),
    ("vllm-54458", "GLM-5.3-Flash has cache kinds of its own in vLLM; sizes and memory not printed"),
    ("kaito-2319", "prints a limit of max-num-seqs, no memory or blocks"),
    ("kaito-2052", "states a rule (fixed blocks and blocks by length), no figures"),
    ("vllm-56871", "DeepSeek-V4.1 has cache kinds that no public config describes"),
    ("lmcache-5042", "Qwen3.8-Flash-Next's cache kinds are not public; the line is LMCache's"),
    ("lmcache-3261", "DeepSeek-V4 in a connector's log: block sizes alone"),
    ("club3090-multi4-dflash", "old formula at TP4 without memory: blocks, state blocks and dtype are all open"),
    ("club3090-multi4-mtp", "k, memory and blocks are not printed; tokens and concurrency are of different formulas"),
    ("club3090-1064", "neither the longest request nor k is printed"),
    ("qwen38-2x3090", "no memory, KV dtype or k: several blocks give the tokens"),
    ("qwen38-kv-sharing", "a patch that shares caches between layers; the longest request is not printed"),
    ("kimi-k2-think-dcp8", "no memory, and 8 times recipes-115 is another number of blocks"),
    ("inferencex-dsv4-kvcap", "DeepSeek-V4; memory not printed"),
    ("nemotron-nano-2gpu", "222 blocks in 4.02 GiB is a page that no public size of the model gives; a vendor's build"),
    ("glm53-spark-blocks", "a fork; a rule without the pool"),
    ("dsv41-b200-vibesim", "a fork, with a kind of compressor ring of its own"),
    ("h100-dsv41", "DeepSeek-V4.1 specs of that build are not public"),
    ("h100-qwen38fn", "Qwen3.8-Flash-Next's cache kinds are not public"),
    ("h100-glm53", "GLM-5.3-Flash: block size and padding come out, the count of tokens does not"),
    ("qwen38fn-gb10", "Qwen3.8-Flash-Next's cache kinds are not public"),
    ("qwen35-nvfp4kv-5090", "no memory and no k: several blocks give the tokens"),
    ("dsv4-51041", "a range of tokens in a title, no log line"),
    ("dsv4-51041-fit", "a fork; ratios over thread values"),
    ("gemma4-31b-eagle3-tp2", "concurrency alone, no memory or tokens"),
    ("qwen38-27b-2x-fp8", "no memory: state dtype and k are open"),
    ("dsv4flash-live", "DeepSeek-V4; nothing but tokens and concurrency"),
    ("dsv4flash-3spark", "DeepSeek-V4 at TP3, whose sizes are not public"),
    ("kimi-k3-dcp8", "a fork; no memory printed"),
    ("nemotron35-dspark", "the draft's sizes are not public"),
    ("glm52-dcp", "no memory; the cache is replicated by a connector"),
    ("gb10-pool", "the model is not named"),
    ("musa-138", "another engine for MUSA"),
    ("glm53-groups-94", "a fork with a kind of its own (KpoolTail)"),
    ("glm53-groups-28", "a fork with a kind of its own (KpoolTail)"),
    ("lil-488", "a fork of vLLM"),
    ("glm53-dflash-pool", "memory is not printed"),
    ("lmcache-5042-glm", "the line is LMCache's"),
    ("ucm-1371", "group lists of GLM-5.3-Flash with kinds of its own"),
    ("ascend-15960", "another engine for Ascend"),
    ("vllm-52047", "a fault of a connector, no figures"),
    ("lmcache-4278", "the line is LMCache's: bytes a token over all layers, not a plan"),
    ("vllm-54426", "Qwen3.8-Flash-Next's cache kinds are not public"),
];

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
        let padding = self.padding.is_none_or(|text| {
            let lines = plan["log_lines"].as_array().unwrap();
            lines.iter().any(|line| line.as_str().unwrap().contains(text))
        });
        let tokens = match self.tokens {
            ByBlocks(tokens) => pool["kv_cache_size_tokens_by_blocks"] == tokens,
            ByConcurrency(tokens) => pool["kv_cache_size_tokens"] == tokens,
            NotPrinted => true,
        };
        let concurrency = self.concurrency.is_none_or(|text| {
            pool["max_concurrency"].as_f64().is_some_and(|value| format!("{value:.2}") == text)
        });
        let blocks = self.num_blocks.is_none_or(|blocks| pool["num_blocks"] == blocks);
        padding && tokens && concurrency && blocks
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
    let elsewhere = ["vllm-28228", "vllm-54483", "mimo26-rl-rocm", "kvcached-396", "gptoss-27508"];
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
