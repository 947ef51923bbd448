//! What does a map say, field by field: types, ranges, and nothing left over.

use std::rc::Rc;

use super::complaint::Complaint;
use super::quantity;
use super::tree::{Key, Node, Place, Value, same_key};

/// The entries of a map that nobody has asked for yet.
pub(super) struct Fields {
    what: &'static str,
    entries: Vec<(Key, Node)>,
    asked: Vec<&'static str>,
    /// The map's own place.
    pub(super) place: Place,
}

impl Fields {
    /// The map at `node`; `what` names one of its entries, such as "engine setting".
    pub(super) fn of(name: &str, what: &'static str, node: Node) -> Result<Self, Complaint> {
        match node.value {
            Value::Map(entries) => Ok(Self { what, entries, asked: Vec::new(), place: node.place }),
            _ => Err(Complaint::wrong_type(name, "a map", &node)),
        }
    }

    /// The entry of `name`; a null is as good as no entry.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Node> {
        self.take_set(name).filter(|node| node.value != Value::Null)
    }

    /// The entry of `name`, where a null means something.
    pub(super) fn take_set(&mut self, name: &'static str) -> Option<Node> {
        self.asked.push(name);
        let at = self.entries.iter().position(|(key, _)| same_key(&key.name, name))?;
        Some(self.entries.remove(at).1)
    }

    /// The entry of `name`, or of a shorter name for it.
    pub(super) fn take_either(
        &mut self,
        name: &'static str,
        short: &'static str,
    ) -> Result<Option<Node>, Complaint> {
        let long = self.take(name);
        let at = self.entries.iter().position(|(key, _)| key.name == short);
        let short_node = at.map(|at| self.entries.remove(at).1).filter(|node| node.value != Value::Null);
        match (long, short_node) {
            (Some(_), Some(twice)) => {
                Err(Complaint::at(&twice.place, format!("`{name}` is given twice, once as `{short}`")))
            }
            (long, short) => Ok(long.or(short)),
        }
    }

    /// A text.
    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<String>, Complaint> {
        self.take(name).map(|node| text(name, &node)).transpose()
    }

    /// A number of at least 1.
    pub(super) fn count(&mut self, name: &'static str) -> Result<Option<u64>, Complaint> {
        self.take(name).map(|node| quantity::count(name, &node)).transpose()
    }

    /// Yes or no.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, Complaint> {
        self.take(name).map(|node| flag(name, &node)).transpose()
    }

    /// Everything that is left, whatever it is.
    pub(super) fn rest(self) -> Vec<(Key, Node)> {
        self.entries
    }

    /// Complains of the first entry that nobody asked for.
    pub(super) fn end(self) -> Result<(), Complaint> {
        match self.entries.into_iter().next() {
            None => Ok(()),
            Some((key, _)) => {
                Err(Complaint::unknown(&key.place, self.what, &key.name, self.asked.iter().copied()))
            }
        }
    }
}

/// A text; numbers are no texts, so that a title of `1e3` is quoted.
pub(super) fn text(name: &str, node: &Node) -> Result<String, Complaint> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(Complaint::wrong_type(name, "a text", node)),
    }
}

/// Yes or no.
pub(super) fn flag(name: &str, node: &Node) -> Result<bool, Complaint> {
    match node.value {
        Value::Flag(value) => Ok(value),
        _ => Err(Complaint::wrong_type(name, "`true` or `false`", node)),
    }
}

/// The text of a scalar as it was written: `0.30` is not `0.3`.
pub(super) fn written(node: &Node) -> String {
    if let Value::Text(text) = &node.value {
        return text.clone();
    }
    let source = Rc::clone(&node.place.source);
    let line = source.text.lines().nth(node.place.line.saturating_sub(1)).unwrap_or_default();
    line.chars()
        .skip(node.place.column.saturating_sub(1))
        .take_while(|c| !matches!(c, ',' | '}' | ']' | '#') && !c.is_whitespace())
        .collect()
}
