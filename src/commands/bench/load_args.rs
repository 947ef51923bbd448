//! The flags that make a load; an experiment file names the same, with underscores.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use executor::load::arrival::{Arrivals, RampShape};
use executor::load::dataset::random_tokens::RandomShape;
use executor::load::dataset::{DatasetError, file, mooncake, share_gpt};
use executor::load::request::{self, Api, PlannedRequest};
use executor::load::run::Limits;
use executor::load::summary::Goodput;
use executor::server::probe::{Probe, ServerTokens};
use serde_json::{Map, Value, json};

use super::spelling::Speller;
use crate::failure::Failure;
use crate::input_file;

/// What is sent, how much of it, and when. Names are those of `vllm bench serve` where it has them.
#[derive(clap::Args, Debug, Clone)]
pub(super) struct LoadArgs {
    /// Interface of the server.
    #[arg(long, value_enum, default_value_t = Backend::Openai)]
    pub(super) backend: Backend,
    /// Path of the endpoint, instead of the backend's usual one.
    #[arg(long, value_name = "PATH", value_parser = parse_endpoint)]
    pub(super) endpoint: Option<String>,
    /// Where the prompts come from.
    #[arg(long, value_enum, default_value_t = Dataset::Random)]
    pub(super) dataset_name: Dataset,
    /// The data set's file.
    #[arg(long, value_name = "FILE")]
    pub(super) dataset_path: Option<PathBuf>,
    /// Requests.
    #[arg(long, default_value_t = 1000)]
    pub(super) num_prompts: usize,
    /// Tokens of a random prompt, without its prefix.
    #[arg(long, visible_alias = "input-len", default_value_t = 1024)]
    pub(super) random_input_len: u32,
    /// Tokens of an answer.
    #[arg(long, visible_alias = "output-len", default_value_t = 128)]
    pub(super) random_output_len: u32,
    /// Tokens that random prompts share at their beginning.
    #[arg(long, default_value_t = 0)]
    pub(super) random_prefix_len: u32,
    /// How many different shared beginnings there are.
    #[arg(long, default_value_t = 1)]
    pub(super) num_prefixes: u32,
    /// How far random lengths vary around their mean, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    pub(super) random_range_ratio: f64,
    /// Token ids to draw random prompts from, first..after-last.
    #[arg(long, value_name = "FIRST..END", value_parser = parse_range, default_value = "256..1024")]
    pub(super) token_ids: Range<u32>,
    /// How random prompts are sent: as token ids, or as text that the server cuts into as many tokens.
    #[arg(long, value_enum, default_value_t = PromptsAs::Ids)]
    pub(super) prompts_as: PromptsAs,
    /// Answer length for data sets, instead of each entry's own.
    #[arg(long)]
    pub(super) dataset_output_len: Option<u32>,
    /// Requests a second; `inf` sends at once, as far as the concurrency allows.
    #[arg(long, default_value_t = f64::INFINITY)]
    pub(super) request_rate: f64,
    /// Shape of the gaps between requests: 1 is a Poisson process, below is burstier, `inf` is even.
    #[arg(long, default_value_t = 1.0)]
    pub(super) burstiness: f64,
    /// The most requests under way.
    #[arg(long)]
    pub(super) max_concurrency: Option<usize>,
    /// Let the request rate change over the run.
    #[arg(long, value_enum, requires_all = ["ramp_up_start_rps", "ramp_up_end_rps"])]
    pub(super) ramp_up_strategy: Option<Ramp>,
    /// Requests a second at the beginning of the ramp.
    #[arg(long)]
    pub(super) ramp_up_start_rps: Option<f64>,
    /// Requests a second at its end.
    #[arg(long)]
    pub(super) ramp_up_end_rps: Option<f64>,
    /// Seconds over which a closed loop reaches its concurrency.
    #[arg(long, default_value_t = 0.0)]
    pub(super) ramp_up_seconds: f64,
    /// Follow a trace's own times.
    #[arg(long)]
    pub(super) self_timed: bool,
    /// How much faster than the trace.
    #[arg(long, default_value_t = 1.0)]
    pub(super) trace_speed: f64,
    /// Requests before anything is measured, with prompts of their own.
    #[arg(long, default_value_t = 0)]
    pub(super) num_warmups: usize,
    /// Let the server go on after an end-of-sequence token.
    #[arg(long)]
    pub(super) ignore_eos: bool,
    /// Sampling temperature; the server's default when not given.
    #[arg(long)]
    pub(super) temperature: Option<f64>,
    /// Further fields of every request's body, a JSON object.
    #[arg(long, value_name = "JSON", value_parser = parse_object)]
    pub(super) extra_body: Option<Map<String, Value>>,
    /// How tokens inside an event are counted.
    #[arg(long, value_enum, default_value_t = Count::Auto)]
    pub(super) count_tokens: Count,
    /// Limits for goodput, as in `ttft:200 tpot:15 e2el:5000` (milliseconds).
    #[arg(long, num_args = 1.., value_name = "NAME:MS", value_parser = parse_limit)]
    pub(super) goodput: Vec<(String, f64)>,
    /// Percentiles to report.
    #[arg(long, value_delimiter = ',', default_value = "99", value_parser = parse_percentile)]
    pub(super) metric_percentiles: Vec<f64>,
    /// Latencies to report.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ttft,tpot,itl,e2el")]
    pub(super) percentile_metrics: Vec<Latency>,
    /// Seconds after which the run ends, whatever is under way.
    #[arg(long)]
    pub(super) time_limit: Option<f64>,
    /// Seconds that one request may take.
    #[arg(long, default_value_t = 21600.0)]
    pub(super) request_timeout: f64,
    /// Seconds without a byte after which a request counts as stalled.
    #[arg(long, default_value_t = 600.0)]
    pub(super) stall_timeout: f64,
    /// Seconds to open a connection.
    #[arg(long, default_value_t = 30.0)]
    pub(super) connect_timeout: f64,
    /// Threads that send and read.
    #[arg(long, default_value_t = 1)]
    pub(super) threads: usize,
    /// Seconds between looks at the server's metrics; 0 for none.
    #[arg(long, default_value_t = 1.0)]
    pub(super) metrics_interval: f64,
    /// Keep the answers' texts in the result.
    #[arg(long)]
    pub(super) keep_texts: bool,
}

