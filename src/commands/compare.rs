//! `k3plan compare A... -- B...`: is arm B better or worse than arm A?

mod files;
mod json;
mod junit;
mod markdown;
mod text;
mod words;

use std::path::PathBuf;

use clap::Parser as _;
use executor::compare::difference::PairingChoice;
use executor::compare::run::Run;
use executor::compare::same::{self, Found};
use executor::compare::verdict::{MetricComparison, Rules, Verdict};
use executor::compare::{CompareError, Comparison, Options, compare};

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Arguments of `k3plan compare`.
#[derive(clap::Args)]
#[command(after_help = "\
A result file is one of vllm bench serve, k3plan bench (its journal too, as of a killed run), guidellm, aiperf, \
InferenceX, lm-eval, or a table (CSV). A folder stands for the result files in it. FILE:KEY=VALUE,... takes the runs of a file whose labels \
have these values, as in repeats.csv:model=v41,concurrency=8. Files are given in the order of measuring.

Exit codes: 0 compared, 1 `--fail-on` says no, 2 wrong input.")]
pub(crate) struct Args {
    /// Result files of arm A, the one compared with.
    #[arg(required = true, value_name = "A")]
    a: Vec<String>,

    /// Result files of arm B, after `--`.
    #[arg(last = true, required = true, value_name = "B")]
    b: Vec<String>,

    #[command(flatten)]
    settings: Settings,
}

/// The options, which may stand before A or after B.
#[derive(Debug, Clone, clap::Args)]
struct Settings {
    /// The figure that decides (repeatable) [default: the median TPOT, else the best there is].
    #[arg(long, value_name = "NAME")]
    metric: Vec<String>,

    /// The smallest change that matters, in percent [default: 5].
    #[arg(long, value_name = "PERCENT")]
    margin: Option<f64>,

    /// Exit 1 when the verdict is this; `worse:2` only when worse by at least 2 percent.
    #[arg(long, value_name = "worse[:PERCENT]", value_parser = parse_fail_on)]
    fail_on: Option<FailOn>,

    /// Never compare runs of the same seed pair by pair.
    #[arg(long)]
    unpaired: bool,

    /// Claim nothing that a slow drift of the machine could explain, even with three runs an arm back to back.
    #[arg(long)]
    rule_out_drift: bool,

    /// Write JSON.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Write Markdown for a pull request.
    #[arg(long)]
    markdown: bool,

    /// Write a JUnit report to a file, beside the output.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// The options after B.
#[derive(clap::Parser)]
#[command(name = "k3plan compare", no_binary_name = true)]
struct After {
    #[command(flatten)]
    settings: Settings,
}

/// The smallest change that matters unless `--margin` says another, in percent.
const MARGIN: f64 = 5.0;

/// When a comparison fails the check.
#[derive(Debug, Clone, Copy, PartialEq)]
struct FailOn {
    /// The size from which worse counts, in percent.
    percent: f64,
}

fn parse_fail_on(text: &str) -> Result<FailOn, String> {
    let expected = || format!("expected `worse` or `worse:PERCENT`, not `{text}`");
    if text == "worse" {
        return Ok(FailOn { percent: 0.0 });
    }
    let number = text.strip_prefix("worse:").ok_or_else(expected)?;
    let percent = number.strip_suffix('%').unwrap_or(number).parse::<f64>().ok();
    percent
        .filter(|percent| percent.is_finite() && *percent >= 0.0)
        .map(|percent| FailOn { percent })
        .ok_or_else(expected)
}

pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let Args { a, b, settings } = args;
    let mut b = b.clone();
    let args = with_options_after(settings.clone(), &mut b)?;
    let margin = args.margin.unwrap_or(MARGIN);
    if !(margin.is_finite() && margin > 0.0) {
        return Err(Failure::new(format!("`--margin` is {margin}, not a percentage above zero")).into());
    }
    let (a, notes_on_a) = same::drop_repeats("A", files::load(a)?);
    let (b, notes_on_b) = same::drop_repeats("B", files::load(&b)?);
    let mut notes = [notes_on_a, notes_on_b, same::in_both(&a, &b)].concat();
    let runs = |arm: Vec<Found>| -> Vec<Run> { arm.into_iter().map(|found| found.run).collect() };
    let (a, b) = (runs(a), runs(b));
    let pairing = if args.unpaired { PairingChoice::Off } else { PairingChoice::Auto };
    let rules =
        Rules { margin: margin / 100.0, pairing, rule_out_drift: args.rule_out_drift, ..Rules::STANDARD };
    let options = Options { metrics: args.metric, rules };
    let mut comparison = compare(&a, &b, &options).map_err(explain)?;
    notes.append(&mut comparison.warnings);
    comparison.warnings = notes;
    let fails = args.fail_on.is_some_and(|fail_on| check_says_no(&comparison, fail_on));
    if let Some(path) = &args.junit {
        std::fs::write(path, junit::report(&comparison, &rules, args.fail_on)).map_err(|error| {
            Failure::new(format!("failed to write `{}`", path.display())).caused_by(error)
        })?;
    }
    if args.json {
        writeln!(terminal.out, "{:#}", json::document(&comparison, &rules, &a, &b))?;
    } else if args.markdown {
        write!(terminal.out, "{}", markdown::document(&comparison, &rules))?;
    } else {
        text::write(&comparison, &rules, terminal)?;
    }
    Ok(if fails { Exit::CheckSaysNo } else { Exit::Fine })
}

/// Takes the options off the end of B, where `--` made them look like files.
fn with_options_after(mut settings: Settings, b: &mut Vec<String>) -> Result<Settings, Failure> {
    let Some(first) = b.iter().position(|argument| argument.starts_with("--")) else { return Ok(settings) };
    let options = b.split_off(first);
    let after = After::try_parse_from(options).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or("").trim_start_matches("error: ").to_owned();
        Failure::new(line).hint("the options of `k3plan compare --help` may stand before A or after B")
    })?;
    let after = after.settings;
    settings.metric.extend(after.metric);
    settings.margin = after.margin.or(settings.margin);
    settings.fail_on = after.fail_on.or(settings.fail_on);
    settings.junit = after.junit.or(settings.junit);
    settings.unpaired |= after.unpaired;
    settings.rule_out_drift |= after.rule_out_drift;
    settings.json |= after.json;
    settings.markdown |= after.markdown;
    Ok(settings)
}

/// Whether any deciding figure is worse by at least the size asked for.
fn check_says_no(comparison: &Comparison, fail_on: FailOn) -> bool {
    comparison.points.iter().flat_map(|point| &point.primary).any(|result| result_fails(result, fail_on))
}

fn result_fails(result: &MetricComparison, fail_on: FailOn) -> bool {
    result.verdict == Verdict::Worse && result.effect.abs() * 100.0 >= fail_on.percent
}

fn explain(error: CompareError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        CompareError::UnknownMetric { available, .. } => {
            failure.hint(format!("both arms have: {}", available.join(", ")))
        }
        CompareError::NothingInCommon { .. } | CompareError::NoRuns { .. } => failure,
    }
}
