"""Count what vLLM's metadata builders ask of the device, by running their own code. Usage: count_builders.py > COUNTS.json

No device is needed: "device" tensors are CPU tensors in a wrapper that says cuda:0. Every torch call goes through a
dispatch mode that does it on the CPU and counts: a call on device tensors that is no view is a launch (`empty` says how many
of them touch no element, and so start no kernel: fills of padding where there is none), a copy between a device tensor and a host tensor is h2d or d2h (so is an index with a host mask, and a value read
with item()). Triton kernels and the planners of FlashAttention 3, FlashMLA, FlashInfer and AITER, which are not there, are
stand-ins that count one launch a call (FlashInfer's plan: what `PLAN` says).

Batches: 7 requests; `padded`: the batch is padded to 8, as a full graph of that size has it. `verify` has k draft tokens a
request, `mixed` two prompts (one of them with context) behind 5 decodes, `mixed_drafts` the same with drafts.
"""
import collections
import contextlib
import io
import json
import sys
import types

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

real_stdout, sys.stdout = sys.stdout, io.StringIO()
torch.cuda._lazy_init = lambda: None
CUDA = torch.device("cuda:0")
counts = collections.Counter()
names = collections.Counter()


class OnDevice(torch.Tensor):
    """A CPU tensor that says it is on a device."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype, device="meta")

    def __init__(self, inner):
        self.inner = inner

    # The C++ side sees a meta tensor, so that it asks no driver.
    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    is_meta = property(lambda self: False)

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


def note(kind, name):
    counts[kind] += 1
    names[f"{kind} {name}"] += 1


FREE = {"aten::empty", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided", "aten::empty_like", "aten::detach", "aten::lift_fresh",
        "aten::alias", "aten::_unsafe_view", "aten::scalar_tensor", "aten::is_pinned", "aten::resize_", "aten::set_"}
# `x[n:] = 0` makes a scalar and copies it here, and is one fill on a device. More than one kernel a call:
KERNELS = {"aten::nonzero": 2, "aten::repeat_interleave": 2, "aten::argsort": 1, "aten::sort": 1}


def run(func, args, kwargs):
    """Do a call on the CPU and count it."""
    name = func._schema.name
    flat, _ = torch.utils._pytree.tree_flatten((args, kwargs))
    devices = [x for x in flat if isinstance(x, OnDevice)]
    hosts = [x for x in flat if isinstance(x, torch.Tensor) and not isinstance(x, OnDevice)]
    target = kwargs.get("device")
    to_device = target is not None and torch.device(target).type in ("cuda", "meta")
    to_host = target is not None and torch.device(target).type == "cpu"
    plain = tree_map(lambda x: x.inner if isinstance(x, OnDevice) else x, (args, dict(kwargs)))
    if to_device:
        plain[1]["device"] = torch.device("cpu")
    plain[1].pop("pin_memory", None)
    if to_device or devices:
        plain[1].pop("non_blocking", None) if name == "aten::_to_copy" else None
    out = func(*plain[0], **plain[1])
    if not devices and not to_device:
        return out
    is_view = any(a.alias_info is not None and not a.alias_info.is_write for a in func._schema.arguments)
    if name == "aten::_local_scalar_dense":
        note("d2h", name)
        return out
    if name in ("aten::_to_copy", "aten::copy_"):
        source_on_device = isinstance(args[0] if name == "aten::_to_copy" else args[1], OnDevice)
        result_on_device = not to_host if name == "aten::_to_copy" else isinstance(args[0], OnDevice)
        size = out.numel()
        if name == "aten::_to_copy" and source_on_device and result_on_device and out.dtype == args[0].dtype:
            return args[0]
        if source_on_device and result_on_device:
            note("launches", name)
            counts["empty"] += not size
        elif name == "aten::copy_" and result_on_device and args[1].dim() == 0:
            note("launches", name + " of a scalar")
            counts["empty"] += not size
        elif size:
            note("h2d" if result_on_device else "d2h", name)
        if name == "aten::copy_":
            return args[0]
        return OnDevice(out) if result_on_device else out
    first = out[0] if isinstance(out, (list, tuple)) else out
    if name in ("aten::index", "aten::index_put_"):
        for host in hosts:
            if host.dim() > 0:
                note("h2d", name + " with a host index")
    if name not in FREE and not is_view:
        for _ in range(KERNELS.get(name, 1)):
            note("launches", name)
        counts["empty"] += isinstance(first, torch.Tensor) and first.numel() == 0
    writes = [a for a, s in zip(args, func._schema.arguments) if s.alias_info is not None and s.alias_info.is_write]
    if writes and isinstance(writes[0], OnDevice):
        return writes[0]
    if kwargs.get("out") is not None:
        return kwargs["out"]
    return tree_map(lambda x: OnDevice(x) if isinstance(x, torch.Tensor) else x, out)


class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


class Kernel:
    """A Triton kernel that counts its launches."""

    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        return lambda *args, **kwargs: note("launches", "triton " + self.function.__name__)


# --- vLLM, as on a device -------------------------------------------------------------------------------------------
from vllm.triton_utils import triton  # noqa: E402


def jit(*args, **kwargs):
    return Kernel(args[0]) if args and callable(args[0]) else Kernel


triton.jit = jit
triton.next_power_of_2 = lambda n: 1 << max(n - 1, 0).bit_length()
flashinfer = types.ModuleType("flashinfer")


class Wrapper:
    """FlashInfer's wrappers; `plan` stands for what its Python and C++ sides do."""

    def __init__(self, *args, **kwargs):
        pass

    def plan(self, **kwargs):
        note("plans", "flashinfer plan")


