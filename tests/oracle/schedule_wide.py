"""Record what an installed vLLM's real scheduler does, step by step.

Usage: TINY_MODEL=DIR PYTHON_WITH_VLLM schedule_wide.py CASES.json > CASES.jsonl

A case is {"id", "engine", "groups", "requests", "accept"}; `gen_schedules_wide.py` beside this file writes some.
No model runs: a scheduled request that has no prompt left yields one token and, with drafts scheduled,
accept[i % len] more, i being the count of its draft steps. A request with "abort_step" is ended from outside
before that step. "encoder_tokens" are what a request's cross-attention holds; the encoder's own budget is left out.
The engine may carry what a drafter asks of the scheduler (lookahead_tokens,
prefill_lookahead_tokens, eagle_block_drop, drafting_slots) without there being one.
"""
import json
import logging
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
logging.disable(logging.CRITICAL)
import torch  # noqa: E402
from vllm.config import SpeculativeConfig  # noqa: E402,F401
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402
from vllm.v1 import kv_cache_interface as ki  # noqa: E402
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange  # noqa: E402
from vllm.v1.core.encoder_cache_manager import EncoderDecoderCacheManager  # noqa: E402
from vllm.v1.core.kv_cache_utils import (  # noqa: E402
    get_request_block_hasher, init_none_hash, resolve_kv_cache_block_sizes)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

from vllm.config import VllmConfig  # noqa: E402

KINDS = {"full": "FullAttentionSpec", "mla": "MLAAttentionSpec", "sliding": "SlidingWindowSpec",
         "chunked": "ChunkedLocalAttentionSpec", "mamba": "MambaSpec", "cross": "CrossAttentionSpec", "ring": "CircularBufferSpec"}
ENGINE = {}
VllmConfig.num_lookahead_tokens = property(lambda self: ENGINE.get("lookahead_tokens", 0))
VllmConfig.num_prefill_lookahead_tokens = property(lambda self: ENGINE.get("prefill_lookahead_tokens", 0))
SpeculativeConfig.use_eagle_block_drop = lambda self: ENGINE.get("eagle_block_drop", False)
SpeculativeConfig.max_num_new_slots_for_drafting = property(lambda self: ENGINE.get("drafting_slots", 0))


def build(group):
    """The spec that a case's group describes."""
    d = {k: v for k, v in group.items() if k not in ("layers", "is_eagle_group")}
    cls = getattr(ki, KINDS[d.pop("kind")])
    if "dtype" in d:
        d["dtype"] = getattr(torch, d["dtype"])
    if "dtypes" in d:
        d["dtypes"] = tuple(getattr(torch, x) for x in d["dtypes"])
        d["shapes"] = tuple(tuple(s) for s in d["shapes"])
    return cls(**d)


MODEL = os.environ.get("TINY_MODEL", "tiny")


def config(engine, block_size):
    args = EngineArgs(
        model=MODEL, skip_tokenizer_init=True, load_format="dummy", async_scheduling=False,
        max_model_len=engine["max_model_len"], max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["max_num_batched_tokens"], block_size=block_size,
        enable_prefix_caching=engine.get("enable_prefix_caching", False),
        enable_chunked_prefill=True, scheduling_policy=engine.get("policy", "fcfs"),
        speculative_config=(
            {"method": "ngram", "num_speculative_tokens": engine["num_speculative_tokens"],
             "prompt_lookup_max": 2} if engine.get("num_speculative_tokens") else None))
    cfg = args.create_engine_config()
    cfg.cache_config.num_gpu_blocks = engine["num_blocks"]
    return cfg


CONFIGS = {}


def prompt(req, by_id, vocab=31990):
    """Distinct tokens a request, but for a prefix shared with an earlier one."""
    base = (req["_n"] * 7919) % vocab
    own = [(base + 13 * i) % vocab + 5 for i in range(req["prompt_tokens"])]
    if req.get("prefix"):
        src, n = req["prefix"]
        own[:n] = prompt(by_id[src], by_id)[:n]
    return own


