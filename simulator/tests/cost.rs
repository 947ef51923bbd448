//! Laws of the cost model, on random models and loads, and weights of models whose size is public.

#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::{Value, json};
use simulator::cost::closed_loop::{Kind, Load};
use simulator::cost::{
    Batch, CostModel, Dispatch, Exposure, Factors, Hardware, Layout, Precision, Prompt, Shape, ShapeError,
    WeightFormat, known_hardware,
};

fn dense(layers: u32, hidden: u32, heads: u32, kv_heads: u32) -> Value {
    json!({
        "model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": 128, "intermediate_size": 4 * hidden, "vocab_size": 32_000
    })
}

fn moe(config: Value, experts: u32, top_k: u32) -> Value {
    let mut config = config;
    let map = config.as_object_mut().unwrap();
    map.insert("num_experts".to_owned(), json!(experts));
    map.insert("num_experts_per_tok".to_owned(), json!(top_k));
    map.insert("moe_intermediate_size".to_owned(), json!(1024));
    config
}

fn model(config: &Value, hardware: &Hardware, ranks: u32) -> CostModel {
    let precision = Precision { dense: WeightFormat::Bf16, experts: WeightFormat::Fp8Block, kv_bytes: 1.0 };
    let layout = Layout { tensor_parallel: ranks, expert_parallel: false, early_fp8_experts: false };
    CostModel::new(&Shape::read(config).unwrap(), hardware, precision, layout, &Factors::default()).unwrap()
}

fn load(concurrency: f64, input: f64, output: f64) -> Load {
    Load {
        kind: Kind::ClosedLoop,
        concurrency,
        input,
        output,
        prompts: 10.0 * concurrency,
        running_at_most: f64::MAX,
        chunk: 8192.0,
        drafts: 0.0,
        accepted: 1.0,
    }
}

/// The laws that a load breaks, beside those of a request more and of 1,000 tokens of prompt more.
fn broken(model: &CostModel, requests: u32, input: u32, output: u32) -> Vec<&'static str> {
    let at = |requests: u32, input: u32| {
        model.estimate(&load(f64::from(requests), f64::from(input), f64::from(output)))
    };
    let (one, busier, longer) = (at(requests, input), at(requests + 1, input), at(requests, input + 1000));
    let no_less = |a: f64, b: f64| a >= b * (1.0 - 1e-9);
    [
        ("TPOT falls with requests", no_less(busier.tpot, one.tpot)),
        ("TPOT falls with tokens", no_less(longer.tpot, one.tpot)),
        ("TTFT falls with tokens", no_less(longer.ttft, one.ttft)),
        ("ITL is above TPOT", no_less(one.tpot, one.itl)),
    ]
    .into_iter()
    .filter_map(|(law, holds)| (!holds).then_some(law))
    .collect()
}

fn any_hardware() -> impl Strategy<Value = &'static Hardware> {
    let known: Vec<&Hardware> = known_hardware().iter().filter(|h| h.bandwidth.is_some()).collect();
    prop::sample::select(known)
}

fn any_config() -> impl Strategy<Value = Value> {
    (1_u32..100, 1_u32..64, 0_u32..4, prop::option::of((2_u32..512, 1_u32..9))).prop_map(
        |(layers, heads, kv, experts)| {
            let config = dense(layers, heads * 128, heads, (heads >> kv).max(1));
            match experts {
                Some((count, top_k)) => moe(config, count, top_k.min(count)),
                None => config,
            }
        },
    )
}

