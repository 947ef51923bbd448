//! One measurement: probe the server, make the requests, run the load, gather what there is to tell.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use executor::load::client_cost::{Delivered, bottlenecks};
use executor::load::journal::{Journal, JournalError, Kept};
use executor::load::record::RequestRecord;
use executor::load::request::BodyTemplate;
use executor::load::run::{self, Load, raise_file_limit, wall_clock};
use executor::load::secret::Secret;
use executor::load::summary::Summary;
use executor::load::target::Target;
use executor::load::tls::Trust;
use executor::server::machine::Machine;
use executor::server::probe::{Probe, ServerFacts};
use executor::server::process::kill_all;
use serde_json::{Value, json};

use super::hidden::{redact, redact_json};
use super::load_args::LoadArgs;
use super::result::Measured;
use super::server_log;
use super::table::Live;
use crate::failure::Failure;
use crate::input_file;
use crate::terminal::Terminal;

/// Which server is measured, and with what.
pub(super) struct Measurement<'a> {
    pub(super) target: &'a Target,
    pub(super) model: Option<&'a str>,
    pub(super) secret: Option<&'a Secret>,
    pub(super) trust: &'a Trust,
    pub(super) headers: &'a [(String, String)],
    pub(super) load: &'a LoadArgs,
    pub(super) seed: u64,
    pub(super) label: Option<String>,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) journal: Option<&'a Path>,
    pub(super) resume: bool,
    pub(super) server_log: Option<PathBuf>,
    pub(super) detailed: bool,
}

/// A signal ends a run early; what it had stays.
pub(super) type Cancel = tokio::sync::watch::Receiver<bool>;

