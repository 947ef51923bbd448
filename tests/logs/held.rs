//! The logs that come out: what each prints, and the plan that has to print it.

use super::Tokens::{ByBlocks, ByConcurrency};
use super::{Log, log};

/// Qwen3.5 27B with MTP k = 3, FP8 KV and states at block boundaries: 1600 tokens a block.
pub(super) const VLLM_47272: &str = "--model qwen3.5-27b --method mtp --num-speculative-tokens 3 --kv-cache-dtype fp8 \
                          --max-model-len 262144 --engine 0.24 --set max-num-batched-tokens=2048";

/// The same with NVFP4 KV: 2848 tokens a block.
pub(super) const CODER_32GB: &str = "--model qwen3.5-27b --method mtp --num-speculative-tokens 3 --kv-cache-dtype nvfp4 \
                          --platform cuda-sm120 --max-model-len 131072 --engine 0.24";

/// Qwen3.8-Flash-Next with k = 2 on one rank.
const FLASH_NEXT_LINES: &[&str] =
    &["Setting attention block size to 1600 tokens", "Padding mamba page size by 0.88%"];

#[rustfmt::skip]
pub(super) const HELD: &[Log] = &[
    Log { lines: &["8 padding layers, may waste at most 15.38%"], tokens: ByBlocks(205_696),
          concurrency: Some("50.05"), num_blocks: Some(89_994), ..log("gemma3-27b-rocm", "--model gemma-3-27b-it --platform rocm --engine 0.24 --max-model-len 4096 --set max-num-batched-tokens=8192", Some(10986)) },
    // Its kernels took blocks of 64 tokens, and the states beside latents a multiple of that.
    Log { tokens: ByBlocks(715_072), ..log("recipes-115", "--model kimi-k2-instruct --tp 8 --max-model-len 262144 --block-size 64 --engine 0.24", Some(4680)) },
    // The second row of this log does not fit its own longest request, which V0 only warned of.
    Log { concurrency: Some("1.56"), num_blocks: Some(1952), ..log("vllm-10517", "--model llama-3.1-8b --max-model-len 20000 --engine 0.24", Some(381)) },
    Log { concurrency: Some("10.79"), ..log("llama70b-12569", "--model llama-3.1-70b --max-model-len 2048 --engine 0.24 --set num-gpu-blocks-override=1381", None) },
    Log { tokens: ByBlocks(2_198_512), concurrency: Some("178.68"), ..log("vllm-19029", "--model starcoder2-3b --max-model-len 16384 --engine 0.24 --set max-num-batched-tokens=8192 --set num-gpu-blocks-override=137407", None) },
    Log { lines: &["1 padding layers, may waste at most 4.35%"], tokens: ByConcurrency(5_769_184),
          concurrency: Some("22.01"), ..log("nemotron-gb10", "--model nemotron-3-nano-30b-a3b --platform cuda-sm120 --mamba-cache-mode none --max-model-len 262144 --engine 0.24", Some(3432)) },
    Log { lines: &["3 padding layers, may waste at most 10.00%"], tokens: ByConcurrency(5_747_892),
          concurrency: Some("21.93"), ..log("qwen-mtp-56757617998", "--model qwen3.6-35b-a3b-nvfp4 --method mtp --num-speculative-tokens 2 --kv-cache-dtype fp8 --max-model-len 262144 --engine 0.24 --set max-num-batched-tokens=65536", Some(6658)) },
    Log { lines: &["6 padding layers, may waste at most 15.38%"], tokens: ByConcurrency(6_969_972),
          ..log("h100-mimo26", "--model mimo-v2-flash --tp 8 --max-model-len 262144 --engine 0.31 --set max-num-batched-tokens=8192 --set async-scheduling=true", Some(4918)) },
    // vllm-28228 is the report that this log belongs to.
    Log { lines: &["1 padding layers, may waste at most 5.00%"], tokens: ByBlocks(75_840),
          concurrency: Some("2.48"), ..log("kimi-linear-log", "--model kimi-linear-48b-a3b-instruct --tp 2 --block-size 64 --mamba-cache-mode none --max-model-len 120000 --engine 0.24 --set max-num-batched-tokens=64000", Some(230)) },
    Log { tokens: ByBlocks(290_864), concurrency: Some("33.04"), ..log("vllm-40691", "--model qwen3.5-27b --mamba-cache-mode none --max-model-len 32768 --engine 0.24 --set max-num-batched-tokens=16384 --set num-gpu-blocks-override=1487", None) },
    Log { tokens: ByConcurrency(255_975), concurrency: Some("1.95"),
          ..log("qwen36-27b-3090-mtp1", "--model qwen3.5-27b --method mtp --num-speculative-tokens 1 --mamba-cache-mode none --max-model-len 131072 --engine 0.24", Some(1725)) },
    Log { tokens: ByConcurrency(262_144), concurrency: Some("1.00"), ..log("vllm-47272", VLLM_47272, Some(930)) },
    Log { tokens: ByConcurrency(263_608), concurrency: Some("1.01"), ..log("vllm-47272", VLLM_47272, Some(938)) },
    Log { tokens: ByConcurrency(265_072), concurrency: Some("1.01"), ..log("vllm-47272", VLLM_47272, Some(939)) },
    Log { tokens: ByConcurrency(265_072), concurrency: Some("1.01"), ..log("vllm-47272", VLLM_47272, Some(941)) },
    Log { lines: &["3 padding layers, may waste at most 6.25%"], tokens: ByConcurrency(202_950),
          concurrency: Some("1.55"), ..log("coder-32gb-2848", CODER_32GB, Some(500)) },
    Log { tokens: ByConcurrency(605_495), concurrency: Some("2.31"),
          ..log("club3090-int8-qwen", "--model qwen3.5-27b --tp 2 --method mtp --num-speculative-tokens 4 --kv-cache-dtype int8_per_token_head --max-model-len 262144 --engine 0.24", Some(1110)) },
    Log { tokens: ByConcurrency(620_944), concurrency: Some("2.37"), ..log("club3090-295", "--model qwen3.5-27b --tp 2 --method mtp --num-speculative-tokens 3 --kv-cache-dtype fp8 --max-model-len 262144 --engine 0.24 --set num-gpu-blocks-override=424", None) },
    Log { tokens: ByBlocks(410_128), concurrency: Some("3.13"), ..log("eagle-h100-8b", "eagle-h100-8b", Some(5163)) },
    Log { tokens: ByBlocks(643_232), concurrency: Some("15.70"),
          ..log("qwen3-parallelism-doc", "one-group#qwen3-parallelism-doc", None) },
    Log { tokens: ByBlocks(138_064), concurrency: Some("1.05"), ..log("dense-rtx5090", "one-group#dense-rtx5090", None) },
    Log { tokens: ByBlocks(463_136), concurrency: Some("3.53"), ..log("a-llm-463136", "one-group#a-llm-463136", None) },
    Log { tokens: ByBlocks(244_576), concurrency: Some("1.87"), ..log("minimax-m2.7", "--model minimax-m2.7 --tp 4 --max-model-len 131072 --engine 0.24 --set num-gpu-blocks-override=15286", None) },
    Log { lines: &["6 padding layers, may waste at most 23.08%"], tokens: ByBlocks(4_896), concurrency: Some("2.54"),
          ..log("voxtral-rt", "--model voxtral-mini-4b-realtime --max-model-len 8192 --engine 0.24 --set max-num-batched-tokens=2048", Some(958)) },
    Log { tokens: ByConcurrency(132_096), concurrency: Some("1.01"),
          ..log("glm52-spark-dcp4", "--model glm-5.2-nvfp4 --tp 4 --method mtp --num-speculative-tokens 1 --kv-cache-dtype fp8 --platform cuda-sm120 --max-model-len 131072 --engine 0.31 --set decode-context-parallel-size=4 --set max-num-batched-tokens=1024 --set kv-cache-memory=1810000000", None) },
    // As h100-mimo26, with async scheduling, vLLM's default.
    Log { tokens: ByConcurrency(1_728_531),
          ..log("h100-dsv4-0731", "--model deepseek-v4-flash --tp 8 --max-model-len 262144 --engine 0.31 --set max-num-batched-tokens=8192 --set async-scheduling=true", Some(4743)) },
    // Batches of 8192 with async scheduling, or of 16384 without: the only ones that give the printed integers.
    Log { tokens: ByConcurrency(2_740_813), concurrency: Some("2.61"),
          ..log("dsv4flash-spark-0731", "--model deepseek-v4-flash --tp 2 --method dspark --num-speculative-tokens 5 --max-model-len 1048576 --engine 0.27 --set max-num-batched-tokens=8192 --set async-scheduling=true", Some(2630)) },
    // Without prefix caching, as the next, of the same machine and build, says.
    Log { lines: &["Setting attention block size to 640 tokens", "Padding mamba page size by 20.75%"], tokens: ByConcurrency(2_618_281),
          ..log("h100-glm53", "--model glm-5.3-flash --tp 8 --mamba-cache-mode none --max-model-len 262144 --engine 0.31", Some(2873)) },
    // The printed 37.37 GiB of one rank hold 7,682 blocks or more: the least of the eight, which is not printed, decides.
    Log { lines: &["Setting attention block size to 400 tokens", "kv cache group sizes [262144, 262144, 262144, 262144, 4, 400]"], tokens: ByConcurrency(3_046_184),
          ..log("h100-qwen38fn", "--model qwen3.8-flash-next --tp 8 --mamba-cache-mode none --max-model-len 262144 --engine 0.31 --set num-gpu-blocks-override=7681", None) },
    Log { tokens: ByConcurrency(9_092_347), ..log("h100-dsv41", "--model deepseek-v4.1-flash --tp 8 --max-model-len 262144 --engine 0.31 --set max-num-batched-tokens=8192 --set async-scheduling=true", Some(2914)) },
    // k = 2, as the thread says; FP8 of keys and values by a patch that 0.30 has.
    Log { lines: FLASH_NEXT_LINES, tokens: ByConcurrency(260_006), concurrency: Some("31.74"),
          ..log("qwen38fn-gb10", "--model qwen3.8-flash-next --platform cuda-sm120 --method mtp --num-speculative-tokens 2 --max-model-len 8192 --engine 0.29 --set num-gpu-blocks-override=730", None) },
    Log { lines: FLASH_NEXT_LINES, tokens: ByConcurrency(1_077_542), concurrency: Some("4.11"),
          ..log("qwen38fn-gb10", "--model qwen3.8-flash-next --platform cuda-sm120 --method mtp --num-speculative-tokens 2 --max-model-len 262144 --engine 0.29 --set num-gpu-blocks-override=744", None) },
    Log { tokens: ByConcurrency(1_853_358), concurrency: Some("7.07"),
          ..log("qwen38fn-gb10", "--model qwen3.8-flash-next --platform cuda-sm120 --method mtp --num-speculative-tokens 2 --kv-cache-dtype fp8 --max-model-len 262144 --engine 0.30 --set num-gpu-blocks-override=707", None) },
    Log { tokens: ByConcurrency(780_638), concurrency: Some("2.98"),
          ..log("vllm-54426", "--model qwen3.8-flash-next --platform cuda-sm120 --method mtp --num-speculative-tokens 2 --max-model-len 262144 --engine 0.29 --set num-gpu-blocks-override=539", None) },
    Log { tokens: ByConcurrency(1_399_848), concurrency: Some("5.34"),
          ..log("vllm-54426", "--model qwen3.8-flash-next --platform cuda-sm120 --method mtp --num-speculative-tokens 2 --kv-cache-dtype fp8 --max-model-len 262144 --engine 0.30 --set num-gpu-blocks-override=534", None) },
    // The pool of 20 GB is Qwen3.8-Flash-Next's, as its owner's launcher says; of k from 0 to 5, 3 alone gives the tokens.
    Log { tokens: ByConcurrency(644_732), concurrency: Some("2.46"),
          ..log("gb10-pool", "--model qwen3.8-flash-next --platform cuda-sm120 --method mtp --num-speculative-tokens 3 --max-model-len 262144 --engine 0.29 --set kv-cache-memory=20000000000", None) },
    // Its owner's page gives the memory, and a row for each k: vLLM 0.30.0, k = 6, and no drafts.
    Log { tokens: ByConcurrency(272_533), concurrency: Some("1.04"),
          ..log("qwen38-27b-2x-fp8", "--model qwen3.5-27b --tp 2 --platform cuda-sm120 --kv-cache-dtype fp8 --mamba-cache-dtype bfloat16 --mamba-ssm-cache-dtype bfloat16 --method mtp --num-speculative-tokens 6 --max-model-len 262144 --engine 0.30 --set max-num-batched-tokens=4096", Some(478)) },
    Log { tokens: ByConcurrency(351_618),
          ..log("qwen38-27b-2x-fp8", "--model qwen3.5-27b --tp 2 --platform cuda-sm120 --kv-cache-dtype fp8 --mamba-cache-dtype bfloat16 --mamba-ssm-cache-dtype bfloat16 --max-model-len 262144 --engine 0.30 --set max-num-batched-tokens=4096", Some(547)) },
    // The owner's changelog: FP8, k = 7, and a second start.
    Log { tokens: ByConcurrency(1_049_336),
          ..log("club3090-1064", "--model qwen3.5-27b --draft tests/data/configs/qwen3.8-27b-dflash2.json --method dflash --num-speculative-tokens 7 --tp 4 --kv-cache-dtype fp8 --max-model-len 524288 --engine 0.27 --set max-num-batched-tokens=8192 --set async-scheduling=true", Some(1085)) },
    Log { tokens: ByConcurrency(919_797), concurrency: Some("3.51"),
          ..log("club3090-1064", "--model qwen3.5-27b --draft tests/data/configs/qwen3.8-27b-dflash2.json --method dflash --num-speculative-tokens 7 --tp 4 --kv-cache-dtype fp8 --max-model-len 262144 --engine 0.27 --set max-num-batched-tokens=8192 --set async-scheduling=true", Some(1024)) },
    // The launcher's patch makes groups of 8; it pins the pool by bytes, k = 15 without async scheduling. No layer shares.
    Log { tokens: ByConcurrency(57_669),
          ..log("qwen38-kv-sharing", "--model qwen3.5-27b --draft tests/data/configs/qwen3.8-27b-dflash2.json --method dflash --num-speculative-tokens 15 --mamba-ssm-cache-dtype float16 --max-model-len 57344 --engine 0.27 --grouping 36143=8 --set max-num-batched-tokens=2048 --set async-scheduling=false --set kv-cache-memory=5583457484", None) },
    // The compose file: k = 3; of the numbers of blocks that give the tokens, 1211 alone gives the concurrency.
    Log { tokens: ByBlocks(483_200), concurrency: Some("6.77"),
          ..log("club3090-multi4-mtp", "--model qwen3.5-27b --tp 4 --method mtp --num-speculative-tokens 3 --kv-cache-dtype fp8 --max-model-len 262144 --engine 0.24 --set max-num-batched-tokens=8192 --set num-gpu-blocks-override=1211", None) },
    // The thread gives the command: Qwen3.6-27B, k = 2, batches of 32768.
    Log { lines: &["3 padding layers, may waste at most 6.25%"], tokens: ByConcurrency(1_823_372), concurrency: Some("1.74"),
          ..log("qwen35-nvfp4kv-5090", "--model qwen3.5-27b --method mtp --num-speculative-tokens 2 --kv-cache-dtype nvfp4 --platform cuda-sm120 --max-model-len 1048576 --engine 0.25 --set max-num-batched-tokens=32768 --set num-gpu-blocks-override=666", None) },
    Log { tokens: ByConcurrency(2_889_456), concurrency: Some("2.76"),
          ..log("nemotron35-dspark", "--model nemotron-3-nano-30b-a3b --draft tests/data/configs/nemotron-3.5-lightning-dspark.json --num-speculative-tokens 5 --kv-cache-dtype bfloat16 --mamba-ssm-cache-dtype float16 --max-model-len 1048576 --engine 0.27 --set max-num-batched-tokens=8192 --set async-scheduling=true", Some(1734)) },
    // The 4.02 GiB are of one of two different cards, and would hold 673 blocks: the other's decide, and only 222 give both.
    Log { lines: &["1 padding layers, may waste at most 4.35%"], tokens: ByBlocks(183_744), concurrency: Some("6.17"),
          ..log("nemotron-nano-2gpu", "--model nemotron-3-nano-30b-a3b --tp 2 --platform cuda-sm120 --kv-cache-dtype fp8 --mamba-cache-mode none --max-model-len 131072 --engine 0.24 --set num-gpu-blocks-override=222", None) },
    // In the memory of the start without it, recipes-115.
    Log { tokens: ByBlocks(5_721_088), ..log("kimi-k2-think-dcp8", "--model kimi-k2-instruct --tp 8 --max-model-len 262144 --block-size 64 --engine 0.24 --set decode-context-parallel-size=8", Some(4680)) },
    // No longest request is printed: the model's own, and async scheduling, are the only ones that give both of the starts.
    Log { tokens: ByConcurrency(4_730_981), ..log("inferencex-dsv4-kvcap", "--model deepseek-v4-flash --tp 8 --platform rocm --max-model-len 1048576 --engine 0.28 --set max-num-batched-tokens=16384 --set async-scheduling=true --set num-gpu-blocks-override=78659", None) },
    Log { tokens: ByConcurrency(8_524_228), ..log("inferencex-dsv4-kvcap", "--model deepseek-v4-flash --tp 8 --platform rocm --max-model-len 1048576 --engine 0.28 --set max-num-batched-tokens=8192 --set async-scheduling=true --set num-gpu-blocks-override=87618", None) },
    // The owner's page gives the memory in bytes, and two more starts.
    Log { tokens: ByConcurrency(672_606), ..log("glm53-dflash-pool", "glm-5.3-flash-mtp#mtp-4 --set kv-cache-memory=5.5GiB", None) },
    Log { tokens: ByConcurrency(507_041), ..log("glm53-dflash-pool", "glm-5.3-flash-mtp#mtp-4 --set kv-cache-memory=4445787956", None) },
    Log { tokens: ByConcurrency(527_879), ..log("glm53-dflash-pool", "glm-5.3-flash-mtp#mtp-3 --set kv-cache-memory=4445787956", None) },
    Log { concurrency: Some("1.15"), num_blocks: Some(70), ..log("glm53-spark-blocks", "glm-5.3-flash-mtp#packed-mtp-3 --set max-model-len=204800 --set kv-cache-memory=2.5GiB", None) },
    Log { concurrency: Some("1.15"), num_blocks: Some(84), ..log("glm53-spark-blocks", "glm-5.3-flash-mtp#packed-mtp-3 --set max-model-len=262144 --set kv-cache-memory=3GiB", None) },
];
