"""One planning of an engine: what went in, described before vLLM plans, and what came out, as one line."""

import os
import re

from . import answer, logger
from .draft import draft_from
from .settings import memory, read, settings
from .specs import describe, distinct
from .write import append, unused


class Recording:
    """Everything that the line needs, gathered in the order in which vLLM has it."""

    def __init__(self, config, kv_cache_specs: list, available_memory, groups):
        """`kv_cache_specs` and `available_memory` have one entry a worker; groups are the whole model's."""
        self.config = config
        self.kv_cache_specs = kv_cache_specs
        self.groups = groups
        self.layers = {}
        self.marked = set()
        for worker in kv_cache_specs:
            for name, spec in worker.items():
                if name not in self.layers:
                    self.layers[name] = describe(spec)
                    if getattr(spec, "is_draft", False):
                        self.marked.add(name)
        self.engine = settings(config, kv_cache_specs)
        if available_memory is not None:
            self.give(available_memory, groups)

    def give(self, available_memory: list, groups) -> None:
        """Memory and groups, where they come later than the layers."""
        self.engine.update(memory(self.config, available_memory))
        self.groups = groups

    def made(self, configs: list) -> None:
        """Writes the line for a plan, one config a worker."""
        one_stage = (read(self.config, "parallel_config.pipeline_parallel_size") or 1) == 1
        groups = configs[0].kv_cache_groups if self.groups is None and one_stage else self.groups
        expect = answer.grouping(self.config, groups, self._index())
        expect.update(answer.pool(self.config, configs, self.engine.get("max_model_len") == -1))
        expect.update(answer.sizes(self.config, groups))
        self._write(expect)

    def failed(self, error: Exception) -> None:
        """Writes the line for an engine that refuses: no groups, or groups that the memory does not hold."""
        said = {"error": type(error).__name__, "detail": str(error)[:400]}
        if self.groups is None:
            self._write(dict(said, stage="grouping"))
            return
        expect = answer.grouping(self.config, self.groups, self._index())
        expect["capacity_error"] = said
        expect.update(answer.sizes(self.config, self.groups))
        self._write(expect)

    def _index(self) -> dict:
        return {name: i for i, name in enumerate(self.layers)}

    def _write(self, expect: dict) -> None:
        path = os.environ["K3PLAN_DUMP"]
        if not self.layers:
            logger.info("k3plan: the model has no KV cache, so there is no plan to record")
            return
        specs, index = distinct(self.layers)
        names = list(self.layers)
        line = {
            "id": unused(path, os.environ.get("K3PLAN_DUMP_ID") or case_name(self.config)),
            "engine": self.engine,
            "specs": specs,
            "layers": index,
            "names": names,
        }
        first = draft_from(self.config, names, self.marked)
        if first is not None:
            line["draft_from"] = first
        line["expect"] = {version(): expect}
        append(path, line)
        logger.info("k3plan: recorded the plan of %d layers as `%s` in %s", len(names), line["id"], path)


def case_name(config) -> str:
    """The model's name and the parallel sizes that are not 1, such as `Qwen3-8B-tp2`."""
    model = str(read(config, "model_config.model") or "model").rstrip("/")
    cached = re.search(r"models--(.+?)/snapshots/", model + "/")
    name = cached.group(1).split("--")[-1] if cached else model.rsplit("/", 1)[-1]
    for short, path in [
        ("tp", "tensor_parallel_size"),
        ("pp", "pipeline_parallel_size"),
        ("dcp", "decode_context_parallel_size"),
    ]:
        size = read(config, f"parallel_config.{path}")
        if isinstance(size, int) and size > 1:
            name += f"-{short}{size}"
    if (read(config, "parallel_config.data_parallel_size") or 1) > 1:
        name += f"-rank{read(config, 'parallel_config.data_parallel_rank')}"
    return name


def version() -> str:
    """vLLM's version without what a build adds, such as `0.32.0`."""
    import vllm

    found = re.match(r"[0-9]+\.[0-9]+\.[0-9]+", vllm.__version__)
    return found.group(0) if found else vllm.__version__
