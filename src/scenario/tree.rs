//! What does the file say, and where: YAML as a tree in which every value knows its place.
//!
//! YAML is read into a tree rather than straight into types, so that arms and `extends` can be laid over
//! each other and a complaint can still point to the text that a person wrote.

use std::fmt;
use std::rc::Rc;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::budget::BudgetBreach;

use super::complaint::Complaint;
use super::engine;
use crate::failure::Failure;

/// Values of a file at most; a scenario of a hundred distinct specs has some thousands.
const NODES: usize = 20_000;
/// Bytes of a scenario file at most.
pub(super) const BYTES: u64 = 4 << 20;

/// A text that was read, and what to call it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// A path, `scenarios/models/NAME.yaml` or `--set`.
    pub(super) name: String,
    /// All of it.
    pub(super) text: String,
}

/// A place in a source, lines and columns from 1; line 0 is the source as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) source: Rc<Source>,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Place,
}

/// What YAML can say.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Flag(bool),
    /// Every integer that fits 128 bits.
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// Entries in the order of the file.
    Map(Vec<(Key, Node)>),
}

/// A key of a map and its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) place: Place,
}

impl Node {
    /// What it is, for a message: "a list", "`12`".
    pub(super) fn described(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Flag(value) => format!("`{value}`"),
            Value::Int(value) => format!("`{value}`"),
            Value::Float(value) => format!("`{value}`"),
            Value::Text(value) => format!("`{}`", super::complaint::cut(value, 60)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }

    /// Lays `over` over this tree: maps are joined key by key, anything else is replaced.
    pub(super) fn overlaid(self, over: Self) -> Self {
        match (self.value, over.value) {
            (Value::Map(mut entries), Value::Map(upper)) => {
                for (key, node) in upper {
                    match entries.iter_mut().find(|(known, _)| same_key(&known.name, &key.name)) {
                        Some((known, below)) => {
                            let lower = std::mem::replace(
                                below,
                                Self { value: Value::Null, place: key.place.clone() },
                            );
                            let lower = match key.name.as_str() {
                                "engine" => engine::left_under(lower, &node),
                                _ => lower,
                            };
                            *below = lower.overlaid(node);
                            *known = key;
                        }
                        None => entries.push((key, node)),
                    }
                }
                Self { value: Value::Map(entries), place: over.place }
            }
            (_, value) => Self { value, place: over.place },
        }
    }

    /// Takes the entry of `key` out of a map.
    pub(super) fn take(&mut self, key: &str) -> Option<(Key, Self)> {
        let Value::Map(entries) = &mut self.value else { return None };
        let at = entries.iter().position(|(known, _)| same_key(&known.name, key))?;
        Some(entries.remove(at))
    }
}

/// Flags are written with dashes or underscores, as vLLM takes them.
pub(super) fn same_key(a: &str, b: &str) -> bool {
    let plain = |c: char| if c == '-' { '_' } else { c };
    a.chars().map(plain).eq(b.chars().map(plain))
}

/// Parses one YAML document.
///
/// # Errors
/// If it is no YAML, or larger than a scenario can be once its anchors are written out.
pub(super) fn parse(source: &Rc<Source>) -> Result<Node, Failure> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 1,
            max_nodes: NODES,
            max_events: 3 * NODES,
            max_depth: 32,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 3 * NODES,
            max_replay_stack_depth: 8,
        },
        with_snippet: false,
    };
    let whole = Place { source: Rc::clone(source), line: 0, column: 0 };
    let raw: Spanned<Raw> = serde_saphyr::from_str_with_options(&source.text, options)
        .map_err(|error| yaml_failure(&whole, &error))?;
    let mut left = NODES;
    let node = located(raw, &whole, &mut left);
    node.ok_or_else(|| {
        Complaint::at(&whole, format!("it holds more than {NODES} values once its anchors are written out"))
            .into()
    })
}

/// The failure for a text that is no YAML.
fn yaml_failure(whole: &Place, error: &serde_saphyr::Error) -> Failure {
    let mut error = error;
    while let serde_saphyr::Error::AliasError { error: inner, .. } = error {
        error = inner;
    }
    let text = error.to_string();
    let place = error.location().map_or_else(|| whole.clone(), |location| place(whole, location));
    let said = |cause: &str| Complaint::at(&place, cause);
    let too_large = "a scenario written out is too large";
    match error {
        serde_saphyr::Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            said("it is nested too deep")
        }
        serde_saphyr::Error::Budget { .. }
        | serde_saphyr::Error::AliasReplayLimitExceeded { .. }
        | serde_saphyr::Error::AliasReplayStackDepthExceeded { .. } => {
            said(&format!("{too_large}: there can be {NODES} values, anchors written out"))
        }
        serde_saphyr::Error::RecursiveReferencesRequireWeakTypes { .. } => said("an anchor contains itself"),
        serde_saphyr::Error::NonFiniteFloat { .. } => said("a number must be finite"),
        serde_saphyr::Error::DuplicateMappingKey { key, .. } => match key {
            Some(key) => said(&format!("`{}` is given twice", super::complaint::cut(key, 60))),
            None => said("a key is given twice"),
        },
        _ => {
            let first = text.lines().next().unwrap_or_default();
            // The place follows in the excerpt.
            let cause = first.split_once(" at line ").map_or(first, |(cause, _)| cause);
            said(cause.strip_prefix("error: ").unwrap_or(cause))
        }
    }
    .into()
}

fn place(whole: &Place, location: serde_saphyr::Location) -> Place {
    Place {
        source: Rc::clone(&whole.source),
        line: usize::try_from(location.line()).unwrap_or(0),
        column: usize::try_from(location.column()).unwrap_or(0),
    }
}

/// `None` if there are more values than `left`.
fn located(raw: Spanned<Raw>, whole: &Place, left: &mut usize) -> Option<Node> {
    *left = left.checked_sub(1)?;
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Flag(value) => Value::Flag(value),
        Raw::Int(value) => Value::Int(value),
        Raw::Float(value) => Value::Float(value),
        Raw::Text(value) => Value::Text(value),
        Raw::List(items) => {
            Value::List(items.into_iter().map(|item| located(item, whole, left)).collect::<Option<_>>()?)
        }
        Raw::Map(entries) => {
            let mut out = Vec::with_capacity(entries.len());
            for (key, node) in entries {
                let at = place(whole, key.referenced);
                out.push((Key { name: key.value, place: at }, located(node, whole, left)?));
            }
            Value::Map(out)
        }
    };
    Some(Node { value, place: place(whole, raw.referenced) })
}

/// A value as the YAML reader gives it.
enum Raw {
    Null,
    Flag(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Flag(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Int(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
        Ok(Raw::Int(value))
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Raw, E> {
        i128::try_from(value).map(Raw::Int).map_err(|_source| E::custom("the number is too large"))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Raw, E> {
        Ok(Raw::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() >= NODES {
                return Err(A::Error::custom(format!("the list has more than {NODES} entries")));
            }
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Raw::Map(map))
    }
}
