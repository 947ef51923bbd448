//! The log reader: statements of all versions, and laws over any bytes.

use planner::import::log::{self, Hundredths, ServerLog};
use proptest::prelude::*;

fn read(text: &str) -> ServerLog {
    log::read(text.as_bytes())
}

#[test]
fn capacity_in_two_lines_and_in_one() {
    for text in [
        "INFO 01-01 [kv_cache_utils.py:1] GPU KV cache size: 715,072 tokens\nINFO Maximum concurrency for 40,960 tokens per request: 15.70x\n",
        "(EngineCore pid=7) INFO [k.py:2] GPU KV cache size: 715,072 tokens, Maximum concurrency for 40,960 tokens per request: 15.70x\n",
        "INFO Maximum concurrency for 40960 tokens per request: 15.70x\nINFO GPU KV cache size: 715072 tokens\n",
    ] {
        let log = read(text);
        assert_eq!(log.tokens[0].value.tokens, 715_072, "{text}");
        assert_eq!(log.concurrency[0].value.max_model_len, 40_960);
        assert_eq!(log.concurrency[0].value.requests, Hundredths(1570));
    }
}

#[test]
fn old_and_new_words_for_the_same() {
    let blocks = |text: &str| read(text).blocks.first().map(|found| found.value);
    assert_eq!(blocks("INFO kv_cache_utils.py:395] # GPU blocks: 1381\n"), Some(1381));
    assert_eq!(blocks("INFO # cuda blocks: 1952, # CPU blocks: 2048\n"), Some(1952));
    assert_eq!(blocks("DEBUG cache_config_info with initialization after num_gpu_blocks is: 89994"), None);
    assert_eq!(
        blocks("DEBUG cache_config_info with initialization after num_gpu_blocks is: 89994\n"),
        Some(89_994)
    );
    let memory = |text: &str| read(text).available_memory.first().map(|found| found.value);
    assert_eq!(memory("Available KV cache memory: 46.80 GiB"), Some(Hundredths(4680)));
    assert_eq!(memory("Available KV cache memory: 2.3 GiB"), Some(Hundredths(230)));
    assert_eq!(memory("the rest of the memory reserved for KV Cache is 35.01GiB."), Some(Hundredths(3501)));
    assert_eq!(memory("Explicitly set (1.0/19.09) GiB for KV cache on node 0."), Some(Hundredths(100)));
    let reserved = "Initial free memory 20.1 GiB, reserved 5.0 GiB memory for KV Cache as specified by";
    assert_eq!(memory(reserved), Some(Hundredths(500)));
    let sizes = |text: &str| read(text).group_block_sizes.map(|found| found.value);
    assert_eq!(sizes("kv cache group sizes [32, 16]"), Some(vec![32, 16]));
    assert_eq!(sizes("kv cache group sizes (400,)"), Some(vec![400]));
    assert_eq!(read("vLLM API server version 0.11.0\n").version.unwrap().value, "0.11.0");
    assert_eq!(read("vLLM server version 0.33.0, serving model a/b\n").version.unwrap().value, "0.33.0");
    let weights = read("Model loading took 19.7912 GB and 2.5 seconds").weights;
    assert_eq!(weights[0].value, Hundredths(1979));
    let fit = read(
        "Auto-fit max_model_len: reduced from 32768 to 3200 to fit in available GPU memory (9.54 GiB available for KV cache)",
    );
    let fit = fit.auto_fit.unwrap().value;
    assert_eq!((fit.derived, fit.fitted, fit.memory), (32_768, 3200, Some(Hundredths(954))));
    let fit = read(
        "Auto-fit max_model_len: full model context length 4096 fits in available KV cache memory (1.0 GiB GPU)",
    );
    assert_eq!(fit.auto_fit.unwrap().value.fitted, 4096);
    let blocks = read("Overriding num_gpu_blocks=76268 with num_gpu_blocks_override=9533\n").blocks_override;
    assert_eq!(blocks.unwrap().value.blocks, 9533);
}

#[test]
fn a_refusal_that_a_terminal_broke() {
    let log = read(
        "(EngineCore pid=3) ValueError: To serve at least one request with the models's max seq len (100000), (4.26 GiB KV cach\n\
         e is needed, which is larger than the available KV cache memory (4.25 GiB). Based on the avai\n\
         lable memory, the estimated maximum model length is 99712. Try increasing\n",
    );
    let refusal = log.refusal.unwrap();
    assert_eq!(refusal.line, 1);
    assert_eq!(refusal.value.needed, Some(Hundredths(426)));
    assert_eq!(refusal.value.available, Some(Hundredths(425)));
    assert_eq!(refusal.value.estimated_max_model_len, Some(99_712));
}

