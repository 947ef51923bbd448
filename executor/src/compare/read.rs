//! Which tool wrote a result file, and what does it say?
//!
//! The text of a file goes in, [`Run`]s come out; opening files is the caller's work. A file is recognised by
//! its keys, not by its name.

mod aiperf;
mod fields;
mod guidellm;
mod inferencex;
mod journal;
mod lm_eval;
mod table;
mod text;
mod vllm;

use serde_json::Value;

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

/// Reads a file's text.
///
/// # Errors
/// Where the text belongs to no known tool or holds a figure that cannot be compared.
pub fn read(file: &str, text: &str) -> Result<Vec<Run>, ReadError> {
    let text = text.trim_start_matches('\u{feff}');
    let runs = if Kept::is_journal(text) {
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
    let documents = text::documents(file, text)?;
    if documents.len() > 1 && aiperf::is_record(&documents) {
        return aiperf::read_records(file, &documents).map(|run| vec![run]);
    }
    let count = documents.len();
    let mut runs = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        let name = if count > 1 { format!("{file}#{}", index + 1) } else { file.to_owned() };
        runs.extend(read_document(&name, document)?);
    }
    Ok(runs)
}

fn read_document(file: &str, document: &Value) -> Result<Vec<Run>, ReadError> {
    if let Value::Array(items) = document {
        let mut runs = Vec::new();
        for (index, item) in items.iter().enumerate() {
            runs.extend(read_document(&format!("{file}#{}", index + 1), item)?);
        }
        return Ok(runs);
    }
    if guidellm::is_report(document) {
        guidellm::read(file, document)
    } else if lm_eval::is_results(document) {
        lm_eval::read(file, document).map(|run| vec![run])
    } else if inferencex::is_result(document) {
        inferencex::read(file, document).map(|run| vec![run])
    } else if aiperf::is_summary(document) {
        aiperf::read_summary(file, document).map(|run| vec![run])
    } else if aiperf::is_record(std::slice::from_ref(document)) {
        aiperf::read_records(file, std::slice::from_ref(document)).map(|run| vec![run])
    } else if vllm::is_result(document) {
        vllm::read(file, document).map(|run| vec![run])
    } else {
        let keys = document.as_object().into_iter().flat_map(|object| object.keys().take(8).cloned());
        Err(ReadError::Unknown { file: file.to_owned(), keys: keys.collect() })
    }
}