for word in ("BatchAttentionWithAttentionSinkWrapper", "BatchDecodeWithPagedKVCacheWrapper", "BatchPrefillWithPagedKVCacheWrapper",
             "BatchPrefillWithRaggedKVCacheWrapper"):
    setattr(flashinfer, word, type(word, (Wrapper,), {}))
flashinfer.get_seq_lens = lambda indptr, last, page: torch.clamp(indptr[1:] - indptr[:-1] - 1, min=0) * page + last
flashinfer.nvfp4_quantize_append_paged_kv_cache_with_slot_mapping = None
for name, words in {"decode": ("fast_decode_plan", "trtllm_batch_decode_with_kv_cache", "trtllm_batch_decode_with_kv_cache_mla"), "prefill": ("trtllm_batch_context_with_kv_cache",),
                    "utils": ("FP4Tensor", "get_device_sm_count", "get_trtllm_gen_multi_ctas_kv_counter_bytes")}.items():
    module = types.ModuleType("flashinfer." + name)
    for word in words:
        setattr(module, word, object)
    setattr(flashinfer, name, module)
    sys.modules["flashinfer." + name] = module
aiter = types.ModuleType("aiter")
aiter.dtypes = types.SimpleNamespace(fp8=torch.float8_e4m3fn, bf16=torch.bfloat16, fp16=torch.float16)
aiter.get_mla_metadata_info_v1 = lambda *a, **k: [((64,), torch.int32)] * 6
aiter.get_mla_metadata_v1 = lambda *a, **k: note("launches", "aiter get_mla_metadata_v1")

import vllm.model_executor.layers.attention.mla_attention as mla_attention  # noqa: E402
import vllm.v1.attention.backends.fa_utils as fa_utils  # noqa: E402
from vllm.v1.attention.backend import CommonAttentionMetadata  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, MLAAttentionSpec  # noqa: E402

HEADS, CONTEXT, SEQS, BLOCK = 16, 4096, 16, 16
# What fa_utils has on CUDA only.
for word in ("flash_attn_varlen_func", "get_scheduler_metadata", "reshape_and_cache_flash", "compile_flash_attn_varlen_func_from_specs"):
    setattr(fa_utils, word, getattr(fa_utils, word, None))


