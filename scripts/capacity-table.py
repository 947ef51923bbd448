#!/usr/bin/env python3
"""Write docs/capacity.md: KV cache of one sequence by k3plan, the real vLLM and calculators.

Usage: capacity-table.py K3PLAN MODELS.jsonl [PYTHON_WITH_AICONFIGURATOR] > docs/capacity.md
MODELS.jsonl holds recorded answers of the real vLLM (its layers are what that column sums). Without the third
argument aiconfigurator's columns are empty.
"""
import gzip
import json
import os
import subprocess
import sys
import tempfile

TOKENS = 131072
MODELS = [
    "meta-llama--Meta-Llama-3.1-8B", "meta-llama--Meta-Llama-3.1-70B", "Qwen--Qwen3-32B", "deepseek-ai--DeepSeek-V3",
    "deepseek-ai--DeepSeek-V3.2", "XiaomiMiMo--MiMo-V2-Flash", "openai--gpt-oss-120b", "Qwen--Qwen3.5-27B",
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "meta-llama--Llama-4-Scout-17B-16E-Instruct"]


def layer_bytes(spec):
    """What one sequence of TOKENS tokens needs of a layer, without padding and whole blocks only."""
    block, page = spec["block_size"], spec["page_size_bytes"]
    if spec["kind"] == "mamba":
        size = {"bfloat16": 2, "float16": 2, "float32": 4}
        total = 0
        for shape, dtype in zip(spec["shapes"], spec["dtypes"]):
            n = size[dtype]
            for d in shape:
                n *= d
            total += n
        return total
    tokens = TOKENS
    if spec["kind"] == "sliding":
        tokens = min(TOKENS, spec["sliding_window"] - 1)
    if spec["kind"] == "chunked":
        tokens = min(TOKENS, spec["attention_chunk_size"])
    return -(-tokens // block) * page


def of_k3plan(binary, config, engine):
    command = [binary, "plan", "--model", config, "--json", "--platform", "cpu", "--mamba-cache-mode", "none",
               "--tp", str(engine["tp"]), "--max-model-len", str(TOKENS), "--kv-cache-memory", "40GiB",
               "--engine", "0.32"]
    if engine.get("block_size"):
        command += ["--block-size", str(engine["block_size"])]
    plan = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["plans"][0]
    return plan


def aiconfigurator(python, engines):
    """Its answers by name, bytes; nothing where it is not installed."""
    if python is None:
        return {}
    script = os.path.join(os.path.dirname(__file__), "capacity-aiconfigurator.py")
    names = [f"{name.replace('--', '/')}={engine['tp']}" for name, engine in engines.items()]
    out = subprocess.run([python, script, str(TOKENS), *names], check=True, capture_output=True, text=True).stdout
    return json.loads(out)


PROJECT = """[package]
name = "ask"
version = "0.0.0"
edition = "2021"
[dependencies]
kv-cache-size = "=0.1.1"
[workspace]
"""
ASK = """use kv_cache_size::{KvCacheConfig, KvPrecision};
fn main() {
    let n: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    for c in n[1..].chunks(3) {
        let config = KvCacheConfig { num_hidden_layers: c[0] as u32, num_key_value_heads: c[1] as u32, head_dim: c[2] as u32 };
        println!("{}", config.total_bytes_u64(KvPrecision::Bf16, n[0], 1).unwrap());
    }
}
"""


def kv_cache_size(configs):
    """Answers of the crate kv-cache-size: layers, KV heads of a rank and head size of each config."""
    numbers = [TOKENS]
    for config, tp in configs:
        text = config.get("text_config", config)
        heads = text.get("num_key_value_heads") or text["num_attention_heads"]
        head = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
        numbers += [text["num_hidden_layers"], -(-heads // tp), head]
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "src"))
        with open(os.path.join(folder, "Cargo.toml"), "w") as file:
            file.write(PROJECT)
        with open(os.path.join(folder, "src", "main.rs"), "w") as file:
            file.write(ASK)
        out = subprocess.run(["cargo", "run", "-q", "--manifest-path", os.path.join(folder, "Cargo.toml"), "--",
                              *map(str, numbers)], check=True, capture_output=True, text=True).stdout
    return [int(float(line)) for line in out.split()]


def main():
    binary, file = sys.argv[1:3]
    opener = gzip.open if file.endswith(".gz") else open
    cases = {}
    with opener(file, "rt") as lines:
        for line in lines:
            case = json.loads(line)
            cases[case["id"]] = case
    print(f"# KV cache of one sequence of {TOKENS:,} tokens\n")
    print("Bytes on one rank with a bfloat16 cache, written by `scripts/capacity-table.py`. *vLLM's layers* is the")
    print("sum over the layers of a real vLLM 0.32, without the padding of pages; *k3plan's pool* is what the engine")
    print("takes from its pool for such a sequence, whole blocks of all groups; *aiconfigurator* is")
    print("`get_kvcache_bytes_per_sequence` of aiconfigurator-core 0.12; *kv-cache-size* is")
    print("the crate of that name, 0.1.1: the same keys and values in every layer.\n")
    print("| model | tp | groups | vLLM's layers | k3plan's pool | aiconfigurator | of vLLM | kv-cache-size | of vLLM |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    python = sys.argv[3] if len(sys.argv) > 3 else None
    theirs = aiconfigurator(python, {name: cases[name]["engine"] for name in MODELS})
    thumbs = dict(zip(MODELS, kv_cache_size([(cases[n]["config"], cases[n]["engine"]["tp"]) for n in MODELS])))
    for name in MODELS:
        case = cases[name]
        engine = case["engine"]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
            json.dump(case["config"], config)
            config.flush()
            plan = of_k3plan(binary, config.name, engine)
        layers = sum(layer_bytes(spec) for spec in case["expect"]["layers"])
        per_block, blocks = plan["bytes_per_block"], plan["pool"]["blocks_per_max_len_request"]
        groups = len(plan["groups"])
        other = theirs.get(name.replace("--", "/"))
        thumb = thumbs[name]
        print(f"| {name.replace('--', '/')} | {engine['tp']} | {groups} | {layers:,} | {per_block * blocks:,} "
              f"| {f'{other:,}' if other else '-'} | {f'{other / layers:.2f}' if other else '-'} "
              f"| {thumb:,} | {thumb / layers:.2f} |")


main()