/// vLLM's names of the two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    /// `/v1/completions`.
    #[value(alias = "vllm")]
    Openai,
    /// `/v1/chat/completions`.
    OpenaiChat,
}

/// vLLM's names of the latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Latency {
    /// From sending a request to its first token.
    Ttft,
    /// Of one request: the time after its first token, over the tokens after it.
    Tpot,
    /// Between one event with tokens and the next.
    Itl,
    /// From sending a request to its last token.
    E2el,
}

impl Latency {
    pub(super) const ALL: [Self; 4] = [Self::Ttft, Self::Tpot, Self::Itl, Self::E2el];

    /// The name in a result's keys.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::Itl => "itl",
            Self::E2el => "e2el",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Dataset {
    /// Random tokens of exact count.
    Random,
    /// ShareGPT's conversations.
    Sharegpt,
    /// A trace in Mooncake's format.
    Mooncake,
    /// JSON lines with `prompt`, `prompt_token_ids` or `messages`.
    Custom,
}

/// The form of a random prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PromptsAs {
    /// Exact without the server's help, and nothing is left for it to do.
    Ids,
    /// As `vllm bench serve` sends them: the server's time to cut the text counts, as it does for users.
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Ramp {
    Linear,
    Exponential,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Count {
    /// From what the server sends anyway.
    Auto,
    /// Ask for usage in every event.
    Usage,
    /// Ask for token ids in every event.
    Ids,
}

fn parse_range(text: &str) -> Result<Range<u32>, String> {
    let (first, end) = text.split_once("..").ok_or("write it as FIRST..END, as in `256..1024`")?;
    let number = |text: &str| text.trim().parse::<u32>().map_err(|error| error.to_string());
    let range = number(first)?..number(end)?;
    if range.is_empty() { Err("it holds no id".to_owned()) } else { Ok(range) }
}

pub(super) fn parse_percentile(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is no percentile from 0 to 100"))
}

fn parse_endpoint(text: &str) -> Result<String, String> {
    let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if fits {
        Ok(text.to_owned())
    } else {
        Err("a path is printable ASCII without blanks and `#`".to_owned())
    }
}

fn parse_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn parse_limit(text: &str) -> Result<(String, f64), String> {
    let (name, limit) = text.split_once(':').ok_or("write it as NAME:MS, as in `ttft:200`")?;
    if !["ttft", "tpot", "e2el"].contains(&name) {
        return Err(format!("`{name}` is none of ttft, tpot, e2el"));
    }
    let limit: f64 = limit.parse().map_err(|_bad| format!("`{limit}` is no number"))?;
    if limit >= 0.0 { Ok((name.to_owned(), limit)) } else { Err("a limit cannot be negative".to_owned()) }
}

/// The requests of a load, and what has to be said about them.
pub(super) struct Requests {
    pub(super) requests: Vec<PlannedRequest>,
    pub(super) warmups: Vec<PlannedRequest>,
    pub(super) due: Vec<f64>,
    pub(super) notes: Vec<String>,
}

impl LoadArgs {
    pub(super) fn api(&self) -> Api {
        if self.backend == Backend::Openai { Api::Completions } else { Api::Chat }
    }

    pub(super) fn count(&self) -> request::CountTokens {
        match self.count_tokens {
            Count::Auto => request::CountTokens::Auto,
            Count::Usage => request::CountTokens::Usage,
            Count::Ids => request::CountTokens::Ids,
        }
    }

    pub(super) fn goodput(&self) -> Goodput {
        let limit = |name: &str| self.goodput.iter().rev().find(|(n, _)| n == name).map(|(_, ms)| *ms);
        Goodput { ttft: limit("ttft"), tpot: limit("tpot"), e2el: limit("e2el") }
    }

    pub(super) fn extra(&self) -> Map<String, Value> {
        let mut extra = Map::new();
        if let Some(temperature) = self.temperature {
            extra.insert("temperature".to_owned(), temperature.into());
        }
        extra.extend(self.extra_body.clone().unwrap_or_default());
        extra
    }

    pub(super) fn limits(&self) -> Result<Limits, Failure> {
        Ok(Limits {
            connect: seconds("connect-timeout", self.connect_timeout)?,
            request: seconds("request-timeout", self.request_timeout)?,
            stall: seconds("stall-timeout", self.stall_timeout)?,
            run: self.time_limit.map(|limit| seconds("time-limit", limit)).transpose()?,
        })
    }

    pub(super) fn metrics_interval(&self) -> Result<Option<Duration>, Failure> {
        let none = self.metrics_interval == 0.0;
        if none { Ok(None) } else { seconds("metrics-interval", self.metrics_interval).map(Some) }
    }

    /// Whether the load is of a size that can be.
    pub(super) fn check_bounds(&self) -> Result<(), Failure> {
        const REQUESTS: u64 = 10_000_000;
        const LENGTH: u64 = 1 << 24;
        const TOKENS: u64 = 1 << 31;
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        for (flag, value, most) in [
            ("num-prompts", wide(self.num_prompts), REQUESTS),
            ("num-warmups", wide(self.num_warmups), REQUESTS),
            ("threads", wide(self.threads), 1024),
            ("random-input-len", self.random_input_len.into(), LENGTH),
            ("random-output-len", self.random_output_len.into(), LENGTH),
            ("random-prefix-len", self.random_prefix_len.into(), LENGTH),
            ("dataset-output-len", self.dataset_output_len.unwrap_or(0).into(), LENGTH),
        ] {
            if value > most {
                return Err(Failure::new(format!("`--{flag}` is {value} and can be {most} at most")));
            }
        }
        if self.dataset_name == Dataset::Random {
            let each = u64::from(self.random_input_len) + u64::from(self.random_prefix_len);
            let requests = wide(self.num_prompts).saturating_add(wide(self.num_warmups));
            let prefixes = u64::from(self.random_prefix_len).saturating_mul(self.num_prefixes.into());
            // A range ratio doubles a length at most.
            if each.saturating_mul(2).saturating_mul(requests).saturating_add(prefixes) > 2 * TOKENS {
                return Err(Failure::new(format!("the prompts hold more than {TOKENS} tokens together"))
                    .hint("take fewer or shorter ones (`--num-prompts`, `--random-input-len`)"));
            }
        }
        if !(self.ramp_up_seconds >= 0.0 && self.ramp_up_seconds <= MOST_SECONDS) {
            return Err(Failure::new(format!(
                "`--ramp-up-seconds` must be from 0 to {MOST_SECONDS} seconds"
            )));
        }
        Ok(())
    }

    /// How requests come.
    pub(super) fn arrivals(&self) -> Result<Arrivals, Failure> {
        self.check_bounds()?;
        let positive = |flag: &str, value: f64| {
            if value > 0.0 { Ok(value) } else { Err(Failure::new(format!("`--{flag}` must be above 0"))) }
        };
        let burstiness = positive("burstiness", self.burstiness)?;
        if !(0.0..=1.0).contains(&self.random_range_ratio) {
            return Err(Failure::new("`--random-range-ratio` must be from 0 to 1"));
        }
        if self.num_prompts == 0 || self.threads == 0 || self.max_concurrency == Some(0) {
            return Err(Failure::new("`--num-prompts`, `--threads` and `--max-concurrency` must be above 0"));
        }
        if self.self_timed {
            return Ok(Arrivals::Trace { speed: positive("trace-speed", self.trace_speed)? });
        }
        if let (Some(shape), Some(from), Some(to)) =
            (self.ramp_up_strategy, self.ramp_up_start_rps, self.ramp_up_end_rps)
        {
            let shape = if shape == Ramp::Linear { RampShape::Linear } else { RampShape::Exponential };
            let (from, to) = (positive("ramp-up-start-rps", from)?, positive("ramp-up-end-rps", to)?);
            return Ok(Arrivals::Ramp { shape, from, to, burstiness });
        }
        let rate = positive("request-rate", self.request_rate)?;
        if rate.is_infinite() {
            return Ok(Arrivals::AtOnce);
        }
        Ok(Arrivals::Rate { requests_per_second: rate, burstiness })
    }

    fn shape(&self) -> RandomShape {
        RandomShape {
            input_len: self.random_input_len,
            output_len: self.random_output_len,
            prefix_len: self.random_prefix_len,
            num_prefixes: self.num_prefixes,
            range_ratio: self.random_range_ratio,
            ids: self.token_ids.clone(),
        }
    }

    /// Makes the requests of a seed.
    pub(super) fn requests(&self, seed: u64, model: &str, probe: &Probe) -> Result<Requests, Failure> {
        let mut notes = Vec::new();
        let mut counter = ServerTokens { probe, model, guessed: false };
        let failed = |error: DatasetError| Failure::new("failed to make the requests").caused_by(error);
        let mut requests = if self.dataset_name == Dataset::Random {
            self.shape().draw(self.num_prompts, seed, "prompts").map_err(failed)?
        } else {
            let path = self.dataset_path.as_ref().ok_or_else(|| {
                Failure::new("the data set has no file").hint("name it with `--dataset-path`")
            })?;
            let text = input_file::text(path, input_file::DATA)
                .map_err(|source| failed(DatasetError::File { path: path.clone(), source }))?;
            let (count, length) = (self.num_prompts, self.dataset_output_len);
            match self.dataset_name {
                Dataset::Sharegpt => share_gpt::draw(path, &text, count, seed, length, &mut counter),
                Dataset::Mooncake => mooncake::read(path, &text, count, seed, &self.token_ids),
                _ => file::read(path, &text, count, length, &mut counter),
            }
            .map_err(failed)?
        };
        if counter.guessed {
            notes.push(
                "the server does not count tokens: prompt lengths are guessed at 4 bytes a token".to_owned(),
            );
        }
        let mut warmups = match self.dataset_name {
            Dataset::Random => self.shape().draw(self.num_warmups, seed, "warm-up").map_err(failed)?,
            _ => requests.iter().cycle().take(self.num_warmups).cloned().collect(),
        };
        let as_text = self.prompts_as == PromptsAs::Text;
        if self.api() == Api::Chat || as_text {
            let all = requests.iter_mut().chain(&mut warmups);
            // A chat's template adds what it will; a completion's special tokens count into its length.
            let speller = Speller { probe, model, special: self.api() == Api::Completions };
            match speller.spell_out(all) {
                Some(0) => {}
                Some(off) => notes.push(format!(
                    "{off} prompts are a few tokens off: no text was found that the server cuts into as many"
                )),
                None if as_text => {
                    return Err(Failure::new("the server does not turn token ids into text")
                        .caused_by("`--prompts-as text` asks it at `/detokenize` and `/tokenize`")
                        .hint("leave the option out, or take texts from a file by `--dataset-name custom`"));
                }
                None => notes.push(
                    "the server does not turn token ids into text: chats carry numbers as words".to_owned(),
                ),
            }
        }
        let arrivals = self.arrivals()?;
        let traced: Vec<f64> = requests.iter().filter_map(|request| request.arrival).collect();
        if matches!(arrivals, Arrivals::Trace { .. }) && traced.len() != requests.len() {
            return Err(Failure::new("`--self-timed` needs a data set whose every entry has a `timestamp`"));
        }
        let due = match arrivals {
            Arrivals::AtOnce => Vec::new(),
            _ => arrivals.due(requests.len(), &traced, seed),
        };
        Ok(Requests { requests, warmups, due, notes })
    }

    /// Everything that makes the load, for the journal and the result.
    pub(super) fn settings(&self) -> Value {
        let number = |value: f64| if value.is_finite() { json!(value) } else { json!("inf") };
        let name =
            |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned());
        let mut settings = json!({
            "backend": self.api().backend(),
            "endpoint": self.endpoint,
            "dataset_name": name(self.dataset_name.to_possible_value()),
            "dataset_path": self.dataset_path,
            "num_prompts": self.num_prompts,
            "random_input_len": self.random_input_len,
            "random_output_len": self.random_output_len,
            "random_prefix_len": self.random_prefix_len,
            "num_prefixes": self.num_prefixes,
            "random_range_ratio": self.random_range_ratio,
            "token_ids": [self.token_ids.start, self.token_ids.end],
            "dataset_output_len": self.dataset_output_len,
            "request_rate": number(self.request_rate),
            "burstiness": number(self.burstiness),
            "max_concurrency": self.max_concurrency,
            "ramp_up_strategy": self.ramp_up_strategy.map(|ramp| name(ramp.to_possible_value())),
            "ramp_up_start_rps": self.ramp_up_start_rps,
            "ramp_up_end_rps": self.ramp_up_end_rps,
            "ramp_up_seconds": self.ramp_up_seconds,
            "self_timed": self.self_timed,
            "trace_speed": self.trace_speed,
            "num_warmups": self.num_warmups,
            "ignore_eos": self.ignore_eos,
            "extra_body": self.extra(),
            "count_tokens": name(self.count_tokens.to_possible_value()),
            "goodput": self.goodput.iter().map(|(name, ms)| format!("{name}:{ms}")).collect::<Vec<_>>(),
            "metric_percentiles": self.metric_percentiles,
        });
        if let (PromptsAs::Text, Some(map)) = (self.prompts_as, settings.as_object_mut()) {
            // Left out where it is the usual, so that older journals can be resumed.
            map.insert("prompts_as".to_owned(), "text".into());
        }
        settings
    }
}

/// A benchmark of centuries overflows the clock.
const MOST_SECONDS: f64 = 1e9;

fn seconds(flag: &str, value: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|time| !time.is_zero() && value <= MOST_SECONDS)
        .ok_or_else(|| Failure::new(format!("`--{flag}` must be above 0 and at most {MOST_SECONDS} seconds")))
}
