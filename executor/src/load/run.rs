//! A whole run: threads, warm-up, the start, the pace, the end.
//!
//! Each thread has a runtime, connections and records of its own; they share only the place in the load, the
//! journal and a few counters. The calling thread watches, scrapes the server's metrics and keeps the pace.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, watch};

use super::client_cost::{ClientCost, ThreadCost};
use super::connection::Dialer;
use super::journal::{Journal, JournalError};
use super::record::RequestRecord;
use super::request::{BodyTemplate, PlannedRequest};
use super::secret::Secret;
use super::target::Target;
use super::tls::Trust;
use super::worker::{Feed, Worker};
use crate::server::metrics::{self, Sample};

/// What is sent where, and how.
#[derive(Debug)]
pub struct Load {
    /// The server.
    pub target: Target,
    /// The endpoint's path on the server, as in `/v1/completions`.
    pub endpoint: String,
    /// What every body has in common.
    pub template: BodyTemplate,
    /// Further headers; names and values as they are sent.
    pub headers: Vec<(String, String)>,
    /// The API key.
    pub secret: Option<Secret>,
    /// Whom to believe over TLS.
    pub trust: Trust,
    /// The requests.
    pub requests: Vec<PlannedRequest>,
    /// Indices of the requests that are still to be sent, in order.
    pub todo: Vec<usize>,
    /// Requests sent before anything is measured.
    pub warmups: Vec<PlannedRequest>,
    /// When each request is due, in seconds after the start, beside `requests`; empty for a closed loop.
    pub due: Vec<f64>,
    /// The most requests under way at a time.
    pub max_concurrency: Option<usize>,
    /// Seconds over which a closed loop reaches its concurrency.
    pub ramp_up_seconds: f64,
    /// When to give up.
    pub limits: Limits,
    /// Threads that send and read, at least 1.
    pub threads: usize,
    /// Whether answers' texts are kept.
    pub keep_text: bool,
    /// How often the server's metrics are read; `None` for never.
    pub metrics_interval: Option<Duration>,
}

/// When to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Opening a connection.
    pub connect: Duration,
    /// One request, from sending to its last token.
    pub request: Duration,
    /// Silence inside a request, the wait for its first token included.
    pub stall: Duration,
    /// The whole run; `None` for no limit.
    pub run: Option<Duration>,
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The host has no address, or the certificates cannot be read.
    #[error("the way to `{target}` is not known: {source}")]
    Target {
        /// The server.
        target: String,
        /// Why.
        source: io::Error,
    },
    /// A runtime or thread could not be had.
    #[error("the system gave no thread or no event queue: {0}")]
    System(io::Error),
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What a run has brought.
#[derive(Debug)]
pub struct Outcome {
    /// Records of this part, by index.
    pub records: Vec<RequestRecord>,
    /// From the start to the end of the last request, in seconds.
    pub duration: f64,
    /// When it started, in seconds since 1970.
    pub started_at: f64,
    /// Whether a signal ended it.
    pub interrupted: bool,
    /// Warm-up requests, sent and failed, and why the first of them did.
    pub warmups: Warmups,
    /// What the client added.
    pub client: ClientCost,
    /// The server's metrics through the run.
    pub samples: Vec<Sample>,
}

/// How the warm-up went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Warmups {
    /// How many were sent.
    pub sent: usize,
    /// How many failed.
    pub failed: usize,
    /// Kind and detail of the first failure.
    pub first_failure: Option<String>,
}

/// A look at a run that is under way.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// Requests of this part.
    pub total: usize,
    /// Requests sent.
    pub started: usize,
    /// Requests ended well.
    pub completed: usize,
    /// Requests ended otherwise.
    pub failed: usize,
    /// Tokens of ended requests.
    pub output_tokens: u64,
    /// Sum of the times to first token of requests ended well, in seconds.
    pub ttft_sum: f64,
    /// The last sample of the server's metrics.
    pub sample: Option<Sample>,
}

/// What all threads of a run share.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) template: BodyTemplate,
    pub(crate) path: String,
    pub(crate) authority: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) secret: Option<Secret>,
    pub(crate) dialer: Dialer,
    pub(crate) limits: Limits,
    pub(crate) keep_text: bool,
    pub(crate) ramp_up_seconds: f64,
    pub(crate) requests: Vec<PlannedRequest>,
    pub(crate) todo: Vec<usize>,
    pub(crate) warmups: Vec<PlannedRequest>,
    pub(crate) next: AtomicUsize,
    pub(crate) next_warmup: AtomicUsize,
    pub(crate) counters: Counters,
    pub(crate) journal: Mutex<Option<Journal>>,
    pub(crate) journal_error: OnceLock<JournalError>,
    pub(crate) ready: Barrier,
    pub(crate) start: OnceLock<Instant>,
}

/// Counts for the one who watches.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) started: AtomicUsize,
    pub(crate) completed: AtomicUsize,
    pub(crate) failed: AtomicUsize,
    pub(crate) output_tokens: AtomicU64,
    pub(crate) ttft_micros: AtomicU64,
}

