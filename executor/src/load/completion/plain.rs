//! Is it an event of the plain form that servers send for nearly every token? Then it is read without a general
//! parser and without a copy, in a third of the time.
//!
//! Whatever is not plain (an escape in a string, usage, an error, log probabilities, a key twice, broken JSON) is
//! `None`: the general parser has the last word, and errors are its own.

use std::borrow::Cow;

use super::{Choice, Delta, Event, Length};

/// Values inside values beyond this are left to the general parser.
const DEEPEST: u8 = 8;

/// Reads an event's data, where it is plain.
pub(super) fn parse(text: &str) -> Option<Event<'_>> {
    let mut scan = Scan { text, at: 0 };
    let mut choices = None;
    scan.object(|scan, key| {
        match key {
            "choices" => once(&mut choices, scan.choices()?)?,
            "usage" | "error" => scan.null()?,
            _ => scan.value(DEEPEST)?,
        }
        Some(())
    })?;
    (scan.next().is_none()).then_some(Event { choices: choices.flatten(), usage: None, error: None })
}

/// Sets what was not set before.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    /// The next byte that is no white space; it stays.
    fn next(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then(|| self.at += 1)
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.next()?;
        self.text.as_bytes().get(self.at..)?.starts_with(word.as_bytes()).then(|| self.at += word.len())
    }

    fn null(&mut self) -> Option<()> {
        self.word("null")
    }

    /// A string without escapes.
    fn string(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let rest = self.text.as_bytes().get(self.at..)?;
        let length = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..b' '))?;
        let start = self.at;
        self.at += length;
        self.take_here(b'"')?;
        self.text.get(start..start + length)
    }

    fn take_here(&mut self, wanted: u8) -> Option<()> {
        (*self.text.as_bytes().get(self.at)? == wanted).then(|| self.at += 1)
    }

    fn string_or_null(&mut self) -> Option<Option<Cow<'a, str>>> {
        match self.next()? {
            b'"' => Some(Some(Cow::Borrowed(self.string()?))),
            _ => self.null().map(|()| None),
        }
    }

    /// An object, whose values `member` reads.
    fn object(&mut self, mut member: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        if self.next()? == b'}' {
            return self.take(b'}');
        }
        loop {
            let key = self.string()?;
            self.take(b':')?;
            member(self, key)?;
            match self.next()? {
                b',' => self.at += 1,
                _ => return self.take(b'}'),
            }
        }
    }

    /// A list, whose values `member` reads, and how many there are.
    fn list(&mut self, mut member: impl FnMut(&mut Self, u32) -> Option<()>) -> Option<u32> {
        self.take(b'[')?;
        if self.next()? == b']' {
            return self.take(b']').map(|()| 0);
        }
        let mut count = 0;
        loop {
            member(self, count)?;
            count += 1;
            match self.next()? {
                b',' => self.at += 1,
                _ => return self.take(b']').map(|()| count),
            }
        }
    }

    /// Any value.
    fn value(&mut self, depth: u8) -> Option<()> {
        match self.next()? {
            b'"' => self.string().map(drop),
            b'n' => self.null(),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'{' if depth > 0 => self.object(|scan, _| scan.value(depth - 1)),
            b'[' if depth > 0 => self.list(|scan, _| scan.value(depth - 1)).map(drop),
            b'0'..=b'9' => self.whole_number(),
            _ => None,
        }
    }

    /// A number without sign, fraction and exponent.
    fn whole_number(&mut self) -> Option<()> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let leading_zero = length > 1 && rest.first() == Some(&b'0');
        let goes_on = matches!(rest.get(length), Some(b'.' | b'e' | b'E'));
        self.at += length;
        (!leading_zero && !goes_on).then_some(())
    }

    fn choices(&mut self) -> Option<Option<Choice<'a>>> {
        let mut first = None;
        self.list(|scan, place| {
            if place > 0 {
                return scan.value(DEEPEST);
            }
            first = Some(scan.choice()?);
            Some(())
        })?;
        Some(first)
    }

    fn choice(&mut self) -> Option<Choice<'a>> {
        let (mut text, mut delta, mut token_ids, mut logprobs, mut finish_reason) =
            (None, None, None, None, None);
        self.object(|scan, key| match key {
            "text" => once(&mut text, scan.string_or_null()?),
            "delta" => once(&mut delta, scan.delta()?),
            "token_ids" => once(&mut token_ids, scan.token_ids()?),
            "logprobs" => once(&mut logprobs, scan.null()?),
            "finish_reason" => once(&mut finish_reason, scan.string_or_null()?),
            _ => scan.value(DEEPEST),
        })?;
        Some(Choice {
            text: text.flatten(),
            delta,
            token_ids: token_ids.flatten(),
            logprobs: None,
            finish_reason: finish_reason.flatten(),
        })
    }

    fn delta(&mut self) -> Option<Delta<'a>> {
        let (mut content, mut reasoning) = (None, None);
        self.object(|scan, key| match key {
            "content" => once(&mut content, scan.string_or_null()?),
            "reasoning" | "reasoning_content" => once(&mut reasoning, scan.string_or_null()?),
            _ => scan.value(DEEPEST),
        })?;
        Some(Delta { content: content.flatten(), reasoning: reasoning.flatten() })
    }

    fn token_ids(&mut self) -> Option<Option<Length>> {
        if self.next()? == b'n' {
            return self.null().map(|()| None);
        }
        Some(Some(Length(self.list(|scan, _| scan.value(0))?)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// What vLLM sends for a token, and what is close to it.
    fn event() -> impl Strategy<Value = Value> {
        let text = prop_oneof![Just(" w343".to_owned()), "[ -~]{0,6}", "\\PC{0,4}", Just("a\nb".to_owned())];
        let ids = prop_oneof![
            Just(Value::Null),
            prop::collection::vec(0u32..99_999, 0..4).prop_map(|ids| json!(ids))
        ];
        let finish = prop_oneof![Just(Value::Null), Just(json!("length")), Just(json!(1))];
        let other = prop_oneof![
            Just(Value::Null),
            Just(json!(1.5)),
            Just(json!([{"a": [1, true]}])),
            Just(json!({"tokens": ["a"]})),
            Just(json!("x")),
            Just(json!(-1))
        ];
        let usage = prop_oneof![4 => Just(Value::Null), 1 => Just(json!({"completion_tokens": 3}))];
        (text, ids, finish, other, usage, 0..4).prop_map(|(text, ids, finish, other, usage, kind)| {
            let choice = match kind {
                0 => json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish,
                    "stop_reason": other, "token_ids": ids}),
                1 => json!({"index": 0, "delta": {"content": text, "role": other}, "token_ids": ids}),
                2 => json!({"index": 0, "delta": {"reasoning_content": text}, "finish_reason": finish}),
                _ => json!({"text": text, "logprobs": other}),
            };
            json!({"id": "cmpl-1", "created": 1_796_190_824, "choices": [choice, other], "usage": usage})
        })
    }

    fn agrees(text: &str) -> Result<bool, TestCaseError> {
        let plain = parse(text);
        let Some(found) = &plain else { return Ok(false) };
        let general: Event<'_> = serde_json::from_str(text)
            .map_err(|error| TestCaseError::fail(format!("{text}: {error}, but plain")))?;
        prop_assert_eq!((&found.choices, found.usage), (&general.choices, general.usage), "{}", text);
        prop_assert!(found.error.is_none() && general.error.is_none(), "{}", text);
        Ok(true)
    }

    proptest! {
        #[test]
        fn plain_is_what_the_general_parser_reads(event in event()) {
            agrees(&event.to_string())?;
            agrees(&serde_json::to_string_pretty(&event).unwrap_or_default())?;
        }

        #[test]
        fn what_is_broken_is_never_plain(
            event in event(),
            at in any::<prop::sample::Index>(),
            with in prop_oneof![Just(""), Just("\""), Just("}"), Just("]"), Just(","), Just("0"), Just("\\"),
                Just("\u{1}"), Just("e"), Just(" "), Just(":"), Just("null")],
            cut in 0..3_usize,
        ) {
            let mut text = event.to_string();
            let mut at = at.index(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            let tail: String = text[at..].chars().skip(cut).collect();
            text.truncate(at);
            text += with;
            text += &tail;
            agrees(&text)?;
        }
    }

    #[test]
    fn a_token_is_plain() {
        for text in [
            r#"{"id":"cmpl-a","object":"text_completion","created":1796190824,"model":"m","choices":[{"index":0,"text":" w343","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":[3]}]}"#,
            r#"{"id":"c","choices":[{"index":0,"delta":{"content":"é"},"logprobs":null,"finish_reason":"stop"}],"usage":null}"#,
            r#" { "choices" : [ ] } "#,
            "{}",
        ] {
            assert!(agrees(text).unwrap(), "{text}");
        }
        for text in [
            "",
            "{",
            "{} x",
            r#"{"choices":[{"text":"a\n"}]}"#,
            r#"{"choices":[{"text":"a"}],"usage":{"prompt_tokens":3}}"#,
            r#"{"choices":[{"text":"a","text":"b"}]}"#,
            r#"{"choices":[],"choices":[]}"#,
            r#"{"error":{"message":"no"}}"#,
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
