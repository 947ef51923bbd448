//! What is known of one request when it has ended, well or not.

use serde::{Deserialize, Serialize};

/// More tokens than any request has.
pub(crate) const MOST_TOKENS: u64 = 1 << 32;

/// One request, ended.
///
/// Times are in seconds. The clock starts when the request is about to be written on an open connection; the
/// time to open one is apart, as is the time spent waiting for a free place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Place in the load, from 0.
    pub index: usize,
    /// When it was sent, after the start of its part of the run.
    pub start: f64,
    /// From the time it was due to the time it got a place under the concurrency limit.
    pub queue: f64,
    /// From having a place and a connection due to being written: what the client added.
    pub lag: f64,
    /// To open the connection, when none was at hand.
    pub connect: Option<f64>,
    /// To the first token; `None` when none came.
    pub ttft: Option<f64>,
    /// To the last token.
    pub latency: f64,
    /// Between one event with a token and the next. Events read together are 0 apart.
    pub itl: Vec<f32>,
    /// Tokens of each event, the first included, where the server told and one had several; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_tokens: Vec<u32>,
    /// Tokens of the prompt: the server's count, else the load's.
    pub prompt_tokens: u64,
    /// Tokens that came: the server's count, else the events' sum.
    pub output_tokens: u64,
    /// Who counted the output.
    pub counted_by: TokenCount,
    /// Whether a stale connection made it be sent a second time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resent: bool,
    /// The text, where it was to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Why it did not come to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RequestFailure>,
}

/// Who counted a request's output tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenCount {
    /// The server, in its usage.
    Usage,
    /// The tokens that the events list.
    Events,
    /// Nobody: one token an event is assumed.
    Assumed,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFailure {
    /// The kind, by which failures are counted.
    pub kind: FailureKind,
    /// What the server or the system said; never holds the API key.
    pub detail: String,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum FailureKind {
    /// Nobody listens there.
    Refused,
    /// The connection could not be opened for another reason.
    Unreachable,
    /// The connection was not open in time.
    ConnectTimeout,
    /// The encrypted connection failed, most often for the certificate.
    Tls,
    /// The server reset the connection.
    Reset,
    /// The server closed before the answer was whole.
    ClosedEarly,
    /// The answer is not HTTP, or encoded as was not asked for.
    NotHttp,
    /// A status other than 200.
    Http(u16),
    /// An event is not UTF-8.
    InvalidUtf8,
    /// An event is not the JSON of a completion.
    BrokenJson,
    /// An event that carries an error.
    ServerError,
    /// The answer ended without a token.
    Empty,
    /// Nothing came for too long.
    Stalled,
    /// Far more tokens came than were asked for.
    Endless,
    /// The request took longer than one may.
    RequestTimeout,
    /// The run's time was over.
    TimeLimit,
}

const NAMES: [(FailureKind, &str); 15] = [
    (FailureKind::Refused, "refused"),
    (FailureKind::Unreachable, "unreachable"),
    (FailureKind::ConnectTimeout, "connect_timeout"),
    (FailureKind::Tls, "tls"),
    (FailureKind::Reset, "reset"),
    (FailureKind::ClosedEarly, "closed_early"),
    (FailureKind::NotHttp, "not_http"),
    (FailureKind::InvalidUtf8, "invalid_utf8"),
    (FailureKind::BrokenJson, "broken_json"),
    (FailureKind::ServerError, "server_error"),
    (FailureKind::Empty, "empty"),
    (FailureKind::Stalled, "stalled"),
    (FailureKind::Endless, "endless"),
    (FailureKind::RequestTimeout, "request_timeout"),
    (FailureKind::TimeLimit, "time_limit"),
];

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Self::Http(status) = self {
            return write!(f, "http_{status}");
        }
        f.write_str(NAMES.iter().find(|(kind, _)| kind == self).map_or("unknown", |(_, name)| name))
    }
}

impl From<FailureKind> for String {
    fn from(kind: FailureKind) -> Self {
        kind.to_string()
    }
}

impl TryFrom<String> for FailureKind {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if let Some(status) = name.strip_prefix("http_").and_then(|status| status.parse().ok()) {
            return Ok(Self::Http(status));
        }
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(kind, _)| *kind).ok_or_else(|| format!("`{name}` is no kind of failure"))
    }
}

