//! What one event of a completion's stream says: text, tokens, the end, usage, an error.
//!
//! Covers the streams of `/v1/completions` and `/v1/chat/completions`.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

mod plain;

/// One event.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Event<'a> {
    /// The first choice; `None` when there is none, as in the event that only carries usage.
    #[serde(borrow, default, deserialize_with = "first_choice")]
    pub(crate) choices: Option<Choice<'a>>,
    #[serde(default)]
    pub(crate) usage: Option<Usage>,
    /// Left as it stands: of an error of many megabytes a few words are wanted.
    #[serde(borrow, default)]
    pub(crate) error: Option<&'a RawValue>,
}

/// Token counts of the request so far, or at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Usage {
    #[serde(default)]
    pub(crate) prompt_tokens: Option<u64>,
    #[serde(default)]
    pub(crate) completion_tokens: Option<u64>,
}

/// The part of a choice that tells tokens.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Choice<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(default)]
    token_ids: Option<Length>,
    #[serde(default)]
    logprobs: Option<Logprobs>,
    #[serde(borrow, default)]
    pub(crate) finish_reason: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default, alias = "reasoning_content")]
    reasoning: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
struct Logprobs {
    #[serde(default, alias = "content")]
    tokens: Option<Length>,
}

impl Choice<'_> {
    /// The text that came.
    pub(crate) fn text(&self) -> &str {
        let delta = self.delta.as_ref();
        self.text
            .as_deref()
            .or_else(|| delta.and_then(|delta| delta.content.as_deref()))
            .or_else(|| delta.and_then(|delta| delta.reasoning.as_deref()))
            .unwrap_or("")
    }

    /// Whether it is a choice of a chat.
    pub(crate) fn is_chat(&self) -> bool {
        self.delta.is_some()
    }

    /// How many tokens came, where the event itself tells.
    pub(crate) fn tokens(&self) -> Option<u32> {
        let logprobs = self.logprobs.as_ref().and_then(|logprobs| logprobs.tokens.as_ref());
        self.token_ids.as_ref().or(logprobs).map(|length| length.0)
    }
}

/// How many entries a list has.
#[derive(Debug, PartialEq)]
struct Length(u32);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;
        impl<'de> Visitor<'de> for Count {
            type Value = Length;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Length, A::Error> {
                let mut count = 0;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Length(count))
            }
        }
        deserializer.deserialize_seq(Count)
    }
}

fn first_choice<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Choice<'de>>, D::Error> {
    struct First;
    impl<'de> Visitor<'de> for First {
        type Value = Option<Choice<'de>>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of choices")
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let first = list.next_element()?;
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }
    deserializer.deserialize_any(First)
}

/// Why an event's data is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EventError {
    #[error("the event is not UTF-8 from byte {at}")]
    InvalidUtf8 { at: usize },
    #[error("the event is not the JSON of a completion: {0}")]
    BrokenJson(String),
}

/// Reads an event's data, which is not `[DONE]`.
pub(crate) fn parse(data: &[u8]) -> Result<Event<'_>, EventError> {
    let text =
        std::str::from_utf8(data).map_err(|error| EventError::InvalidUtf8 { at: error.valid_up_to() })?;
    if let Some(event) = plain::parse(text) {
        return Ok(event);
    }
    serde_json::from_str(text).map_err(|error| EventError::BrokenJson(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_a_chat_and_a_usage_event() {
        let event = parse(
            br#"{"id":"c","choices":[{"index":0,"text":" w\n7","token_ids":[1,2],"finish_reason":null}]}"#,
        );
        let choice = event.unwrap().choices.unwrap();
        assert_eq!((choice.text(), choice.tokens()), (" w\n7", Some(2)));
        let event =
            parse(br#"{"choices":[{"delta":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#);
        let choice = event.unwrap().choices.unwrap();
        assert_eq!((choice.text(), choice.tokens()), ("hi", None));
        assert_eq!(choice.finish_reason.as_deref(), Some("stop"));
        let event = parse(br#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#).unwrap();
        assert!(event.choices.is_none());
        assert_eq!(event.usage.unwrap().completion_tokens, Some(4));
        let event = parse(br#"{"choices":[{"text":"a","logprobs":{"tokens":["a","b","c"]}}]}"#).unwrap();
        assert_eq!(event.choices.unwrap().tokens(), Some(3));
    }

    #[test]
    fn what_is_no_event() {
        assert_eq!(parse(b"{\"a\":\"\xc3").unwrap_err(), EventError::InvalidUtf8 { at: 6 });
        assert!(matches!(parse(b"{\"choices\":[{\"te"), Err(EventError::BrokenJson(_))));
        assert!(matches!(parse(b"{\"choices\":7}"), Err(EventError::BrokenJson(_))));
        assert!(parse(br#"{"error":{"message":"no"}}"#).unwrap().error.is_some());
    }
}
