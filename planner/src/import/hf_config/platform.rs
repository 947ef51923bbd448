//! What do platforms decide about block sizes and dtypes?
//!
//! # Source
//! vLLM 0.32 and 0.33: `vllm/platforms/{interface,cpu,cuda,rocm}.py`, `get_supported_kernel_block_sizes` of the
//! backends in `vllm/v1/attention/backends/`.

use std::str::FromStr;

use super::config::Config;
use super::error::ImportError;
use super::settings::ImportSettings;
use crate::settings::Layout;
use crate::size;

/// Where the engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Platform {
    /// A CPU without AMX, whose kernels take multiples of 32 tokens and 16 for MLA.
    Cpu,
    /// NVIDIA Hopper: FlashAttention 3, FlashMLA.
    #[default]
    CudaHopper,
    /// NVIDIA Blackwell of data centres (capability 10): FlashInfer, TRT-LLM MLA.
    CudaBlackwell,
    /// NVIDIA Blackwell of capability 12, RTX and DGX Spark: FlashAttention, Triton MLA.
    CudaSm120,
    /// AMD: ROCm attention, AITER MLA.
    Rocm,
}

impl Platform {
    /// Every platform.
    pub const ALL: &[Self] = &[Self::Cpu, Self::CudaHopper, Self::CudaBlackwell, Self::CudaSm120, Self::Rocm];

    /// The name in flags and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::CudaHopper => "cuda-hopper",
            Self::CudaBlackwell => "cuda-blackwell",
            Self::CudaSm120 => "cuda-sm120",
            Self::Rocm => "rocm",
        }
    }

    /// Whether this is one of NVIDIA's.
    pub const fn is_cuda(self) -> bool {
        matches!(self, Self::CudaHopper | Self::CudaBlackwell | Self::CudaSm120)
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|p| p.name() == name).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|p| p.name()).collect();
            format!("`{name}` is no platform; known are {}", known.join(", "))
        })
    }
}

/// A backend of attention, and the sizes of KV blocks that its kernels take, tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backend {
    /// vLLM's name.
    pub(super) name: &'static str,
    /// Multiples of these, or with [`Self::exact`] only these.
    sizes: &'static [u64],
    exact: bool,
}

const fn multiples(name: &'static str, sizes: &'static [u64]) -> Backend {
    Backend { name, sizes, exact: false }
}

const fn exactly(name: &'static str, sizes: &'static [u64]) -> Backend {
    Backend { name, sizes, exact: true }
}

/// # Source
/// `get_supported_kernel_block_sizes` in `vllm/v1/attention/backends/{cpu_attn,flash_attn,flashinfer,rocm_attn}.py`,
/// its `mla/{cpu_mla,flashattn_mla,flashattn_mla_sparse,flashmla,flashmla_sparse,flashinfer_mla,flashinfer_mla_sparse,
/// cutlass_mla,triton_mla,rocm_aiter_mla_sparse}.py` and `vllm/models/{deepseek_v4,deepseek_v41}/sparse_mla.py`,
/// vLLM 0.32 and 0.33.
mod backends {
    use super::{Backend, exactly, multiples};

