//! `k3plan bench find-rate`: the highest request rate at which a server still meets an objective.

use std::path::PathBuf;

use executor::load::client_cost::Bottleneck;
use executor::load::search::{Bounds, Search, Verdict, fewest, piles_up, whole};
use schemars::JsonSchema;
use serde::Serialize;

use super::load_args::LoadArgs;
use super::measure::{Measurement, stop_on_signals};
use super::result::Measured;
use super::serve::{Access, parse_target, write_result};
use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output_file::make_folder;
use crate::terminal::Terminal;

/// Find the highest request rate at which a share of the requests keeps the limits of `--goodput`.
///
/// Each probe is an open loop with prompts of its own, of `--seconds` and at least as many requests as the share needs to be
/// shown, `--num-prompts` at most. From `--from` the rate doubles until a probe misses; then the middle is taken. A request
/// that fails keeps no limit, and a rate at which requests pile up at the server misses. Exit 1 when even `--from` misses, or
/// when a signal or a server that is gone ends the search.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The server, as in http://127.0.0.1:8000.
    #[arg(long, visible_alias = "base-url")]
    url: String,
    /// Name of the model; the server's first when not given.
    #[arg(long)]
    model: Option<String>,
    /// Seed of prompts and arrivals; each probe adds one.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Share of the requests that has to keep all limits, above 0 and below 1.
    #[arg(long, default_value_t = 0.9, value_parser = parse_share)]
    share: f64,
    /// The lowest rate, in requests a second.
    #[arg(long, default_value_t = 1.0, value_name = "RATE")]
    from: f64,
    /// The highest rate.
    #[arg(long, default_value_t = 1024.0, value_name = "RATE")]
    to: f64,
    /// How close the highest rate that meets and the lowest that misses have to be.
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT")]
    within: f64,
    /// How long a probe sends.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Folder for the probes' results, made when it is not there.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Print the search as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    load: LoadArgs,
}

/// `k3plan bench find-rate --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Report {
    /// The highest rate that met the objective, requests a second.
    meets: Option<f64>,
    /// The lowest rate that missed it.
    misses: Option<f64>,
    /// What was tried, in order.
    probes: Vec<Tried>,
    /// Always `k3plan.find-rate/1`.
    schema: &'static str,
    /// The share of requests that has to keep all limits.
    share: f64,
    /// Why the search ended before its two ends were close.
    stopped: Option<String>,
}

/// One probe.
#[derive(Debug, Serialize, JsonSchema)]
struct Tried {
    /// Requests a second asked for.
    rate: f64,
    /// Requests sent.
    requests: usize,
    /// Requests that kept all limits.
    good: usize,
    /// Requests that failed.
    failed: usize,
    /// Median time to the first token, ms.
    median_ttft_ms: f64,
    /// Median time per output token, ms.
    median_tpot_ms: f64,
    /// Output tokens a second.
    output_throughput: f64,
    /// `meets`, `misses`, `undecided`; `falls behind`, a miss, where requests pile up at the server; or `not sent` where
    /// the client was too slow.
    verdict: &'static str,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| format!("`{text}` is no share above 0 and below 1"))
}

impl Args {
    /// Refuses what the search sets itself or cannot use.
    fn check(&self) -> Result<(), Failure> {
        let load = &self.load;
        let open = load.request_rate.is_infinite() && load.ramp_up_strategy.is_none() && !load.self_timed;
        if !open || load.max_concurrency.is_some() {
            return Err(Failure::new("the search sets the request rate itself, as an open loop").hint(
                "leave out `--request-rate`, `--ramp-up-strategy`, `--self-timed` and `--max-concurrency`",
            ));
        }
        if !load.goodput().is_set() {
            return Err(Failure::new("no limit says what a good request is")
                .hint("give some by `--goodput`, as in `--goodput ttft:200 tpot:20`"));
        }
        let positive = |value: f64| value > 0.0 && value.is_finite();
        if !(positive(self.from) && positive(self.to) && self.from <= self.to) {
            return Err(Failure::new("`--from` and `--to` must be rates above 0, the second no lower"));
        }
        if !positive(self.within) || !positive(self.seconds) {
            return Err(Failure::new("`--within` and `--seconds` must be above 0"));
        }
        Ok(())
    }

