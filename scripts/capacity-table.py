#!/usr/bin/env python3
"""Write docs/capacity.md: KV cache of one sequence by k3plan, the real vLLM and two calculators.

Usage: capacity-table.py K3PLAN MODELS.jsonl [PYTHON_WITH_AICONFIGURATOR] > docs/capacity.md
MODELS.jsonl holds recorded answers of the real vLLM (its layers are what that column sums). A calculator that
is not installed has a dash in its column. kv-cache-size is asked by its own command where it is on the PATH.
"""
import gzip
import json
import subprocess
import sys

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


def find(value, key):
    if isinstance(value, dict):
        if key in value:
            return value[key]
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            if (found := find(inner, key)) is not None:
                return found
    return None


def aiconfigurator(config, tp):
    """Its own rule for models without a special one: 2 x KV heads of a rank x head size x layers x tokens."""
    text = config.get("text_config", config)
    heads = text.get("num_key_value_heads") or text["num_attention_heads"]
    head = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    return -(-heads // tp) * head * 2 * 2 * text["num_hidden_layers"] * TOKENS


def main():
    binary, file = sys.argv[1:3]
    opener = gzip.open if file.endswith(".gz") else open
    cases = {}
    with opener(file, "rt") as lines:
        for line in lines:
            case = json.loads(line)
            cases[case["id"]] = case
    print(f"# KV cache of one sequence of {TOKENS:,} tokens\n")
    print("Bytes on one rank, bfloat16, written by scripts/capacity-table.py. *Layers* is the sum over the real")
    print("vLLM 0.32's layers without padding of pages; *pool* is what the engine takes from its pool, by k3plan.")
    print("*Uniform* is the rule that calculators use for every layer: 2 x KV heads x head size x layers x tokens.\n")
    print("| model | tp | vLLM's layers | k3plan's pool | uniform | uniform / layers |")
    print("|---|---|---|---|---|---|")
    for name in MODELS:
        case = cases[name]
        engine = case["engine"]
        import tempfile
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
            json.dump(case["config"], config)
            config.flush()
            plan = of_k3plan(binary, config.name, engine)
        layers = sum(layer_bytes(spec) for spec in case["expect"]["layers"])
        per_block, blocks = find(plan, "bytes_per_block"), find(plan, "blocks_per_max_len_request")
        pool = per_block * blocks if per_block and blocks else None
        uniform = aiconfigurator(case["config"], engine["tp"])
        print(f"| {name.replace('--', '/')} | {engine['tp']} | {layers:,} | {pool:,} | {uniform:,} | {uniform / layers:.2f} |")


main()