    pub(super) const CPU_ATTN: Backend = multiples("CPU_ATTN", &[32]);
    pub(super) const CPU_MLA: Backend = exactly("CPU_MLA", &[16]);
    pub(super) const FLASH_ATTN: Backend = multiples("FLASH_ATTN", &[16]);
    /// 128 and more where the trtllm kernels run; below a block of 128 tokens that makes no difference.
    pub(super) const FLASHINFER: Backend = exactly("FLASHINFER", &[16, 32, 64, 128, 256, 512, 1024]);
    pub(super) const ROCM_ATTN: Backend = multiples("ROCM_ATTN", &[16]);
    pub(super) const FLASH_ATTN_MLA: Backend = multiples("FLASH_ATTN_MLA", &[16]);
    pub(super) const FLASHMLA: Backend = exactly("FLASHMLA", &[64]);
    pub(super) const FLASHINFER_MLA: Backend = exactly("FLASHINFER_MLA", &[32, 64]);
    pub(super) const CUTLASS_MLA: Backend = exactly("CUTLASS_MLA", &[128]);
    pub(super) const TRITON_MLA: Backend = multiples("TRITON_MLA", &[16]);
    /// With the keys of the indexer beside them, whose kernels take 64.
    pub(super) const FLASH_ATTN_MLA_SPARSE: Backend = multiples("FLASH_ATTN_MLA_SPARSE", &[64]);
    pub(super) const FLASHMLA_SPARSE: Backend = multiples("FLASHMLA_SPARSE", &[64]);
    pub(super) const FLASHINFER_MLA_SPARSE_SM90: Backend = multiples("FLASHINFER_MLA_SPARSE_SM90", &[64]);
    pub(super) const FLASHINFER_MLA_SPARSE: Backend = multiples("FLASHINFER_MLA_SPARSE", &[64]);
    pub(super) const FLASHINFER_MLA_SPARSE_SM120: Backend = multiples("FLASHINFER_MLA_SPARSE_SM120", &[64]);
    pub(super) const ROCM_AITER_MLA_SPARSE: Backend = multiples("ROCM_AITER_MLA_SPARSE", &[1]);
    pub(super) const DEEPSEEK_V4: Backend = exactly("DEEPSEEK_SPARSE_SWA", &[256]);
    pub(super) const DEEPSEEK_V41_64: Backend = exactly("FLASHMLA_SPARSE_DSV41", &[64]);
    pub(super) const DEEPSEEK_V41_128: Backend = exactly("FLASHINFER_MLA_SPARSE_DSV41", &[128]);
    pub(super) const DEEPSEEK_V41_ROCM: Backend = exactly("ROCM_AITER_MLA_SPARSE_DSV41", &[64, 128]);
}

/// The kernels of a platform for a model, and the platform's own wishes, tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels {
    pub(super) backend: Backend,
    /// What every backend's block is a multiple of: the indexer's, too.
    every: u64,
    /// The block size without `--block-size`.
    default: u64,
    /// A block size that the platform forces.
    forced: Option<u64>,
}

/// `CacheConfig.DEFAULT_BLOCK_SIZE`.
pub(super) const DEFAULT_BLOCK: u64 = 16;

impl Kernels {
    /// The kernels that the platform chooses for a model.
    ///
    /// # Source
    /// `_get_backend_priorities` of `vllm/platforms/{cuda,rocm}.py`, `supports_combination` and
    /// `supported_kv_cache_dtypes` of the backends; ROCm without `VLLM_ROCM_USE_AITER`, which is off by default.
    pub(super) fn of(settings: &ImportSettings, config: &Config<'_>, use_mla: bool, kv_dtype: &str) -> Self {
        let platform = settings.platform;
        let backend = if use_mla { latent(platform, config, kv_dtype) } else { plain(platform) };
        let forced = match platform {
            _ if backend == backends::CPU_MLA => forced_by_latents(platform, config),
            _ if backend == backends::DEEPSEEK_V4 => Some(256),
            _ => None,
        };
        let mut every = backend.smallest();
        // Pools of keys: 32 or 64 of them a page, on every platform.
        if let (true, Ok(Some(pool))) = (settings.version.rules().pool_pages, config.whole("index_kpool")) {
            let page = pool.saturating_mul(if platform == Platform::CudaSm120 { 64 } else { 32 });
            every = (every / size::gcd(every, page).max(1)).saturating_mul(page).max(1);
        }
        let default = match platform {
            Platform::Cpu => 128,
            _ if DEFAULT_BLOCK.is_multiple_of(every.max(1)) => DEFAULT_BLOCK,
            _ => every,
        };
        Self { backend, every, default: forced.unwrap_or(default), forced }
    }

    /// The block size, before alignment, with the user's in `asked`.
    pub(super) const fn block_size(&self, asked: Option<u64>) -> u64 {
        match (self.forced, asked) {
            (Some(forced), _) => forced,
            (None, Some(asked)) => asked,
            (None, None) => self.default,
        }
    }

    /// The sizes that `--block-size` can ask for, from 16 to 256 tokens, smallest first.
    pub(super) fn choices(&self) -> Vec<u64> {
        const USUAL: [u64; 5] = [16, 32, 64, 128, 256];
        let Backend { sizes, exact, .. } = self.backend;
        let takes = |size: u64| {
            size.is_multiple_of(self.every.max(1))
                && sizes
                    .iter()
                    .any(|own| if exact { *own == size } else { size.is_multiple_of((*own).max(1)) })
        };
        match self.forced {
            Some(forced) => vec![forced],
            None => USUAL.into_iter().filter(|size| takes(*size)).collect(),
        }
    }

