//! Reading recorded lines, plain or compressed, with the place of what is wrong.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

pub(crate) use planner::import::json::python_json;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::input_file::open;

/// Longest line that is read, bytes.
const LINE_LIMIT: u64 = 8 << 20;

/// Calls `each` with every line that is not empty, and its number from 1.
///
/// # Errors
/// If the file cannot be read, or `each` fails.
pub(crate) fn lines(
    path: &Path,
    mut each: impl FnMut(usize, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let cannot =
        |error: &io::Error| Failure::new(format!("failed to read `{}`", path.display())).caused_by(error);
    let file = open(path).map_err(|error| cannot(&error))?;
    if file.metadata().map_err(|error| cannot(&error))?.is_dir() {
        return Err(Failure::new(format!("failed to read `{}`", path.display()))
            .caused_by("it is a directory")
            .hint("name the files in it, such as `FOLDER/*.jsonl`"));
    }
    let compressed = path.extension().is_some_and(|extension| extension == "gz");
    let reader: Box<dyn Read> =
        if compressed { Box::new(flate2::read::MultiGzDecoder::new(file)) } else { Box::new(file) };
    let mut reader = BufReader::new(reader);
    let mut buffer = Vec::new();
    for number in 1.. {
        buffer.clear();
        let read = reader
            .by_ref()
            .take(LINE_LIMIT)
            .read_until(b'\n', &mut buffer)
            .map_err(|error| cannot(&error))?;
        if read == 0 {
            break;
        }
        if read as u64 == LINE_LIMIT && buffer.last() != Some(&b'\n') {
            return Err(Failure::new(format!("failed to read `{}`, line {number}", path.display()))
                .caused_by(format!("the line is longer than {LINE_LIMIT} bytes")));
        }
        let line = std::str::from_utf8(&buffer).map_err(|error| {
            Failure::new(format!("failed to read `{}`, line {number}", path.display()))
                .caused_by(format!("byte {} of the line is not valid UTF-8", error.valid_up_to() + 1))
        })?;
        let line = line.trim();
        if !line.is_empty() {
            each(number, line)?;
        }
    }
    Ok(())
}

/// Parses one line.
///
/// # Errors
/// With file, line, column and the piece of text, if the line is not of this form.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, number: usize, line: &str) -> Result<T, Failure> {
    serde_json::from_str(&python_json(line)).map_err(|error| json_failure(path, number, line, &error))
}

/// The failure for a line that is not valid.
pub(crate) fn json_failure(path: &Path, number: usize, line: &str, error: &serde_json::Error) -> Failure {
    let text = error.to_string();
    let cause = text.rsplit_once(" at line ").map_or(text.as_str(), |(cause, _)| cause);
    Failure::new(format!("failed to read `{}`", path.display())).caused_by(cause).at(excerpt(
        path,
        number,
        error.column(),
        line,
    ))
}

/// The place in a line: at most 60 characters around the column, with a mark below it.
fn excerpt(path: &Path, number: usize, column: usize, line: &str) -> String {
    let at = column.saturating_sub(1).min(line.len());
    let from = floor_boundary(line, at.saturating_sub(40));
    let to = floor_boundary(line, (at + 20).min(line.len()));
    let piece = &line[from..to];
    let mark = line[from..floor_boundary(line, at)].chars().count();
    let number_text = number.to_string();
    let margin = " ".repeat(number_text.len());
    format!(
        "{margin}--> {}:{number}:{column}\n{margin} |\n{number_text} | {piece}\n{margin} | {}^",
        path.display(),
        " ".repeat(mark)
    )
}

fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
