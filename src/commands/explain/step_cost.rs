//! What do the groups cost a step on a device, as they are and after each change?

use planner::Grouping;
use planner::explain::{Explanation, Outcome, apply};
use planner::group::group;
use serde::Serialize;
use simulator::cost::{Dispatch, Factor, Hardware};

use crate::failure::Failure;
use crate::predict::calibration::{CalibrationFile, NINETY};
use crate::predict::groups;
use crate::render::table::{Side, Table};
use crate::render::words::wrap;
use crate::scenario::Scenario;
use crate::terminal::{Style, Terminal};

/// One arm: as declared, or after a change.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Arm {
    /// 0 as declared; else the change's place in the list, from 1.
    change: usize,
    groups: usize,
    /// Kernels and copies that the host dispatches for the groups, a step.
    operations: f64,
    /// What that takes the host, milliseconds a step.
    host_ms: f64,
    /// Its 90% interval.
    host_ms_interval: (f64, f64),
}

/// All arms of a scenario on a device.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct StepCost {
    hardware: String,
    /// Draft tokens that each step verifies.
    drafts: u64,
    arms: Vec<Arm>,
}

impl StepCost {
    /// Plans each change again and costs its groups.
    ///
    /// # Errors
    /// If the device or the calibration is not known, or the device launches nothing.
    pub(super) fn of(
        scenario: &Scenario,
        explanation: &Explanation,
        hardware: &str,
        calibration: &str,
    ) -> Result<Self, Failure> {
        let hardware = Hardware::find(hardware)
            .map_err(|error| Failure::new("failed to read `--hardware`").caused_by(error))?;
        if hardware.platform == "cpu" {
            return Err(Failure::new("failed to cost the groups of a step")
                .caused_by("builders are counted for devices that kernels are launched on, and a CPU is none")
                .hint(
                    "name a GPU, such as `--hardware h200`; docs/predict.md has what a group costs on a CPU",
                ));
        }
        let fitted = CalibrationFile::for_platform(calibration, &hardware.platform)?.calibration()?;
        let factors = simulator::cost::Factors::default().times(&fitted.offsets);
        let spread = (NINETY * fitted.deviation(Factor::LaunchUs)).exp();
        let drafts = scenario.num_speculative_tokens.unwrap_or(0);
        let arm = |change: usize, grouping: &Grouping| {
            let dispatch: Dispatch = groups::dispatch(grouping, hardware, drafts > 0);
            let ms = dispatch.time(&factors) * 1e3;
            Arm {
                change,
                groups: grouping.groups.len(),
                operations: dispatch.launches,
                host_ms: ms,
                host_ms_interval: (ms / spread, ms * spread),
            }
        };
        let mut arms = Vec::new();
        if let Outcome::Planned(plan) = &explanation.outcome {
            arms.push(arm(0, &plan.grouping));
        }
        let rules = scenario.engine().rules();
        for (at, change) in explanation.changes.iter().enumerate() {
            let Some(model) = apply(&scenario.model, &change.edits) else { continue };
            if let Ok(grouping) = group(&model, &scenario.settings, &rules) {
                arms.push(arm(at + 1, &grouping));
            }
        }
        Ok(Self { hardware: hardware.title.clone(), drafts, arms })
    }

    /// Prints the table.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub(super) fn write(&self, terminal: &mut Terminal<'_>) -> std::io::Result<()> {
        writeln!(terminal.out)?;
        let steps = match self.drafts {
            0 => "steps that decode".to_owned(),
            drafts => format!("steps that verify {drafts} drafts"),
        };
        let head = format!("What the groups cost the host a step, {}, {steps}", self.hardware);
        writeln!(terminal.out, "{}", terminal.paint(Style::Bold, &head))?;
        let mut table = Table::new(vec![
            ("", Side::Left),
            ("groups", Side::Right),
            ("operations", Side::Right),
            ("ms", Side::Right),
            ("90% interval", Side::Right),
            ("saves", Side::Right),
        ]);
        let declared = self.arms.iter().find(|arm| arm.change == 0).map(|arm| arm.host_ms);
        for arm in &self.arms {
            let (low, high) = arm.host_ms_interval;
            table.row(vec![
                if arm.change == 0 { "as declared".to_owned() } else { format!("change {}", arm.change) },
                arm.groups.to_string(),
                format!("{:.0}", arm.operations),
                format!("{:.2}", arm.host_ms),
                format!("{low:.2} to {high:.2}"),
                match declared {
                    Some(ms) if arm.change > 0 => format!("{:.2} ms", ms - arm.host_ms),
                    _ => String::new(),
                },
            ]);
        }
        table.write(2, terminal)?;
        let text = if self.drafts > 0 {
            "Metadata waits for what the step before accepted, so that all of it lengthens the step; over the \
             acceptance length it is what a token takes longer."
        } else {
            "With async scheduling it lengthens a step only where it takes longer than the device."
        };
        writeln!(terminal.out, "  {}", wrap(text, 2))
    }
}