impl RequestRecord {
    /// What in it cannot be, when it was read from a file.
    pub(crate) fn impossible(&self) -> Option<&'static str> {
        /// Seconds in four months.
        const LONGEST: f64 = 1e7;
        /// Tokens that one answer's events can have brought.
        const STREAMED: u64 = 1 << 26;
        let times = [self.start, self.queue, self.lag, self.latency].into_iter().chain(self.connect);
        let mut times = times.chain(self.ttft).chain(self.itl.iter().map(|gap| f64::from(*gap)));
        let streamed: u64 = self.event_tokens.iter().map(|count| u64::from(*count)).sum();
        if !times.all(|time| (0.0..=LONGEST).contains(&time)) {
            return Some("a time is negative or longer than any run");
        }
        if self.prompt_tokens > MOST_TOKENS || self.output_tokens > MOST_TOKENS || streamed > STREAMED {
            return Some("it counts more tokens than a request can have");
        }
        None
    }

    /// Whether it came to its end.
    pub fn succeeded(&self) -> bool {
        self.failure.is_none()
    }

    /// Time per output token after the first, in seconds, as vLLM counts it; `None` for fewer than two tokens.
    pub fn tpot(&self) -> Option<f64> {
        let after_first = self.output_tokens.checked_sub(1).filter(|count| *count > 0)?;
        Some((self.latency - self.ttft?) / after_first as f64)
    }

    /// Gaps between tokens, in seconds: several tokens that came together share the time before them evenly.
    /// Tokens that came with the first have no gap. `None` where the server counted more tokens than the events
    /// tell, so that nobody knows which came when.
    pub fn token_gaps(&self) -> Option<Vec<f32>> {
        let events = self.itl.len() + usize::from(self.ttft.is_some());
        let tokens = |event: usize| self.event_tokens.get(event).copied().unwrap_or(1);
        if self.event_tokens.is_empty() && self.output_tokens != events as u64 {
            return None;
        }
        let mut gaps = Vec::with_capacity(self.itl.len());
        let mut event = 0;
        while event < self.itl.len() {
            let gap = self.itl[event];
            let mut count = tokens(event + 1);
            event += 1;
            while self.itl.get(event) == Some(&0.0) {
                count = count.saturating_add(tokens(event + 1));
                event += 1;
            }
            // A leading 0 came together with the first token.
            if gap > 0.0 && count > 0 {
                let share = gap / u16::try_from(count).map_or(f32::MAX, f32::from);
                gaps.extend(std::iter::repeat_n(share, usize::try_from(count).unwrap_or(0)));
            }
        }
        Some(gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn record(itl: &[f32], event_tokens: &[u32], output_tokens: u64) -> RequestRecord {
        RequestRecord {
            index: 0,
            start: 0.0,
            queue: 0.0,
            lag: 0.0,
            connect: None,
            ttft: Some(0.5),
            latency: 0.5 + itl.iter().map(|gap| f64::from(*gap)).sum::<f64>(),
            itl: itl.to_vec(),
            event_tokens: event_tokens.to_vec(),
            prompt_tokens: 4,
            output_tokens,
            counted_by: TokenCount::Usage,
            resent: false,
            text: None,
            failure: None,
        }
    }

    #[test]
    fn tokens_that_came_together_share_the_gap() {
        assert_eq!(record(&[0.25, 0.0, 0.5], &[], 4).token_gaps().unwrap(), [0.125, 0.125, 0.5]);
        assert_eq!(record(&[0.0, 0.5], &[], 3).token_gaps().unwrap(), [0.5]);
        assert_eq!(record(&[0.5, 0.25], &[1, 2, 1], 4).token_gaps().unwrap(), [0.25, 0.25, 0.25]);
        assert_eq!(record(&[0.5], &[], 9).token_gaps(), None);
    }

    #[test]
    fn a_record_survives_the_journal() {
        let mut before = record(&[0.25], &[2, 3], 5);
        for kind in NAMES.map(|(kind, _)| kind).into_iter().chain([FailureKind::Http(429)]) {
            before.failure = Some(RequestFailure { kind, detail: "x".to_owned() });
            let line = serde_json::to_string(&before).unwrap();
            assert_eq!(serde_json::from_str::<RequestRecord>(&line).unwrap(), before);
        }
        assert!(FailureKind::try_from("nonsense".to_owned()).is_err());
    }

    #[test]
    fn what_cannot_be_is_told() {
        assert_eq!(record(&[0.25], &[2, 3], 5).impossible(), None);
        assert!(record(&[0.25], &[u32::MAX, u32::MAX], 5).impossible().is_some());
        assert!(record(&[0.25], &[], u64::MAX).impossible().is_some());
        assert!(record(&[-0.25], &[], 2).impossible().is_some());
        assert!(RequestRecord { latency: 1e308, ..record(&[], &[], 1) }.impossible().is_some());
    }

    #[test]
    fn tpot_leaves_the_first_token_out() {
        assert_eq!(record(&[0.25, 0.25], &[], 3).tpot(), Some(0.25));
        assert_eq!(record(&[], &[], 1).tpot(), None);
    }
}
