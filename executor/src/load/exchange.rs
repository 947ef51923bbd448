//! One request and its answer: sent on a kept connection, read event by event, ended by one of the limits at the
//! latest.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::answer::{Reading, cut};
use super::connection::{Connection, Pool};
use super::histogram::Histogram;
use super::http;
use super::record::{FailureKind, RequestFailure, RequestRecord};
use super::request::PlannedRequest;
use super::run::Setup;
use super::turns::Turns;

fn io_failure(error: &io::Error, otherwise: FailureKind) -> RequestFailure {
    let tls = error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>);
    let kind = match error.kind() {
        _ if tls => FailureKind::Tls,
        io::ErrorKind::ConnectionRefused => FailureKind::Refused,
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
            FailureKind::Reset
        }
        io::ErrorKind::UnexpectedEof => FailureKind::ClosedEarly,
        _ => otherwise,
    };
    RequestFailure::new(kind, error.to_string())
}

/// What one thread has at hand for all its requests.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) pool: Pool,
    /// Where every connection reads to; no request holds it across a wait.
    pub(crate) buffer: RefCell<Vec<u8>>,
    /// How late bytes were read.
    pub(crate) read_lag: RefCell<Histogram>,
    /// Who may send next.
    pub(crate) turns: Turns,
}

/// When a request has to be over, and for which reason.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    kind: FailureKind,
}

impl Deadline {
    fn of(setup: &Setup, start: Instant, run_end: Option<Instant>) -> Self {
        let own = start + setup.limits.request;
        match run_end {
            Some(end) if end <= own => Self { at: end, kind: FailureKind::TimeLimit },
            _ => Self { at: own, kind: FailureKind::RequestTimeout },
        }
    }

    fn failure(self) -> RequestFailure {
        let detail = match self.kind {
            FailureKind::TimeLimit => "the run's time was over",
            _ => "the request took longer than one may",
        };
        RequestFailure::new(self.kind, detail)
    }
}

/// When a request was due, and when it got its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) index: usize,
    pub(crate) due: Instant,
    pub(crate) placed: Instant,
    pub(crate) run_start: Instant,
    pub(crate) run_end: Option<Instant>,
}

/// Sends one request and reads its answer.
pub(crate) async fn exchange(
    setup: &Setup,
    desk: &Desk,
    request: &PlannedRequest,
    turn: Turn,
) -> RequestRecord {
    let body = setup.template.body(request);
    let bytes = http::request("POST", &setup.path, &setup.authority, &setup.headers, &body);
    let mut reading = Reading::new(setup.keep_text, request);
    let mut start;
    let mut connect = None;
    let mut resent = false;
    let failure = loop {
        let kept = if resent { None } else { desk.pool.take() };
        let was_kept = kept.is_some();
        let opened = match kept {
            Some(connection) => Ok(connection),
            None => {
                let before = Instant::now();
                let opened = open(setup, Deadline::of(setup, before, turn.run_end)).await;
                connect = Some(before.elapsed().as_secs_f64());
                opened
            }
        };
        start = Instant::now();
        reading.answer.last = start;
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(failure) => break Some(failure),
        };
        let deadline = Deadline::of(setup, start, turn.run_end);
        let outcome = send_and_read(setup, desk, &mut connection, &bytes, deadline, &mut reading).await;
        let closed = outcome
            .as_ref()
            .is_err_and(|failure| matches!(failure.kind, FailureKind::Reset | FailureKind::ClosedEarly));
        if closed && was_kept && !reading.heard {
            // The server had closed the connection before it saw the request.
            resent = true;
            continue;
        }
        if outcome.is_ok() && reading.decoder.reusable() {
            desk.pool.give_back(connection);
        }
        break outcome.and_then(|()| reading.verdict()).err();
    };
    let failed_after = start.elapsed();
    let failure =
        failure.map(|failure| RequestFailure { detail: cut(setup.redacted(&failure.detail)), ..failure });
    let seconds = |from: Instant| start.saturating_duration_since(from).as_secs_f64();
    let latency =
        if failure.is_some() { failed_after } else { reading.answer.last.saturating_duration_since(start) };
    let (output_tokens, counted_by) = reading.answer.output_tokens();
    let several = reading.answer.event_tokens.iter().any(|count| *count != 1);
    RequestRecord {
        index: turn.index,
        start: seconds(turn.run_start),
        queue: turn.placed.saturating_duration_since(turn.due).as_secs_f64(),
        lag: (seconds(turn.placed) - connect.unwrap_or(0.0)).max(0.0),
        connect,
        ttft: reading.answer.first.map(|first| first.saturating_duration_since(start).as_secs_f64()),
        latency: latency.as_secs_f64(),
        event_tokens: if several { std::mem::take(&mut reading.answer.event_tokens) } else { Vec::new() },
        itl: std::mem::take(&mut reading.answer.itl),
        prompt_tokens: reading.answer.prompt_tokens.or(request.prompt_tokens).unwrap_or(0),
        output_tokens,
        counted_by,
        resent,
        text: setup.keep_text.then(|| setup.redacted(&reading.answer.text)),
        failure,
    }
}

