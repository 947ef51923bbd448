//! Recorded answers of a real vLLM: the lines of the golden format, and what planning them again gives.
//!
//! A line is one case. Three kinds are told apart by their keys: planning cases (`specs` and `layers`, see
//! [`plan_line`]), models (`config`, see [`model_line`]) and schedules (`requests`).

pub(crate) mod engine;
pub(crate) mod expect;
pub(crate) mod model_line;
pub(crate) mod plan_line;
pub(crate) mod read;

use serde::Deserialize;

/// Which kind of line this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// Layers and settings in, groups and blocks out, by version.
    Plan,
    /// A model's config in, each layer's spec and the plan out.
    Model,
    /// Requests in, what the scheduler did at each step out.
    Schedule,
}

#[derive(Deserialize)]
struct Keys {
    #[serde(default)]
    specs: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    requests: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    config: Option<serde::de::IgnoredAny>,
}

impl LineKind {
    /// The kind of a line, from the keys that it has; `None` if it is of no kind.
    ///
    /// # Errors
    /// If the line is not a JSON object.
    pub(crate) fn of(line: &str) -> Result<Option<Self>, serde_json::Error> {
        let keys: Keys = serde_json::from_str(&read::python_json(line))?;
        Ok(match (keys.requests, keys.config, keys.specs) {
            (Some(_), _, _) => Some(Self::Schedule),
            (None, Some(_), _) => Some(Self::Model),
            (None, None, Some(_)) => Some(Self::Plan),
            (None, None, None) => None,
        })
    }
}