    /// Refuses a block that the user asks for and no backend of the platform takes.
    ///
    /// # Source
    /// `supports_block_size` in `vllm/v1/attention/backend.py` and `get_attn_backend_cls` in `vllm/platforms/cuda.py`: all
    /// plain and latent backends of NVIDIA and AMD take multiples of 16; a CPU does not look (`worker_ends`), vLLM 0.32.
    pub(super) fn check(&self, settings: &ImportSettings) -> Result<(), ImportError> {
        let multiple = self.backend.smallest().min(DEFAULT_BLOCK);
        match settings.block_size {
            Some(asked)
                if settings.platform != Platform::Cpu
                    && self.forced.is_none()
                    && !asked.is_multiple_of(multiple.max(1)) =>
            {
                Err(ImportError::BlockSize { asked, multiple, platform: settings.platform.name() })
            }
            _ => Ok(()),
        }
    }

    /// What to say of a block that a CPU plans with, and whose worker ends as it starts.
    ///
    /// # Source
    /// `select_common_block_size` in `vllm/v1/worker/utils.py`, vLLM 0.32.
    pub(super) fn worker_ends(&self, settings: &ImportSettings, block_size: u64) -> Option<String> {
        let multiple = self.backend.smallest();
        let ends = settings.platform == Platform::Cpu && !block_size.is_multiple_of(multiple.max(1));
        ends.then(|| {
            format!(
                "vLLM plans with blocks of {block_size} tokens on a CPU, whose worker then ends: its kernels take \
                 multiples of {multiple}"
            )
        })
    }

    /// What each backend's block is a multiple of.
    pub(super) const fn every(&self) -> u64 {
        self.every
    }
}

fn plain(platform: Platform) -> Backend {
    match platform {
        Platform::Cpu => backends::CPU_ATTN,
        Platform::CudaHopper | Platform::CudaSm120 => backends::FLASH_ATTN,
        Platform::CudaBlackwell => backends::FLASHINFER,
        Platform::Rocm => backends::ROCM_ATTN,
    }
}

fn latent(platform: Platform, config: &Config<'_>, kv_dtype: &str) -> Backend {
    match (config.text_type(), platform) {
        ("deepseek_v4", _) => return backends::DEEPSEEK_V4,
        ("deepseek_v41", Platform::CudaHopper) => return backends::DEEPSEEK_V41_64,
        ("deepseek_v41", Platform::Rocm) => return backends::DEEPSEEK_V41_ROCM,
        ("deepseek_v41", _) => return backends::DEEPSEEK_V41_128,
        _ => {}
    }
    let sparse = config.has("index_topk");
    let unquantised = matches!(kv_dtype, "auto" | "float16" | "bfloat16");
    match platform {
        Platform::Cpu => backends::CPU_MLA,
        // Latents without rotary parts, which FlashMLA does not take in plain FP8.
        Platform::CudaHopper if sparse && !kv_dtype.ends_with("_ds_mla") && rope_free(config) => {
            backends::FLASHINFER_MLA_SPARSE_SM90
        }
        Platform::CudaHopper if sparse && unquantised => backends::FLASH_ATTN_MLA_SPARSE,
        Platform::CudaHopper if sparse => backends::FLASHMLA_SPARSE,
        Platform::CudaHopper if unquantised => backends::FLASH_ATTN_MLA,
        Platform::CudaHopper => backends::FLASHMLA,
        Platform::CudaBlackwell if sparse && kv_dtype.ends_with("_ds_mla") => backends::FLASHMLA_SPARSE,
        Platform::CudaBlackwell if sparse => backends::FLASHINFER_MLA_SPARSE,
        Platform::CudaBlackwell => match config.whole("qk_nope_head_dim") {
            Ok(Some(64 | 128 | 192)) => backends::FLASHINFER_MLA,
            _ => backends::CUTLASS_MLA,
        },
        Platform::CudaSm120 if sparse => backends::FLASHINFER_MLA_SPARSE_SM120,
        Platform::CudaSm120 => backends::TRITON_MLA,
        Platform::Rocm if sparse => backends::ROCM_AITER_MLA_SPARSE,
        Platform::Rocm => backends::TRITON_MLA,
    }
}

