//! The logs that cannot be held to a plan, and what is missing of each.

/// Why each other log cannot be held.
#[rustfmt::skip]
pub(super) const NOT_HELD: &[(&str, &str)] = &[
    ("club3090-int8-gemma4", "a patched vLLM (pull request 40391) pads the full layers' pages; no release does"),
    ("tpu-1285", "another engine for TPU, and the model is not named"),
    ("lil-238", "a fork with its own planner; no memory printed"),
    ("vllm-54458", "a build before GLM-5.3-Flash's own grouping; the draft, its k, memory and the longest request are not printed"),
    ("kaito-2319", "prints a limit of max-num-seqs alone: 614 blocks, no memory, length or tokens"),
    ("kaito-2052", "states a rule (fixed blocks and blocks by length), no figures"),
    ("club3090-multi4-dflash", "memory is not printed: 3,810 to 3,822 blocks in 15 groups of 816 tokens, with the k = 5 and bfloat16 of its compose file, give both integers"),
    ("qwen38-2x3090", "a launcher with patches to the grouping, at a version that is not stated: with its k = 7 and groups of 8, one state a request gives the tokens (1,672 blocks), states at block boundaries, which the command asks for, do not"),
    ("dsv41-b200-vibesim", "a fork, with a kind of compressor ring of its own"),
    ("dsv4-51041", "a range of tokens in a title; the thread's two pools name neither batches nor drafts"),
    ("dsv4-51041-fit", "a fork; ratios over thread values"),
    ("gemma4-31b-eagle3-tp2", "concurrency alone, no memory or tokens"),
    ("dsv4flash-live", "a custom image: neither release's pages, 1,002,240 and 1,039,680 bytes, give the tokens in the 43.84 GiB that its owner states"),
    ("dsv4flash-3spark", "a custom image that pads the heads for TP3: no number of a release's blocks in 33.41 GiB gives the tokens"),
    ("kimi-k3-dcp8", "a fork; no memory printed"),
    ("glm52-dcp", "the first pool's tokens alone, whose blocks of 64 any memory gives; the second's concurrency alone"),
    ("musa-138", "another engine for MUSA"),
    ("glm53-groups-94", "a fork: 804 blocks and 414 a request give the tokens, 97 of these its draft's, whose layers it does not list"),
    ("glm53-groups-28", "a fork with a kind of its own (KpoolTail)"),
    ("lil-488", "a fork of vLLM"),
    ("ascend-15960", "another engine for Ascend"),
    ("vllm-52047", "a fault of a connector, no figures"),
    ("lmcache-4278", "the line is LMCache's: bytes a token over all layers and blocks, not a plan"),
];
