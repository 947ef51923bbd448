//! Which attributes does the engine set once a config's class has read the file?

use serde_json::{Map, Value};

/// A window that is taken away.
static NONE: Value = Value::Null;

/// Attributes of the root and of the text config, by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Later<'a> {
    root: Vec<(&'a str, &'a Value)>,
    text: Vec<(&'a str, &'a Value)>,
}

impl<'a> Later<'a> {
    /// What `overrides` sets, and the window of the text config where it is `disabled`; `path` leads from the root to the
    /// text config.
    pub(super) fn of(overrides: &'a Map<String, Value>, path: &[&str], disabled: bool) -> Self {
        let mut map = Some(overrides);
        let root: Vec<_> = overrides.iter().map(|(key, value)| (key.as_str(), value)).collect();
        for key in path {
            map = map.and_then(|map| map.get(*key)).and_then(Value::as_object);
        }
        let mut text: Vec<_> = map.into_iter().flatten().map(|(key, value)| (key.as_str(), value)).collect();
        if disabled {
            text.retain(|(key, _)| *key != "sliding_window");
            text.push(("sliding_window", &NONE));
        }
        Self { root, text }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Everything that is set on the root.
    pub(super) fn of_root(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.root.iter().copied()
    }

    /// Everything that is set on the text config.
    pub(super) fn of_text(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.text.iter().copied()
    }

    /// What is set on the root.
    pub(super) fn root(&self, key: &str) -> Option<&'a Value> {
        find(&self.root, key)
    }

    /// What is set on the text config.
    pub(super) fn text(&self, key: &str) -> Option<&'a Value> {
        find(&self.text, key)
    }
}

fn find<'a>(list: &[(&'a str, &'a Value)], key: &str) -> Option<&'a Value> {
    list.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
}