/// Whether latents are 512 wide and have no rotary part, for which SM90's kernels of FlashInfer come first.
///
/// # Source
/// `_get_backend_priorities` in `vllm/platforms/cuda.py`, since vLLM 0.30; the models came with it.
fn rope_free(config: &Config<'_>) -> bool {
    matches!(config.whole("kv_lora_rank"), Ok(Some(512)))
        && matches!(config.whole("qk_rope_head_dim"), Ok(None | Some(0)))
}

/// Model types that the engine knows to keep latents.
///
/// # Source
/// `is_deepseek_mla` in `vllm/transformers_utils/model_arch_config_convertor.py`, vLLM 0.32.
const LATENT_TYPES: &[&str] = &[
    "axk1",
    "bailing_hybrid",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v4",
    "deepseek_v41",
    "dots3_note",
    "glm4_moe_lite",
    "glm5_next",
    "glm5_next_text",
    "glm_moe_dsa",
    "hy_v4",
    "k3_dspark",
    "kimi_k2",
    "kimi_linear",
    "longcat_flash",
    "pangu_ultra_moe",
];

/// Whether the engine itself takes a model for one with latents, whatever its layers keep.
pub(super) fn engine_mla(config: &Config<'_>) -> bool {
    let by_rank = || matches!(config.whole("kv_lora_rank"), Ok(Some(_)));
    if super::architectures::is_transformers(config.architecture()) {
        return by_rank();
    }
    LATENT_TYPES.contains(&config.text_type())
        && !super::causal::looks_both_ways(config)
        && if config.has("compress_ratios") {
            matches!(config.whole("head_dim"), Ok(Some(_)))
        } else {
            by_rank()
        }
}

/// The block size that a platform sets for latents whatever is asked for, tokens.
///
/// # Source
/// `check_and_update_config` in `vllm/platforms/cpu.py`, vLLM 0.32.
pub(super) fn forced_by_latents(platform: Platform, config: &Config<'_>) -> Option<u64> {
    (platform == Platform::Cpu && engine_mla(config)).then_some(16)
}

/// The layout of the cache that a model's own backends demand.
///
/// # Source
/// `supported_kv_cache_layouts` of `DeepseekV4IndexerBackend` and `KpoolTailBackend` in
/// `vllm/v1/attention/backends/mla/indexer.py`, `QSAStateBackend` in `vllm/models/qwen4_exp/common/qsa_cache.py` and
/// `Dots3NotePaddedSparseBackend` in `vllm/models/dots3_note/nvidia/attention.py`, vLLM 0.32;
/// `Step5DSAAttentionBackend` in `vllm/models/step5/nvidia/sparse_attention.py`, 0.33.
pub(super) fn layout(config: &Config<'_>) -> Option<Layout> {
    if config.architecture().starts_with("Step5") {
        return Some(Layout::Blnhc);
    }
    match config.text_type() {
        "qwen4_exp" | "qwen4_exp_text" if matches!(config.whole("indexer_n_heads"), Ok(Some(_))) => {
            Some(Layout::Blnhc)
        }
        "deepseek_v4" | "deepseek_v41" | "glm5_next" | "glm5_next_text" => Some(Layout::Blhnc),
        "dots3_note" if config.has("index_topk") => Some(Layout::Blhnc),
        _ => None,
    }
}

impl Backend {
    /// Whether latents that are asked for in this dtype are kept as `fp8_ds_mla`.
    ///
    /// # Source
    /// `_canonicalize_sparse_mla_kv_cache_dtype` in `vllm/model_executor/layers/attention/mla_attention.py`, vLLM 0.32.
    pub(super) fn packs(&self, kv_dtype: &str) -> bool {
        if *self == backends::FLASHMLA_SPARSE {
            kv_dtype.starts_with("fp8")
        } else {
            *self == backends::FLASHINFER_MLA_SPARSE_SM120 && matches!(kv_dtype, "auto" | "fp8" | "fp8_e4m3")
        }
    }

    /// The smallest size.
    pub(super) fn smallest(&self) -> u64 {
        self.sizes.iter().copied().min().unwrap_or(1)
    }

    /// The largest size within `block_size`, or the smallest where none is.
    pub(super) fn largest_within(&self, block_size: u64) -> u64 {
        let smallest = self.smallest().max(1);
        if self.exact {
            self.sizes.iter().copied().filter(|s| *s <= block_size).max().unwrap_or(smallest)
        } else {
            self.sizes.iter().map(|s| (block_size / (*s).max(1) * s).max(*s)).max().unwrap_or(smallest)
        }
    }
}
