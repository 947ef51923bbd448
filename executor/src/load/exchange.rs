//! One request and its answer: sent on a kept connection, read event by event, ended by one of the limits at the
//! latest.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::completion::{self, EventError};
use super::connection::{Connection, Pool};
use super::histogram::Histogram;
use super::http::{self, Head, HttpError, ResponseDecoder};
use super::record::{FailureKind, MOST_TOKENS, RequestFailure, RequestRecord, TokenCount};
use super::request::PlannedRequest;
use super::run::Setup;
use super::sse::{EventSplitter, EventTooLong};
use super::turns::Turns;

/// How much of an error's body is kept.
const DETAIL_LIMIT: usize = 2000;
/// Tokens beyond twice what was asked for that make an answer endless.
const ENDLESS_SLACK: u64 = 1000;

impl RequestFailure {
    fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

impl From<HttpError> for RequestFailure {
    fn from(error: HttpError) -> Self {
        let kind =
            if error == HttpError::ClosedEarly { FailureKind::ClosedEarly } else { FailureKind::NotHttp };
        Self::new(kind, error.to_string())
    }
}

impl From<EventTooLong> for RequestFailure {
    fn from(error: EventTooLong) -> Self {
        Self::new(FailureKind::BrokenJson, error.to_string())
    }
}

impl From<EventError> for RequestFailure {
    fn from(error: EventError) -> Self {
        let kind = match error {
            EventError::InvalidUtf8 { .. } => FailureKind::InvalidUtf8,
            EventError::BrokenJson(_) => FailureKind::BrokenJson,
        };
        Self::new(kind, error.to_string())
    }
}

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
    let mut reading = Reading::new(setup, request);
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
        reading.last = start;
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
        if failure.is_some() { failed_after } else { reading.last.saturating_duration_since(start) };
    let (output_tokens, counted_by) = reading.output_tokens();
    let several = reading.event_tokens.iter().any(|count| *count != 1);
    RequestRecord {
        index: turn.index,
        start: seconds(turn.run_start),
        queue: turn.placed.saturating_duration_since(turn.due).as_secs_f64(),
        lag: (seconds(turn.placed) - connect.unwrap_or(0.0)).max(0.0),
        connect,
        ttft: reading.first.map(|first| first.saturating_duration_since(start).as_secs_f64()),
        latency: latency.as_secs_f64(),
        event_tokens: if several { std::mem::take(&mut reading.event_tokens) } else { Vec::new() },
        itl: std::mem::take(&mut reading.itl),
        prompt_tokens: reading.prompt_tokens.or(request.prompt_tokens).unwrap_or(0),
        output_tokens,
        counted_by,
        resent,
        text: setup.keep_text.then(|| setup.redacted(&reading.text)),
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
            Err(failure) if reading.done && failure.kind != FailureKind::TimeLimit => return Ok(()),
            read => read?,
        };
        let arrival = connection.arrival();
        heard_at = Instant::now();
        if count == 0 {
            reading.decoder.closed().or_else(|error| if reading.done { Ok(()) } else { Err(error) })?;
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
    let Reading { splitter, answer, .. } = reading;
    splitter.end(&mut |data: &[u8]| answer.event(data, heard_at))
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

/// An answer, as far as it was read.
struct Reading {
    decoder: ResponseDecoder,
    splitter: EventSplitter,
    answer: Answer,
    /// Whether any byte came.
    heard: bool,
    /// The body of an answer other than 200.
    error_body: Vec<u8>,
}

impl std::ops::Deref for Reading {
    type Target = Answer;
    fn deref(&self) -> &Answer {
        &self.answer
    }
}

impl std::ops::DerefMut for Reading {
    fn deref_mut(&mut self) -> &mut Answer {
        &mut self.answer
    }
}

/// What the events have said.
struct Answer {
    first: Option<Instant>,
    last: Instant,
    itl: Vec<f32>,
    event_tokens: Vec<u32>,
    told_tokens: bool,
    tokens: u64,
    token_limit: u64,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    keep_text: bool,
    text: String,
    /// Whether `[DONE]` came.
    done: bool,
    /// Whether a finish reason or a closing usage came.
    finished: bool,
}

impl Reading {
    fn new(setup: &Setup, request: &PlannedRequest) -> Self {
        let expected = usize::try_from(request.output_tokens).unwrap_or(0).min(4096);
        let answer = Answer {
            first: None,
            last: Instant::now(),
            itl: Vec::with_capacity(expected),
            event_tokens: Vec::new(),
            told_tokens: false,
            tokens: 0,
            token_limit: 2 * u64::from(request.output_tokens) + ENDLESS_SLACK,
            prompt_tokens: None,
            completion_tokens: None,
            keep_text: setup.keep_text,
            text: String::new(),
            done: false,
            finished: false,
        };
        Self {
            decoder: ResponseDecoder::new(),
            splitter: EventSplitter::default(),
            answer,
            heard: false,
            error_body: Vec::new(),
        }
    }

    fn take(&mut self, bytes: &[u8], at: Instant) -> Result<(), RequestFailure> {
        let Self { decoder, splitter, answer, error_body, .. } = self;
        decoder.feed(bytes, &mut |head: Head, piece: &[u8]| {
            if head.status == 200 {
                return splitter.feed(piece, &mut |data: &[u8]| answer.event(data, at));
            }
            // A key that the limit would cut is still known.
            let space = (4 * DETAIL_LIMIT).saturating_sub(error_body.len());
            error_body.extend_from_slice(piece.get(..space).unwrap_or(piece));
            Ok(())
        })
    }

    /// Whether an answer that was read to its end is a good one.
    fn verdict(&self) -> Result<(), RequestFailure> {
        match self.decoder.head() {
            None => Err(HttpError::ClosedEarly.into()),
            Some(Head { status: 200, .. }) if self.first.is_none() => {
                Err(RequestFailure::new(FailureKind::Empty, "the answer holds no token"))
            }
            Some(Head { status: 200, .. }) if !self.done && !self.finished => {
                Err(RequestFailure::new(FailureKind::ClosedEarly, "the answer ended without saying so"))
            }
            Some(Head { status: 200, .. }) => Ok(()),
            Some(Head { status, .. }) => {
                Err(RequestFailure::new(FailureKind::Http(status), error_detail(&self.error_body)))
            }
        }
    }
}

/// A text up to the limit.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(DETAIL_LIMIT));
    text
}

/// The message of an error's body, where it has one.
fn error_detail(body: &[u8]) -> String {
    let value: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = value.as_ref().and_then(|value| {
        let error = value.get("error").unwrap_or(value);
        error.get("message").or_else(|| error.get("detail")).unwrap_or(error).as_str()
    });
    message.map_or_else(|| String::from_utf8_lossy(body).trim().to_owned(), str::to_owned)
}

impl Answer {
    fn event(&mut self, data: &[u8], at: Instant) -> Result<(), RequestFailure> {
        if data.trim_ascii() == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let event = completion::parse(data)?;
        if let Some(error) = event.error.filter(|error| !error.is_null()) {
            let detail = error.get("message").and_then(|text| text.as_str()).map(str::to_owned);
            let mut detail = detail.unwrap_or_else(|| error.to_string());
            // A key that the limit would cut is still known.
            detail.truncate(detail.floor_char_boundary(4 * DETAIL_LIMIT));
            return Err(RequestFailure::new(FailureKind::ServerError, detail));
        }
        let mut told = None;
        if let Some(usage) = event.usage {
            if let Some(count) = [usage.prompt_tokens, usage.completion_tokens]
                .into_iter()
                .flatten()
                .find(|count| *count > MOST_TOKENS)
            {
                let detail = format!("the usage counts {count} tokens, which cannot be");
                return Err(RequestFailure::new(FailureKind::BrokenJson, detail));
            }
            self.prompt_tokens = usage.prompt_tokens.or(self.prompt_tokens);
            if let Some(count) = usage.completion_tokens {
                let before = self.completion_tokens.replace(count).unwrap_or(self.tokens);
                told = count.checked_sub(before).and_then(|new| u32::try_from(new).ok());
            }
        }
        let Some(choice) = event.choices else {
            self.finished |= event.usage.is_some();
            return Ok(());
        };
        self.finished |= choice.finish_reason.is_some();
        let told = choice.tokens().or(told);
        let text = choice.text();
        // The first event of a chat may only carry the role.
        if choice.is_chat() && text.is_empty() && told.unwrap_or(0) == 0 && choice.finish_reason.is_none() {
            return Ok(());
        }
        if self.keep_text {
            self.text.push_str(text);
        }
        self.told_tokens |= told.is_some();
        let count = told.unwrap_or(1);
        self.event_tokens.push(count);
        self.tokens += u64::from(count);
        if self.first.is_none() {
            self.first = Some(at);
        } else {
            self.itl.push(at.saturating_duration_since(self.last).as_secs_f32());
        }
        self.last = at;
        if self.tokens > self.token_limit {
            let limit = self.token_limit;
            return Err(RequestFailure::new(FailureKind::Endless, format!("more than {limit} tokens came")));
        }
        Ok(())
    }

    fn output_tokens(&self) -> (u64, TokenCount) {
        match self.completion_tokens {
            Some(count) => (count, TokenCount::Usage),
            None if self.told_tokens => (self.tokens, TokenCount::Events),
            None => (self.tokens, TokenCount::Assumed),
        }
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
