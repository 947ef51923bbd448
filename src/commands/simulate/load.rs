//! From flags and files to a workload.

use std::path::PathBuf;

use simulator::workload::acceptance::Acceptance;
use simulator::workload::{Arrival, Length, Synthetic, Workload, trace};

use super::adapter::Setup;
use crate::failure::Failure;
use crate::input_file;
use crate::scenario::Scenario;

/// Which requests come.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LoadArgs {
    /// A recorded workload, a JSON request a line: a Mooncake trace or a custom dataset of `vllm bench`.
    #[arg(long, value_name = "FILE.jsonl")]
    workload: Option<PathBuf>,

    /// Requests.
    #[arg(long, default_value_t = 80, value_name = "N")]
    requests: u32,

    /// Requests at once: the next comes when one ends [default: 8, or a trace's own times].
    #[arg(long, value_name = "N", conflicts_with = "rate")]
    concurrency: Option<u32>,

    /// Requests a second, at random times.
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    rate: Option<f64>,

    /// Shape of the gaps between requests: 1 is a Poisson process, less is burstier.
    #[arg(long, default_value_t = 1.0, value_name = "X", allow_negative_numbers = true)]
    burstiness: f64,

    /// Prompt tokens, one number or a range such as 1000..8000.
    #[arg(long, default_value = "8192", value_name = "TOKENS")]
    input: String,

    /// Output tokens, one number or a range.
    #[arg(long, default_value = "1024", value_name = "TOKENS")]
    output: String,

    /// Tokens at the start that requests share.
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    shared_prefix: u32,

    /// How many different shared prefixes there are.
    #[arg(long, default_value_t = 1, value_name = "N")]
    shared_prefixes: u32,

    /// Turns of a conversation; each request is one turn.
    #[arg(long, default_value_t = 1, value_name = "N")]
    turns: u32,

    /// Priorities to draw from.
    #[arg(long, default_value_t = 1, value_name = "N")]
    priorities: u32,

    /// Mean tokens a step gives a request, drafts and the sampled one [default: 3.84 of Kimi-K3, or as many as fit].
    #[arg(long, value_name = "AL", conflicts_with_all = ["acceptance_rates", "accepted"])]
    acceptance_length: Option<f64>,

    /// How often the draft token at each position holds, not increasing.
    #[arg(long, value_delimiter = ',', value_name = "RATE")]
    acceptance_rates: Vec<f64>,

    /// Recorded counts of draft tokens that held.
    #[arg(long, value_delimiter = ',', value_name = "N", conflicts_with = "acceptance_rates")]
    accepted: Vec<u32>,
}

/// A workload and what holds of its drafts.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) workload: Workload,
    pub(crate) acceptance: Acceptance,
}

impl LoadArgs {
    /// The workload that the flags describe.
    ///
    /// # Errors
    /// If a file cannot be read, or a number makes no sense.
    pub(crate) fn resolve(&self, scenario: &Scenario, setup: &Setup) -> Result<Load, Failure> {
        let output = length("--output", &self.output)?;
        let workload = if let Some(path) = &self.workload {
            let fail = || Failure::new(format!("failed to read `{}`", path.display()));
            let text = input_file::text(path, input_file::DATA).map_err(|error| fail().caused_by(error))?;
            let requests = trace::parse(&text, output.most).map_err(|error| {
                fail().caused_by(error).hint(
                    "a line is a JSON object with `timestamp`, `input_length`, `output_length` and `hash_ids`, \
                     or with `prompt`",
                )
            })?;
            Workload::Trace { requests, concurrency: self.concurrency }
        } else {
            let arrival = match self.rate {
                Some(rate) => Arrival::OpenLoop { rate, burstiness: self.burstiness },
                None => Arrival::ClosedLoop { concurrency: self.concurrency.unwrap_or(8) },
            };
            Workload::Synthetic(Synthetic {
                requests: self.requests,
                arrival,
                input: length("--input", &self.input)?,
                output,
                shared_prefix_tokens: self.shared_prefix,
                shared_prefixes: self.shared_prefixes,
                turns: self.turns,
                priorities: self.priorities,
            })
        };
        workload.check().map_err(|error| {
            Failure::new(format!("failed to simulate `{}`", scenario.name)).caused_by(error)
        })?;
        Ok(Load { workload, acceptance: self.acceptance(setup)? })
    }

    fn acceptance(&self, setup: &Setup) -> Result<Acceptance, Failure> {
        let drafts = setup.engine.speculative.map_or(0, |speculative| speculative.tokens);
        let fail = |error: &dyn std::fmt::Display| {
            Failure::new("failed to read the acceptance model").caused_by(error)
        };
        let model = if !self.accepted.is_empty() {
            Acceptance::Recorded(self.accepted.clone())
        } else if !self.acceptance_rates.is_empty() {
            Acceptance::Rates(self.acceptance_rates.clone())
        } else {
            // The length measured on Kimi-K3 with 7 drafts, vLLM pull request 59733.
            let length = self.acceptance_length.unwrap_or_else(|| 3.84_f64.min(f64::from(drafts) + 1.0));
            if drafts == 0 {
                return Ok(Acceptance::Rates(Vec::new()));
            }
            Acceptance::from_length(length, drafts).map_err(|error| fail(&error))?
        };
        if drafts > 0 {
            model.check(drafts).map_err(|error| fail(&error))?;
        }
        Ok(model)
    }
}

/// `N` or `N..M`.
fn length(flag: &str, text: &str) -> Result<Length, Failure> {
    let number = |part: &str| {
        part.trim().replace('_', "").parse::<u32>().map_err(|_unreadable| {
            Failure::new(format!("`{flag}` is `{text}`"))
                .hint("give a number of tokens, or a range such as 1000..8000")
        })
    };
    match text.split_once("..") {
        Some((least, most)) => Ok(Length { least: number(least)?, most: number(most)? }),
        None => Ok(Length::fixed(number(text)?)),
    }
}
