"""Write planning cases that gen_cases.py does not reach: every spec kind, quantised caches, packed states, block strides,
layouts, context parallelism, hidden states, drafts with odd specs, and random mixes of all of them.

Usage: gen_wide.py SEED COUNT > CASES.json
"""
import json
import random
import sys

GIB = 1 << 30
DTYPES = ["bfloat16", "float16", "float32", "uint8", "float8_e4m3fn"]
QUANT = ["NONE", "NONE", "FP8_PER_TENSOR", "INT8_PER_TOKEN_HEAD", "FP8_PER_TOKEN_HEAD", "INT4_PER_TOKEN_HEAD", "NVFP4"]


def maybe(r, p, d, **k):
    """Set each field with probability p."""
    for key, make in k.items():
        if r.random() < p:
            d[key] = make() if callable(make) else make
    return d


def attention(r, kind, **k):
    d = dict(kind=kind, block_size=r.choice([16, 16, 32, 64, 128]), num_kv_heads=r.choice([1, 2, 4, 8]),
             head_size=r.choice([64, 128, 256, 96]), dtype=r.choice(DTYPES))
    maybe(r, 0.12, d, max_tp_shards=lambda: r.choice([1, 2, 4]), kv_quant_mode=lambda: r.choice(QUANT),
          dcp_sharded=False, num_head_slots=lambda: r.choice([1, 2, 16]), state_content_bytes=lambda: r.choice([144, 576, 656]),
          head_size_v=lambda: r.choice([64, 128]), block_stride_alignment=lambda: r.choice([16, 4096, 12288]),
          indexes_kv_by_block_stride=True)
    if r.random() < 0.06:
        d["tokens_per_state"] = r.choice([1, 2, 4, [1, 2]])
    d.update(k)
    return d


def full(r, **k):
    d = attention(r, "full", **k)
    return maybe(r, 0.12, d, sliding_window=lambda: r.choice([512, 1024]), non_causal=True)


def sink(r, **k):
    return maybe(r, 0.7, dict(full(r), kind="sink", **k), sink_len=lambda: r.choice([4, 16]))


def sliding(r, **k):
    d = attention(r, "sliding", sliding_window=r.choice([1, 128, 1024, 4096]), **k)
    return maybe(r, 0.05, d, extra_retained_tokens=lambda: r.choice([1, 3]))


def mla(r, kind="mla", **k):
    d = attention(r, kind, num_kv_heads=1, head_size=r.choice([576, 512, 132]), **k)
    d.pop("head_size_v", None)
    maybe(r, 0.2, d, cache_dtype_str=lambda: r.choice(["fp8", "fp8_ds_mla", "auto"]), alignment=lambda: r.choice([576, 1024, 128]),
          model_version="deepseek_v4")
    if kind == "mla":
        maybe(r, 0.1, d, non_causal=True, non_causal_multi_token_decode=True, is_index_group_leader=True, cache_role="INDEXER",
              topk_buffer_width=2048)
    return d


def sliding_mla(r):
    d = mla(r, "sliding_mla", sliding_window=r.choice([128, 128, 512]))
    return maybe(r, 0.1, d, bounded_replay=True)


def mamba(r, **k):
    heads = r.choice([4, 8, 16])
    d = dict(kind="mamba", block_size=r.choice([16, 512, 4096]), shapes=[[3, heads * 128], [heads, 64, r.choice([64, 128])]],
             dtypes=["bfloat16", r.choice(["bfloat16", "float32"])])
    maybe(r, 0.15, d, num_speculative_blocks=lambda: r.choice([1, 3, 7]), num_prefill_checkpoint_blocks=lambda: r.choice([1, 2]),
          prefill_checkpoint_alignment=64, tp_replicated=True)
    if r.random() < 0.4:
        d["page_size_padded"] = r.choice([1 << 20, 3 << 19, 1179648])
    d.update(k)
    return d


def other(r):
    return r.choice([
        lambda: attention(r, "chunked", attention_chunk_size=r.choice([2048, 8192])),
        lambda: attention(r, "cross"), lambda: attention(r, "encoder_only"), lambda: sink(r)])()


MAKE = {"full": full, "sliding": sliding, "mla": mla, "sliding_mla": sliding_mla, "mamba": mamba, "other": other, "sink": sink}


def same_pages(r, spec, **k):
    """The same shape in another kind."""
    d = {x: spec[x] for x in ("block_size", "num_kv_heads", "head_size", "dtype", "max_tp_shards", "dcp_sharded") if x in spec}
    d.update(k)
    return d


