"""What did vLLM make of the layers? Groups, pages, blocks and concurrency, each asked of vLLM itself."""

import importlib
import inspect

from .settings import read


def grouping(config, groups: list, index: dict) -> dict:
    """Groups in order, their layers by `index` from the name."""
    names = [list(group.layer_names) for group in groups]
    specs = [group.kv_cache_spec for group in groups]
    size = max(map(len, names), default=0)
    mixed = any(type(spec).__name__ == "UniformTypeKVCacheSpecs" for spec in specs)
    found = {
        "groups": [[index[name] for name in group] for group in names],
        "group_size": size,
        "padding_layers": None if mixed or not groups else sum(size - len(group) for group in names),
    }
    replicas = _function("kv_cache_groups_tp_replicas")
    if replicas is not None:
        found["kv_tp_replicas"] = int(
            replicas(
                groups,
                config.parallel_config.tensor_parallel_size,
                read(config, "parallel_config.decode_context_parallel_size") or 1,
            )
        )
    found["group_types"] = [type(spec).__name__ for spec in specs]
    found["block_sizes"] = [int(spec.block_size) for spec in specs]
    found["page_sizes"] = [int(spec.page_size_bytes) for spec in specs]
    return found


def sizes(config, groups: list) -> dict:
    """Bytes of a block, and blocks of a request of the longest length; what vLLM cannot say is left out."""
    found = {}
    per_block = _function("_pool_bytes_per_block")
    if per_block is not None and groups:
        takes = len(inspect.signature(per_block).parameters)
        try:
            found["bytes_per_block"] = int(per_block(*[config, groups][-takes:]))
        except Exception:
            pass
    try:
        found["blocks_per_max_len_request"] = sum(
            -(-spec.max_memory_usage_bytes(config) // spec.page_size_bytes)
            for spec in (group.kv_cache_spec for group in groups)
        )
    except Exception:  # window layers refuse to answer under decode context parallelism
        pass
    return found


def pool(config, configs: list, fitted: bool) -> dict:
    """Blocks, and the requests of the longest length that they hold. `configs` has one entry a worker."""
    first = configs[0]
    found = {"num_blocks": int(first.num_blocks)}
    stages = read(config, "parallel_config.pipeline_parallel_size") or 1
    if stages > 1:
        each = configs[:: max(1, len(configs) // stages)]
        found["worker_group_sizes"] = [
            [len(group.layer_names) for group in worker.kv_cache_groups] for worker in each
        ]
    if fitted:
        found["max_model_len"] = int(config.model_config.max_model_len)
    concurrency = _function("get_max_concurrency_for_kv_cache_config")
    if stages == 1 and first.kv_cache_groups and concurrency is not None:
        found["max_concurrency"] = float(concurrency(config, first))
    return found


def _function(name: str):
    for module in ("vllm.v1.core.kv_cache_planning", "vllm.v1.core.kv_cache_utils"):
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None
