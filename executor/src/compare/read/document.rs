//! What of a result file is held in memory?
//!
//! The lists of single requests that vLLM and `k3plan bench` write are most of a file; they are held as numbers, and
//! what nothing compares, such as the texts that came, is passed over. Everything else is held as JSON, as long as it
//! is not too much.

use std::fmt;

use planner::import::json::Budget;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};

/// Keys of what no figure is made from, in vLLM's, guidellm's, aiperf's and lm-eval's files.
const WITHOUT: [&str; 8] = [
    "generated_texts",
    "input_lens",
    "queue_times",
    "requests",
    "samples",
    "start_times",
    "timeslices",
    "trace_data",
];

/// What an empty object takes, bytes.
const DOCUMENT: usize = size_of::<Document>() + size_of::<Content>() + 16;
/// What a value of a list of single requests takes with the room to grow, bytes.
const ENTRY: usize = 2 * size_of::<Option<f64>>();

/// A JSON document.
pub(super) enum Document {
    /// A list of documents.
    Many(Vec<Self>),
    /// Any other value.
    One(Box<Content>),
}

/// A document that is no list.
pub(super) struct Content {
    /// The value; its lists of single requests are null here.
    pub(super) value: Value,
    /// Those lists.
    pub(super) requests: Requests,
}

/// Lists with an entry a request, as `vllm bench serve` writes them; `None` where there is no such list.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Times to the first token, seconds; `None` for null, NaN for what is no number.
    pub(super) ttfts: Option<Vec<Option<f64>>>,
    /// Times to the last token, seconds.
    pub(super) latencies: Option<Vec<Option<f64>>>,
    /// Tokens that came.
    pub(super) output_lens: Option<Vec<Option<f64>>>,
    /// Whether a request ended with an error.
    pub(super) errors: Option<Vec<bool>>,
    /// Times between tokens.
    pub(super) itls: Option<Gaps>,
}

/// Times between tokens, request after request.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Where each request's end.
    ends: Vec<usize>,
    /// Seconds; NaN for what is no number.
    seconds: Vec<f64>,
}

impl Gaps {
    /// Those of a request; none where it has no list.
    pub(super) fn of(&self, request: usize) -> &[f64] {
        let from = request.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        let range = from.and_then(|from| Some(from..*self.ends.get(request)?));
        range.and_then(|range| self.seconds.get(range)).unwrap_or(&[])
    }

    /// All of them.
    pub(super) fn count(&self) -> usize {
        self.seconds.len()
    }
}

/// Reads a document.
#[derive(Clone, Copy)]
pub(super) struct Whole<'a>(pub(super) &'a Budget);

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = Document;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Document, D::Error> {
        deserializer.deserialize_any(self)
    }
}