impl Setup {
    /// A text of the server without the key.
    pub(crate) fn redacted(&self, text: &str) -> String {
        self.secret.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text))
    }

    /// The start of the measured part, the same for all threads.
    pub(crate) fn started(&self) -> Instant {
        *self.start.get_or_init(Instant::now)
    }

    /// Writes a finished request down, before anything else is done.
    pub(crate) fn note(&self, record: RequestRecord) -> RequestRecord {
        let counters = &self.counters;
        if record.succeeded() {
            counters.completed.fetch_add(1, Ordering::Relaxed);
            let ttft = Duration::try_from_secs_f64(record.ttft.unwrap_or(0.0)).unwrap_or_default();
            let micros = u64::try_from(ttft.as_micros()).unwrap_or(0);
            counters.ttft_micros.fetch_add(micros, Ordering::Relaxed);
        } else {
            counters.failed.fetch_add(1, Ordering::Relaxed);
        }
        counters.output_tokens.fetch_add(record.output_tokens, Ordering::Relaxed);
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = journal.as_mut()
            && let Err(error) = open.append(&record)
        {
            // A full disk is told at the end; the run goes on in memory.
            let _ = self.journal_error.set(error);
            *journal = None;
        }
        record
    }

    fn progress(&self, sample: Option<Sample>) -> Progress {
        let counters = &self.counters;
        let ttft = Duration::from_micros(counters.ttft_micros.load(Ordering::Relaxed));
        Progress {
            elapsed: self.start.get().map_or(Duration::ZERO, Instant::elapsed),
            total: self.todo.len(),
            started: counters.started.load(Ordering::Relaxed),
            completed: counters.completed.load(Ordering::Relaxed),
            failed: counters.failed.load(Ordering::Relaxed),
            output_tokens: counters.output_tokens.load(Ordering::Relaxed),
            ttft_sum: ttft.as_secs_f64(),
            sample,
        }
    }
}

/// The wall clock in seconds since 1970.
pub fn wall_clock() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64())
}

/// Raises the limit of open files to what the system allows and tells it; each stream needs one.
pub fn raise_file_limit() -> u64 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return u64::MAX };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}

/// Runs a load to its end, its time limit, or until `cancel` turns true. `watch` is shown the progress a few
/// times a second.
///
/// # Errors
/// When the target cannot be resolved, the system gives no thread, or the journal cannot be written. Requests
/// that fail are records, not errors.
pub fn run(
    load: Load,
    journal: Option<Journal>,
    cancel: &watch::Receiver<bool>,
    show: &mut dyn FnMut(&Progress),
) -> Result<Outcome, RunError> {
    let Load { target, metrics_interval, .. } = &load;
    let target_error = |source| RunError::Target { target: target.to_string(), source };
    let dialer = Dialer::new(target, || load.trust.config()).map_err(target_error)?;
    let (target, metrics_interval) = (target.clone(), *metrics_interval);
    let threads = load.threads.max(1);
    let mut headers = load.headers;
    if let Some(secret) = &load.secret {
        headers.push(("Authorization".to_owned(), secret.bearer()));
    }
    let setup = Arc::new(Setup {
        template: load.template,
        path: target.path(&load.endpoint),
        authority: target.authority(),
        headers,
        secret: load.secret,
        dialer: dialer.clone(),
        limits: load.limits,
        keep_text: load.keep_text,
        ramp_up_seconds: load.ramp_up_seconds,
        requests: load.requests,
        todo: load.todo,
        warmups: load.warmups,
        next: AtomicUsize::new(0),
        next_warmup: AtomicUsize::new(0),
        counters: Counters::default(),
        journal: Mutex::new(journal),
        journal_error: OnceLock::new(),
        ready: Barrier::new(threads + 1),
        start: OnceLock::new(),
    });
    let most = load.max_concurrency.unwrap_or(usize::MAX).min(setup.todo.len().max(1));
    let paced = !load.due.is_empty();
    let (done, finished) = mpsc::unbounded_channel();
    let mut handles = Vec::with_capacity(threads);
    let mut paces = Vec::new();
    for thread in 0..threads {
        let slots = most / threads + usize::from(thread < most % threads);
        let feed = if paced {
            let (pace, turns) = mpsc::unbounded_channel();
            paces.push(pace);
            Feed::Paced { turns, limited: load.max_concurrency.is_some() }
        } else {
            Feed::AtOnce
        };
        let worker = Worker { setup: Arc::clone(&setup), feed, slots, thread, cancel: cancel.clone() };
        let done = done.clone();
        let builder = std::thread::Builder::new().name(format!("load-{thread}"));
        let handle = builder.spawn(move || {
            let report = worker.run();
            // Nobody listens any more when the watcher has failed.
            let _ = done.send(());
            report
        });
        handles.push(handle.map_err(RunError::System)?);
    }
    drop(done);
    setup.ready.wait();
    let started_at = wall_clock();
    if paced {
        start_pace(&setup, &load.due, paces, cancel.clone())?;
    }
    let samples = watch_until_done(&setup, &target, &dialer, metrics_interval, finished, show)?;
    let mut records = Vec::new();
    let mut cost = Vec::new();
    let mut warmups = Warmups::default();
    for handle in handles {
        let report =
            handle.join().map_err(|_panic| RunError::System(io::Error::other("a thread has panicked")))?;
        let report = report.map_err(RunError::System)?;
        records.extend(report.records);
        cost.push(report.cost);
        warmups.sent += report.warmups.sent;
        warmups.failed += report.warmups.failed;
        warmups.first_failure = warmups.first_failure.or(report.warmups.first_failure);
    }
    let setup = Arc::into_inner(setup);
    records.sort_by_key(|record| record.index);
    let duration = records.iter().map(|record| record.start + record.latency).fold(0.0, f64::max);
    if let Some(mut setup) = setup {
        if let Some(error) = setup.journal_error.take() {
            return Err(error.into());
        }
        if let Some(journal) = setup.journal.get_mut().unwrap_or_else(PoisonError::into_inner) {
            journal.end_part(duration)?;
        }
    }
    let client = ClientCost::of(&cost, duration);
    Ok(Outcome { records, duration, started_at, interrupted: *cancel.borrow(), warmups, client, samples })
}

