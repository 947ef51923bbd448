"""Write scheduling cases that are wider than plain ones. Usage: gen_schedules_wide.py SEED COUNT > CASES.json

Several groups with prefix caching, shared prefixes under eviction (`evict`, and `many` with up to 46 groups), recurrent
states in align mode, drafters that drop blocks, retention, DCP, large batches, aborts, watermark, a limit on long
prefills, cross-attention and rings. A third argument names the shapes to draw from, as `evict,many`.
"""
import json
import random
import sys

FULL = dict(kind="full", layers=2, num_kv_heads=2, head_size=16, dtype="bfloat16")
STATE = dict(kind="mamba", layers=2, shapes=[[3, 32], [4, 16, 16]], dtypes=["bfloat16", "float32"])
SHAPES = ["groups", "groups", "mixed_sizes", "align", "align", "align_fine", "align_spec", "eagle", "eagle_sliding", "chunked",
          "dcp", "batch", "abort", "all", "retention", "limits", "mtp", "evict", "evict", "many", "cross", "ring"]


def groups_of(r, shape, bs):
    full = dict(FULL, block_size=bs)
    sliding = dict(full, kind="sliding", sliding_window=r.choice([16, 32, 48, 64, 128]))
    if shape in ("groups", "batch", "abort", "limits"):
        out = [dict(full) for _ in range(r.randint(1, 3))] + [dict(sliding) for _ in range(r.randint(0, 4))]
        if r.random() < 0.4:
            r.shuffle(out)
        return out
    if shape in ("mixed_sizes", "retention", "eagle_sliding", "mtp"):
        wide = dict(sliding, block_size=bs * r.choice([1, 2, 4]))
        return [dict(full)] + [dict(wide) for _ in range(r.randint(1, 3))]
    if shape in ("evict", "many"):
        state = dict(STATE, mamba_cache_mode="align", block_size=bs)
        other = r.choice([full, sliding, sliding, state])
        most = 46 if shape == "many" else 6
        out = [dict(other) for _ in range(r.randint(2, most))] + [dict(full) for _ in range(r.randint(1, 3))]
        return out if r.random() < 0.7 else out[::-1]
    if shape == "cross":
        return [dict(full)] + [dict(full, kind="cross") for _ in range(r.randint(1, 2))]
    if shape == "ring":
        ring = dict(full, kind="ring", block_size=r.choice([8, 16, 64]))
        return [dict(full)] + [dict(sliding) for _ in range(r.randint(0, 2))] + [dict(ring) for _ in range(r.randint(1, 3))]
    if shape == "chunked":
        return [dict(full), dict(full, kind="chunked", attention_chunk_size=r.choice([64, 128, 256]))]
    if shape.startswith("align"):
        state = dict(STATE, mamba_cache_mode="align", block_size=bs * (4 if shape == "align_fine" else 1))
        return [dict(state) for _ in range(r.randint(1, 4))] + [dict(full) for _ in range(r.randint(1, 2))]
    if shape == "all":
        return [dict(STATE, mamba_cache_mode="all", block_size=bs) for _ in range(r.randint(1, 2))] + [dict(full)]
    if shape == "dcp":
        out = [dict(FULL, kind="mla", num_kv_heads=1, block_size=bs)]
        if r.random() < 0.6:
            out = [dict(STATE, mamba_cache_mode="align", block_size=bs * 2) for _ in range(r.randint(1, 3))] + out
        return out
    return [dict(full) for _ in range(r.randint(1, 3))]


