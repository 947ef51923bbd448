"""Which settings of the engine does planning read? By the short names of k3plan's recorded cases.

A setting that this vLLM does not have is left out: k3plan then takes vLLM's own default.
"""

from .specs import plain

# The cache layouts that k3plan knows; older versions name theirs otherwise, and their planning does not read it.
LAYOUTS = ("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")


def read(root, path: str):
    """The attribute at a dotted path; None if any part is missing or cannot be read."""
    for name in path.split("."):
        try:
            root = getattr(root, name)
        except Exception:
            return None
    return root


def _integer(value):
    return None if value is None or isinstance(value, bool) else int(value)


def stages(config, workers: list) -> list:
    """The workers of each pipeline stage; ranks of one stage are neighbours."""
    count = _integer(read(config, "parallel_config.pipeline_parallel_size")) or 1
    if count == 1 or len(workers) % count:
        return [workers]
    size = len(workers) // count
    return [workers[first : first + size] for first in range(0, len(workers), size)]


def settings(config, kv_cache_specs: list) -> dict:
    """The settings before planning: afterwards vLLM has put a fitted length in the place of the asked one.

    `kv_cache_specs` is a dict of layers a worker.
    """
    found = {
        "tp": _integer(read(config, "parallel_config.tensor_parallel_size")),
        "dcp": _integer(read(config, "parallel_config.decode_context_parallel_size")),
        "pcp": _integer(read(config, "parallel_config.prefill_context_parallel_size")),
        "pp": _integer(read(config, "parallel_config.pipeline_parallel_size")),
    }
    if (found["pp"] or 1) > 1:
        found["pp_layers"] = [len(stage[0]) for stage in stages(config, kv_cache_specs)]
    length = _integer(read(config, "model_config.max_model_len"))
    if _integer(read(config, "model_config.original_max_model_len")) == -1:
        found["max_model_len"], found["derived_max_model_len"] = -1, length
    else:
        found["max_model_len"] = length
    found["max_num_batched_tokens"] = _integer(read(config, "scheduler_config.max_num_batched_tokens"))
    found["max_concurrent_batches"] = _integer(read(config, "max_concurrent_batches"))
    found["max_num_seqs"] = _integer(read(config, "scheduler_config.max_num_seqs"))
    found["block_size"] = _integer(read(config, "cache_config.block_size"))
    mode = read(config, "cache_config.mamba_cache_mode")
    found["mamba_cache_mode"] = mode if mode in ("none", "align", "all") else None
    for name in ("mamba_cache_dtype", "mamba_ssm_cache_dtype"):
        dtype = _text(read(config, "cache_config." + name))
        found[name] = None if dtype == "auto" else dtype
    if read(config, "model_config.multimodal_config.language_model_only") is True:
        found["language_model_only"] = True
    disabled = read(config, "scheduler_config.disable_hybrid_kv_cache_manager")
    found["disable_hybrid"] = None if disabled is None else bool(disabled)
    layout = read(config, "cache_config.kv_cache_layout")
    found["layout"] = layout if layout in LAYOUTS else None
    found["num_gpu_blocks_override"] = _integer(read(config, "cache_config.num_gpu_blocks_override"))
    found["max_encoder_tokens"] = _integer(read(config, "scheduler_config.max_num_encoder_input_tokens"))
    found["num_prefill_lookahead_tokens"] = _integer(read(config, "num_prefill_lookahead_tokens"))
    found["kv_cache_dtype"] = _text(read(config, "cache_config.cache_dtype"))
    found["dtype"] = _text(read(config, "model_config.dtype"))
    found["speculative"] = speculative(config)
    return {name: value for name, value in found.items() if value is not None}


def _text(value):
    return None if value is None else str(plain(value))


def speculative(config):
    """Method and tokens of the drafter; None without one."""
    method = read(config, "speculative_config.method")
    tokens = _integer(read(config, "speculative_config.num_speculative_tokens"))
    found = {"method": _text(method), "num_speculative_tokens": tokens}
    return {name: value for name, value in found.items() if value is not None} or None


def memory(config, available: list) -> dict:
    """What each pipeline stage has for the KV cache, bytes: its poorest worker's, as the fewest blocks count.

    vLLM may report less than nothing; then there is none.
    """
    each = [max(0, min(int(worker) for worker in stage)) for stage in stages(config, list(available))]
    if len(set(each)) == 1:
        return {"available_memory": each[0]}
    return {"available_memory_per_worker": each}
