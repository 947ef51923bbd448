//! How large are the weights of one rank, where nobody says it?

use std::sync::Arc;

use simulator::cost::calibrate::Subject;
use simulator::cost::{Dispatch, Exposure, Hardware, Layout};

use crate::failure::Failure;
use crate::predict::{models, precision};
use crate::scenario::Scenario;

/// Bytes of one rank, as `k3plan capacity` counts them: from the config that the scenario was imported from, or a
/// shipped one that its name begins with.
///
/// # Errors
/// If no config is known, its sizes cannot be counted, or stages share its layers.
pub(super) fn of_rank(scenario: &Scenario) -> Result<u64, Failure> {
    let failed = || {
        Failure::new(format!("failed to count the weights of `{}`", scenario.name))
            .hint("give what one rank takes, as its server logs it: `--weights 51.8GiB`")
            .hint("or the memory for the cache itself: `--kv-cache-memory 40GiB`")
    };
    let settings = &scenario.settings;
    if settings.pipeline_parallel_size > 1 {
        return Err(failed().caused_by("stages of a pipeline hold different layers"));
    }
    let model = match &scenario.imported {
        Some(from) => models::find(&from.config.display().to_string())?,
        None => models::guess(&scenario.name).ok_or_else(|| {
            failed()
                .caused_by("its layers say what it keeps, not what it weighs")
                .hint("or plan it by `--model CONFIG`")
        })?,
    };
    // Sizes do not depend on the device; this one has every rate that a format can ask for.
    let hardware = Hardware::find("b200").map_err(|error| failed().caused_by(error))?;
    let layout = Layout {
        tensor_parallel: u32::try_from(settings.tensor_parallel_size).unwrap_or(u32::MAX),
        expert_parallel: false,
        early_fp8_experts: false,
    };
    let weigh = |model: &models::NamedModel| -> Result<f64, Failure> {
        let subject = Subject {
            shape: Arc::clone(&model.shape),
            hardware: Arc::new(hardware.clone()),
            precision: precision::named("auto", &model.config, &model.shape, "auto")?,
            layout,
            dispatch: Dispatch::default(),
            exposure: Exposure::Overlapped,
        };
        let cost = subject.model(&[]).map_err(|error| failed().caused_by(error))?;
        Ok(cost.weight_bytes())
    };
    let mut bytes = weigh(&model)?;
    if let Some(draft) = scenario.imported.as_ref().and_then(|from| from.draft.as_ref()) {
        bytes += weigh(&models::find(&draft.display().to_string())?)?;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "far below 2^53 bytes, rounded up"
    )]
    Ok(bytes.ceil().max(0.0) as u64)
}
