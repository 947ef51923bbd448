//! `k3plan zoo`, and the shipped scenarios against what is published about them.

use crate::support::{golden_lines, json, k3plan};

#[test]
fn lists_every_shipped_scenario() {
    let run = k3plan(&["zoo"]);
    assert_eq!(run.code, Some(0), "{}", run.whole());
    insta::assert_snapshot!(run.stdout);
}

#[test]
fn shows_what_a_scenario_says() {
    let run = k3plan(&["zoo", "kimi-k3-dspark-rocm-regressed"]);
    assert_eq!(run.code, Some(0), "{}", run.whole());
    insta::assert_snapshot!(run.stdout);
}

/// Every shipped scenario has a source, fits its memory, and has no field of a later engine than its own.
#[test]
fn every_shipped_scenario_plans() {
    let report = json(&["zoo", "--json"]);
    for scenario in report["scenarios"].as_array().unwrap() {
        let name = scenario["name"].as_str().unwrap();
        assert!(scenario["source"].is_string() && scenario["title"].is_string(), "{name}");
        let run = k3plan(&["plan", name]);
        assert_eq!(run.code, Some(0), "{name}: {}", run.whole());
    }
}

/// Each arm of the case is the recorded one, spec by spec and layer by layer.
#[test]
fn the_case_is_the_recorded_one() {
    let recorded: Vec<serde_json::Value> =
        golden_lines("k3").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (name, id) in [
        ("kimi-k3", "k3-alone"),
        ("kimi-k3-dspark-rocm-regressed", "k3-dspark-rocm-regressed"),
        ("kimi-k3-dspark-rocm-fixed", "k3-dspark-rocm-fixed"),
        ("kimi-k3-dspark-nvidia-before", "k3-dspark-nvidia-before"),
        // Before the field, no layer declared it; after the fix, every layer does.
        ("kimi-k3-dspark-rocm-before", "k3-dspark-nvidia-before"),
        ("kimi-k3-dspark-nvidia-after", "k3-dspark-rocm-fixed"),
    ] {
        let shipped = json(&["zoo", "--json", name])["scenarios"][0].clone();
        let case = recorded.iter().find(|case| case["id"] == id).unwrap();
        for key in ["specs", "layers", "draft_from"] {
            assert_eq!(shipped[key], case[key], "{name} {key}");
        }
        for key in ["tp", "max_model_len", "max_num_batched_tokens", "max_num_seqs"] {
            assert_eq!(shipped["engine"][key], case["engine"][key], "{name} {key}");
        }
        let memory = &shipped["engine"]["available_memory_per_worker"][0];
        assert_eq!(memory, &case["engine"]["available_memory"], "{name}");
    }
}

/// Groups, group size and padding as they were published for these models.
#[test]
fn groups_are_the_published_ones() {
    let plan = |args: &[&str]| {
        let plan = json(&[&["plan", "--json"], args].concat())["plans"][0].clone();
        let groups = plan["groups"].as_array().unwrap().len();
        (groups, plan["group_size"].as_u64().unwrap(), plan)
    };
    // vLLM pull request 51742: 46 groups of one layer, and 10 with the proposal.
    assert_eq!(plan(&["qwen3.6-35b-a3b-dflash"]).0, 46);
    assert_eq!(plan(&["qwen3.6-35b-a3b-dflash", "--grouping", "51742"]).0, 10);
    // vLLM pull request 49472: 770 blocks, 743 a request, 271,670 tokens; at sizes 4 and 8: 962 and 481
    // blocks, 774 and 387 a request, 325,817 tokens.
    for (args, blocks, request, tokens) in [
        (&["qwen3.8-27b-dflash2"][..], 770, 743, 271_670),
        (&["qwen3.8-27b-dflash2", "--grouping", "36143=4"], 962, 774, 325_817),
        (&["qwen3.8-27b-dflash2", "--grouping", "36143=8"], 481, 387, 325_817),
    ] {
        let (_, _, plan) = plan(args);
        assert_eq!(plan["pool"]["num_blocks"], blocks, "{args:?}");
        assert_eq!(plan["pool"]["blocks_per_max_len_request"], request, "{args:?}");
        assert_eq!(plan["pool"]["kv_cache_size_tokens"], tokens, "{args:?}");
    }
    // vLLM pull request 58175: 11 groups of 5, and 18 of 3 with the proposal.
    let (groups, size, _) = plan(&["mimo-v2-flash-draft"]);
    assert_eq!((groups, size), (11, 5));
    let (groups, size, _) = plan(&["mimo-v2-flash-draft", "--grouping", "58175"]);
    assert_eq!((groups, size), (18, 3));
    // vllm-ascend issue 14314: 3 padding layers without the draft, 18 with it.
    assert_eq!(plan(&["kimi-k3"]).2["padding_layers"], 3);
    assert_eq!(plan(&["kimi-k3-dspark-rocm-fixed"]).2["padding_layers"], 18);
    // Facts of the regression: 20 groups, of 14 KDA, 5 MLA and 1 draft.
    assert_eq!(plan(&["kimi-k3-dspark-rocm-regressed"]).0, 20);
    // vLLM pull request 49472 chooses size 10 for 9, 39 and 5 layers.
    assert_eq!(plan(&["mimo-v2-flash-draft", "--grouping", "49472"]).1, 10);
}
