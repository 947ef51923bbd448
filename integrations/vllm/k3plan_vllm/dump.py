"""One plan as one line: the form of k3plan's recorded answers."""

import enum
import json
import os
from dataclasses import MISSING, fields

KIND = {
    "FullAttentionSpec": "full", "MLAAttentionSpec": "mla", "SlidingWindowSpec": "sliding",
    "SlidingWindowMLASpec": "sliding_mla", "ChunkedLocalAttentionSpec": "chunked", "MambaSpec": "mamba",
    "CrossAttentionSpec": "cross", "SinkFullAttentionSpec": "sink", "EncoderOnlyAttentionSpec": "encoder_only",
    "RSWASpec": "rswa", "HiddenStateCacheSpec": "hidden_state", "CircularBufferSpec": "circular_buffer",
}


def plain(value):
    """A value as JSON has it; dtypes and enums by name."""
    import torch

    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return [plain(x) for x in value]
    return value


def describe(name, spec):
    """Every field that is not at its class's default."""
    out = {"name": name, "kind": KIND.get(type(spec).__name__, type(spec).__name__)}
    for field in fields(spec):
        value = getattr(spec, field.name)
        if value is None or (field.default is not MISSING and value == field.default):
            continue
        out[field.name] = plain(value)
    if out.get("head_size_v") == out.get("head_size"):
        out.pop("head_size_v", None)
    out["page_size_bytes"] = spec.page_size_bytes
    return out


def read_config(model_config):
    """The config.json as its author wrote it, else as vLLM holds it."""
    path = os.path.join(str(model_config.model), "config.json")
    if os.path.isfile(path):
        with open(path) as file:
            return json.load(file)
    try:
        from vllm.transformers_utils.repo_utils import get_hf_file_to_dict

        raw = get_hf_file_to_dict("config.json", model_config.model, model_config.revision)
        if raw:
            return raw
    except Exception:
        pass
    return json.loads(json.dumps(model_config.hf_config.to_dict(), default=str))


def platform():
    from vllm.platforms import current_platform

    if current_platform.is_rocm():
        return "rocm"
    if current_platform.is_cuda():
        return "cuda-blackwell" if current_platform.is_device_capability_family(100) else "cuda-hopper"
    return "cpu"


def engine(cfg, memory, max_model_len):
    cache, scheduler, parallel = cfg.cache_config, cfg.scheduler_config, cfg.parallel_config
    out = {
        "tp": parallel.tensor_parallel_size,
        "dcp": parallel.decode_context_parallel_size,
        "pcp": getattr(parallel, "prefill_context_parallel_size", 1),
        "pp": parallel.pipeline_parallel_size,
        "max_model_len": max_model_len,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_encoder_tokens": getattr(scheduler, "max_num_encoder_input_tokens", None),
        "disable_hybrid": bool(scheduler.disable_hybrid_kv_cache_manager),
        "mamba_cache_mode": getattr(cache, "mamba_cache_mode", None),
        "kv_cache_dtype": str(cache.cache_dtype),
        "dtype": plain(cfg.model_config.dtype),
        "num_gpu_blocks_override": cache.num_gpu_blocks_override,
        "layout": getattr(cache, "kv_cache_layout", None),
        "platform": platform(),
    }
    if cfg.model_config.original_max_model_len == -1:
        out["max_model_len"], out["derived_max_model_len"] = -1, max_model_len
    if getattr(cache, "user_specified_block_size", False):
        out["block_size"] = cache.block_size
    if (in_flight := getattr(cfg, "max_in_flight_tokens", None)) and scheduler.max_num_batched_tokens:
        out["max_concurrent_batches"] = max(1, in_flight // scheduler.max_num_batched_tokens)
    out["num_prefill_lookahead_tokens"] = getattr(cfg, "num_prefill_lookahead_tokens", None)
    if len(set(memory)) == 1 and parallel.pipeline_parallel_size == 1:
        out["available_memory"] = int(memory[0])
    else:
        out["available_memory_per_worker"] = [int(m) for m in memory]
    if cfg.speculative_config is not None:
        out["speculative"] = {
            "method": cfg.speculative_config.method,
            "num_speculative_tokens": cfg.speculative_config.num_speculative_tokens,
        }
    return {key: value for key, value in out.items() if value is not None}


def plan(cfg, configs):
    import vllm.v1.core.kv_cache_utils as utils

    try:
        import vllm.v1.core.kv_cache_planning as planning
    except ImportError:
        planning = utils
    config = configs[0]
    groups = config.kv_cache_groups
    named = [{
        "layers": list(group.layer_names),
        "type": type(group.kv_cache_spec).__name__,
        "block_size": group.kv_cache_spec.block_size,
        "page_size_bytes": group.kv_cache_spec.page_size_bytes,
    } for group in groups]
    size = max((len(group.layer_names) for group in groups), default=0)
    mixed = any(type(group.kv_cache_spec).__name__ == "UniformTypeKVCacheSpecs" for group in groups)
    out = {
        "groups": named,
        "group_size": size,
        "padding_layers": None if mixed or not groups else sum(size - len(group.layer_names) for group in groups),
    }
    if hasattr(planning, "kv_cache_groups_tp_replicas"):
        parallel = cfg.parallel_config
        out["kv_tp_replicas"] = planning.kv_cache_groups_tp_replicas(
            groups, parallel.tensor_parallel_size, parallel.decode_context_parallel_size)
    out["num_blocks"] = config.num_blocks
    if cfg.parallel_config.pipeline_parallel_size > 1:
        out["worker_group_sizes"] = [[len(g.layer_names) for g in c.kv_cache_groups] for c in configs]
    elif groups:
        out["max_concurrency"] = utils.get_max_concurrency_for_kv_cache_config(cfg, config)
    if cfg.model_config.original_max_model_len == -1:
        out["max_model_len"] = cfg.model_config.max_model_len
    if groups and hasattr(planning, "_pool_bytes_per_block"):
        import inspect

        takes = len(inspect.signature(planning._pool_bytes_per_block).parameters)
        out["bytes_per_block"] = planning._pool_bytes_per_block(*[cfg, groups][-takes:])
    if groups:
        out["blocks_per_max_len_request"] = sum(
            -(-g.kv_cache_spec.max_memory_usage_bytes(cfg) // g.kv_cache_spec.page_size_bytes) for g in groups)
    return out


def shared_layers(cfg):
    """Layers that use another layer's cache, where this process holds the layers."""
    context = getattr(cfg.compilation_config, "static_forward_context", None) or {}
    return {name: target for name, layer in context.items()
            if (target := getattr(layer, "kv_sharing_target_layer_name", None))}


def write(path, cfg, specs, memory, max_model_len, configs):
    import vllm

    merged = {}
    for worker in specs:
        merged.update(worker)
    cache, draft = cfg.cache_config, getattr(cfg.speculative_config, "draft_model_config", None)
    line = {
        "oracle": f"vllm {vllm.__version__.split('+')[0]}",
        "id": os.path.basename(str(cfg.model_config.model).rstrip("/")),
        "config": read_config(cfg.model_config),
        "engine": engine(cfg, memory, max_model_len),
        "expect": {
            "layers": [describe(name, spec) for name, spec in merged.items()],
            "shared": shared_layers(cfg),
            "block_size": cache.block_size,
            "mamba_page_size_padded": getattr(cache, "mamba_page_size_padded", None),
            "plan": plan(cfg, configs),
        },
    }
    if draft is not None and draft.model != cfg.model_config.model:
        line["draft_config"] = read_config(draft)
    with open(path, "a") as file:
        file.write(json.dumps(line, separators=(",", ":"), default=str) + "\n")
