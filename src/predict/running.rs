//! How many requests of a length run at once: the planner's own groups and blocks, not a division.

use planner::import::hf_config::{ImportSettings, Platform, import};
use planner::{EngineSettings, EngineVersion, MambaCacheMode};
use simulator::cost::{CostModel, Hardware};

use super::models::NamedModel;

/// Memory for activations, graphs and the runtime on one device, bytes.
pub(crate) const OVERHEAD_BYTES: f64 = 4e9;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room<'a> {
    pub(crate) hardware: &'a Hardware,
    pub(crate) tensor_parallel: u32,
    pub(crate) utilization: f64,
    pub(crate) kv_cache_dtype: &'a str,
    /// Prompt and output tokens of a request.
    pub(crate) input: f64,
    pub(crate) output: f64,
}

/// Why nothing runs.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum NoRoom {
    /// The weights alone are too large.
    #[error("weights of {weights:.1} GB a device leave nothing of {usable:.1} GB")]
    Weights {
        /// Of one rank, GB.
        weights: f64,
        /// What vLLM may use, GB.
        usable: f64,
    },
    /// Not one request fits.
    #[error("not one request of {tokens} tokens fits beside the weights")]
    Request {
        /// Its length.
        tokens: u64,
    },
}

/// Requests that run at once, by the plan that vLLM makes; `None` where the device's memory is not known.
pub(crate) fn at_once(model: &NamedModel, cost: &CostModel, room: &Room<'_>) -> Result<Option<f64>, NoRoom> {
    let Some(memory) = room.hardware.memory_bytes else { return Ok(None) };
    #[expect(clippy::cast_precision_loss, reason = "a device's memory")]
    let usable = memory as f64 * room.utilization;
    let left = usable - cost.weight_bytes() - OVERHEAD_BYTES;
    if left <= 0.0 {
        return Err(NoRoom::Weights { weights: cost.weight_bytes() / 1e9, usable: usable / 1e9 });
    }
    let length = (room.input + room.output).ceil().max(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "lengths and memory are far below 2^53"
    )]
    let (tokens, bytes) = (length as u64, left as u64);
    let held = match planned(model, room, tokens, bytes) {
        Some(concurrency) => concurrency,
        // A model that the importer does not know: pages without padding.
        None => left / (cost.kv_bytes_a_token() * length).max(1.0),
    };
    if held < 1.0 {
        return Err(NoRoom::Request { tokens });
    }
    // A running request holds its prompt and, as blocks are taken when they are needed, three quarters of its output.
    Ok(Some(held * length / (room.input + 0.75 * room.output).max(1.0)))
}

fn planned(model: &NamedModel, room: &Room<'_>, tokens: u64, bytes: u64) -> Option<f64> {
    let platform: Platform = platform(room.hardware).parse().ok()?;
    let settings = ImportSettings {
        tensor_parallel_size: u64::from(room.tensor_parallel),
        max_model_len: tokens,
        kv_cache_dtype: room.kv_cache_dtype.to_owned(),
        platform,
        ..ImportSettings::default()
    };
    let imported = import(&model.config, None, &settings).ok()?;
    let engine = EngineSettings {
        tensor_parallel_size: u64::from(room.tensor_parallel),
        max_model_len: tokens,
        mamba_cache_mode: MambaCacheMode::None,
        available_memory_bytes: vec![bytes],
        ..EngineSettings::default()
    };
    let plan = planner::plan(&imported.model, &engine, &EngineVersion::default().rules()).ok()?;
    match plan.pool? {
        Ok(pool) => Some(pool.max_concurrency),
        Err(_too_small) => Some(0.0),
    }
}

/// The importer's platform of a device.
pub(crate) fn platform(hardware: &Hardware) -> &'static str {
    match hardware.platform.as_str() {
        "rocm" => "rocm",
        "cpu" => "cpu",
        _ if hardware.fp4.is_some() => "cuda-blackwell",
        _ => "cuda-hopper",
    }
}
