//! Architectures that the recording could not build: the figures are worked out from the files that each row names.

#![expect(clippy::expect_used, reason = "a test ends where its own files are broken")]

use planner::RawSpec;
use planner::import::hf_config::{ImportSettings, Imported, Platform, Speculative, import};
use serde_json::{Value, json};

/// Two layers of 16 heads of 64, 4 of them KV heads, and what `own` says.
fn config(architecture: &str, own: &Value) -> Value {
    let mut config = json!({"architectures": [architecture], "torch_dtype": "bfloat16", "hidden_size": 1024,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "num_hidden_layers": 2});
    for (key, value) in own.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

/// What a config comes to for one rank of two.
fn imported(config: &Value, platform: Platform) -> Imported {
    let settings = ImportSettings {
        tensor_parallel_size: 2,
        max_model_len: 4096,
        platform,
        ..ImportSettings::default()
    };
    // Cut down to what the layers need: the class that would read them is the checkpoint's.
    let mut config = config.clone();
    if config.get("model_type").is_none() {
        config["auto_map"] = json!({"AutoConfig": "configuration.Config"});
    }
    import(&config, None, &settings).expect("it imports")
}

/// Each layer's spec for one rank of two, on a CPU, whose block is 128 tokens.
fn specs(config: &Value) -> Vec<Value> {
    specs_on(config, Platform::Cpu)
}

fn specs_on(config: &Value, platform: Platform) -> Vec<Value> {
    let imported = imported(config, platform);
    let of = |i| imported.model.spec_of(i).map(RawSpec::from);
    (0..imported.model.len())
        .filter_map(of)
        .map(|raw| serde_json::to_value(raw).unwrap_or_default())
        .collect()
}

/// Two of the four KV heads.
fn attention(window: Option<u64>, block_size: u64) -> Value {
    let mut spec = json!({"kind": "full", "block_size": block_size, "num_kv_heads": 2, "head_size": 64,
                          "dtype": "bfloat16"});
    if let Some(window) = window {
        spec["kind"] = json!("sliding");
        spec["sliding_window"] = json!(window);
    }
    spec
}

/// `vllm/transformers_utils/configs/beam.py`, `vllm/model_executor/models/{domyn_edge,rnj1}.py`, vLLM 0.33.
#[test]
fn windows() {
    let beam = json!({"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 256});
    assert_eq!(specs(&config("BeamForCausalLM", &beam)), [attention(Some(256), 128), attention(None, 128)]);
    // The first number counts the keys before a token.
    let domyn = json!({"window_sizes": [[255, 0], -1]});
    assert_eq!(
        specs(&config("DomynEdgeForCausalLM", &domyn)),
        [attention(Some(256), 128), attention(None, 128)]
    );
    // What is called chunked slides.
    let rnj = json!({"layer_types": ["chunked_attention", "full_attention"], "sliding_window": 128});
    assert_eq!(specs(&config("Rnj1ForCausalLM", &rnj)), [attention(Some(128), 128), attention(None, 128)]);
}

/// `vllm/model_executor/models/alice_ai.py`, vLLM 0.33: 4 of 8 heads of 128 by 128 in float32 are 262,144 bytes, and
/// 3 steps of the 1,536 channels of queries, keys and values in bfloat16 9,216; a token has 512 bytes, so that a block
/// of 5 x 128 tokens is the first that holds 271,360.
#[test]
fn kda_beside_attention() {
    let own = json!({"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 8,
        "linear_num_value_heads": 8, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4});
    let [state, full] = &specs(&config("AliceAIForCausalLM", &own))[..] else {
        unreachable!("the config has two layers")
    };
    assert_eq!(state["shapes"], json!([[3, 1536], [4, 128, 128]]));
    assert_eq!(state["dtypes"], json!(["bfloat16", "float32"]));
    assert_eq!(state["page_size_padded"], 640 * 512);
    assert_eq!(*full, attention(None, 640));
}

/// `vllm/model_executor/models/bailing_moe_linear.py` and `layers/mamba/linear/base.py`, vLLM 0.32: 8 of 16 heads of
/// 64 by 64 in the model's dtype are 65,536 bytes; a latent of 512 and 64 has 1,152, so that a block of 128 tokens
/// holds them.
#[test]
fn linear_attention_beside_latents() {
    let own = json!({"model_type": "bailing_hybrid", "layer_group_size": 2, "group_norm_size": 4, "kv_lora_rank": 512,
        "qk_rope_head_dim": 64});
    let [state, latent] = &specs(&config("BailingMoeV2_5ForCausalLM", &own))[..] else {
        unreachable!("the config has two layers")
    };
    assert_eq!(state["shapes"], json!([[8, 64, 64]]));
    assert_eq!(state["mamba_type"], "LINEAR");
    assert_eq!(state["page_size_padded"], 128 * 1152);
    assert_eq!(latent["kind"], "mla");
    assert_eq!(latent["head_size"], 576);
}

/// Models that keep what their language model keeps: `maybe_prefix` of each file of `vllm/model_executor/models`, vLLM
/// 0.32 and 0.33, is where the names come from; two of four KV heads of 64 elements are the figures.
#[test]
fn wrapped_language_models() {
    let model = "language_model.model.layers.0.self_attn.attn";
    let llm = "llm.model.layers.0.self_attn.attn";
    for (architecture, name, source) in [
        ("Alpamayo2Super", model, "alpamayo2_super.py"),
        ("Ernie4_5_VLMoeForConditionalGeneration", model, "ernie45_vl.py"),
        ("FunAudioChatForConditionalGeneration", model, "funaudiochat.py"),
        (
            "FireRedASR2ForConditionalGeneration",
            "model.decoder.model.layers.0.self_attn.attn",
            "fireredasr2.py",
        ),
        ("FunASRForConditionalGeneration", "model.decoder.layers.0.self_attn.attn", "funasr.py"),
        ("Granite4VisionForConditionalGeneration", model, "granite4_vision.py"),
        ("InternS1ForConditionalGeneration", model, "interns1.py"),
        ("InternS1ProForConditionalGeneration", model, "interns1_pro.py"),
        ("InternVLChatModel", model, "internvl.py"),
        ("IsaacForConditionalGeneration", model, "isaac.py"),
        ("KananaVForConditionalGeneration", "model.model.layers.0.self_attn.attn", "kanana_v.py"),
        ("KeyeForConditionalGeneration", model, "keye.py"),
        ("KeyeVL1_5ForConditionalGeneration", model, "keye_vl1_5.py"),
        ("LlavaOnevision2ForConditionalGeneration", model, "llava_onevision2.py"),
        ("MiDashengLMModel", "decoder.model.layers.0.self_attn.attn", "midashenglm.py"),
        ("MiniCPMO", llm, "minicpmo.py"),
        ("MiniCPMV", llm, "minicpmv.py"),
        ("Molmo2ForConditionalGeneration", "model.layers.0.self_attn.attn", "molmo2.py"),
        ("MolmoForCausalLM", "model.layers.0.self_attn.attn", "molmo.py"),
        ("MossAudioModel", model, "moss_audio.py"),
        (
            "OpenPanguVLForConditionalGeneration",
            "openpangu.language_model.model.layers.0.self_attn.attn",
            "openpangu_vl.py",
        ),
        ("OpenVLAForActionPrediction", model, "openvla.py"),
        ("Ovis", llm, "ovis.py"),
        ("Ovis2_5", llm, "ovis2_5.py"),
        ("Ovis2_6ForCausalLM", llm, "ovis2_5.py"),
        ("Ovis2_6_MoeForCausalLM", llm, "ovis2_5.py"),
        ("Phi4MMForCausalLM", "model.layers.0.self_attn.attn", "phi4mm.py"),
        ("PixtralForConditionalGeneration", model, "pixtral.py"),
        ("Qwen3OmniMoeForConditionalGeneration", model, "qwen3_omni_moe_thinker.py"),
        ("StepVLForConditionalGeneration", model, "step_vl.py"),
        ("VoxtralForConditionalGeneration", model, "voxtral.py"),
        ("Emu3ForConditionalGeneration", "model.text_model.layers.0.self_attn.attn", "transformers/base.py"),
        (
            "VibeVoiceAsrForConditionalGeneration",
            "model.language_model.layers.0.self_attn.attn",
            "transformers/base.py",
        ),
        (
            "HunYuanVLForConditionalGeneration",
            "model.language_model.layers.0.self_attn.attn",
            "transformers/base.py",
        ),
    ] {
        let text = config("Qwen2ForCausalLM", &json!({"model_type": "qwen2"}));
        let outer = json!({"architectures": [architecture], "text_config": text, "torch_dtype": "bfloat16"});
        let found = imported(&outer, Platform::Cpu);
        assert_eq!(found.model.names.first().map(String::as_str), Some(name), "{architecture}: {source}");
        assert_eq!(specs(&outer), [attention(None, 128), attention(None, 128)], "{architecture}: {source}");
    }
}

/// Attention as its own files write it: `vllm/model_executor/models/{param2moe,step1,telechat2}.py`, vLLM 0.32,
/// `vllm/models/flint/model.py`, 0.33.
#[test]
fn plain_attention() {
    for architecture in
        ["FlintForCausalLM", "Param2MoEForCausalLM", "Step1ForCausalLM", "TeleChat2ForCausalLM"]
    {
        let specs = specs(&config(architecture, &json!({})));
        assert_eq!(specs, [attention(None, 128), attention(None, 128)], "{architecture}");
    }
    // The groups of ChatGLM's attention, in the class of images beside it: `glm4v.py`.
    let own = json!({"num_layers": 2, "multi_query_attention": true, "multi_query_group_num": 4,
        "kv_channels": 64, "vision_config": {}});
    assert_eq!(specs(&config("GLM4VForCausalLM", &own)), [attention(None, 128), attention(None, 128)]);
}

/// `vllm/models/deepseek_v41/{attention,compressor}.py`, vLLM 0.32, on Hopper, whose block is 64 tokens. A window of 32
/// tokens of 584 bytes is 18,688 bytes, up to a multiple of 576: 19,008; so are 64 tokens two to one. Their keys, 128
/// elements and a scale of 4 bytes, are 32 x 132 = 4,224, up to 4,608. The open pair is a ring of 8 rows of 2 x 512.
#[test]
fn deepseek_v41() {
    let own = json!({"model_type": "deepseek_v41", "head_dim": 512, "sliding_window": 128, "index_head_dim": 128,
        "compress_ratios": [0, 2], "kv_source_layer_ids": [1], "index_source_layer_ids": [1]});
    let specs = specs_on(&config("DeepseekV41ForCausalLM", &own), Platform::CudaHopper);
    let pages: Vec<&Value> = specs.iter().map(|spec| &spec["page_size_padded"]).collect();
    assert_eq!(pages, [&json!(19_008), &json!(19_008), &json!(4_608), &json!(19_008), &Value::Null]);
    let kinds: Vec<&str> = specs.iter().filter_map(|spec| spec["kind"].as_str()).collect();
    assert_eq!(kinds, ["sliding_mla", "mla", "mla", "sliding_mla", "circular_buffer"]);
    assert_eq!(specs[1]["tokens_per_state"], 2);
    assert_eq!((&specs[4]["block_size"], &specs[4]["head_size"]), (&json!(8), &json!(1024)));
}

/// `vllm/models/dots3_note/nvidia/model.py`, vLLM 0.32: rows of the sliding layers' latent and rotary part, 512 and 64,
/// in every layer; CPU_MLA takes blocks of 16 tokens.
#[test]
fn dots3_note() {
    let own = json!({"model_type": "dots3_note", "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window_size": 128, "swa_num_attention_heads": 16, "swa_kv_lora_rank": 512,
        "swa_qk_rope_head_dim": 64, "kv_lora_rank": 256, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128});
    let [sliding, full] = &specs(&config("Dots3NoteForCausalLM", &own))[..] else {
        unreachable!("the config has two layers")
    };
    assert_eq!((&sliding["kind"], &sliding["sliding_window"]), (&json!("sliding_mla"), &json!(128)));
    assert_eq!(full["kind"], "mla");
    for spec in [sliding, full] {
        assert_eq!((&spec["head_size"], &spec["block_size"]), (&json!(576), &json!(16)));
    }
}

/// `vllm/transformers_utils/configs/moondream3.py` and `models/moondream3.py`, vLLM 0.32: 1,024 elements over 16 heads.
#[test]
fn moondream() {
    let text = json!({"n_layers": 2, "n_heads": 16, "n_kv_heads": 4, "dim": 1024});
    for architecture in ["HfMoondream", "Moondream3ForCausalLM"] {
        let config =
            json!({"architectures": [architecture], "torch_dtype": "bfloat16", "config": {"text": text}});
        assert_eq!(specs(&config), [attention(None, 128), attention(None, 128)]);
        assert_eq!(imported(&config, Platform::Cpu).model.names[0], "text.blocks.0.attn.attn");
    }
}

/// `StaticSinkAttention.get_kv_cache_spec` and `vllm/model_executor/models/openpangu.py`, vLLM 0.32: keys of 128 and 64
/// elements, values of 128, and 128 sinks in front.
#[test]
fn pangu_sinks() {
    let own = json!({"param_sink_number": 128, "qk_nope_dim": 128, "qk_rope_dim": 64, "v_channels": 128});
    let spec = json!({"kind": "sink", "block_size": 128, "num_kv_heads": 2, "head_size": 192, "head_size_v": 128,
        "dtype": "bfloat16", "sink_len": 128});
    assert_eq!(specs(&config("PanguProMoEV2ForCausalLM", &own)), [spec.clone(), spec]);
}

/// `vllm/model_executor/models/{deepseek_ocr,deepseek_ocr2,deepseek_vl2,unlimited_ocr}.py`, vLLM 0.32: without latents
/// plain keys and values, of the first with a window behind what is prompted; with latents 512 and 64 elements.
#[test]
fn deepseek_with_images() {
    let none = json!({"model_type": "deepseek_v2", "kv_lora_rank": null, "qk_nope_head_dim": 0,
        "qk_rope_head_dim": 0});
    let plain = config("DeepseekV2ForCausalLM", &none);
    let latent = json!({"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
        "model_type": "deepseek_v2"});
    let latent = config("DeepseekV2ForCausalLM", &latent);
    let outer = |architecture: &str, text: &Value| {
        json!({"architectures": [architecture], "torch_dtype": "bfloat16", "language_config": text,
            "model_type": "deepseek_vl_v2"})
    };
    for architecture in ["DeepseekOCRForCausalLM", "DeepseekOCR2ForCausalLM"] {
        assert_eq!(specs(&outer(architecture, &plain)), [attention(None, 128), attention(None, 128)]);
    }
    let windows = specs(&outer("UnlimitedOCRForCausalLM", &plain));
    assert_eq!((&windows[0]["kind"], &windows[0]["rswa_window"]), (&json!("rswa"), &json!(128)));
    let latents = specs(&outer("DeepseekVLV2ForCausalLM", &latent));
    assert_eq!((&latents[0]["kind"], &latents[0]["head_size"]), (&json!("mla"), &json!(576)));
}

/// The language models of `vllm/model_executor/models/{nano_nemotron_vl,interns2_mobius,interns2_preview}.py`, vLLM
/// 0.32, and `minicpm_ocr.py`, 0.33: they keep what Nemotron-H and Qwen3.5 do, under names of their own.
#[test]
fn wrapped_hybrids() {
    let nemotron = config(
        "NemotronHForCausalLM",
        &json!({"model_type": "nemotron_h", "hybrid_override_pattern": "M*", "mamba_num_heads": 16,
            "mamba_head_dim": 64, "n_groups": 2, "ssm_state_size": 128, "conv_kernel": 4}),
    );
    let qwen = config(
        "Qwen3_5ForCausalLM",
        &json!({"model_type": "qwen3_5_text", "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 8, "linear_num_value_heads": 8, "linear_key_head_dim": 64,
            "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4}),
    );
    for (architectures, inner) in [
        (
            &[
                "NemotronH_Nano_Omni_Reasoning_V3",
                "NemotronH_Nano_VL_V2",
                "NemotronH_Omni_Reasoning_V3",
                "NemotronH_Super_Omni_Reasoning_V3",
            ][..],
            &nemotron,
        ),
        (
            &[
                "InternS2MobiusForConditionalGeneration",
                "InternS2PreviewForConditionalGeneration",
                "MiniCPMOcrForConditionalGeneration",
            ][..],
            &qwen,
        ),
    ] {
        for architecture in architectures {
            let outer =
                json!({"architectures": [architecture], "torch_dtype": "bfloat16", "text_config": inner});
            assert_eq!(specs(&outer), specs(inner), "{architecture}");
            let names = imported(&outer, Platform::Cpu).model.names;
            assert!(names.iter().all(|name| name.starts_with("language_model.model.layers.")), "{names:?}");
        }
    }
}

/// `MuseSparkDSparkDecoderLayer` in `vllm/models/muse_spark/common/dspark.py` and `nvidia/model.py`, vLLM 0.33: a draft
/// of 3 layers after a target's 2, and a cycle of 3, which begins 3 - 3 % 3 further: layers 2, 3 and 4 are its entries
/// 5, 6 and 7.
#[test]
fn muse_spark_draft() {
    let target = config("LlamaForCausalLM", &json!({"model_type": "llama"}));
    let draft = json!({"architectures": ["MuseSparkDSparkModel"], "model_type": "muse_spark_dspark",
        "num_hidden_layers": 3, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64,
        "every_n_layers_nope": 3, "global_attn_cfg": "[512, gdn2, 0]"});
    let settings = ImportSettings {
        tensor_parallel_size: 2,
        platform: Platform::Cpu,
        speculative: Some(Speculative { method: "dspark".to_owned(), num_speculative_tokens: 3 }),
        ..ImportSettings::default()
    };
    let imported = import(&target, Some(&draft), &settings).expect("it imports");
    assert_eq!(imported.model.names[2..], [2, 3, 4].map(|i| format!("model.layers.{i}.self_attn.attn")));
    // Only 6 of three is the entry with the window.
    let kinds: Vec<&str> =
        (2..5).filter_map(|i| imported.model.spec_of(i).map(|spec| spec.kind().name())).collect();
    assert_eq!(kinds, ["full", "sliding", "full"]);
}

/// `vllm/model_executor/models/cohere_asr.py`, vLLM 0.32: sizes stand in `transf_decoder.config_dict`; 8 heads of 1,024 / 8
/// elements, of which a rank of two has 4; each layer attends to itself and then to the encoder.
#[test]
fn cohere_asr() {
    let own = json!({"transf_decoder": {"config_dict": {"num_layers": 1, "num_attention_heads": 8, "hidden_size": 1024}}});
    let config = config("CohereAsrForConditionalGeneration", &own);
    let spec = |kind: &str| json!({"kind": kind, "block_size": 128, "num_kv_heads": 4, "head_size": 128, "dtype": "bfloat16"});
    assert_eq!(specs(&config), [spec("full"), spec("cross")]);
    let names = imported(&config, Platform::Cpu).model.names;
    let layer = "model.decoder.layers.0.layers";
    assert_eq!(names, [format!("{layer}.first_sub_layer.attn"), format!("{layer}.second_sub_layer.attn")]);
}

/// `MBartDecoderLayer` in `vllm/model_executor/models/nemotron_parse.py`, vLLM 0.32: as many KV heads as heads, 16 of 64, 8 of
/// them on a rank of two, and the encoder beside; `nemotron_parse3_5.py`, 0.33: `self_attention_kv_heads`, 2 of them, and no
/// encoder.
#[test]
fn nemotron_parse() {
    let spec = |kind: &str, kv_heads: u64| json!({"kind": kind, "block_size": 128, "num_kv_heads": kv_heads, "head_size": 64, "dtype": "bfloat16"});
    let decoder = json!({"decoder_layers": 1, "decoder_attention_heads": 16, "d_model": 1024});
    let with = |architecture: &str, decoder: &Value| json!({"architectures": [architecture], "torch_dtype": "bfloat16", "decoder": decoder});
    let parse = with("NemotronParseForConditionalGeneration", &decoder);
    assert_eq!(specs(&parse), [spec("full", 8), spec("cross", 8)]);
    let names = imported(&parse, Platform::Cpu).model.names;
    assert_eq!(names, [".decoder.layers.0.self_attn.attn", ".decoder.layers.0.encoder_attn.attn"]);

    let mut prefixed = decoder;
    prefixed["self_attention_kv_heads"] = json!(2);
    prefixed["causal_vision_prefix"] = json!(true);
    prefixed["add_cross_attention"] = json!(false);
    assert_eq!(specs(&with("RadioMBartPrefixForCausalLM", &prefixed)), [spec("full", 1)]);
    prefixed["add_cross_attention"] = json!(true);
    let refused = import(
        &with("RadioMBartPrefixForCausalLM", &prefixed),
        None,
        &ImportSettings { platform: Platform::Cpu, ..ImportSettings::default() },
    );
    assert!(refused.is_err(), "it has no attention to an encoder");
}

/// `WhisperCausalAttentionWithBlockPooling.get_kv_cache_spec` in `vllm/model_executor/models/whisper_causal.py` and both names
/// of `voxtral_realtime.py`, vLLM 0.32: 8 of the decoder's KV heads and its window; of the encoder's 32 heads 16, four frames
/// a token, and 750 / 4 tokens of window, rounded up, and the one that is begun.
#[test]
fn voxtral_realtime() {
    for architecture in ["VoxtralRealtimeForConditionalGeneration", "VoxtralRealtimeGeneration"] {
        let config = json!({"architectures": [architecture], "torch_dtype": "bfloat16", "downsample_factor": 4,
            "model_type": "voxtral_realtime",
            "text_config": {"num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8,
                "head_dim": 128, "hidden_size": 3072, "sliding_window": 8192},
            "audio_config": {"num_hidden_layers": 1, "num_attention_heads": 32, "head_dim": 64,
                "sliding_window": 750}});
        let sliding = |kv_heads: u64, head_size: u64, window: u64| {
            json!({"kind": "sliding", "block_size": 128, "num_kv_heads": kv_heads, "head_size": head_size,
                "dtype": "bfloat16", "sliding_window": window})
        };
        let mut encoder = sliding(16, 64, 189);
        encoder["tokens_per_state"] = json!([1, 4]);
        assert_eq!(specs(&config), [sliding(4, 128, 8192), encoder], "{architecture}");
    }
}

/// `vllm/model_executor/models/longcat_flash_ngram.py`, vLLM 0.32: the layers of LongCat Flash, two latents of 512 and 64
/// elements each; CPU_MLA takes blocks of 16 tokens.
#[test]
fn longcat_ngram() {
    let own = json!({"model_type": "longcat_flash", "num_layers": 1, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128, "v_head_dim": 128});
    let config = config("LongcatFlashNgramForCausalLM", &own);
    let found = specs(&config);
    assert_eq!(found.len(), 2);
    for spec in &found {
        assert_eq!((&spec["kind"], &spec["head_size"]), (&json!("mla"), &json!(576)));
        assert_eq!(spec["block_size"], 16);
    }
    let names = imported(&config, Platform::Cpu).model.names;
    assert_eq!(names, [0, 1].map(|part| format!("model.layers.0.self_attn.{part}.attn")));
}

/// `vllm/model_executor/models/mimo_v2_omni.py`, vLLM 0.32: the layers of MiMo V2 under `language_model`: 4 KV heads of 192 by
/// 128 that see all, and 8 that slide, half of them on a rank of two. The blocks of narrower values are multiples of 16.
#[test]
fn mimo_v2_omni() {
    let own = json!({"model_type": "mimo_v2", "hybrid_layer_pattern": [0, 1], "head_dim": 192, "v_head_dim": 128,
        "swa_num_attention_heads": 16, "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128,
        "sliding_window_size": 128});
    let config = config("MiMoV2OmniForCausalLM", &own);
    let spec = |kind: &str, kv_heads: u64| {
        json!({"kind": kind, "block_size": 128, "num_kv_heads": kv_heads, "head_size": 192, "head_size_v": 128,
            "dtype": "bfloat16"})
    };
    let mut sliding = spec("sliding", 4);
    sliding["sliding_window"] = json!(128);
    assert_eq!(specs(&config), [spec("full", 2), sliding]);
    let names = imported(&config, Platform::Cpu).model.names;
    assert_eq!(names, [0, 1].map(|i| format!("language_model.model.layers.{i}.self_attn.attn")));
}
