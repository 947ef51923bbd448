//! What a person reads when the input is wrong: the error, what caused it, where, and what to do.

use std::fmt::{self, Display, Write as _};

/// An end with exit code 2; or with 1 where the input is sound and vLLM refuses what it asks for.
///
/// `message` and `causes` say what is wrong and read on after "error:"; `excerpt` is the place in the
/// input, already laid out (file, line, column, the text); `hints` say what to do instead.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    /// What could not be done.
    pub(crate) message: String,
    /// Why, outermost first.
    pub(crate) causes: Vec<String>,
    /// The place in the input, several lines.
    pub(crate) excerpt: Option<String>,
    /// What to write or do instead.
    pub(crate) hints: Vec<String>,
    /// Whether vLLM itself refuses, as `k3plan plan` shows: a "no" rather than wrong input.
    pub(crate) refused: bool,
}

impl Failure {
    /// A failure with a message only.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// Adds a reason.
    #[must_use]
    pub(crate) fn caused_by(mut self, cause: impl Display) -> Self {
        self.causes.push(cause.to_string());
        self
    }

    /// Adds the place in the input.
    #[must_use]
    pub(crate) fn at(mut self, excerpt: impl Into<String>) -> Self {
        self.excerpt = Some(excerpt.into());
        self
    }

    /// Says that it is vLLM that refuses.
    #[must_use]
    pub(crate) fn by_vllm(mut self) -> Self {
        self.refused = true;
        self
    }

    /// Adds advice.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// What failed and why, without advice.
    pub(crate) fn in_one_line(&self) -> String {
        std::iter::once(&self.message).chain(&self.causes).map(String::as_str).collect::<Vec<_>>().join(": ")
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.message)?;
        for cause in &self.causes {
            writeln!(f, "  caused by: {cause}")?;
        }
        if let Some(excerpt) = &self.excerpt {
            writeln!(f, "{}", excerpt.trim_end())?;
        }
        if !self.hints.is_empty() {
            f.write_char('\n')?;
        }
        for hint in &self.hints {
            writeln!(f, "hint: {hint}")?;
        }
        Ok(())
    }
}