async fn open(setup: &Setup, deadline: Deadline) -> Result<Connection, RequestFailure> {
    let in_time = Instant::now() + setup.limits.connect;
    match tokio::time::timeout_at(in_time.min(deadline.at).into(), setup.dialer.connect()).await {
        Ok(opened) => opened.map_err(|error| io_failure(&error, FailureKind::Unreachable)),
        Err(_late) if deadline.at <= in_time => Err(deadline.failure()),
        Err(_late) => {
            Err(RequestFailure::new(FailureKind::ConnectTimeout, "the connection was not open in time"))
        }
    }
}

fn stalled(setup: &Setup) -> RequestFailure {
    let seconds = setup.limits.stall.as_secs_f64();
    RequestFailure::new(FailureKind::Stalled, format!("nothing came for {seconds} s"))
}

async fn send_and_read(
    setup: &Setup,
    desk: &Desk,
    connection: &mut Connection,
    bytes: &[u8],
    deadline: Deadline,
    reading: &mut Reading,
) -> Result<(), RequestFailure> {
    let stall = setup.limits.stall;
    let write_end = (Instant::now() + stall).min(deadline.at);
    match tokio::time::timeout_at(write_end.into(), connection.write_all(bytes)).await {
        // A server may answer and close without reading the body: its answer says more.
        Ok(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(io_failure(&error, FailureKind::Reset));
        }
        Ok(_) => {}
        Err(_late) if write_end == deadline.at => return Err(deadline.failure()),
        Err(_late) => return Err(stalled(setup)),
    }
    let mut heard_at = Instant::now();
    let mut alarm = pin!(tokio::time::sleep_until((heard_at + stall).min(deadline.at).into()));
    while !reading.decoder.done() {
        let read = poll_fn(|cx| {
            let buffer = &mut *desk.buffer.borrow_mut();
            if let Poll::Ready(read) = connection.poll_read(cx, buffer) {
                return Poll::Ready(read.map_err(|error| io_failure(&error, FailureKind::Reset)));
            }
            poll_alarm(cx, alarm.as_mut(), heard_at + stall, deadline)
                .map(|deadline_hit| Err(if deadline_hit { deadline.failure() } else { stalled(setup) }))
        });
        let count = match read.await {
            // Everything was told; only the goodbye is missing.
            Err(failure) if reading.answer.done && failure.kind != FailureKind::TimeLimit => return Ok(()),
            read => read?,
        };
        let arrival = connection.arrival();
        heard_at = Instant::now();
        if count == 0 {
            reading
                .decoder
                .closed()
                .or_else(|error| if reading.answer.done { Ok(()) } else { Err(error) })?;
            break;
        }
        reading.heard = true;
        {
            let buffer = desk.buffer.borrow();
            reading.take(buffer.get(..count).unwrap_or(&[]), arrival.at)?;
        }
        if let Some(lag) = arrival.lag {
            desk.read_lag.borrow_mut().add(lag + heard_at.elapsed());
        }
        if heard_at >= deadline.at {
            return Err(deadline.failure());
        }
    }
    reading.end(heard_at)
}

/// Ready when a limit is reached: true for the deadline, false for silence.
fn poll_alarm(
    cx: &mut Context<'_>,
    mut alarm: Pin<&mut tokio::time::Sleep>,
    silent_at: Instant,
    deadline: Deadline,
) -> Poll<bool> {
    loop {
        ready!(alarm.as_mut().poll(cx));
        let now = Instant::now();
        if now >= deadline.at {
            return Poll::Ready(true);
        }
        if now >= silent_at {
            return Poll::Ready(false);
        }
        alarm.as_mut().reset(silent_at.min(deadline.at).into());
    }
}

/// Opens connections ahead of the run, so that none is opened while it is measured; what fails here fails again,
/// and is counted, when a request needs it.
pub(crate) async fn open_ahead(setup: &Setup, desk: &Desk, count: usize) {
    let end = Deadline { at: Instant::now() + Duration::from_secs(30), kind: FailureKind::ConnectTimeout };
    let mut opened = Vec::with_capacity(count);
    for _ in 0..count {
        match open(setup, end).await {
            Ok(connection) => opened.push(connection),
            Err(_told_later) => break,
        }
    }
    for connection in opened {
        desk.pool.give_back(connection);
    }
}
