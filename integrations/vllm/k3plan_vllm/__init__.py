"""Is anything recorded in this process? Only if `K3PLAN_DUMP` names a file.

vLLM calls `register` in each of its processes. Only the engine core plans, so only there the hooks do something.
"""

import logging
import os

# Below vLLM's own logger, so that its handlers and its process prefix apply.
logger = logging.getLogger("vllm.plugins.k3plan")


def register() -> None:
    """Hooks vLLM's planning; the entry point of the group `vllm.general_plugins`. Never raises."""
    if not os.environ.get("K3PLAN_DUMP"):
        return
    try:
        from . import hooks

        hooks.install()
    except Exception as error:
        logger.warning("k3plan: nothing will be recorded: %s: %s", type(error).__name__, error)