    /// The load of a probe.
    fn load_at(&self, rate: f64) -> LoadArgs {
        let wanted = whole(rate * self.seconds);
        let mut load = self.load.clone();
        load.num_prompts = wanted.max(fewest(self.share)).min(self.load.num_prompts);
        load.request_rate = rate;
        load
    }
}

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    args.check()?;
    let target = parse_target(&args.url)?;
    let secret = args.access.secret()?;
    let trust = args.access.trust();
    if let Some(folder) = &args.output {
        make_folder(folder)?;
        if folder.join(probe_name(0)).exists() {
            return Err(Failure::new(format!("`{}` holds the probes of another search", folder.display()))
                .hint("name another folder by `--output`")
                .into());
        }
    }
    let cancel = stop_on_signals();
    let mut search =
        Search::new(Bounds { from: args.from, to: args.to, within: args.within / 100.0, share: args.share });
    let mut report = Report {
        meets: None,
        misses: None,
        probes: Vec::new(),
        schema: "k3plan.find-rate/1",
        share: args.share,
        stopped: None,
    };
    let mut cut_short = false;
    if !args.json {
        head(terminal)?;
    }
    while let Some(rate) = search.next_load() {
        let load = args.load_at(rate);
        let place = report.probes.len();
        let measured = Measurement {
            target: &target,
            model: args.model.as_deref(),
            secret: secret.as_ref(),
            trust: &trust,
            headers: args.access.headers()?,
            load: &load,
            seed: args.seed.wrapping_add(place as u64),
            label: Some(format!("{rate:.4} requests/s")),
            metadata: Vec::new(),
            journal: None,
            resume: false,
            server_log: None,
            detailed: true,
        }
        .run(&cancel, terminal);
        let measured = match measured {
            Ok(measured) => measured,
            // What was found before stays.
            Err(failure) if !report.probes.is_empty() => {
                write!(terminal.err, "{failure}")?;
                report.stopped = Some(failure.message);
                cut_short = true;
                break;
            }
            Err(failure) => return Err(failure.into()),
        };
        if let Some(folder) = &args.output {
            write_result(&folder.join(probe_name(place)), &measured)?;
        }
        if measured.interrupted || *cancel.borrow() {
            cut_short = true;
            report.stopped = Some("a signal ended the search".to_owned());
            break;
        }
        let tried = judge(&measured, rate, &mut search, &mut report.stopped);
        if !args.json {
            row(terminal, &tried)?;
        }
        report.probes.push(tried);
    }
    (report.meets, report.misses) = (search.met(), search.missed());
    if args.json {
        serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(std::io::Error::from)?;
        writeln!(terminal.out)?;
    } else {
        writeln!(terminal.out, "{}", answer(&report, args))?;
    }
    let found = report.meets.is_some() && !cut_short;
    Ok(if found { Exit::Fine } else { Exit::CheckSaysNo })
}

fn probe_name(place: usize) -> String {
    format!("probe-{place:03}.json")
}

/// What a probe says of its rate.
fn judge(measured: &Measured, rate: f64, search: &mut Search, stopped: &mut Option<String>) -> Tried {
    let summary = &measured.summary;
    let sent: Vec<(f64, f64)> =
        measured.records.iter().map(|record| (record.start, record.latency)).collect();
    let behind = piles_up(&sent);
    let signs = measured.client.as_ref().map_or(&[][..], |(_, _, signs)| signs);
    let late = signs.iter().find(|sign| matches!(sign, Bottleneck::Undelivered { .. }));
    let verdict = if let Some(late) = late {
        // What was not sent as asked says nothing of the server.
        *stopped = Some(format!("the client could not keep up: {late}"));
        search.stop();
        "not sent"
    } else {
        // A rate that the server falls behind at is met by no request for long.
        match search.tell(if behind { 0 } else { summary.good }, measured.records.len()) {
            _ if behind => "falls behind",
            Verdict::Meets => "meets",
            Verdict::Misses => "misses",
            Verdict::Undecided => "undecided",
        }
    };
    Tried {
        rate,
        requests: measured.records.len(),
        good: summary.good,
        failed: summary.failed,
        median_ttft_ms: summary.ttft.median,
        median_tpot_ms: summary.tpot.median,
        output_throughput: summary.output_throughput,
        verdict,
    }
}

fn head(terminal: &mut Terminal<'_>) -> std::io::Result<()> {
    writeln!(
        terminal.out,
        "{:>10}{:>10}{:>8}{:>8}{:>10}{:>10}{:>12}  verdict",
        "rate", "requests", "good", "failed", "TTFT ms", "TPOT ms", "tokens/s"
    )
}

fn row(terminal: &mut Terminal<'_>, tried: &Tried) -> std::io::Result<()> {
    let good = tried.good as f64 / tried.requests.max(1) as f64 * 100.0;
    writeln!(
        terminal.out,
        "{:>10.3}{:>10}{:>7.1}%{:>8}{:>10.2}{:>10.3}{:>12.1}  {}",
        tried.rate,
        tried.requests,
        good,
        tried.failed,
        tried.median_ttft_ms,
        tried.median_tpot_ms,
        tried.output_throughput,
        tried.verdict
    )?;
    terminal.out.flush()
}

/// The answer in a sentence.
fn answer(report: &Report, args: &Args) -> String {
    let share = format!("{}% of the requests keep the limits", args.share * 100.0);
    let why = report.stopped.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    match (report.meets, report.misses) {
        (Some(meets), Some(misses)) => {
            format!("{share} at {meets:.3} requests/s, and no longer at {misses:.3}{why}")
        }
        (Some(meets), None) => {
            format!("{share} at {meets:.3} requests/s, the highest rate that was tried{why}")
        }
        (None, Some(misses)) => {
            format!("fewer than {share} at {misses:.3} requests/s already; try a lower `--from`{why}")
        }
        (None, None) => format!("nothing is known{why}"),
    }
}