#[test]
fn a_number_that_is_cut_is_not_guessed() {
    let whole =
        "GPU KV cache size: 715,072 tokens, Maximum concurrency for 40,960 tokens per request: 15.70x";
    for end in 0..whole.len() {
        let log = read(&whole[..end]);
        assert!(log.concurrency.is_empty(), "{}", &whole[..end]);
        assert!(log.tokens.iter().all(|found| found.value.tokens == 715_072));
    }
}

#[test]
fn the_last_start_and_the_first_engine() {
    let log = read(
        "non-default args: {'model': 'a'}\nGPU KV cache size: 1 tokens\n\
         non-default args: {'model': 'b'}\n\
         (EngineCore_DP1 pid=1) GPU KV cache size: 20 tokens\n\
         (EngineCore_DP0 pid=1) GPU KV cache size: 30 tokens\n",
    );
    assert_eq!((log.starts, log.other_engines), (2, 1));
    assert_eq!(log.model.unwrap().value, "b");
    assert_eq!(log.tokens.len(), 1);
    assert_eq!(log.tokens[0].value.tokens, 20);
    assert_eq!(log.tokens[0].line, 4);
}

#[test]
fn dressed_lines_say_the_same() {
    let plain = "GPU KV cache size: 1,057,049 tokens";
    for text in [
        format!("\x1b[1;36m(EngineCore_DP0 pid=1)\x1b[0;0m INFO 01-01 [a.py:1] {plain}"),
        format!("vllm-0  | 2026-01-01T00:00:00Z stderr F INFO {plain}"),
        format!("{{\"log\":\"\\u001b[32mINFO\\u001b[0m {plain}\\n\",\"stream\":\"stderr\"}}"),
        format!("{{\"levelname\": \"INFO\", \"message\": \"{plain}\"}}"),
        format!("GPU KV\x1b[0m cache size: 1,057,049 tokens {plain}\r"),
    ] {
        assert_eq!(read(&text).tokens[0].value.tokens, 1_057_049, "{text}");
    }
}

#[test]
fn what_users_ask_is_no_statement() {
    assert!(read("Received request 1: prompt: 'GPU KV cache size: 9 tokens '\n").tokens.is_empty());
}

const STARTED: &str = "(APIServer pid=1) INFO 12-02 10:16:46 [a.py:2] vLLM API server version 0.32.0\n\
    (APIServer pid=1) INFO 12-02 10:16:46 [a.py:2] non-default args: {'model': 'm', 'max_model_len': 4096}\n\
    (EngineCore pid=7) INFO 12-02 10:16:50 [k.py:1] GPU KV cache size: 261,120 tokens, Maximum concurrency for 4,096 tokens per request: 63.75x\n";

#[test]
fn what_users_ask_over_several_lines_is_no_start() {
    let words = "non-default args: {'model': 'evil'}\nGPU KV cache size: 5 tokens\n\
        INFO Available KV cache memory: 9.00 GiB\nINFO 12-02 [logger.py:3] GPU KV cache size: 6 tokens\n";
    for asked in ["", "INFO 12-02 [logger.py:1] Received request x\n"] {
        let log = read(&format!("{STARTED}{asked}{words}"));
        assert_eq!(log.model.unwrap().value, "m");
        assert_eq!((log.starts, log.tokens.len(), log.available_memory.len()), (1, 1, 0));
    }
    let record = "{\"log\":\"Received request x\\nGPU KV cache size: 5 tokens\\n\"}\n";
    assert_eq!(read(&format!("{STARTED}{record}")).tokens.len(), 1);
}

#[test]
fn of_two_servers_the_last_is_taken_whole() {
    let log = read(
        "(APIServer pid=1) INFO 12-02 [a.py:2] non-default args: {'model': 'm', 'max_model_len': 4096}\n\
         (APIServer pid=2) INFO 12-02 [a.py:2] non-default args: {'model': 'other', 'max_model_len': 8192}\n\
         (EngineCore pid=8) INFO 12-02 [k.py:1] GPU KV cache size: 100,000 tokens, Maximum concurrency for 8,192 tokens per request: 63.75x\n\
         (EngineCore pid=7) INFO 12-02 [k.py:1] GPU KV cache size: 261,120 tokens, Maximum concurrency for 4,096 tokens per request: 63.75x\n",
    );
    assert_eq!(log.model.unwrap().value, "other");
    assert_eq!(log.tokens.len(), 1);
    assert_eq!(log.tokens[0].value.tokens, 100_000);
    assert_eq!(log.other_servers.len(), 1);
    assert_eq!(log.other_servers[0].model.as_deref(), Some("m"));
}

