//! How many bytes a weight takes, and at which rate it is computed with.

use serde::{Deserialize, Serialize};

use super::hardware::Hardware;

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightFormat {
    /// 16 bits.
    Bf16,
    /// 8 bits, a scale a tensor or channel.
    Fp8,
    /// 8 bits, a scale a block of 128 by 128.
    Fp8Block,
    /// 4 bits, an fp8 scale for each 16.
    Nvfp4,
    /// 4 bits, a shared exponent for each 32.
    Mxfp4,
    /// 4 bits, a bf16 scale for each 32, computed in bf16.
    Int4,
}

impl WeightFormat {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp8Block => "fp8_block",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "mxfp4",
            Self::Int4 => "int4",
        }
    }

    /// Bytes a weight, scales included.
    pub fn bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 => 1.0,
            Self::Fp8Block => 1.0 + 4.0 / (128.0 * 128.0),
            Self::Nvfp4 => 0.5 + 1.0 / 16.0,
            Self::Mxfp4 => 0.5 + 1.0 / 32.0,
            Self::Int4 => 0.5 + 2.0 / 32.0,
        }
    }

    /// The rate its products are computed at: its own where the device has one, else the next wider.
    pub(super) fn rate(self, hardware: &Hardware) -> (Option<f64>, Rate) {
        let bf16 = (hardware.bf16, Rate::Bf16);
        let fp8 = hardware.fp8.map_or(bf16, |rate| (Some(rate), Rate::Fp8));
        match self {
            Self::Bf16 | Self::Int4 => bf16,
            Self::Fp8 | Self::Fp8Block => fp8,
            // Where the device has no 4-bit units the kernels unpack to bf16.
            Self::Nvfp4 => hardware.fp4.map_or(bf16, |rate| (Some(rate), Rate::Fp4)),
            // MXFP4 weights meet MXFP8 activations.
            Self::Mxfp4 => {
                if hardware.fp4.is_some() {
                    fp8
                } else {
                    bf16
                }
            }
        }
    }
}

/// Which units compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rate {
    Bf16,
    Fp8,
    Fp4,
}

/// How a checkpoint's parts and its KV cache are stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision {
    /// Attention, states and dense MLPs.
    pub dense: WeightFormat,
    /// Routed experts.
    pub experts: WeightFormat,
    /// Bytes a KV element.
    pub kv_bytes: f64,
}
