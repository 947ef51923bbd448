//! JSON as people have it: what Python writes, a byte order mark, and any amount of it in little memory.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};

/// JSON as Python writes it: `Infinity`, `-Infinity` and `NaN` outside of strings become null.
pub fn python_json(text: &str) -> Cow<'_, str> {
    replace_non_numbers(text, |_| Cow::Borrowed("null"))
}

/// JSON as Python writes it, with something else for each `Infinity`, `-Infinity` and `NaN` outside of strings.
pub fn replace_non_numbers(text: &str, with: impl Fn(&'static str) -> Cow<'static, str>) -> Cow<'_, str> {
    const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    if !["Infinity", "NaN"].iter().any(|word| text.contains(word)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + text.len() / 64 + 16);
    let (mut in_string, mut skip_to, mut copied) = (false, 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        if at < skip_to {
            continue;
        }
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => skip_to = at + 2,
            b'-' | b'I' | b'N' if !in_string => {
                let Some(word) = WORDS.iter().find(|word| text[at..].starts_with(**word)) else { continue };
                out.push_str(&text[copied..at]);
                out.push_str(&with(word));
                skip_to = at + word.len();
                copied = skip_to;
            }
            _ => {}
        }
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Memory that the values of one text may take, bytes.
pub const MEMORY: usize = 192 << 20;
/// Entries of a list or a map that are kept of a config: more than a model can have layers. Vocabularies have more,
/// and nothing reads those.
const ENTRIES: usize = 200_000;
/// What an entry of a list takes, bytes.
const ENTRY: usize = size_of::<Value>();
/// What an entry of a map takes, bytes.
const PAIR: usize = size_of::<String>() + ENTRY;
/// What a map takes once it has an entry: a node of its tree, bytes.
const NODE: usize = 12 * PAIR;
/// What any allocation takes beside what it holds, bytes.
const ALLOCATION: usize = 16;

/// Parses a config. Nesting beyond 128 levels is an error; of very long lists and maps the start is kept.
///
/// # Errors
/// If the text is no JSON, or holds too many values.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    let plain = python_json(text.trim_start_matches('\u{feff}'));
    let mut deserializer = serde_json::Deserializer::from_str(&plain);
    let value = config(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// A config within something else, as [`parse`] reads it.
///
/// # Errors
/// As [`parse`].
pub fn config<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Seed { budget: &Budget::new(MEMORY), entries: ENTRIES, without: &[] }.deserialize(deserializer)
}

/// The same where there may be none.
///
/// # Errors
/// As [`parse`].
pub fn optional_config<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    config(deserializer).map(|value| (!value.is_null()).then_some(value))
}

/// A small object where there may be none, such as a speculative config.
///
/// # Errors
/// If it is no object, or as [`parse`].
pub fn optional_object<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Map<String, Value>>, D::Error> {
    match config(deserializer)? {
        Value::Null => Ok(None),
        Value::Object(map) => Ok(Some(map)),
        _ => Err(D::Error::custom("expected a map")),
    }
}

/// Any value of a text that is not too large, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounded(pub Value);

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Budget::new(MEMORY).value(&[]).deserialize(deserializer).map(Self)
    }
}

/// How much memory the values of a text may take still.
#[derive(Debug)]
pub struct Budget {
    most: usize,
    left: Cell<usize>,
    exceeded: Cell<bool>,
}

impl Budget {
    /// At most so many bytes, as values take them: a few times what their text does.
    pub fn new(most: usize) -> Self {
        Self { most, left: Cell::new(most), exceeded: Cell::new(false) }
    }