fn plain<E>(value: impl Into<Value>) -> Result<Document, E> {
    Ok(Document::One(Box::new(Content { value: value.into(), requests: Requests::default() })))
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        plain(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
        plain(value)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
        plain(value)
    }

    fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
        plain(value)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Document, E> {
        plain(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Document, E> {
        self.0.take(value.len())?;
        plain(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Document, A::Error> {
        let mut documents = Vec::new();
        while let Some(document) = access.next_element_seed(self)? {
            self.0.take(DOCUMENT)?;
            documents.push(document);
        }
        Ok(Document::Many(documents))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Document, A::Error> {
        let budget = self.0;
        let mut map = Map::new();
        let mut requests = Requests::default();
        while let Some(key) = access.next_key::<String>()? {
            budget.take_pair(map.is_empty(), &key)?;
            let figures = || List(Column { budget, of: Entry::figure, entries: Vec::new() });
            match key.as_str() {
                "ttfts" => requests.ttfts = access.next_value_seed(figures())?.map(|list| list.entries),
                "latencies" => {
                    requests.latencies = access.next_value_seed(figures())?.map(|list| list.entries);
                }
                "output_lens" => {
                    let list = List(Column { budget, of: Entry::number, entries: Vec::new() });
                    requests.output_lens = access.next_value_seed(list)?.map(|list| list.entries);
                }
                "errors" => {
                    let list = List(Column { budget, of: Entry::is_text, entries: Vec::new() });
                    requests.errors = access.next_value_seed(list)?.map(|list| list.entries);
                }
                "itls" => {
                    let list = List(Rows { budget, gaps: Gaps::default() });
                    requests.itls = access.next_value_seed(list)?.map(|list| list.gaps);
                }
                key if WITHOUT.contains(&key) => drop(access.next_value::<IgnoredAny>()?),
                _ => {
                    let value = access.next_value_seed(budget.value(&WITHOUT))?;
                    map.insert(key, value);
                    continue;
                }
            }
            // The key alone tells whose file it is.
            map.insert(key, Value::Null);
        }
        Ok(Document::One(Box::new(Content { value: map.into(), requests })))
    }
}

/// An entry of a list of single requests.
enum Entry {
    Null,
    Number(f64),
    Text { number: f64, empty: bool },
    Other,
}

impl Entry {
    /// A number, also where it was written as text.
    fn figure(&self) -> Option<f64> {
        match self {
            Self::Null => None,
            Self::Number(number) | Self::Text { number, .. } => Some(*number),
            Self::Other => Some(f64::NAN),
        }
    }

    /// A number, if it is one.
    fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    /// Whether it is a text that says something.
    fn is_text(&self) -> bool {
        matches!(self, Self::Text { empty: false, .. })
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfEntry)
    }
}

struct OfEntry;

impl<'de> Visitor<'de> for OfEntry {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Entry, E> {
        Ok(Entry::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Entry, E> {
        Ok(Entry::Other)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Entry, E> {
        Ok(Entry::Number(value as f64))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Entry, E> {
        Ok(Entry::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Entry, E> {
        Ok(Entry::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Entry, E> {
        let number = value.trim().parse().unwrap_or(f64::NAN);
        Ok(Entry::Text { number, empty: value.is_empty() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Entry, A::Error> {
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Entry::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Entry, A::Error> {
        while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Entry::Other)
    }
}

/// What takes the entries of a list, one by one.
trait Entries {
    /// Takes the next one; `false` at the end.
    fn next<'de, A: SeqAccess<'de>>(&mut self, access: &mut A) -> Result<bool, A::Error>;
}

/// A list with an entry a request.
struct Column<'a, T> {
    budget: &'a Budget,
    of: fn(&Entry) -> T,
    entries: Vec<T>,
}

impl<T> Entries for Column<'_, T> {
    fn next<'de, A: SeqAccess<'de>>(&mut self, access: &mut A) -> Result<bool, A::Error> {
        let Some(entry) = access.next_element::<Entry>()? else { return Ok(false) };
        self.budget.take(ENTRY)?;
        self.entries.push((self.of)(&entry));
        Ok(true)
    }
}

/// A list of lists of times.
struct Rows<'a> {
    budget: &'a Budget,
    gaps: Gaps,
}

impl Entries for Rows<'_> {
    fn next<'de, A: SeqAccess<'de>>(&mut self, access: &mut A) -> Result<bool, A::Error> {
        // What is no list has no times.
        let more = access.next_element_seed(List(Row(&mut self.gaps.seconds)))?.is_some();
        if more {
            self.budget.take(ENTRY)?;
            self.gaps.ends.push(self.gaps.seconds.len());
        }
        Ok(more)
    }
}

/// The times of one request. They take less than their text, so that they need no budget.
struct Row<'a>(&'a mut Vec<f64>);

impl Entries for Row<'_> {
    fn next<'de, A: SeqAccess<'de>>(&mut self, access: &mut A) -> Result<bool, A::Error> {
        let Some(entry) = access.next_element::<Entry>()? else { return Ok(false) };
        self.0.push(entry.number().unwrap_or(f64::NAN));
        Ok(true)
    }
}

/// Reads a list; `None` for what is none.
struct List<P>(P);

impl<'de, P: Entries> DeserializeSeed<'de> for List<P> {
    type Value = Option<P>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<P>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, P: Entries> Visitor<'de> for List<P> {
    type Value = Option<P>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Option<P>, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Option<P>, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Option<P>, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Option<P>, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Option<P>, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Option<P>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<Option<P>, A::Error> {
        while self.0.next(&mut access)? {}
        Ok(Some(self.0))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Option<P>, A::Error> {
        while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}