class Loose(types.SimpleNamespace):
    """A configuration: what is not set is None."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def config(k, full_graphs, cache_dtype="auto", v2=True, attention=True):
    from vllm.config import CUDAGraphMode
    layer = Loose(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, num_heads=HEADS,
                  prefill_backend=Loose(clone=lambda: Loose(prepare_metadata=lambda m: None)))
    head_size = 128 if attention else 576
    model = Loose(dtype=torch.bfloat16, max_model_len=CONTEXT, get_num_attention_heads=lambda p: HEADS, get_num_kv_heads=lambda p: 2,
                  get_head_size=lambda: head_size, get_mamba_chunk_size=lambda: 256, hf_config=Loose(model_type="x"), is_mm_prefix_lm=False)
    speculative = Loose(num_speculative_tokens=k, use_eagle_block_drop=lambda: False, parallel_drafting=False, method="mtp") if k else None
    return Loose(
        model_config=model, speculative_config=speculative, num_speculative_tokens=k, use_v2_model_runner=v2,
        compilation_config=Loose(cudagraph_mode=CUDAGraphMode.FULL if full_graphs else CUDAGraphMode.NONE, max_cudagraph_capture_size=512,
                                 cudagraph_capture_sizes=[1, 2, 4, 8, 16], static_forward_context={"layer": layer}),
        scheduler_config=Loose(max_num_seqs=SEQS, max_num_batched_tokens=2048),
        cache_config=Loose(cache_dtype=cache_dtype, mamba_cache_mode="none", block_size=BLOCK, num_gpu_blocks=100, use_kda_recoverssm=False,
                           get_resolved_kv_cache_layout=lambda: None),
        parallel_config=Loose(decode_context_parallel_size=1, prefill_context_parallel_size=1, cp_kv_cache_interleave_size=1),
        attention_config=Loose(flash_attn_max_num_splits_for_cuda_graph=32, disable_flashinfer_q_quantization=False,
                               use_prefill_query_quantization=False, use_trtllm_attention=False),
        mamba_config=Loose(backend=None), kernel_config=Loose(enable_jit_warmup=False), additional_config={})


def on_device(values, dtype=torch.int32):
    return OnDevice(torch.tensor(values, dtype=dtype))


def batch(kind, k, padded):
    """Common metadata of a batch and what only state builders are given."""
    if kind == "decode":
        lens, context, drafts = [1] * 7, [100 + 7 * i for i in range(7)], None
    elif kind == "verify":
        lens, context, drafts = [1 + k] * 7, [100 + 7 * i for i in range(7)], [k] * 7
    elif kind == "mixed":
        lens, context, drafts = [1] * 5 + [100, 300], [100 + 7 * i for i in range(5)] + [64, 0], None
    else:
        lens, context, drafts = [1 + k] * 5 + [100, 300], [100 + 7 * i for i in range(5)] + [64, 0], [k] * 5 + [-1, -1]
    prefilling = [False] * 5 + [True, True] if kind.startswith("mixed") else [False] * 7
    tokens = sum(lens)
    if padded and not kind.startswith("mixed"):
        width = max(lens)
        lens, context, prefilling = lens + [0], context + [0], prefilling + [False]
        drafts = drafts and drafts + [-1]
        tokens += width
    starts = [sum(lens[:i]) for i in range(len(lens) + 1)]
    seq_lens = [a + b for a, b in zip(lens, context)]
    m = CommonAttentionMetadata(
        query_start_loc=on_device(starts), query_start_loc_cpu=torch.tensor(starts, dtype=torch.int32), seq_lens=on_device(seq_lens),
        num_reqs=len(lens), num_actual_tokens=tokens, max_query_len=max(lens), max_seq_len=max(seq_lens),
        block_table_tensor=OnDevice(torch.arange(len(lens) * (CONTEXT // BLOCK), dtype=torch.int32).view(len(lens), -1)),
        slot_mapping=on_device(list(range(tokens)), torch.int64), is_prefilling=torch.tensor(prefilling),
        seq_lens_cpu_upper_bound=torch.tensor(seq_lens, dtype=torch.int32))
    accepted = on_device([1] * len(lens))
    return m, accepted, torch.tensor(drafts, dtype=torch.int32) if drafts else None


def patch(module, **values):
    for word, value in values.items():
        setattr(module, word, value)


def planner(name):
    def plan(*args, **kwargs):
        note("launches", name)
        return OnDevice(torch.zeros(33, dtype=torch.int32))
    return plan


def state_spec(k):
    return MambaSpec(block_size=1024, shapes=((3, 32), (4, 16, 16)), dtypes=(torch.bfloat16, torch.float32), num_speculative_blocks=k)


def mla_spec(k):
    return MLAAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=576, dtype=torch.bfloat16)


def full_spec(k):
    return FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=128, dtype=torch.bfloat16)


def gdn(name):
    import vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn as gdn_layer
    patch(gdn_layer, _resolve_gdn_prefill_backend=lambda c: ("triton", "triton"))
    if name == "kda-cuda":
        from vllm.models.kimi_k3.nvidia.kda_metadata import KimiK3KDAMetadataBuilder as cls
        import vllm.models.kimi_k3.nvidia.kda_metadata as module
        patch(module, _metadata_launch_pdl=lambda: False)
    elif name == "kda-rocm":
        from vllm.models.kimi_k3.amd.kda_metadata import KimiK3ROCmKDAMetadataBuilder as cls
    else:
        from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadataBuilder as cls
    return cls, state_spec, {}


def builder_of(name):
    """A builder's class, its spec and what the configuration needs."""
    if name.startswith(("gdn", "kda")):
        return gdn(name)
    if name in ("mamba1", "mamba2", "short-conv"):
        import vllm.v1.attention.backends.mamba1_attn as mamba1
        import vllm.v1.attention.backends.mamba2_attn as mamba2
        import vllm.v1.attention.backends.short_conv_attn as short_conv
        return {"mamba1": mamba1.Mamba1AttentionMetadataBuilder, "mamba2": mamba2.Mamba2AttentionMetadataBuilder,
                "short-conv": short_conv.ShortConvAttentionMetadataBuilder}[name], state_spec, {}
    if name == "flashinfer-mla":
        sys.modules["flashinfer"] = flashinfer
        import vllm.v1.attention.backends.mla.flashinfer_mla as module
        return module.FlashInferMLAMetadataBuilder, mla_spec, {}
    if name == "rocm-attn":
        import vllm.v1.attention.backends.rocm_attn as module
        return module.RocmAttentionMetadataBuilder, full_spec, {}
    if name == "fa3-mla":
        import vllm.v1.attention.backends.mla.flashattn_mla as module
        patch(module, get_flash_attn_version=lambda *a, **k: 3, get_scheduler_metadata=planner("get_scheduler_metadata"))
        return module.FlashAttnMLAMetadataBuilder, mla_spec, {}
    if name == "flashmla-fp8" or name == "flashmla":
        import vllm.v1.attention.backends.mla.flashmla as module
        patch(module, num_compute_units=lambda *a: 132, get_mla_metadata=lambda *a, **k: (Loose(), None))

        def dense(*args):
            note("launches", "get_mla_metadata_dense_fp8")
            return OnDevice(torch.zeros(132, 8, dtype=torch.int32)), OnDevice(torch.zeros(9, dtype=torch.int32))
        patch(module, get_mla_metadata_dense_fp8=dense)
        return module.FlashMLAMetadataBuilder, mla_spec, {"cache_dtype": "fp8"} if name == "flashmla-fp8" else {}
    if name == "triton-mla":
        import vllm.v1.attention.backends.mla.triton_mla as module
        return module.TritonMLAMetadataBuilder, mla_spec, {}
    if name.startswith("aiter-mla"):
        sys.modules["aiter"] = aiter
        import vllm.v1.attention.backends.mla.rocm_aiter_mla as module
        # Kimi-K3 on gfx950: 12 heads a rank.
        patch(module, _gluon_mla_decode_supported=lambda: True, _aiter_mla_native_h24_supported=lambda: False)
        return module.AiterMLAMetadataBuilder, mla_spec, {"cache_dtype": "fp8"} if name.endswith("fp8") else {}
    if name == "flash-attn":
        import vllm.v1.attention.backends.flash_attn as module
        patch(module, get_flash_attn_version=lambda *a, **k: 3, get_scheduler_metadata=planner("get_scheduler_metadata"),
              get_dcp_world_size_and_rank=lambda *a: (1, 0), _get_sliding_window_configs=lambda c: set(),
              get_num_attention_heads_from_layers=lambda *a: HEADS)
        return module.FlashAttentionMetadataBuilder, full_spec, {}
    if name == "triton-attn":
        import vllm.v1.attention.backends.triton_attn as module
        patch(module, get_num_attention_heads_from_layers=lambda *a: HEADS)
        return module.TritonAttentionMetadataBuilder, full_spec, {}
    if name == "flashinfer":
        sys.modules["flashinfer"] = flashinfer
        import vllm.v1.attention.backends.flashinfer as module
        from vllm.v1.attention.backends.utils import PerLayerParameters
        patch(module, can_use_trtllm_attention=lambda *a, **k: False, use_trtllm_attention=lambda *a, **k: False,
              get_dcp_world_size_and_rank=lambda *a: (1, 0), get_num_attention_heads_from_layers=lambda *a: HEADS,
              get_per_layer_parameters=lambda *a: {"layer": PerLayerParameters(-1, None, 0.1, False)},
              fast_plan_decode=lambda *a, **k: note("plans", "flashinfer fast_plan_decode"), get_flashinfer_layout_string=lambda layout: "NHD")
        return module.FlashInferMetadataBuilder, full_spec, {}
    raise ValueError(name)