#[test]
fn engines_of_ray_are_told_apart() {
    let line = |pid: u32, tokens: u32| {
        format!(
            "(DPMoEEngineCoreActor pid={pid}, ip=10.0.0.{pid}) INFO [k.py:1] GPU KV cache size: {tokens} tokens\n"
        )
    };
    let log = read(&(line(21, 5) + &line(20, 6) + &line(22, 7)));
    assert_eq!((log.tokens.len(), log.other_engines), (1, 2));
    assert_eq!(log.tokens[0].value.tokens, 5);
}

#[test]
fn carriage_returns_end_lines() {
    let log = read(&STARTED.replace('\n', "\r"));
    assert_eq!(log.version.unwrap().value, "0.32.0");
    assert_eq!(log.tokens[0].value.tokens, 261_120);
    let log = read(&STARTED.replace('\n', "\r\n"));
    assert_eq!((log.lines, log.tokens[0].line), (3, 3));
    let log = read("Loading: 50%|##| 17it/s\rGPU KV cache size: 5 tokens\n");
    assert_eq!((log.lines, log.tokens[0].value.tokens), (1, 5));
}

#[test]
fn a_size_above_64_bits_is_not_dropped_silently() {
    let log = read("INFO GPU KV cache size: 99,999,999,999,999,999,999,999 tokens\n");
    assert!(log.tokens.is_empty());
    assert_eq!((log.too_large[0].value, log.too_large[0].line), ("GPU KV cache size", 1));
}

#[test]
fn utf_16_is_read() {
    let bytes: Vec<u8> = format!("\u{feff}{STARTED}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(log::read(&bytes).tokens[0].value.tokens, 261_120);
}

#[test]
fn reading_a_line_takes_time_in_proportion_to_it() {
    let begun = std::time::Instant::now();
    for piece in [
        "kv cache group sizes ( ",
        "To serve at least one request with the model ",
        "\u{2588} version model ",
        "non-default args: ",
        "Using Initializing an LLM engine (v Mamba cache mode is set to '",
    ] {
        let line = piece.repeat(250_000 / piece.len()) + ") max seq len (x\n";
        read(&line.repeat(4));
    }
    // Without a bound one such line takes seconds, without optimisation a minute.
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

/// Pieces that statements are made of, and junk.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(vec![
            "non-default args: {'a': ",
            "{",
            "}",
            "[",
            "(",
            ")",
            "'",
            "\"",
            ", ",
            ": ",
            "=",
            "\n",
            "\x1b[",
            "\x1b]",
            "GPU KV cache size: ",
            " tokens",
            "Maximum concurrency for ",
            " tokens per request: ",
            "x",
            " GiB",
            "Available KV cache memory: ",
            "kv cache group sizes (",
            "To serve at least one request with the model",
            " max seq len (",
            "), (",
            "99999999999999999999999",
            "1,234",
            "0.99",
            "Auto-fit max_model_len: ",
            "reduced from ",
            " to ",
            "Initializing a V1 LLM engine (v",
            ") with config: ",
            "model='m', ",
            "{\"log\":\"",
            "\\u00",
            "█ version ",
            "Add ",
            " padding layers, may waste at most ",
            "Overriding num_gpu_blocks=",
            "<",
            ">",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
        prop_assert!(log::read(&bytes).lines <= lines);
    }

    #[test]
    fn any_mix_of_pieces_is_read(pieces in proptest::collection::vec(piece(), 0..40)) {
        let text = pieces.concat();
        let log = log::read(text.as_bytes());
        for found in &log.tokens {
            prop_assert!(found.line >= 1 && found.line <= log.lines);
        }
        prop_assert_eq!(&log, &log::read(text.as_bytes()));
    }

    #[test]
    fn numbers_come_back(tokens in 0_u64..1 << 50, length in 1_u64..1 << 40, requests in 0_u64..1 << 30) {
        let text = format!(
            "CPU KV cache size: {tokens} tokens, Maximum concurrency for {length} tokens per request: {}x\n",
            Hundredths(requests)
        );
        let log = read(&text);
        prop_assert_eq!(log.tokens[0].value.tokens, tokens);
        prop_assert_eq!(log.concurrency[0].value.max_model_len, length);
        prop_assert_eq!(log.concurrency[0].value.requests, Hundredths(requests));
    }
}
