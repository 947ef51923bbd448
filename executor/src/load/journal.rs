//! Every finished request, written at once, so that a killed run keeps what it had.
//!
//! One JSON object a line: a header that names the load, one line for each part of the run (a resumed run has
//! several), one line a request. A line is one `write`; a last line without its end was being written when the
//! run was killed, and is not counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::{FailureKind, RequestRecord};

/// The version of the format.
pub const SCHEMA: &str = "k3plan.journal/1";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "line")]
enum Line {
    Header { schema: String, settings: Value },
    Part { part: usize, started_at: f64 },
    Request { part: usize, record: RequestRecord },
    PartEnd { part: usize, duration: f64 },
}

/// A line that is written, without copies; the same fields as [`Line`].
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "line")]
enum Written<'a> {
    Header { schema: &'a str, settings: &'a Value },
    Part { part: usize, started_at: f64 },
    Request { part: usize, record: &'a RequestRecord },
    PartEnd { part: usize, duration: f64 },
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("the journal `{path}` could not be read or written: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line that is no line of a journal.
    #[error("line {line} of the journal `{path}` is not understood: {reason}")]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// Why.
        reason: String,
    },
    /// The journal belongs to another load.
    #[error("the journal `{path}` belongs to another load: `{setting}` is {there} there and {here} here")]
    OtherLoad {
        /// The file.
        path: PathBuf,
        /// The first setting that differs.
        setting: String,
        /// Its value in the journal.
        there: String,
        /// Its value now.
        here: String,
    },
    /// The file is there and was not to be resumed.
    #[error("the journal `{path}` exists")]
    Exists {
        /// The file.
        path: PathBuf,
    },
}

/// What a journal holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// The settings of the load, as written by the run.
    pub settings: Value,
    /// When each part began, in seconds since 1970.
    pub parts: Vec<f64>,
    /// How long all parts together took, in seconds: to the last request of a part that was killed.
    pub duration: f64,
    /// The requests of all parts, each once, by index: the last record of a request counts.
    pub records: Vec<RequestRecord>,
    /// Length of the file up to its last whole line.
    whole: u64,
}

impl Kept {
    /// Reads a journal.
    ///
    /// # Errors
    /// When the file cannot be read, or a line other than a torn last one is not understood.
    pub fn read(path: &Path) -> Result<Self, JournalError> {
        let mut text = Vec::new();
        let file_error = |source| JournalError::File { path: path.to_owned(), source };
        File::open(path).and_then(|mut file| file.read_to_end(&mut text)).map_err(file_error)?;
        Self::parse(path, &text)
    }

    /// Whether a file's text is a journal.
    pub fn is_journal(text: &str) -> bool {
        let first = text.lines().next().unwrap_or("");
        serde_json::from_str(first).is_ok_and(|line| matches!(line, Line::Header { .. }))
    }

    /// Reads a journal's text; `path` is for what errors say.
    ///
    /// # Errors
    /// When a line other than a torn last one is not understood.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, JournalError> {
        let whole = memchr::memrchr(b'\n', text).map_or(0, |at| at + 1);
        let mut kept = Self {
            settings: Value::Null,
            parts: Vec::new(),
            duration: 0.0,
            records: Vec::new(),
            whole: whole as u64,
        };
        let mut ends: Vec<f64> = Vec::new();
        let bad = |line: usize, reason: String| JournalError::Line { path: path.to_owned(), line, reason };
        let mut has_header = false;
        let lines = text.get(..whole).unwrap_or(&[]).split(|byte| *byte == b'\n');
        for (index, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
            let line = serde_json::from_slice(line).map_err(|error| bad(index + 1, error.to_string()))?;
            match line {
                Line::Header { schema, settings } => {
                    if schema != SCHEMA {
                        return Err(bad(index + 1, format!("its format is `{schema}`, not `{SCHEMA}`")));
                    }
                    has_header = true;
                    kept.settings = settings;
                }
                Line::Part { part, started_at } => {
                    kept.parts.push(started_at);
                    ends.resize(part.min(kept.parts.len()) + 1, 0.0);
                }
                Line::Request { part, record } => {
                    if let Some(what) = record.impossible() {
                        return Err(bad(index + 1, what.to_owned()));
                    }
                    if let Some(end) = ends.get_mut(part) {
                        *end = end.max(record.start + record.latency);
                    }
                    kept.records.push(record);
                }
                Line::PartEnd { part, duration } => {
                    if !(0.0..=1e9).contains(&duration) {
                        return Err(bad(index + 1, "its duration cannot be".to_owned()));
                    }
                    if let Some(end) = ends.get_mut(part) {
                        *end = duration;
                    }
                }
            }
        }
        if !has_header {
            return Err(bad(1, "it has no header".to_owned()));
        }
        kept.duration = ends.iter().sum();
        // The last record of a request counts: it was sent again.
        kept.records.reverse();
        kept.records.sort_by_key(|record| record.index);
        kept.records.dedup_by_key(|record| record.index);
        Ok(kept)
    }

    /// Whether a request needs no second try: it came to an end of its own.
    pub fn is_settled(record: &RequestRecord) -> bool {
        record.failure.as_ref().is_none_or(|failure| failure.kind != FailureKind::TimeLimit)
    }
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    part: usize,
    buffer: Vec<u8>,
}