impl Measurement<'_> {
    /// Refuses files that cannot be read before anything is measured.
    fn hold_files(&self) -> Result<(), Failure> {
        let certificates = if let Trust::File(path) = self.trust { Some(path.as_path()) } else { None };
        // It is read where it is resumed; a log may still grow.
        let journal = self.journal.filter(|path| self.resume && path.exists());
        for (path, most) in [
            (certificates, input_file::SETTINGS),
            (journal, input_file::DATA),
            (self.load.dataset_path.as_deref(), input_file::DATA),
            (self.server_log.as_deref(), u64::MAX),
        ] {
            if let Some(path) = path {
                input_file::hold_to(path, most).map_err(|error| {
                    Failure::new(format!("failed to read `{}`", path.display())).caused_by(error)
                })?;
            }
        }
        Ok(())
    }

    /// Measures.
    pub(super) fn run(self, cancel: &Cancel, terminal: &mut Terminal<'_>) -> Result<Measured, Failure> {
        self.hold_files()?;
        let load = self.load;
        let (limits, arrivals) = (load.limits()?, load.arrivals()?);
        let patience = limits.connect.min(Duration::from_secs(10));
        let probe = Probe::new(self.target, self.trust, self.secret, patience).map_err(|error| {
            Failure::new(format!("failed to find the server `{}`", self.target)).caused_by(error)
        })?;
        let mut notes = Vec::new();
        let mut unreached = None;
        let facts = probe.facts().unwrap_or_else(|error| {
            notes.push(format!("the server told nothing of itself before the run: {error}"));
            unreached = Some(error);
            ServerFacts::default()
        });
        let model = self.model.map(str::to_owned).or_else(|| facts.models.first().cloned());
        let model = model.ok_or_else(|| no_model(self.target, &facts, unreached))?;
        let begun = Instant::now();
        let probe = probe.until(cancel.clone(), limits.run.map(|limit| begun + limit));
        let made = load.requests(self.seed, &model, &probe);
        if *cancel.borrow() {
            return Err(Failure::new("a signal has ended the run before its first request was sent"));
        }
        if limits.run.is_some_and(|limit| begun.elapsed() >= limit) {
            return Err(Failure::new("the time limit was over before the requests were made")
                .hint("allow more by `--time-limit`, or send token ids by `--prompts-as ids`"));
        }
        let made = made?;
        notes.extend(made.notes);
        let planned = made.requests.len();
        let streams = load.max_concurrency.unwrap_or(planned).min(planned);
        let files = raise_file_limit();
        if files < streams as u64 + 64 {
            notes.push(format!("the system allows {files} open files, too few for {streams} streams"));
        }
        let settings = self.settings(&model);
        let mut todo: Vec<usize> = (0..planned).collect();
        let journal_failure = |error| Failure::new("failed to keep the journal").caused_by(error);
        let mut kept = None;
        let journal = match self.journal {
            None => None,
            Some(path) if self.resume && path.exists() => {
                let (journal, before) =
                    Journal::resume(path, &settings, wall_clock()).map_err(journal_failure)?;
                let settled = before.records.iter().filter(|record| Kept::is_settled(record));
                let settled: std::collections::BTreeSet<usize> = settled.map(|record| record.index).collect();
                todo.retain(|index| !settled.contains(index));
                kept = Some(before);
                Some(journal)
            }
            Some(path) => Some(Journal::create(path, &settings, wall_clock()).map_err(|error| {
                let exists = matches!(error, JournalError::Exists { .. });
                let failure = journal_failure(error);
                if exists {
                    failure.hint("go on with it by `--resume`, or name another file")
                } else {
                    failure
                }
            })?),
        };
        let machine = Machine::look();
        let plan = Load {
            target: self.target.clone(),
            endpoint: load.endpoint.clone().unwrap_or_else(|| load.api().endpoint().to_owned()),
            template: BodyTemplate::new(load.api(), &model, load.ignore_eos, load.count(), &load.extra()),
            headers: self.headers.to_vec(),
            secret: self.secret.cloned(),
            trust: self.trust.clone(),
            requests: made.requests,
            todo,
            warmups: made.warmups,
            due: made.due,
            max_concurrency: load.max_concurrency,
            ramp_up_seconds: load.ramp_up_seconds,
            limits,
            threads: load.threads,
            keep_text: load.keep_texts,
            metrics_interval: load.metrics_interval()?,
        };
        let mut live = Live::default();
        let outcome = run::run(plan, journal, cancel, &mut |progress| {
            if terminal.progress {
                live.draw(terminal.err, progress);
            }
        })
        .map_err(|error| Failure::new("failed to run the load").caused_by(error))?;
        let rate = load.request_rate.is_finite().then_some(load.request_rate);
        let rate = rate.filter(|_| matches!(arrivals, executor::load::arrival::Arrivals::Rate { .. }));
        let delivered = Delivered::of(&outcome.records, rate, load.max_concurrency);
        let mut records = outcome.records;
        let (mut duration, mut parts) = (outcome.duration, 1);
        if let Some(before) = kept {
            duration += before.duration;
            parts += before.parts.len();
            records.extend(before.records.into_iter().filter(Kept::is_settled));
            records.sort_by_key(|record| record.index);
        }
        notes.extend(chunks(&records));
        let interrupted = outcome.interrupted && records.len() < planned;
        let summary = Summary::of(&records, duration, &load.metric_percentiles, &load.goodput());
        let typical = summary.itl.median / 1000.0;
        let late = summary.send_lag.percentiles.last().map_or(0.0, |(_, ms)| ms / 1000.0);
        let signs = bottlenecks(&outcome.client, &delivered, late, typical);
        if outcome.warmups.failed > 0 {
            let first = outcome.warmups.first_failure.as_deref().unwrap_or("");
            notes.push(format!(
                "{} of {} warm-up requests failed: {first}",
                outcome.warmups.failed, outcome.warmups.sent
            ));
        }
        let secret = self.secret;
        notes.iter_mut().for_each(|note| redact(secret, note));
        let mut model = model;
        redact(secret, &mut model);
        let mut metadata = self.metadata;
        metadata.iter_mut().for_each(|(_, value)| redact(secret, value));
        let mut server = server(self.target, &facts, self.server_log.as_deref(), &mut notes);
        redact_json(secret, &mut server);
        let label = self.label.map(|mut label| {
            redact(secret, &mut label);
            label
        });
        Ok(Measured {
            model,
            label,
            seed: self.seed,
            settings,
            started_at: outcome.started_at,
            parts,
            interrupted,
            requests_planned: planned,
            records,
            summary,
            client: Some((outcome.client, delivered, signs)),
            warmups: outcome.warmups,
            samples: outcome.samples,
            server,
            machine: serde_json::to_value(machine).unwrap_or(Value::Null),
            notes,
            metadata,
            detailed: self.detailed,
            latencies: load.percentile_metrics.clone(),
        })
    }

    fn settings(&self, model: &str) -> Value {
        let mut settings = self.load.settings();
        if let Some(map) = settings.as_object_mut() {
            map.insert("url".to_owned(), self.target.to_string().into());
            map.insert("model".to_owned(), model.into());
            map.insert("seed".to_owned(), self.seed.into());
        }
        redact_json(self.secret, &mut settings);
        settings
    }
}

