//! `k3plan explain`: why the groups are as they are, what to change, and what that gives.

mod drawing;
mod json;
mod other_rules;
mod step_cost;

use std::path::PathBuf;

pub(crate) use json::ExplainReport;
use planner::explain::{Outcome, explain};
use step_cost::StepCost;

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lock;
use crate::render::explain_text::{self, Explained};
use crate::scenario::ScenarioArgs;
use crate::terminal::Terminal;

/// Say why the groups are as they are, what to change, and what that gives
///
/// Exit code 1 if vLLM would refuse to start, as `k3plan plan` says it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    scenarios: ScenarioArgs,

    /// Print the explanation as JSON.
    #[arg(long)]
    json: bool,

    /// Say too what the groups cost a step on this device, such as mi355x, as they are and after each change.
    #[arg(long, value_name = "NAME")]
    hardware: Option<String>,

    /// With `--hardware`: a file of `k3plan calibrate`, or `public`, or `none` (the defaults).
    #[arg(long, default_value = "public", value_name = "FILE", requires = "hardware")]
    calibration: String,

    /// Write the compatibility graph in Graphviz's language; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,

    /// Write the compatibility graph as a picture; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write the compatibility graph in Mermaid's language; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    mermaid: Option<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let scenarios = args.scenarios.load()?;
    let drawings = [
        (&args.dot, drawing::Kind::Dot),
        (&args.svg, drawing::Kind::Svg),
        (&args.mermaid, drawing::Kind::Mermaid),
    ];
    let draws = drawings.iter().any(|(path, _)| path.is_some());
    if draws && scenarios.len() > 1 {
        return Err(Failure::new("failed to draw the graph")
            .caused_by(format!("the files hold {} scenarios, and a drawing is of one", scenarios.len()))
            .hint(format!("name one of them, such as `{}`", scenarios[0].name))
            .into());
    }
    let to_stdout =
        drawings.iter().any(|(path, _)| path.as_ref().is_some_and(|path| path.as_os_str() == "-"));
    let mut reports = Vec::new();
    let mut refused = false;
    for (i, scenario) in scenarios.iter().enumerate() {
        let rules = scenario.engine().rules();
        let explanation = explain(&scenario.model, &scenario.settings, &rules);
        refused |= match &explanation.outcome {
            Outcome::Planned(plan) => matches!(plan.pool, Some(Err(_))),
            Outcome::Refused(_) => true,
        };
        let fewer = other_rules::fewer_groups(scenario, &rules, &explanation);
        let explained = Explained {
            name: &scenario.name,
            model: &scenario.model,
            settings: &scenario.settings,
            rules: &rules,
            explanation: &explanation,
            fewer: &fewer,
        };
        for (path, kind) in &drawings {
            let Some(path) = path else { continue };
            let text = drawing::draw(*kind, &explained);
            if path.as_os_str() == "-" {
                terminal.out.write_all(text.as_bytes())?;
            } else {
                lock::write_beside(path, text.as_bytes()).map_err(|error| {
                    Failure::new(format!("failed to write `{}`", path.display())).caused_by(error)
                })?;
            }
        }
        let cost = args
            .hardware
            .as_ref()
            .map(|name| StepCost::of(scenario, &explanation, name, &args.calibration))
            .transpose()?;
        if args.json {
            reports.push(json::report(&explained, cost));
        } else if !to_stdout {
            if i > 0 {
                writeln!(terminal.out)?;
            }
            explain_text::write(&explained, terminal)?;
            if let Some(cost) = cost {
                cost.write(terminal)?;
            }
        }
    }
    if args.json {
        let report = ExplainReport { schema: "k3plan.explain/1", explanations: reports };
        serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(std::io::Error::from)?;
        writeln!(terminal.out)?;
    }
    Ok(if refused { Exit::CheckSaysNo } else { Exit::Fine })
}
