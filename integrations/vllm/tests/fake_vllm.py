"""A vLLM in miniature: the modules, names and shapes that the plugin meets, without vLLM."""

import dataclasses
import enum
import sys
import types


class dtype:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"

    def __eq__(self, other):
        return isinstance(other, dtype) and self.name == other.name

    __hash__ = None


class KVQuantMode(enum.IntEnum):
    NONE = 0
    FP8_PER_TENSOR = 1


class Backend(enum.Enum):
    MAMBA2 = "mamba2"
    GDN_ATTN = "gdn"


class MultipleOf:
    def __init__(self, base):
        self.base = base


@dataclasses.dataclass(frozen=True)
class Spec:
    block_size: int = 16
    is_draft: bool = dataclasses.field(default=False, compare=False)

    page_size_bytes = 1024

    def max_memory_usage_bytes(self, config):
        return -(-config.model_config.max_model_len // self.block_size) * self.page_size_bytes


@dataclasses.dataclass(frozen=True)
class FullAttentionSpec(Spec):
    num_kv_heads: int = 2
    head_size: int = 32
    head_size_v: int = None
    dtype: object = None
    kv_quant_mode: KVQuantMode = KVQuantMode.NONE
    tokens_per_state: object = 1
    block_stride_alignment: object = None
    non_causal: bool = False

    def __post_init__(self):
        if self.head_size_v is None:
            object.__setattr__(self, "head_size_v", self.head_size)


@dataclasses.dataclass(frozen=True)
class MLAAttentionSpec(FullAttentionSpec):
    head_size_v: int = 0


@dataclasses.dataclass(frozen=True)
class MambaSpec(Spec):
    shapes: tuple = ()
    dtypes: tuple = ()
    mamba_type: Backend = Backend.MAMBA2


@dataclasses.dataclass(frozen=True)
class VendorSpec(Spec):
    secret: int = 7


@dataclasses.dataclass
class Group:
    layer_names: list
    kv_cache_spec: object


@dataclasses.dataclass
class Config:
    num_blocks: int
    kv_cache_groups: list


def vllm_config(**changes):
    """What planning reads of vLLM's config; `changes` are by dotted path with `__` for the dot."""
    ns = types.SimpleNamespace
    config = ns(
        model_config=ns(
            model="/models/tiny/",
            max_model_len=4096,
            original_max_model_len=4096,
            dtype=dtype("bfloat16"),
            hf_text_config=ns(num_hidden_layers=4),
        ),
        parallel_config=ns(
            tensor_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            data_parallel_rank=0,
        ),
        scheduler_config=ns(
            max_num_batched_tokens=2048,
            max_num_seqs=16,
            max_num_encoder_input_tokens=2048,
            disable_hybrid_kv_cache_manager=False,
        ),
        cache_config=ns(
            block_size=16,
            mamba_cache_mode="none",
            kv_cache_layout="LBNHC",
            num_gpu_blocks_override=None,
            cache_dtype="auto",
        ),
        speculative_config=None,
        max_concurrent_batches=2,
        num_prefill_lookahead_tokens=0,
    )
    for path, value in changes.items():
        *where, name = path.split("__")
        target = config
        for part in where:
            target = getattr(target, part)
        setattr(target, name, value)
    return config


def install(newest: bool):
    """Puts a package `vllm` into `sys.modules`; `newest`: its caller groups, as in 0.33.

    Returns the module of the engine core, which has imported the functions by name, and that of the planning.
    """
    names = ["vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.engine"]
    modules = {name: types.ModuleType(name) for name in names}
    modules["vllm"].__version__ = "0.33.0" if newest else "0.32.0+cpu"
    for name in names:
        modules[name].__path__ = []
    place = "vllm.v1.core.kv_cache_planning" if newest else "vllm.v1.core.kv_cache_utils"
    planning = modules[place] = types.ModuleType(place)

    def get_kv_cache_groups(vllm_config, kv_cache_spec):
        if getattr(planning, "refuses", None) == "grouping":
            raise NotImplementedError("Layer x: no")
        first = next(iter(kv_cache_spec.values()))
        # Some versions pad a spec in place: what is recorded must be what the layer declared.
        object.__setattr__(first, "block_size", 32)
        return [Group(list(kv_cache_spec), first)]

    def get_global_kv_cache_groups(vllm_config, kv_cache_specs):
        merged = {name: spec for worker in kv_cache_specs for name, spec in worker.items()}
        return planning.get_kv_cache_groups(vllm_config, merged)

    def get_kv_cache_configs(vllm_config, kv_cache_specs, available_memory, global_kv_cache_groups=None):
        groups = global_kv_cache_groups or get_global_kv_cache_groups(vllm_config, kv_cache_specs)
        if getattr(planning, "refuses", None) == "capacity":
            raise ValueError("not enough")
        if vllm_config.model_config.original_max_model_len == -1:
            vllm_config.model_config.max_model_len = 1000
        return [
            Config(7, [Group([n for n in g.layer_names if n in worker], g.kv_cache_spec) for g in groups])
            for worker in kv_cache_specs
        ]

    planning.get_kv_cache_groups = get_kv_cache_groups
    planning.get_kv_cache_configs = get_kv_cache_configs
    planning.get_max_concurrency_for_kv_cache_config = lambda config, made: made.num_blocks / 2
    planning._pool_bytes_per_block = lambda groups: 4096
    core = modules["vllm.v1.engine.core"] = types.ModuleType("vllm.v1.engine.core")
    core.get_kv_cache_configs = planning.get_kv_cache_configs
    if newest:
        planning.get_global_kv_cache_groups = get_global_kv_cache_groups
        core.get_global_kv_cache_groups = get_global_kv_cache_groups
    remove()
    sys.modules.update(modules)
    return core, planning


def remove():
    """Takes the package out again."""
    for name in [name for name in sys.modules if name == "vllm" or name.startswith("vllm.")]:
        del sys.modules[name]