proptest! {
    #[test]
    fn parts_add_up_and_are_times(
        config in any_config(), hardware in any_hardware(), ranks in 1_u32..9,
        requests in 0_u32..512, context in 0_u32..200_000, prompt in prop::option::of(1_u32..20_000),
    ) {
        let batch = Batch {
            requests: f64::from(requests),
            tokens_each: 1.0,
            context: f64::from(context),
            prompt: prompt.map(|tokens| Prompt { tokens: f64::from(tokens), before: 0.0 }),
        };
        let step = model(&config, hardware, ranks).step(&batch);
        prop_assert!(step.parts.iter().all(|part| part.is_finite() && *part >= 0.0));
        prop_assert!((step.parts.iter().sum::<f64>() - step.total()).abs() <= 1e-12);
        prop_assert!(step.total() > 0.0);
    }

    #[test]
    fn more_work_never_takes_less_time(
        config in any_config(), hardware in any_hardware(), ranks in 1_u32..9,
        requests in 1_u32..256, input in 1_u32..20_000, output in 1_u32..4000,
    ) {
        let broken = broken(&model(&config, hardware, ranks), requests, input, output);
        prop_assert!(broken.is_empty(), "{broken:?}");
    }

    #[test]
    fn more_groups_never_take_less_time(
        config in any_config(), hardware in any_hardware(), builds in 0_u32..100, launches in 0_u32..1000, more in 0_u32..100,
        exposed in any::<bool>(),
    ) {
        let exposure = if exposed { Exposure::Exposed } else { Exposure::Overlapped };
        let at = |builds: u32, launches: u32| {
            let dispatch = Dispatch { builds: f64::from(builds), launches: f64::from(launches) };
            model(&config, hardware, 1).with_groups(dispatch, exposure).estimate(&load(8.0, 1000.0, 100.0)).tpot
        };
        prop_assert!(at(builds + more, launches + more) >= at(builds, launches));
    }

    #[test]
    fn no_config_panics(text in "\\{(\"(hidden_size|num_hidden_layers|num_attention_heads|vocab_size|intermediate_size|num_experts|layer_types)\":(0|1|-1|9999999999999|\"x\"|null|\\[\\]|\\{\\}),?)*\\}") {
        if let Ok(config) = serde_json::from_str::<Value>(&text) {
            let _ = Shape::read(&config);
        }
    }
}

/// Where prompts are many and outputs short, and where a prompt is cut into one step more.
#[test]
fn more_work_never_takes_less_time_where_steps_are_full() {
    let configs = [
        dense(1, 256, 2, 1),
        dense(80, 8192, 64, 8),
        moe(dense(1, 256, 2, 1), 338, 7),
        moe(dense(40, 2048, 16, 4), 511, 1),
    ];
    for config in &configs {
        for hardware in known_hardware().iter().filter(|hardware| hardware.bandwidth.is_some()) {
            let model = model(config, hardware, 1);
            for requests in [1, 2, 20, 172, 183, 220, 1000] {
                for input in [1, 187, 500, 7193, 7192, 7743, 8192, 15_400] {
                    for output in [1, 2, 3, 50] {
                        let broken = broken(&model, requests, input, output);
                        assert!(
                            broken.is_empty(),
                            "{broken:?}: {config}, {}, {requests} x {input} + {output}",
                            hardware.name
                        );
                    }
                }
            }
        }
    }
}

/// Totals that the models' own cards give, in billions.
#[test]
fn weights_of_public_models() {
    let llama = json!({
        "model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
        "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128_256, "tie_word_embeddings": false
    });
    let deepseek = json!({
        "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
        "num_key_value_heads": 128, "intermediate_size": 18432, "vocab_size": 129_280, "kv_lora_rank": 512,
        "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3
    });
    let qwen = json!({
        "model_type": "qwen3_moe", "num_hidden_layers": 94, "hidden_size": 4096, "num_attention_heads": 64,
        "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151_936,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "tie_word_embeddings": false
    });
    for (config, all, active) in [(llama, 70.6, 69.5), (deepseek, 671.0, 37.0), (qwen, 235.0, 22.0)] {
        let shape = Shape::read(&config).unwrap();
        assert!((shape.weights() / 1e9 / all - 1.0).abs() < 0.01, "{} for {all}", shape.weights() / 1e9);
        assert!(
            (shape.active_weights() / 1e9 / active - 1.0).abs() < 0.05,
            "{}",
            shape.active_weights() / 1e9
        );
    }
}

#[test]
fn a_missing_key_is_named() {
    let mut config = dense(2, 256, 2, 1);
    config.as_object_mut().unwrap().remove("intermediate_size");
    let Err(ShapeError::Missing { keys }) = Shape::read(&config) else { panic!("it was taken") };
    assert!(keys.contains("intermediate_size"));
}

#[test]
fn a_device_without_bandwidth_is_refused_by_name() {
    let cpu = Hardware::find("cpu").unwrap();
    let precision = Precision { dense: WeightFormat::Bf16, experts: WeightFormat::Bf16, kv_bytes: 2.0 };
    let layout = Layout { tensor_parallel: 1, expert_parallel: false, early_fp8_experts: false };
    let shape = Shape::read(&dense(2, 256, 2, 1)).unwrap();
    let error = CostModel::new(&shape, cpu, precision, layout, &Factors::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "hardware `cpu` has no figure for `bandwidth`, which reading weights needs"
    );
}