BUILDERS = ["gdn-cuda", "gdn-rocm", "kda-cuda", "kda-rocm", "fa3-mla", "flashmla", "flashmla-fp8", "triton-mla", "aiter-mla-fp8", "aiter-mla-bf16",
            "flashinfer-mla", "flash-attn", "triton-attn", "rocm-attn", "flashinfer", "mamba1", "mamba2", "short-conv"]
STATES = ("gdn", "kda", "mamba", "short")


def count(name, kind, k, full_graphs, padded, detail):
    """The counts of one build, and of the update_block_table that may take its place in a later group."""
    cls, spec, extra = builder_of(name)
    torch.set_default_dtype(torch.float32)
    m, accepted, drafts = batch(kind, k, padded)
    # A model that drafts has k set in every step.
    setup = config(k, full_graphs, attention=spec is not mla_spec, **extra)
    heads = 12 if name.startswith("aiter") else HEADS
    patch(sys.modules[cls.__module__], get_num_attention_heads_from_layers=lambda *a: heads)
    patch(mla_attention, get_num_attention_heads_from_layers=lambda *a: heads)
    with Counting():
        builder = cls(spec(k), ["layer"], setup, CUDA)
        arguments = {"num_accepted_tokens": accepted, "num_decode_draft_tokens_cpu": drafts} if name.startswith(STATES) and k else {}
        # The second build is a step's: the first fills what is kept.
        for _ in range(2):
            counts.clear()
            names.clear()
            m._num_computed_tokens_cache = None
            metadata = builder.build(0, m, **arguments)
        built = {key: counts[key] for key in ("launches", "empty", "h2d", "d2h")} | ({"plans": counts["plans"]} if counts["plans"] else {})
        if detail:
            built["calls"] = dict(names)
        counts.clear()
        names.clear()
        if builder.supports_update_block_table:
            builder.update_block_table(metadata, m.block_table_tensor, m.slot_mapping)
            built["reuse"] = {key: counts[key] for key in ("launches", "h2d", "d2h")}
    return built


def main():
    import vllm
    detail = "--calls" in sys.argv
    rows = []
    for name in BUILDERS:
        row = {"name": name}
        for kind, k in (("decode", 0), ("verify", 3), ("verify", 7), ("mixed", 0), ("mixed_drafts", 7)):
            for full_graphs in (True, False):
                for padded in (True, False):
                    key = f"{kind}{k or ''}{'' if full_graphs else '_eager'}{'' if padded else '_exact'}"
                    try:
                        with contextlib.redirect_stdout(io.StringIO()):
                            row[key] = count(name, kind, k, full_graphs, padded, detail)
                    except Exception as error:
                        if detail:
                            import traceback
                            traceback.print_exc()
                        row[key] = {"cannot run": f"{type(error).__name__}: {error}"[:300]}
        rows.append(row)
    print(json.dumps({"vllm": vllm.__version__, "builders": rows}, indent=1), file=real_stdout)


if __name__ == "__main__":
    main()