def case(r, i, shapes=SHAPES):
    bs = r.choice([16, 16, 32])
    shape = r.choice(shapes)
    eng = dict(max_num_seqs=r.choice([2, 4, 8, 16]), max_num_batched_tokens=r.choice([64, 128, 256, 512]),
               max_model_len=2048, num_blocks=0, enable_prefix_caching=True)
    if r.random() < 0.5:
        eng["async_scheduling"] = True
    if r.random() < 0.12:
        eng["policy"] = "priority"
    if shape == "batch":
        eng.update(max_num_seqs=r.choice([32, 64, 128]), max_num_batched_tokens=r.choice([512, 1024, 2048]))
    groups = groups_of(r, shape, bs)
    if shape == "cross":
        eng["enable_prefix_caching"] = False
    if any(g.get("mamba_cache_mode") == "align" for g in groups):
        eng["mamba_cache_mode"] = "align"
        eng["block_size"] = next(g["block_size"] for g in groups if g["kind"] == "mamba")
    if shape == "all":
        eng["mamba_cache_mode"] = "all"
    if shape == "dcp":
        eng["dcp"] = r.choice([2, 4])
    if shape in ("eagle", "eagle_sliding", "align_spec", "mtp") or (shape in ("groups", "batch", "all", "evict", "many", "cross", "ring") and r.random() < 0.4):
        k = eng["num_speculative_tokens"] = r.choice([1, 3, 5])
        for g in groups:
            if g["kind"] == "mamba":
                g["num_speculative_blocks"] = k
        if shape in ("eagle", "eagle_sliding", "align_spec", "mtp"):
            eng.update(lookahead_tokens=k, prefill_lookahead_tokens=1, eagle_block_drop=True)
            if r.random() < 0.5:
                groups[-1]["is_eagle_group"] = True
            if shape == "mtp":
                eng["prefill_lookahead_tokens"] = k
                for g in groups:
                    if g["kind"] == "sliding":
                        g["extra_retained_tokens"] = k - 1
            if r.random() < 0.3:
                eng["drafting_slots"] = max(k - 1, 1)
    if shape == "retention" or (shape in ("align", "align_fine", "groups") and r.random() < 0.4
                                and any(g["kind"] in ("mamba", "sliding") for g in groups)):
        eng["prefix_cache_retention_interval"] = r.choice([0, 0, 4 * max(g["block_size"] for g in groups)])
    if shape == "limits":
        eng["watermark"] = r.choice([0.01, 0.05, 0.1])
        eng["long_prefill_token_threshold"] = r.choice([0, 32, 100])
        eng["reserve_full_prompt"] = r.random() < 0.5
    n = r.choice([r.randint(6, 20), r.randint(20, 40), r.randint(40, 90) if shape == "batch" else 12])
    reqs, step = [], 0
    pool = [r.randint(60, 700) for _ in range(r.randint(1, 4))]
    for j in range(n):
        step += r.choice([0, 0, 0, 1, 2, 5, 20])
        q = dict(id=f"r{j:02d}", arrival_step=step, prompt_tokens=r.choice([r.randint(1, 60), r.choice(pool), r.randint(60, 700)]),
                 max_tokens=r.choice([1, r.randint(2, 40), r.randint(20, 150)]))
        if eng.get("policy"):
            q["priority"] = r.randint(0, 3)
        if reqs and r.random() < 0.8:
            src = r.choice(reqs[:3] if r.random() < 0.6 else reqs)
            q["prefix"] = [src["id"], min(r.choice([r.randint(1, src["prompt_tokens"]), src["prompt_tokens"]]), q["prompt_tokens"])]
        if (shape == "abort" and r.random() < 0.4) or r.random() < 0.03:
            q["abort_step"] = step + r.randint(0, 60)
        reqs.append(q)
        if shape in ("evict", "many"):
            # A few prefixes, each forgotten for a while.
            turn = (j // r.choice([1, 2, 5])) % len(pool)
            first = reqs[min(turn, len(reqs) - 1)]
            if first is not q:
                q["prompt_tokens"] = first["prompt_tokens"] + r.randint(0, 90)
                q["prefix"] = [first["id"], max(1, first["prompt_tokens"] - r.choice([0, 0, 0, r.randint(0, 40)]))]
            q["arrival_step"] = step = step + r.choice([0, 3, 30])
        if shape == "cross":
            q["encoder_tokens"] = r.choice([1, r.randint(1, 200), r.randint(200, 1500)])
    longest = max(q["prompt_tokens"] + q["max_tokens"] for q in reqs)
    k = eng.get("num_speculative_tokens", 0)
    if shape == "cross":
        longest = max(longest, max(q["encoder_tokens"] for q in reqs))
    floor = 3 + sum(-(-longest // (g["block_size"] * (eng.get("dcp", 1) if g["kind"] != "mamba" else 1))) + 3
                    if g.get("mamba_cache_mode") != "align" else 4 + k for g in groups)
    eng["num_blocks"] = int(floor * r.choice([1.1, 1.2, 1.4, 1.7] if shape in ("evict", "many") else [1.1, 1.4, 2, 4])) + 2
    return dict(id=f"{shape}-{i:04d}", engine=eng, groups=groups, requests=reqs, max_steps=600,
                accept=[r.randint(0, k) for _ in range(r.randint(1, 7))] if k else [0])


def main():
    r = random.Random(int(sys.argv[1]))
    shapes = sys.argv[3].split(",") if len(sys.argv) > 3 else SHAPES
    json.dump([case(r, i, shapes) for i in range(int(sys.argv[2]))], sys.stdout)


if __name__ == "__main__":
    main()