def run(case):
    engine = case["engine"]
    ENGINE.clear()
    ENGINE.update(engine)
    specs = [build(g) for g in case["groups"]]
    block_size = min(s.block_size for s in specs if not isinstance(s, (ki.MambaSpec, ki.CircularBufferSpec)))
    key = json.dumps([engine, block_size], sort_keys=True)
    cfg = CONFIGS[key] = CONFIGS.get(key) or config(engine, block_size)
    names = iter(range(10**6))
    groups = [ki.KVCacheGroupSpec([f"layer.{next(names)}" for _ in range(g["layers"])], s,
                                  is_eagle_group=g.get("is_eagle_group", False))
              for g, s in zip(case["groups"], specs)]
    kv = ki.KVCacheConfig(num_blocks=engine["num_blocks"], kv_cache_tensors=[], kv_cache_groups=groups,
                          prefix_cache_retention_interval=engine.get("prefix_cache_retention_interval"))
    cfg.cache_config.mamba_cache_mode = engine.get("mamba_cache_mode", "none")
    cfg.cache_config.block_size = engine.get("block_size", block_size)
    cfg.cache_config.prefix_match_unit = engine.get("prefix_match_unit")
    cfg.parallel_config.decode_context_parallel_size = engine.get("dcp", 1)
    cfg.scheduler_config.watermark = engine.get("watermark", 0.0)
    cfg.scheduler_config.scheduler_reserve_full_isl = engine.get("reserve_full_prompt", True)
    cfg.scheduler_config.long_prefill_token_threshold = engine.get("long_prefill_token_threshold", 0)
    cfg.cache_config.mamba_block_size = next((s.block_size for s in specs if isinstance(s, ki.MambaSpec)), None)
    sched_block, hash_block = resolve_kv_cache_block_sizes(kv, cfg)[:2]
    init_none_hash(sha256)
    cfg.scheduler_config.async_scheduling = bool(engine.get("async_scheduling"))
    sched = (AsyncScheduler if engine.get("async_scheduling") else Scheduler)(
        vllm_config=cfg, kv_cache_config=kv, block_size=sched_block, hash_block_size=hash_block,
                      structured_output_manager=StructuredOutputManager(cfg), log_stats=True)
    if any(g["kind"] == "cross" for g in case["groups"]):
        sched.is_encoder_decoder = True
        sched.max_num_encoder_input_tokens = 10**9
        sched.encoder_cache_manager = EncoderDecoderCacheManager(10**9)
    hasher = get_request_block_hasher(hash_block, sha256)
    by_id = {}
    for n, r in enumerate(case["requests"]):
        r["_n"] = n
        by_id[r["id"]] = r
    due = sorted(case["requests"], key=lambda r: r["arrival_step"])
    live, steps, drafts, step = {}, [], {}, 0
    k = engine.get("num_speculative_tokens", 0)
    queue, depth = [], 2 if engine.get("async_scheduling") else 1

    def finish_oldest():
        """Hand the oldest step's tokens back; name the requests that this ended."""
        out, toks = queue.pop(0)
        ids = list(toks)
        mro = ModelRunnerOutput(req_ids=ids, req_id_to_index={r: i for i, r in enumerate(ids)}, sampled_token_ids=list(toks.values()),
                                logprobs=None, prompt_logprobs_dict={}, pooler_output=[])
        done = []
        for outs in sched.update_from_output(out, mro).values():
            done += [o.request_id for o in outs.outputs if o.finish_reason is not None]
        for d in done:
            live.pop(d, None)
        if k and depth == 1:
            have = [r for r in ids if r in live and toks[r]]
            sched.update_draft_token_ids(DraftTokenIds(have, [[9] * k for _ in have]))
        return sorted(done)

    aborts = sorted((r for r in case["requests"] if r.get("abort_step") is not None), key=lambda r: r["abort_step"])

    while step < case.get("max_steps", 1000):
        while due and due[0]["arrival_step"] <= step:
            r = due.pop(0)
            q = Request(request_id=r["id"], prompt_token_ids=prompt(r, by_id),
                        sampling_params=SamplingParams(max_tokens=r["max_tokens"], ignore_eos=True), pooling_params=None,
                        arrival_time=float(r["arrival_step"]), priority=r.get("priority", 0),
                        mm_features=[MultiModalFeatureSpec(data=None, modality="audio", identifier=r["id"],
                                                           mm_position=PlaceholderRange(offset=0, length=r["encoder_tokens"]))]
                        if r.get("encoder_tokens") else None,
                        block_hasher=hasher if engine.get("enable_prefix_caching") else None)
            live[r["id"]] = q
            sched.add_request(q)
        while aborts and aborts[0]["abort_step"] <= step:
            r = aborts.pop(0)
            sched.finish_requests(r["id"], RequestStatus.FINISHED_ABORTED)
            live.pop(r["id"], None)
        if not live and not due:
            break
        preempted_before = {i: q.num_preemptions for i, q in live.items()}
        out = sched.schedule()
        n = dict(out.num_scheduled_tokens)
        row = {"step": step, "scheduled": n,
               "new": [r.req_id for r in out.scheduled_new_reqs],
               "cached_tokens": {r.req_id: r.num_computed_tokens for r in out.scheduled_new_reqs if r.num_computed_tokens},
               "resumed": sorted(out.scheduled_cached_reqs.resumed_req_ids),
               "preempted": sorted(i for i, q in live.items() if q.num_preemptions > preempted_before[i]),
               "new_blocks": {}, "free_blocks": sched.kv_cache_manager.block_pool.get_num_free_blocks(),
               "running": len(sched.running), "waiting": len(sched.waiting)}
        for r in out.scheduled_new_reqs:
            row["new_blocks"][r.req_id] = [len(b) for b in r.block_ids]
        c = out.scheduled_cached_reqs
        for rid, b in zip(c.req_ids, c.new_block_ids):
            if b is not None:
                row["new_blocks"][rid] = [len(x) for x in b]
        spec = {r: len(t) for r, t in out.scheduled_spec_decode_tokens.items()}
        if spec:
            row["drafts"] = spec
        toks = {}
        for rid in n:
            if live[rid].is_prefill_chunk:
                toks[rid] = []
                continue
            got = 1
            if rid in spec:
                i = drafts.get(rid, 0)
                drafts[rid] = i + 1
                got += min(case["accept"][i % len(case["accept"])], spec[rid])
            toks[rid] = [7] * got
        row["finished"] = []
        if n:
            queue.append((out, toks))
        back = bool(queue) and (len(queue) >= depth or not n)
        if back:
            row["finished"] = finish_oldest()
        steps.append(row)
        step += 1
        if not n and not back and not due:
            break  # nothing can ever be scheduled again
    for r in case["requests"]:
        r.pop("_n")
    return {"steps": steps, "unfinished": sorted(live)}


def main():
    import vllm
    for case in json.load(open(sys.argv[1])):
        try:
            case["expect"] = run(case)
        except Exception as e:
            import traceback
            traceback.print_exc()
            case["expect"] = {"error": type(e).__name__, "detail": str(e)[:200]}
        print(json.dumps({"oracle": "vllm " + vllm.__version__, **case}, separators=(",", ":")))


if __name__ == "__main__":
    main()