def case(r, i):
    shape = r.choice(["soup", "pair", "pair", "family", "hidden", "tuples", "packed", "packed", "off", "context", "whisper"])
    eng = dict(tp=r.choice([1, 2, 4, 8]), available_memory=r.randrange(4 * GIB, 160 * GIB),
               max_model_len=r.choice([4096, 8192, 32768, 131072]), max_num_batched_tokens=r.choice([2048, 8192]))
    n = lambda: r.randint(1, 14)
    if shape == "soup":
        parts = [MAKE[r.choice(list(MAKE))](r) for _ in range(r.randint(1, 4))]
    elif shape == "pair":
        a = full(r)
        parts = [a, r.choice([
            lambda: same_pages(r, a, kind="sliding", sliding_window=1024), lambda: same_pages(r, a, kind="chunked", attention_chunk_size=2048),
            lambda: same_pages(r, a, kind="sink", sink_len=4), lambda: same_pages(r, a, kind="cross"), lambda: dict(a, sliding_window=512),
            lambda: dict(a, attention_chunk_size=2048), lambda: dict(a, non_causal=True), lambda: dict(a, num_kv_heads=2 * a["num_kv_heads"]),
            lambda: dict(a, head_size_v=32), lambda: dict(a, block_stride_alignment=8192)])(), sliding(r)][:r.choice([2, 2, 3])]
    elif shape == "family":
        a = mla(r)
        parts = [a] + [dict(a, **r.choice([dict(max_tp_shards=r.choice([1, 2])), dict(cache_dtype_str="fp8"), dict(non_causal=True),
                                           dict(non_causal_multi_token_decode=True), dict(head_size=512), dict(tokens_per_state=4),
                                           dict(cache_role="INDEXER"), dict(model_version="deepseek_v4"), dict(alignment=576)]))
                       for _ in range(r.randint(1, 3))] + r.choice([[], [mamba(r)], [sliding(r)]])
    elif shape == "hidden":
        a = full(r)
        a.pop("sliding_window", None)
        h = dict(kind="hidden_state", block_size=a["block_size"], num_kv_heads=1, head_size=r.choice([2048, 4096, 65536]), dtype="bfloat16")
        parts = [a, same_pages(r, a, kind="sliding", sliding_window=1024), h]
    elif shape == "tuples":
        a = mla(r, block_size=256)
        parts = [a, dict(a, head_size=132), dict(sliding_mla(r), block_size=r.choice([64, 256]))]
        parts += [dict(parts[2], head_size=132)] if r.random() < 0.4 else []
    elif shape == "packed":
        eng["layout"] = r.choice(["BLHNC", "BLNHC", "BHLNC", "LBHNC", "LHBNC"])
        a = full(r, block_size=64)
        parts = [a, dict(a, head_size=2 * a["head_size"]), same_pages(r, a, kind="sliding", sliding_window=512, block_size=64), mamba(r)]
        r.shuffle(parts)
        parts = parts[:r.randint(2, 4)]
        if r.random() < 0.5:
            parts.append(dict(parts[0], head_size=320) if parts[0]["kind"] != "mamba" else mamba(r))
    elif shape == "off":
        eng["disable_hybrid"] = True
        a = full(r)
        parts = [a, r.choice([lambda: same_pages(r, a, kind="sliding", sliding_window=1024), lambda: sliding(r), lambda: sliding_mla(r),
                              lambda: attention(r, "chunked", attention_chunk_size=2048), lambda: mamba(r),
                              lambda: same_pages(r, a, kind="chunked", attention_chunk_size=2048)])()]
        if r.random() < 0.3:
            parts.append(same_pages(r, a, kind="sliding", sliding_window=512))
    elif shape == "context":
        eng["dcp"] = r.choice([2, 4])
        eng["tp"] = 8
        eng["pcp"] = r.choice([1, 1, 2])
        a = r.choice([mla, full])(r)
        parts = [a, dict(a, dcp_sharded=False), mamba(r)][:r.choice([1, 2, 3])]
        if r.random() < 0.3:
            parts.append(sliding(r, dcp_sharded=False))
    else:  # whisper-like
        a = attention(r, "full")
        parts = [a, same_pages(r, a, kind="cross")]
        eng["max_encoder_tokens"] = r.choice([1500, 3000])
        if r.random() < 0.2:
            parts.append(same_pages(r, a, kind="encoder_only"))
    seq = [p for p in parts for _ in range(n())]
    if r.random() < 0.6:
        r.shuffle(seq)
    if any(p["kind"] == "mamba" for p in seq):
        eng["mamba_cache_mode"] = r.choice(["none", "align", "all"])
    layers = [dict(p, name=f"model.layers.{j}.attn") for j, p in enumerate(seq)]
    if r.random() < 0.1 and len(layers) >= 8:
        eng["pp"] = r.choice([2, 4])
        eng["available_memory_per_worker"] = [int(eng["available_memory"] * r.uniform(0.8, 1.0)) for _ in range(eng["pp"])]
    if r.random() < 0.1:
        eng["derived_max_model_len"] = eng["max_model_len"]
        eng["max_model_len"] = -1
        eng["available_memory"] = r.randrange(GIB // 64, 4 * GIB)
        eng.pop("available_memory_per_worker", None)
    elif r.random() < 0.08:
        eng["available_memory"] = r.randrange(GIB // 256, GIB)
        eng.pop("available_memory_per_worker", None)
    if r.random() < 0.05:
        eng["num_gpu_blocks_override"] = r.randint(1, 5000)
    return dict(id=f"{shape}-{i:05d}", layers=layers, engine=eng)


def main():
    r = random.Random(int(sys.argv[1]))
    json.dump([case(r, i) for i in range(int(sys.argv[2]))], sys.stdout)


if __name__ == "__main__":
    main()
