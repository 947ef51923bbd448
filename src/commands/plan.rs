//! `k3plan plan`: the groups and the pool that vLLM makes of a model.

use planner::{GroupingError, Plan, Rules};

use crate::cli::Ended;
use crate::exit::Exit;
use crate::render::json::{PlanJson, PlanReport};
use crate::render::number::{bytes, thousands};
use crate::render::plan_text::{self, Planned};
use crate::render::table::{Side, Table};
use crate::render::words::wrap;
use crate::scenario::{Scenario, ScenarioArgs};
use crate::terminal::{Style, Terminal};

/// Show the KV cache groups and the block pool that vLLM makes
///
/// Several scenarios print one table that compares them. Exit code 1 if vLLM would refuse to start.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    scenarios: ScenarioArgs,

    /// Print the plans as JSON; `k3plan schema` describes it.
    #[arg(long)]
    json: bool,

    /// Print each plan in full also where there are several.
    #[arg(long)]
    full: bool,
}

/// One scenario with its plan.
struct Answer {
    scenario: Scenario,
    rules: Rules,
    plan: Result<Plan, GroupingError>,
}

impl Answer {
    fn refused(&self) -> bool {
        !matches!(&self.plan, Ok(Plan { pool: None | Some(Ok(_)), .. }))
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let answers: Vec<Answer> = args
        .scenarios
        .load()?
        .into_iter()
        .map(|scenario| {
            let rules = scenario.engine().rules();
            let plan = planner::plan(&scenario.model, &scenario.settings, &rules);
            Answer { scenario, rules, plan }
        })
        .collect();
    for answer in &answers {
        answer.scenario.write_notes(terminal.err)?;
    }
    if args.json {
        let plans = answers
            .iter()
            .map(|Answer { scenario, rules, plan }| {
                let mut json =
                    PlanJson::of(&scenario.name, &scenario.model, &scenario.settings, rules, plan.as_ref());
                json.log_lines.splice(0..0, scenario.logged.iter().cloned());
                json
            })
            .collect();
        let report = PlanReport { schema: "k3plan.plan/1", plans };
        serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(std::io::Error::from)?;
        writeln!(terminal.out)?;
    } else if answers.len() == 1 || args.full {
        for (i, answer) in answers.iter().enumerate() {
            if i > 0 {
                writeln!(terminal.out)?;
            }
            full(answer, terminal)?;
        }
    } else {
        comparison(&answers, terminal)?;
    }
    Ok(if answers.iter().any(Answer::refused) { Exit::CheckSaysNo } else { Exit::Fine })
}

fn full(answer: &Answer, terminal: &mut Terminal<'_>) -> std::io::Result<()> {
    let Answer { scenario, rules, plan } = answer;
    match plan {
        Ok(plan) => plan_text::write(
            &Planned {
                name: &scenario.name,
                title: (scenario.title != scenario.name).then_some(scenario.title.as_str()),
                model: &scenario.model,
                settings: &scenario.settings,
                rules,
                plan,
                logged: &scenario.logged,
            },
            terminal,
        ),
        Err(error) => {
            let name = terminal.paint(Style::Bold, &scenario.name);
            let refuses = terminal.paint(Style::Bad, "vLLM refuses to group these layers");
            writeln!(terminal.out, "{name} (vLLM {}): {refuses}", rules.version)?;
            writeln!(terminal.out, "  {}: {}", error.class().name(), wrap(&error.to_string(), 4))?;
            if let Some(layer) = error.layer() {
                writeln!(terminal.out, "  layer {layer} is {}", scenario.model.name_of(layer))?;
            }
            writeln!(terminal.out, "  `k3plan explain` says what would make it plannable")
        }
    }
}

/// One line a scenario.
fn comparison(answers: &[Answer], terminal: &mut Terminal<'_>) -> std::io::Result<()> {
    let mut table = Table::new(vec![
        ("scenario", Side::Left),
        ("vLLM", Side::Left),
        ("groups", Side::Right),
        ("size", Side::Right),
        ("padding", Side::Right),
        ("bytes/block", Side::Right),
        ("blocks", Side::Right),
        ("per request", Side::Right),
        ("concurrency", Side::Right),
    ]);
    let mut notes = Vec::new();
    for Answer { scenario, rules, plan } in answers {
        let mut row = vec![scenario.name.clone(), rules.version.to_string()];
        match plan {
            Ok(plan) => {
                let grouping = &plan.grouping;
                let dash = || "-".to_owned();
                row.push(grouping.groups.len().to_string());
                row.push(grouping.group_size().to_string());
                row.push(grouping.padding_layers().map_or_else(dash, |n| n.to_string()));
                row.push(plan.bytes_per_block.map_or_else(dash, bytes));
                match &plan.pool {
                    Some(Ok(pool)) => {
                        row.push(thousands(pool.num_blocks));
                        row.push(thousands(pool.blocks_per_max_len_request));
                        row.push(format!("{:.2}", pool.max_concurrency));
                    }
                    Some(Err(error)) => {
                        row.extend([dash(), dash(), "refused".to_owned()]);
                        notes.push(format!("{}: {}", scenario.name, plan_text::capacity_words(error)));
                    }
                    None => row.extend([dash(), dash(), dash()]),
                }
            }
            Err(error) => {
                row.push("refused".to_owned());
                row.extend((0..6).map(|_| "-".to_owned()));
                notes.push(format!("{}: {error}", scenario.name));
            }
        }
        table.row(row);
    }
    table.write(0, terminal)?;
    for note in notes {
        writeln!(terminal.out, "{}", wrap(&note, 2))?;
    }
    Ok(())
}
