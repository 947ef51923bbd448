"""Which functions of vLLM are wrapped, and how, so that a failure of ours never reaches the server.

`get_kv_cache_configs` turns layers and memory into groups and blocks. Until vLLM 0.32 it groups the layers itself, by
`get_kv_cache_groups`; from 0.33 its caller does, by `get_global_kv_cache_groups`. Both are wrapped where they exist:
grouping may pad specs in place, so layers are described before it, and a grouping that fails is recorded as well.

Source: vLLM 0.24.0 to 0.33.0, `vllm/v1/engine/core.py`, `vllm/v1/core/kv_cache_utils.py`, and from 0.33
`vllm/v1/core/kv_cache_planning.py`.
"""

import functools
import importlib
import inspect
import sys
import threading

from . import logger
from .recording import Recording

# The newest place first.
PLANNING = ("vllm.v1.core.kv_cache_planning", "vllm.v1.core.kv_cache_utils")

_local = threading.local()


def install() -> None:
    """Wraps the planning functions of the vLLM that is imported here; a second call changes nothing.

    Raises `RuntimeError` if this vLLM has none of them.
    """
    module = _planning_module()
    whole_model = hasattr(module, "get_global_kv_cache_groups")
    _wrap(module, "get_kv_cache_configs", _configs)
    if whole_model:
        _wrap(module, "get_global_kv_cache_groups", _global_groups)
    else:
        _wrap(module, "get_kv_cache_groups", _groups)


def _planning_module():
    for name in PLANNING:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module, "get_kv_cache_configs"):
            return module
    raise RuntimeError("this vLLM has no `get_kv_cache_configs` where 0.24 to 0.33 have it")


def _wrap(module, name, wrapper) -> None:
    original = getattr(module, name)
    if getattr(original, "wrapped_by_k3plan", False):
        return

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        return wrapper(original, args, kwargs)

    wrapped.wrapped_by_k3plan = True
    # Modules that have imported the function by name hold the original: the engine core is one of them.
    for other in list(sys.modules.values()):
        if getattr(other, "__name__", "").startswith("vllm") and vars(other).get(name) is original:
            setattr(other, name, wrapped)
    setattr(module, name, wrapped)


def _quietly(action, *arguments):
    """The action's result; None, and a warning, if it fails."""
    try:
        return action(*arguments)
    except Exception as error:
        try:
            logger.warning("k3plan: failed to record the plan: %s: %s", type(error).__name__, error)
            logger.debug("k3plan: where it failed", exc_info=True)
        except Exception:
            pass
        return None


def _configs(original, args, kwargs):
    recording = _quietly(_begin, original, args, kwargs)
    _local.recording = recording
    try:
        made = original(*args, **kwargs)
    except Exception as error:
        if recording is not None:
            _quietly(recording.failed, error)
        raise
    finally:
        _local.recording = None
    if recording is not None:
        _quietly(recording.made, made)
    return made


def _groups(original, args, kwargs):
    groups = original(*args, **kwargs)
    recording = getattr(_local, "recording", None)
    if recording is not None:
        recording.groups = groups
    return groups


def _global_groups(original, args, kwargs):
    recording = _quietly(_begin, original, args, kwargs)
    try:
        groups = original(*args, **kwargs)
    except Exception as error:
        if recording is not None:
            _quietly(recording.failed, error)
        raise
    _local.grouped = recording
    return groups


def _begin(original, args, kwargs) -> Recording:
    given = inspect.signature(original).bind(*args, **kwargs).arguments
    specs = given["kv_cache_specs"]
    grouped, _local.grouped = getattr(_local, "grouped", None), None
    if grouped is None or grouped.kv_cache_specs is not specs:
        return Recording(
            given["vllm_config"], specs, given.get("available_memory"), given.get("global_kv_cache_groups")
        )
    grouped.give(given.get("available_memory"), given.get("global_kv_cache_groups"))
    return grouped
