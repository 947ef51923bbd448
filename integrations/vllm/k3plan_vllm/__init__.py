"""Writes what vLLM's KV cache planner was given and made of it. Without K3PLAN_DUMP it does nothing."""

import logging
import os

logger = logging.getLogger("vllm.k3plan")


def register():
    """Called by vLLM in every process, perhaps more than once."""
    path = os.environ.get("K3PLAN_DUMP")
    if not path:
        return
    try:
        from . import hook

        hook.install(path)
    except Exception:
        logger.warning("k3plan: nothing will be dumped", exc_info=True)
