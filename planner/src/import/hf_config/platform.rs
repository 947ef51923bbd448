//! What do platforms decide about block sizes and dtypes?
//!
//! # Source
//! vLLM 0.32: `vllm/platforms/{interface,cpu,cuda,rocm}.py`, `get_supported_kernel_block_sizes` of the
//! backends in `vllm/v1/attention/backends/`.

use std::str::FromStr;

use super::config::Config;

/// Where the engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Platform {
    /// A CPU without AMX, whose kernels take multiples of 32 tokens and 16 for MLA.
    Cpu,
    /// NVIDIA Hopper: FlashAttention 3, FlashMLA.
    #[default]
    CudaHopper,
    /// NVIDIA Blackwell: FlashInfer, TRT-LLM MLA.
    CudaBlackwell,
    /// AMD: ROCm attention, AITER MLA.
    Rocm,
}

impl Platform {
    /// Every platform.
    pub const ALL: &[Self] = &[Self::Cpu, Self::CudaHopper, Self::CudaBlackwell, Self::Rocm];

    /// The name in flags and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::CudaHopper => "cuda-hopper",
            Self::CudaBlackwell => "cuda-blackwell",
            Self::Rocm => "rocm",
        }
    }

    /// Whether this is one of NVIDIA's.
    pub const fn is_cuda(self) -> bool {
        matches!(self, Self::CudaHopper | Self::CudaBlackwell)
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

/// The sizes of KV blocks that a platform's kernels take, tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels {
    /// Multiples of these, or with [`Self::exact`] only these.
    sizes: &'static [u64],
    exact: bool,
    /// The block size without `--block-size`.
    default: u64,
    /// A block size that the platform forces.
    forced: Option<u64>,
}

impl Kernels {
    /// The kernels that `platform` chooses for a model.
    pub(super) fn of(platform: Platform, config: &Config<'_>, use_mla: bool) -> Self {
        const MULTIPLES_OF_16: Kernels = Kernels { sizes: &[16], exact: false, default: 16, forced: None };
        if config.text_type() == "deepseek_v4" && use_mla {
            return Self { sizes: &[256], exact: true, default: 256, forced: Some(256) };
        }
        let sparse = config.has("index_topk");
        match (platform, use_mla) {
            (Platform::Cpu, true) => Self { sizes: &[16], exact: true, default: 16, forced: Some(16) },
            (Platform::Cpu, false) => Self { sizes: &[32], exact: false, default: 128, forced: None },
            // FlashMLA takes 64, and so does its sparse form.
            (Platform::CudaHopper, true) => Self { sizes: &[64], exact: true, default: 64, forced: None },
            // FlashInfer's MLA takes 32 or 64, its sparse form 64 as FlashMLA's.
            (Platform::CudaBlackwell, true) if sparse => {
                Self { sizes: &[64], exact: true, default: 64, forced: None }
            }
            (Platform::CudaBlackwell, true) => {
                Self { sizes: &[32, 64], exact: true, default: 32, forced: None }
            }
            (Platform::Rocm, true) => Self { sizes: &[1], exact: false, default: 16, forced: None },
            // FlashInfer takes 16, 32 and 64, and 128 more on Blackwell; the smallest is what counts here.
            (Platform::CudaHopper | Platform::CudaBlackwell | Platform::Rocm, false) => MULTIPLES_OF_16,
        }
    }

    /// The block size, before alignment, with the user's in `asked`.
    pub(super) const fn block_size(&self, asked: Option<u64>) -> u64 {
        match (self.forced, asked) {
            (Some(forced), _) => forced,
            (None, Some(asked)) => asked,
            (None, None) => self.default,
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
