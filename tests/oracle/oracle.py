"""Ask an installed vLLM which KV cache plan it makes for each case.

Usage: PYTHONPATH=TREES/VERSION PYTHON_WITH_VLLM oracle.py CASES.json [VERSION] > ANSWERS.json
A field that this vLLM's spec does not have yet is left out, and named under "dropped".

A case is {"id", "layers": [{"name", "kind", ...spec fields}], "engine": {...}}.
The answer adds "expect": {"groups": [...], ...} or {"error": "..."}.
Only planning code runs; no model, no GPU.
"""
import inspect
import json
import logging
import sys
import types
from dataclasses import fields
from fractions import Fraction

logging.disable(logging.CRITICAL)
import torch  # noqa: E402
from vllm.v1 import kv_cache_interface as ki  # noqa: E402

from vllm.v1.core import kv_cache_utils as ku
try:
    from vllm.v1.core import kv_cache_planning as kp
except ImportError:
    kp = ku

DROPPED = set()
KINDS = {
    "full": "FullAttentionSpec", "mla": "MLAAttentionSpec", "sliding": "SlidingWindowSpec",
    "sliding_mla": "SlidingWindowMLASpec", "chunked": "ChunkedLocalAttentionSpec",
    "mamba": "MambaSpec", "cross": "CrossAttentionSpec", "sink": "SinkFullAttentionSpec",
    "encoder_only": "EncoderOnlyAttentionSpec", "rswa": "RSWASpec", "hidden_state": "HiddenStateCacheSpec",
    "circular_buffer": "CircularBufferSpec",
}


def dtype(name):
    return getattr(torch, name)


def build(layer):
    d = dict(layer)
    d.pop("name")
    cls = getattr(ki, KINDS[d.pop("kind")])
    names = {f.name for f in fields(cls)}
    if "dtype" in d:
        d["dtype"] = dtype(d["dtype"])
    if "dtypes" in d:
        d["dtypes"] = tuple(dtype(x) for x in d["dtypes"])
        d["shapes"] = tuple(tuple(s) for s in d["shapes"])
    if isinstance(d.get("kv_quant_mode"), str):
        d["kv_quant_mode"] = ki.KVQuantMode[d["kv_quant_mode"]]
    if isinstance(d.get("cache_role"), str) and hasattr(ki, "SparseCacheRole"):
        d["cache_role"] = ki.SparseCacheRole[d["cache_role"]]
    if isinstance(d.get("tokens_per_state"), list):
        d["tokens_per_state"] = Fraction(*d["tokens_per_state"])
    if isinstance(d.get("block_stride_alignment"), dict):
        from vllm.v1.attention.backend import MultipleOf
        d["block_stride_alignment"] = MultipleOf(d["block_stride_alignment"]["multiple_of"])
    for field in set(d) - names:
        DROPPED.add(field)
        d.pop(field)
    return cls(**d)


def namespace(e):
    """The slice of VllmConfig that planning reads."""
    ns = types.SimpleNamespace
    layout = ki.KVCacheLayout[e.get("layout", "LBNHC")] if hasattr(ki, "KVCacheLayout") else None
    mml, auto = e.get("max_model_len", 131072), False
    if mml == -1:
        mml, auto = e["derived_max_model_len"], True
    mbt = e.get("max_num_batched_tokens", 8192)
    return ns(
        model_config=ns(max_model_len=mml, original_max_model_len=-1 if auto else mml, supports_kv_cache_grouping=False),
        parallel_config=ns(
            tensor_parallel_size=e.get("tp", 1), decode_context_parallel_size=e.get("dcp", 1),
            prefill_context_parallel_size=e.get("pcp", 1), pipeline_parallel_size=e.get("pp", 1)),
        cache_config=ns(
            num_gpu_blocks_override=e.get("num_gpu_blocks_override"),
            mamba_cache_mode=e.get("mamba_cache_mode", "none"),
            block_size=e.get("block_size", 16), enable_prefix_caching=False,
            prefix_cache_retention_interval=None, hybrid_kv_cache_packing="off",
            get_resolved_kv_cache_layout=lambda: layout),
        scheduler_config=ns(
            disable_hybrid_kv_cache_manager=e.get("disable_hybrid", False),
            max_num_batched_tokens=mbt, max_num_encoder_input_tokens=e.get("max_encoder_tokens", 1500),
            max_num_seqs=e.get("max_num_seqs", 256)),
        attention_config=ns(hisparse_config=None),
        speculative_config=None, kv_transfer_config=None, device_config=ns(device_type="cuda", device=None),
        max_in_flight_tokens=mbt, num_prefill_lookahead_tokens=0,
        num_speculative_tokens=0,
    )


