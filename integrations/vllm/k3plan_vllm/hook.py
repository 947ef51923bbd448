"""Where in vLLM the plan is seen: the call that makes the KV cache configs of all workers."""

import copy
import functools
import importlib
import logging
import sys

logger = logging.getLogger("vllm.k3plan")

# Modules that define or import the function, over the versions 0.24 to 0.33.
MODULES = ("vllm.v1.core.kv_cache_planning", "vllm.v1.core.kv_cache_utils", "vllm.v1.engine.core")
NAME = "get_kv_cache_configs"


def install(path):
    original = None
    for name in MODULES[:2]:
        try:
            original = getattr(importlib.import_module(name), NAME, None)
        except ImportError:
            continue
        if original is not None:
            break
    if original is None:
        raise RuntimeError(f"this vLLM has no {NAME}")
    if getattr(original, "_k3plan", False):
        return
    wrapped = wrap(original, path)
    for name in MODULES:
        module = sys.modules.get(name)
        if module is not None and getattr(module, NAME, None) is original:
            setattr(module, NAME, wrapped)


def wrap(original, path):
    @functools.wraps(original)
    def get_kv_cache_configs(vllm_config, kv_cache_specs, available_memory, *rest, **named):
        before = None
        try:
            before = copy.deepcopy(kv_cache_specs), list(available_memory), vllm_config.model_config.max_model_len
        except Exception:
            logger.warning("k3plan: the specs could not be copied", exc_info=True)
        configs = original(vllm_config, kv_cache_specs, available_memory, *rest, **named)
        if before is not None:
            try:
                from . import dump

                dump.write(path, vllm_config, *before, configs)
            except Exception:
                logger.warning("k3plan: the plan could not be dumped to %s", path, exc_info=True)
        return configs

    get_kv_cache_configs._k3plan = True
    return get_kv_cache_configs
