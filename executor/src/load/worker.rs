//! One thread of a run: it warms up, opens its connections, waits for the start and sends what it is fed.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{LocalSet, spawn_local};

use super::client_cost::ThreadCost;
use super::connection::Pool;
use super::exchange::{Desk, Turn, exchange, open_ahead};
use super::histogram::Histogram;
use super::record::RequestRecord;
use super::run::{Report, Setup, Warmups};
use super::turns::Turns;

/// Room for what one read brings; all connections of a thread share it.
const BUFFER_BYTES: usize = 256 * 1024;
/// The most connections that are opened ahead of an open loop.
const OPEN_AHEAD: usize = 64;

/// Where a thread's requests come from.
#[derive(Debug)]
pub(crate) enum Feed {
    /// The next of the load, whenever a place is free.
    AtOnce,
    /// Each when it is due.
    Paced {
        /// Index and time of each request.
        turns: mpsc::UnboundedReceiver<(usize, Instant)>,
        /// Whether requests may have to wait for a place.
        limited: bool,
    },
}

/// One thread's part.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) setup: Arc<Setup>,
    pub(crate) feed: Feed,
    /// Requests that this thread may have under way.
    pub(crate) slots: usize,
    pub(crate) thread: usize,
    pub(crate) cancel: watch::Receiver<bool>,
}

struct Place {
    setup: Arc<Setup>,
    desk: Desk,
    records: RefCell<Vec<RequestRecord>>,
}

impl Place {
    /// Sends a request and notes what came of it; tells when its place was free again.
    async fn serve(&self, index: usize, due: Instant, placed: Instant) -> Instant {
        let Some(request) = self.setup.requests.get(index) else { return placed };
        self.setup.counters.started.fetch_add(1, Ordering::Relaxed);
        let run_start = self.setup.started();
        let run_end = self.setup.limits.run.map(|limit| run_start + limit);
        let turn = Turn { index, due, placed, run_start, run_end };
        let record = exchange(&self.setup, &self.desk, request, turn).await;
        let ended = Instant::now();
        self.records.borrow_mut().push(self.setup.note(record));
        ended
    }

    fn is_over(&self) -> bool {
        let start = self.setup.started();
        self.setup.limits.run.is_some_and(|limit| start.elapsed() >= limit)
    }
}

impl Worker {
    pub(crate) fn run(self) -> io::Result<Report> {
        let Self { setup, feed, slots, thread, mut cancel } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let desk = Desk {
            pool: Pool::default(),
            buffer: RefCell::new(vec![0; BUFFER_BYTES]),
            read_lag: RefCell::new(Histogram::default()),
            turns: Turns::default(),
        };
        let place = Rc::new(Place { setup: Arc::clone(&setup), desk, records: RefCell::new(Vec::new()) });
        let local = LocalSet::new();
        let warmups = runtime.as_ref().map_or_else(
            |_told_below| Warmups::default(),
            |runtime| {
                local.block_on(runtime, async {
                    let warmed = until_cancelled(&mut cancel, warm_up(&place, slots)).await;
                    let ahead = if matches!(feed, Feed::AtOnce) { slots } else { slots.min(OPEN_AHEAD) };
                    until_cancelled(&mut cancel, open_ahead(&setup, &place.desk, ahead)).await;
                    warmed.unwrap_or_default()
                })
            },
        );
        setup.ready.wait();
        let runtime = runtime?;
        place.desk.read_lag.replace(Histogram::default());
        let cpu_before = cpu_time();
        let start = setup.started();
        local.block_on(&runtime, async {
            match feed {
                Feed::AtOnce => until_cancelled(&mut cancel, at_once(&place, slots, thread, start)).await,
                Feed::Paced { turns, limited } => {
                    until_cancelled(&mut cancel, paced(&place, turns, limited.then_some(slots))).await
                }
            }
        });
        let cpu = cpu_time().saturating_sub(cpu_before);
        let read_lag = place.desk.read_lag.take();
        let records = place.records.take();
        Ok(Report { records, warmups, cost: ThreadCost { cpu, read_lag } })
    }
}

async fn at_once(place: &Rc<Place>, slots: usize, thread: usize, start: Instant) {
    let mut tasks = Vec::with_capacity(slots);
    for slot in 0..slots {
        let place = Rc::clone(place);
        tasks.push(spawn_local(async move {
            let share = (slot as f64 + thread as f64 / 1000.0) / slots as f64;
            let wait = Duration::try_from_secs_f64(place.setup.ramp_up_seconds * share).unwrap_or_default();
            if !wait.is_zero() {
                tokio::time::sleep_until((start + wait).into()).await;
            }
            let mut free_since = start + wait;
            while !place.is_over() {
                let next = place.setup.next.fetch_add(1, Ordering::Relaxed);
                let Some(index) = place.setup.todo.get(next).copied() else { break };
                free_since = place.serve(index, free_since, free_since).await;
                place.desk.turns.after_reads().await;
            }
        }));
    }
    for task in tasks {
        // A task that was dropped has nothing to tell.
        let _ = task.await;
    }
}

async fn paced(
    place: &Rc<Place>,
    mut turns: mpsc::UnboundedReceiver<(usize, Instant)>,
    slots: Option<usize>,
) {
    let gate = slots.map(|slots| Rc::new(Semaphore::new(slots.max(1))));
    let mut tasks = Vec::new();
    while let Some((index, due)) = turns.recv().await {
        let (place, gate) = (Rc::clone(place), gate.clone());
        tasks.push(spawn_local(async move {
            let arrived = Instant::now();
            let permit = match &gate {
                Some(gate) => gate.acquire().await.ok(),
                None => None,
            };
            // Without a wait for a place, the client alone answers for the time since it was due.
            let waited = arrived.elapsed() > Duration::from_micros(50) && gate.is_some();
            let placed = if waited { Instant::now() } else { due };
            if !place.is_over() {
                place.serve(index, due, placed).await;
            }
            drop(permit);
        }));
    }
    for task in tasks {
        // A task that was dropped has nothing to tell.
        let _ = task.await;
    }
}

async fn warm_up(place: &Rc<Place>, slots: usize) -> Warmups {
    let outcome = Rc::new(RefCell::new(Warmups::default()));
    let mut tasks = Vec::new();
    for _ in 0..slots.min(place.setup.warmups.len()) {
        let (place, outcome) = (Rc::clone(place), Rc::clone(&outcome));
        tasks.push(spawn_local(async move {
            loop {
                let next = place.setup.next_warmup.fetch_add(1, Ordering::Relaxed);
                let Some(request) = place.setup.warmups.get(next) else { break };
                let now = Instant::now();
                let turn = Turn { index: next, due: now, placed: now, run_start: now, run_end: None };
                let record = exchange(&place.setup, &place.desk, request, turn).await;
                let mut outcome = outcome.borrow_mut();
                outcome.sent += 1;
                if let Some(failure) = record.failure {
                    outcome.failed += 1;
                    outcome.first_failure.get_or_insert(format!("{}: {}", failure.kind, failure.detail));
                }
            }
        }));
    }
    for task in tasks {
        // A task that was dropped has nothing to tell.
        let _ = task.await;
    }
    outcome.take()
}

/// The work's result, or `None` when it was cancelled before.
async fn until_cancelled<T>(cancel: &mut watch::Receiver<bool>, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut cancelled = pin!(async {
        if cancel.wait_for(|cancelled| *cancelled).await.is_err() {
            // Nobody is left to cancel.
            std::future::pending::<()>().await;
        }
    });
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => cancelled.as_mut().poll(cx).map(|()| None),
    })
    .await
}

fn cpu_time() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
