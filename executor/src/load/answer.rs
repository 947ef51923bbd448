//! What a server's answer says as its bytes come: tokens and their times, the end, or why it is no good one.

use std::borrow::Cow;
use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::completion::{self, EventError};
use super::http::{Head, HttpError, ResponseDecoder};
use super::record::{FailureKind, MOST_TOKENS, RequestFailure, TokenCount};
use super::request::PlannedRequest;
use super::sse::{EventSplitter, EventTooLong};

/// How much of an error's body is kept.
const DETAIL_LIMIT: usize = 2000;
/// Tokens beyond twice what was asked for that make an answer endless.
const ENDLESS_SLACK: u64 = 1000;

impl RequestFailure {
    pub(super) fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
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

/// An answer, as far as it was read.
pub(super) struct Reading {
    pub(super) decoder: ResponseDecoder,
    splitter: EventSplitter,
    pub(super) answer: Answer,
    /// Whether any byte came.
    pub(super) heard: bool,
    /// The beginning of a body with no event, or of an answer other than 200.
    error_body: Vec<u8>,
}

/// What the events have said.
pub(super) struct Answer {
    pub(super) first: Option<Instant>,
    pub(super) last: Instant,
    pub(super) itl: Vec<f32>,
    pub(super) event_tokens: Vec<u32>,
    told_tokens: bool,
    tokens: u64,
    token_limit: u64,
    pub(super) prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    keep_text: bool,
    pub(super) text: String,
    /// Whether any event came.
    any: bool,
    /// Whether `[DONE]` came.
    pub(super) done: bool,
    /// Whether a finish reason or a closing usage came.
    finished: bool,
}

impl Reading {
    /// `keep_text` keeps the text, which may be long.
    pub(super) fn new(keep_text: bool, request: &PlannedRequest) -> Self {
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
            keep_text,
            text: String::new(),
            any: false,
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

    /// Takes bytes that arrived at `at`.
    pub(super) fn take(&mut self, bytes: &[u8], at: Instant) -> Result<(), RequestFailure> {
        let Self { decoder, splitter, answer, error_body, .. } = self;
        decoder.feed(bytes, &mut |head: Head, piece: &[u8]| {
            if head.status == 200 {
                splitter.feed(piece, &mut |data: &[u8]| answer.event(data, at))?;
                if answer.any {
                    return Ok(());
                }
            }
            // A key that the limit would cut is still known.
            let space = (4 * DETAIL_LIMIT).saturating_sub(error_body.len());
            error_body.extend_from_slice(piece.get(..space).unwrap_or(piece));
            Ok(())
        })
    }

    /// The body has ended: an event that lacks only its blank line counts.
    pub(super) fn end(&mut self, at: Instant) -> Result<(), RequestFailure> {
        let Self { splitter, answer, .. } = self;
        splitter.end(&mut |data: &[u8]| answer.event(data, at))
    }

    /// Whether an answer that was read to its end is a good one.
    pub(super) fn verdict(&self) -> Result<(), RequestFailure> {
        match self.decoder.head() {
            None => Err(HttpError::ClosedEarly.into()),
            Some(Head { status: 200, .. }) if self.answer.first.is_none() => Err(self.no_token()),
            Some(Head { status: 200, .. }) if !self.answer.done && !self.answer.finished => {
                Err(RequestFailure::new(FailureKind::ClosedEarly, "the answer ended without saying so"))
            }
            Some(Head { status: 200, .. }) => Ok(()),
            Some(Head { status, .. }) => Err(RequestFailure::new(FailureKind::Http(status), self.told())),
        }
    }

    /// What the server says where it streams nothing.
    fn told(&self) -> String {
        if let Some(error) = self.decoder.encoded() {
            return error.to_string();
        }
        let told = error_detail(&self.error_body)
            .unwrap_or_else(|| String::from_utf8_lossy(&self.error_body).trim().to_owned());
        match self.decoder.location() {
            Some(location) => {
                format!("it points to {location}, which is not followed. {told}").trim().to_owned()
            }
            None => told,
        }
    }

    /// Why a status of 200 brought no token.
    fn no_token(&self) -> RequestFailure {
        if let Some(error) = self.decoder.encoded() {
            return error.into();
        }
        if self.answer.any {
            return RequestFailure::new(FailureKind::Empty, "the answer holds no token");
        }
        match error_detail(&self.error_body) {
            Some(detail) => RequestFailure::new(FailureKind::ServerError, detail),
            None => {
                let told = self.told();
                let told = if told.is_empty() { String::new() } else { format!(", but: {told}") };
                RequestFailure::new(FailureKind::Empty, format!("the answer holds no event{told}"))
            }
        }
    }
}

/// A failure's text up to the limit.
pub(super) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(DETAIL_LIMIT));
    text
}

/// The message of an error's body, where it has one.
fn error_detail(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let error = value.get("error").unwrap_or(&value);
    let message = error.get("message").or_else(|| error.get("detail")).unwrap_or(error);
    message.as_str().map(str::to_owned)
}

/// The message of an error inside an event, or the error itself, up to about `limit` bytes.
fn error_text(error: &RawValue, limit: usize) -> String {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        message: Cow<'a, str>,
    }
    let raw = error.get();
    let message = serde_json::from_str::<Message<'_>>(raw).map(|error| error.message);
    let message = message.or_else(|_not_an_object| serde_json::from_str(raw));
    let text = message.unwrap_or(Cow::Borrowed(raw));
    text.get(..text.floor_char_boundary(limit)).unwrap_or("").to_owned()
}

impl Answer {
    fn event(&mut self, data: &[u8], at: Instant) -> Result<(), RequestFailure> {
        self.any = true;
        if data.trim_ascii() == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let event = completion::parse(data)?;
        if let Some(error) = event.error {
            // A key that the limit would cut is still known.
            return Err(RequestFailure::new(FailureKind::ServerError, error_text(error, 4 * DETAIL_LIMIT)));
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

    /// How many tokens came, and who counted them.
    pub(super) fn output_tokens(&self) -> (u64, TokenCount) {
        match self.completion_tokens {
            Some(count) => (count, TokenCount::Usage),
            None if self.told_tokens => (self.tokens, TokenCount::Events),
            None => (self.tokens, TokenCount::Assumed),
        }
    }
}