/// Why a server's model is not known.
fn no_model(target: &Target, facts: &ServerFacts, unreached: Option<std::io::Error>) -> Failure {
    if let Some(error) = unreached {
        return Failure::new(format!("failed to reach the server `{target}`")).caused_by(error).hint(
            "start it, or correct the address; with `--model` the run begins anyway and counts what fails",
        );
    }
    let failure = Failure::new(format!("`{target}` names no model"));
    match facts.models_status {
        Some(status @ (401 | 403)) => failure
            .caused_by(format!("`/v1/models` answers {status}"))
            .hint("give its key by `--api-key-env` or `--api-key-file`"),
        Some(status) if status != 200 => {
            failure.caused_by(format!("`/v1/models` answers {status}")).hint("name it with `--model`")
        }
        _ => failure.hint("name it with `--model`"),
    }
}

/// What has to be said where the server sends many tokens at once.
pub(super) fn chunks(records: &[RequestRecord]) -> Option<String> {
    /// Fewer tokens a chunk than this are one now and then.
    const MANY: f64 = 1.5;
    let several = records.iter().filter(|record| record.succeeded() && record.output_tokens > 1);
    let (mut tokens, mut chunks, mut answers) = (0_u64, 0_usize, 0_usize);
    for record in several {
        tokens += record.output_tokens;
        // What was read together arrived together.
        chunks += 1 + record.itl.iter().filter(|gap| **gap > 0.0).count();
        answers += 1;
    }
    if answers == 0 || (tokens as f64) < MANY * chunks as f64 {
        return None;
    }
    let each = tokens as f64 / chunks as f64;
    Some(if chunks == answers {
        format!(
            "every answer came in one chunk of {each:.0} tokens: neither TPOT nor ITL tells how fast tokens are made"
        )
    } else {
        format!(
            "the server sends {each:.1} tokens a chunk: ITL is the time between chunks and says nothing of single \
             tokens; TPOT does"
        )
    })
}

fn server(target: &Target, facts: &ServerFacts, log: Option<&Path>, notes: &mut Vec<String>) -> Value {
    let log = log.and_then(|path| {
        let read = server_log::read(path);
        read.map_err(|failure| notes.push(failure.in_one_line())).ok()
    });
    json!({
        "url": target.to_string(),
        "version": facts.version,
        "models": facts.models,
        "root": facts.root,
        "max_model_len": facts.max_model_len,
        "kv_cache": log.as_ref().map(server_log::kv_cache),
        "flags": log.as_ref().map(server_log::flags),
    })
}

/// A receiver that turns true when a signal asks to stop; a second signal ends the program and the servers that it
/// has started.
#[expect(clippy::exit, reason = "whoever asks a second time waits for nothing")]
pub(super) fn stop_on_signals() -> Cancel {
    use tokio::signal::unix::{SignalKind, signal};
    let (sender, receiver) = tokio::sync::watch::channel(false);
    // Without the thread a signal ends the program at once, as it would anyway.
    let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
            std::future::poll_fn(|cx| {
                let any = signals.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
                if any { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            let _ = sender.send(true);
            std::future::poll_fn(|cx| {
                let any = signals.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
                if any { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            // Who asks twice waits for nothing more; what was started goes too.
            kill_all();
            std::process::exit(130);
        });
    });
    receiver
}