    /// Takes `bytes` of it for something that is about to be held.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        if let Some(left) = self.left.get().checked_sub(bytes) {
            self.left.set(left);
            return Ok(());
        }
        self.exceeded.set(true);
        Err(E::custom(format!("its values would take more than {} MiB", self.most >> 20)))
    }

    /// Takes what an entry of a map takes beside its value.
    ///
    /// # Errors
    /// If less is left.
    pub fn take_pair<E: Error>(&self, is_first: bool, key: &str) -> Result<(), E> {
        self.take(if is_first { NODE } else { 2 * PAIR } + key.len() + ALLOCATION)
    }

    /// Whether it was ever asked for more than was left, so that an error is about size and not about JSON.
    pub fn is_exceeded(&self) -> bool {
        self.exceeded.get()
    }

    /// Reads a value whole, while there is memory left; what stands under a key of `without`, at any depth, is passed
    /// over and counts as null.
    pub fn value<'a>(
        &'a self,
        without: &'a [&'a str],
    ) -> impl for<'de> DeserializeSeed<'de, Value = Value> + Copy {
        Seed { budget: self, entries: usize::MAX, without }
    }
}

/// Reads a value while there is memory left.
#[derive(Clone, Copy)]
struct Seed<'a> {
    budget: &'a Budget,
    entries: usize,
    without: &'a [&'a str],
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.budget.take(value.len() + ALLOCATION)?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while list.len() < self.entries {
            let Some(value) = access.next_element_seed(self)? else { return Ok(list.into()) };
            if list.is_empty() {
                // The smallest list has room for four.
                self.budget.take(4 * ENTRY + ALLOCATION)?;
            } else if list.len() >= 4 {
                // A list grows by doubling.
                self.budget.take(2 * ENTRY)?;
            }
            list.push(value);
        }
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while map.len() < self.entries {
            let Some(key) = access.next_key::<String>()? else { return Ok(map.into()) };
            self.budget.take_pair(map.is_empty(), &key)?;
            let value = if self.without.contains(&key.as_str()) {
                access.next_value::<IgnoredAny>()?;
                Value::Null
            } else {
                access.next_value_seed(self)?
            };
            map.insert(key, value);
        }
        while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_texts_are_as_serde_reads_them() {
        let text = r#"{"a": [1, -2, 3.5, true, null, "x", {}], "a": {"b": []}, "c": "\u00e9"}"#;
        assert_eq!(parse(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        let Bounded(value) = serde_json::from_str(text).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
        assert!(parse("{} x").is_err());
        assert!(parse(&"[".repeat(200)).is_err());
    }

    #[test]
    fn what_is_too_much_is_refused_before_it_is_held() {
        for piece in ["{\"a\":1}", "[0]", "{\"a\":{\"a\":1}}"] {
            let row = format!("[{}]", vec![piece; 1000].join(","));
            let text = format!("[{}]", vec![row; 4000].join(","));
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.starts_with("its values would take more than 192 MiB"), "{error}");
        }
    }

    #[test]
    fn what_is_left_out_costs_nothing() {
        let long = vec!["[0]"; 100_000].join(",");
        let text = format!("{{\"a\": 1, \"b\": {{\"long\": [{long}]}}, \"long\": [{long}]}}");
        let budget = Budget::new(10_000);
        let read = |without: &[&str]| {
            budget.value(without).deserialize(&mut serde_json::Deserializer::from_str(&text))
        };
        assert_eq!(read(&["long"]).unwrap(), serde_json::json!({"a": 1, "b": {"long": null}, "long": null}));
        assert!(!budget.is_exceeded());
        assert!(read(&[]).is_err());
        assert!(budget.is_exceeded());
    }

    #[test]
    fn the_start_of_what_nothing_reads_is_kept() {
        let list = format!("{{\"a\": [{}], \"b\": 2}}", vec!["1"; 300_000].join(","));
        let value = parse(&list).unwrap();
        assert_eq!(value["a"].as_array().unwrap().len(), ENTRIES);
        assert_eq!(value["b"], 2);
        let words: Vec<String> = (0..300_000).map(|i| format!("\"{i}\":{i}")).collect();
        let value = parse(&format!("{{\"v\": {{{}}}, \"b\": 2}}", words.join(","))).unwrap();
        assert_eq!(value["v"].as_object().unwrap().len(), ENTRIES);
        assert_eq!(value["b"], 2);
    }
}