def capacity(cfg, case, specs):
    """What the whole engine gets: one stage's layers and memory a pipeline worker."""
    e = case["engine"]
    pp, names = e.get("pp", 1), list(specs)
    cut = [len(names) * i // pp for i in range(pp + 1)]
    workers = [{n: specs[n] for n in names[a:b]} for a, b in zip(cut, cut[1:])]
    memory = e.get("available_memory_per_worker") or [e["available_memory"]] * pp
    args = [cfg, workers, memory]
    if len(inspect.signature(kp.get_kv_cache_configs).parameters) == 4:
        args.append(kp.get_global_kv_cache_groups(cfg, workers))
    configs = kp.get_kv_cache_configs(*args)
    out = {"num_blocks": configs[0].num_blocks}
    if pp > 1:
        out["worker_group_sizes"] = [[len(g.layer_names) for g in c.kv_cache_groups] for c in configs]
    if e.get("max_model_len") == -1:
        out["max_model_len"] = cfg.model_config.max_model_len
    if pp == 1:
        out["max_concurrency"] = ku.get_max_concurrency_for_kv_cache_config(cfg, configs[0])
    return out


def answer(case):
    cfg = namespace(case.get("engine", {}))
    try:
        specs = {l["name"]: build(l) for l in case["layers"]}
    except Exception as e:  # spec rejected at construction
        return {"error": type(e).__name__, "stage": "spec", "detail": str(e)[:200]}
    try:
        # Grouping may pad a spec in place, so that the engine's own call below gets specs of its own.
        groups = kp.get_kv_cache_groups(cfg, {l["name"]: build(l) for l in case["layers"]})
        [g.kv_cache_spec.page_size_bytes for g in groups]  # may assert that padding covers the page
    except Exception as e:
        return {"error": type(e).__name__, "stage": "grouping", "detail": str(e)[:200]}
    out = {"groups": []}
    for g in groups:
        s = g.kv_cache_spec
        out["groups"].append({
            "layers": list(g.layer_names),
            "type": type(s).__name__,
            "block_size": s.block_size,
            "page_size_bytes": s.page_size_bytes,
        })
    size = max((len(g.layer_names) for g in groups), default=0)
    out["group_size"] = size
    out["padding_layers"] = (
        sum(size - len(g.layer_names) for g in groups)
        if groups and not any(type(g.kv_cache_spec).__name__ == "UniformTypeKVCacheSpecs" for g in groups) else None)
    if hasattr(kp, "kv_cache_groups_tp_replicas"):
        par = cfg.parallel_config
        out["kv_tp_replicas"] = kp.kv_cache_groups_tp_replicas(
            groups, par.tensor_parallel_size, par.decode_context_parallel_size)
    mem = case.get("engine", {}).get("available_memory")
    if mem and groups:
        try:
            out.update(capacity(cfg, case, specs))
        except Exception as e:
            out["capacity_error"] = {"error": type(e).__name__, "detail": str(e)[:400]}
        takes = len(inspect.signature(kp._pool_bytes_per_block).parameters) if hasattr(kp, "_pool_bytes_per_block") else 0
        if takes:
            try:
                out["bytes_per_block"] = kp._pool_bytes_per_block(*[cfg, groups][-takes:])
            except AssertionError:
                pass
        try:
            out["blocks_per_max_len_request"] = sum(
                -(-g.kv_cache_spec.max_memory_usage_bytes(cfg) // g.kv_cache_spec.page_size_bytes) for g in groups)
        except AssertionError:  # the same that stopped the capacity check
            pass
    return out


def main():
    import vllm
    cases = json.load(open(sys.argv[1]))
    version = sys.argv[2] if len(sys.argv) > 2 else vllm.__version__
    answers = []
    for c in cases:
        DROPPED.clear()
        c["expect"] = answer(c)
        if DROPPED:
            c["expect"]["dropped"] = sorted(DROPPED)
        answers.append(c)
    print(json.dumps({"oracle": "vllm " + version, "cases": answers}))


if __name__ == "__main__":
    main()