impl Journal {
    /// Begins a journal; the file must not exist.
    ///
    /// # Errors
    /// When it exists or cannot be written.
    pub fn create(path: &Path, settings: &Value, started_at: f64) -> Result<Self, JournalError> {
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|source| {
            if source.kind() == io::ErrorKind::AlreadyExists {
                JournalError::Exists { path: path.to_owned() }
            } else {
                JournalError::File { path: path.to_owned(), source }
            }
        })?;
        let mut journal = Self { file, path: path.to_owned(), part: 0, buffer: Vec::new() };
        journal.write(&Written::Header { schema: SCHEMA, settings })?;
        journal.write(&Written::Part { part: 0, started_at })?;
        Ok(journal)
    }

    /// Goes on with a journal of the same settings.
    ///
    /// # Errors
    /// When it cannot be read or written, or belongs to another load.
    pub fn resume(path: &Path, settings: &Value, started_at: f64) -> Result<(Self, Kept), JournalError> {
        let kept = Kept::read(path)?;
        if let Some((setting, there, here)) = first_difference(&kept.settings, settings) {
            return Err(JournalError::OtherLoad { path: path.to_owned(), setting, there, here });
        }
        let file_error = |source| JournalError::File { path: path.to_owned(), source };
        let mut file = OpenOptions::new().write(true).open(path).map_err(file_error)?;
        file.set_len(kept.whole).and_then(|()| file.seek(io::SeekFrom::End(0))).map_err(file_error)?;
        let mut journal = Self { file, path: path.to_owned(), part: kept.parts.len(), buffer: Vec::new() };
        journal.write(&Written::Part { part: journal.part, started_at })?;
        Ok((journal, kept))
    }

    /// Appends a finished request.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn append(&mut self, record: &RequestRecord) -> Result<(), JournalError> {
        self.write(&Written::Request { part: self.part, record })
    }

    /// Notes that the part is over.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn end_part(&mut self, duration: f64) -> Result<(), JournalError> {
        self.write(&Written::PartEnd { part: self.part, duration })
    }

    fn write(&mut self, line: &Written<'_>) -> Result<(), JournalError> {
        self.buffer.clear();
        let written = serde_json::to_writer(&mut self.buffer, line).map_err(io::Error::from);
        self.buffer.push(b'\n');
        written
            .and_then(|()| self.file.write_all(&self.buffer))
            .map_err(|source| JournalError::File { path: self.path.clone(), source })
    }
}

fn first_difference(there: &Value, here: &Value) -> Option<(String, String, String)> {
    if there == here {
        return None;
    }
    if let (Value::Object(left), Value::Object(right)) = (there, here) {
        let names = left.keys().chain(right.keys());
        for name in names {
            let (old, new) = (left.get(name), right.get(name));
            if old != new {
                let text = |value: Option<&Value>| value.map_or("not set".to_owned(), Value::to_string);
                return Some((name.clone(), text(old), text(new)));
            }
        }
    }
    Some(("settings".to_owned(), there.to_string(), here.to_string()))
}