/// A thread that hands each request out when it is due: the runtime's own timers round up to a millisecond.
fn start_pace(
    setup: &Arc<Setup>,
    due: &[f64],
    paces: Vec<mpsc::UnboundedSender<(usize, Instant)>>,
    cancel: watch::Receiver<bool>,
) -> Result<(), RunError> {
    /// How often a long sleep looks whether the run was cancelled.
    const LONGEST_SLEEP: Duration = Duration::from_millis(200);
    let start = setup.started();
    let mut turns: Vec<(usize, Instant)> = Vec::with_capacity(setup.todo.len());
    // A resumed run begins with the first request that is left.
    let time = |index: usize| due.get(index).copied().unwrap_or(0.0);
    let first = setup.todo.first().map_or(0.0, |index| time(*index));
    let shift = if setup.todo.len() < due.len() { first } else { 0.0 };
    for index in &setup.todo {
        let wait = Duration::try_from_secs_f64((time(*index) - shift).max(0.0)).unwrap_or(Duration::MAX);
        turns.push((*index, start.checked_add(wait).unwrap_or(start)));
    }
    let end = setup.limits.run.map(|limit| start + limit);
    let pace = move || {
        for (place, (index, due)) in turns.into_iter().enumerate() {
            loop {
                let now = Instant::now();
                if *cancel.borrow() || end.is_some_and(|end| now >= end) {
                    return;
                }
                match due.checked_duration_since(now) {
                    Some(wait) if !wait.is_zero() => std::thread::sleep(wait.min(LONGEST_SLEEP)),
                    _ => break,
                }
            }
            if let Some(pace) = paces.get(place % paces.len().max(1))
                && pace.send((index, due)).is_err()
            {
                return;
            }
        }
    };
    std::thread::Builder::new().name("pace".to_owned()).spawn(pace).map(drop).map_err(RunError::System)
}

fn watch_until_done(
    setup: &Arc<Setup>,
    target: &Target,
    dialer: &Dialer,
    interval: Option<Duration>,
    mut finished: mpsc::UnboundedReceiver<()>,
    show: &mut dyn FnMut(&Progress),
) -> Result<Vec<Sample>, RunError> {
    const LOOK: Duration = Duration::from_millis(250);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::System)?;
    let local = tokio::task::LocalSet::new();
    let samples = std::rc::Rc::new(std::cell::RefCell::new(Vec::<Sample>::new()));
    local.block_on(&runtime, async {
        if let Some(interval) = interval {
            let call = metrics::Call::new(target, dialer, setup.headers.clone());
            let (start, samples) = (setup.started(), std::rc::Rc::clone(&samples));
            tokio::task::spawn_local(async move {
                loop {
                    if let Some(sample) = call.sample(start).await {
                        samples.borrow_mut().push(sample);
                    }
                    tokio::time::sleep(interval).await;
                }
            });
        }
        loop {
            match tokio::time::timeout(LOOK, finished.recv()).await {
                Ok(None) => break,
                Ok(Some(())) => {}
                Err(_time_to_look) => show(&setup.progress(samples.borrow().last().copied())),
            }
        }
        if interval.is_some() {
            let call = metrics::Call::new(target, dialer, setup.headers.clone());
            if let Some(sample) = call.sample(setup.started()).await {
                samples.borrow_mut().push(sample);
            }
        }
        show(&setup.progress(samples.borrow().last().copied()));
    });
    Ok(samples.take())
}

/// What one thread brings home.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) records: Vec<RequestRecord>,
    pub(crate) warmups: Warmups,
    pub(crate) cost: ThreadCost,
}
