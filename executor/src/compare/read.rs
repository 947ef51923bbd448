//! Which tool wrote a result file, and what does it say?
//!
//! The text of a file goes in, [`Run`]s come out; opening files is the caller's work. A file is recognised by
//! its keys, not by its name.

mod aiperf;
mod document;
mod fields;
mod guidellm;
mod inferencex;
mod journal;
mod lm_eval;
mod table;
mod text;
mod vllm;

pub use journal::lines_fit;

use document::Document;

use super::run::Run;
use crate::load::journal::Kept;

/// Why a result file cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// The text is no JSON.
    #[error("`{file}` is no JSON: {cause} (line {line}, column {column})")]
    NotJson {
        /// The file.
        file: String,
        /// What the parser expected.
        cause: String,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// No known tool writes such a file.
    #[error("`{file}` is no result of a known tool")]
    Unknown {
        /// The file.
        file: String,
        /// The first keys of the file.
        keys: Vec<String>,
    },
    /// A figure cannot be compared.
    #[error("`{file}`: `{key}` is {value}, not a finite number above zero")]
    NotPositive {
        /// The file.
        file: String,
        /// The key, with its path where it is nested.
        key: String,
        /// As written.
        value: String,
    },
    /// An accuracy is no share.
    #[error("`{file}`: `{key}` is {value}, not a share from 0 to 1")]
    NotAShare {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// As written.
        value: String,
    },
    /// A unit is not known.
    #[error("`{file}`: `{key}` is in `{unit}`, a unit that is not known")]
    Unit {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// As written.
        unit: String,
    },
    /// No request came to its end.
    #[error("`{file}`: `{key}` is 0, no request was completed")]
    NothingCompleted {
        /// The file.
        file: String,
        /// The key that says so.
        key: String,
    },
    /// The file is of a known tool but has no comparable figure.
    #[error("`{file}` has no figure to compare")]
    NoFigures {
        /// The file.
        file: String,
    },
    /// Its values would take too much memory.
    #[error("`{file}` holds too much: the values that are compared would take more than {most_mib} MiB")]
    TooLarge {
        /// The file.
        file: String,
        /// The most that they may take, MiB.
        most_mib: usize,
    },
    /// It holds more runs than an experiment has.
    #[error("`{file}` holds more than {most} runs")]
    TooManyRuns {
        /// The file.
        file: String,
        /// The most that it may hold.
        most: usize,
    },
    /// A row of a table does not fit its heading.
    #[error("`{file}`, line {line}: {cause}")]
    Row {
        /// The file.
        file: String,
        /// From 1.
        line: usize,
        /// What does not fit.
        cause: String,
    },
}

/// The most runs of a file.
const RUNS: usize = 10_000;

/// The longest first line that may open a journal, bytes.
const HEADER: usize = 1 << 20;

/// Reads a file's text. It needs a few times the memory that the text does.
///
/// # Errors
/// Where the text belongs to no known tool, holds a figure that cannot be compared, or holds too much.
pub fn read(file: &str, text: &str) -> Result<Vec<Run>, ReadError> {
    let text = text.trim_start_matches('\u{feff}');
    let first_line = text.split('\n').next().unwrap_or("");
    let runs = if first_line.len() <= HEADER && Kept::is_journal(first_line) {
        vec![journal::read(file, text)?]
    } else if text::looks_like_json(text) {
        read_json(file, text)?
    } else {
        table::read(file, text)?
    };
    if runs.is_empty() {
        return Err(ReadError::NoFigures { file: file.to_owned() });
    }
    let seed = text::seed_in_name(file);
    let count = runs.len();
    let mut named = Vec::with_capacity(count);
    for mut run in runs {
        if run.figures.is_empty() {
            return Err(ReadError::NoFigures { file: run.source });
        }
        // One file, one seed: a name such as `4groups-seed2.json` says which.
        if run.seed.is_none() && count == 1 {
            run.seed = seed;
        }
        named.push(run);
    }
    Ok(named)
}

fn read_json(file: &str, text: &str) -> Result<Vec<Run>, ReadError> {
    let quoted = text::quote_non_numbers(text);
    let mut documents = text::documents(file, &quoted);
    let Some(first) = documents.next().transpose()? else { return Ok(Vec::new()) };
    let second = documents.next().transpose()?;
    let are_several = second.is_some();
    let are_records =
        matches!(&first, Document::One(content) if are_several && aiperf::is_record(&content.value));
    let documents = [Some(first), second].into_iter().flatten().map(Ok).chain(documents);
    if are_records {
        let mut records = aiperf::Records::new(file);
        for document in documents {
            if let Document::One(content) = document? {
                records.add(&content.value)?;
            }
        }
        return Ok(vec![records.run()]);
    }
    let mut runs = Vec::new();
    for (index, document) in documents.enumerate() {
        let name = if are_several { format!("{file}#{}", index + 1) } else { file.to_owned() };
        read_document(&name, document?, &mut runs)?;
    }
    Ok(runs)
}

fn read_document(file: &str, document: Document, runs: &mut Vec<Run>) -> Result<(), ReadError> {
    let content = match document {
        Document::Many(items) => {
            for (index, item) in items.into_iter().enumerate() {
                read_document(&format!("{file}#{}", index + 1), item, runs)?;
            }
            return Ok(());
        }
        Document::One(content) => content,
    };
    let value = &content.value;
    if guidellm::is_report(value) {
        runs.extend(guidellm::read(file, value)?);
    } else if lm_eval::is_results(value) {
        runs.push(lm_eval::read(file, value)?);
    } else if inferencex::is_result(value) {
        runs.push(inferencex::read(file, value)?);
    } else if aiperf::is_summary(value) {
        runs.push(aiperf::read_summary(file, value)?);
    } else if aiperf::is_record(value) {
        let mut records = aiperf::Records::new(file);
        records.add(value)?;
        runs.push(records.run());
    } else if vllm::is_result(value) {
        runs.push(vllm::read(file, &content)?);
    } else {
        let keys = value.as_object().into_iter().flat_map(|object| object.keys().take(8).cloned());
        return Err(ReadError::Unknown { file: file.to_owned(), keys: keys.collect() });
    }
    if runs.len() > RUNS {
        return Err(ReadError::TooManyRuns { file: file.to_owned(), most: RUNS });
    }
    Ok(())
}
