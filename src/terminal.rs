//! Where output goes: data to `out`, the rest to `err`; colour and progress only on a terminal.

use std::io::{self, IsTerminal, Write};

/// The two streams of a run, and what they can show.
pub(crate) struct Terminal<'a> {
    /// Data: tables, JSON, reports.
    pub(crate) out: &'a mut dyn Write,
    /// Everything else: warnings, progress.
    pub(crate) err: &'a mut dyn Write,
    /// Whether `out` may carry colour.
    pub(crate) color: bool,
    /// Whether progress may be drawn on `err`.
    pub(crate) progress: bool,
}

/// Whether to colour, from `--color`, `NO_COLOR` and the stream itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorChoice {
    /// The decision for standard output.
    pub(crate) fn for_stdout(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            }
        }
    }
}

impl Terminal<'_> {
    /// Wraps `text` in an ANSI style where colour is allowed.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        if self.color { format!("\x1b[{}m{text}\x1b[0m", style.code()) } else { text.to_owned() }
    }
}

/// The few roles that colour has; nothing is said by colour alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Headings.
    Bold,
    /// Better, fine.
    Good,
    /// Worse, wrong.
    Bad,
    /// Waste, doubt.
    Warn,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Warn => "33",
        }
    }
}
