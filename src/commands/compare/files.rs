//! Which runs do the arguments of one arm stand for?

use std::path::{Path, PathBuf};

use executor::compare::read::{self, ReadError};
use executor::compare::same::{self, Found};

use crate::failure::Failure;
use crate::input_file;

/// Reads all runs of an arm, in the order of the arguments.
pub(super) fn load(arguments: &[String]) -> Result<Vec<Found>, Failure> {
    let mut runs = Vec::new();
    let mut no_results = Vec::new();
    for argument in arguments {
        let (path, selector) = split(argument);
        let mut found = if path.is_dir() {
            load_folder(&path)?
        } else {
            match load_file(&path) {
                Ok(found) => found,
                Err(Unread::Content(error @ ReadError::Unknown { .. })) => {
                    no_results.push((path, error));
                    continue;
                }
                Err(other) => return Err(other.into()),
            }
        };
        if !selector.is_empty() {
            let all = found.len();
            found.retain(|found| {
                let labels = &found.run.labels;
                selector.iter().all(|(key, value)| labels.get(key).is_some_and(|label| label == value))
            });
            if found.is_empty() {
                return Err(Failure::new(format!("`{argument}` selects none of {all} runs")));
            }
        }
        runs.extend(found);
    }
    refuse(no_results)?;
    Ok(runs)
}

/// Names every file that has to be left out at once: a pattern of the shell brings logs along.
fn refuse(files: Vec<(PathBuf, ReadError)>) -> Result<(), Failure> {
    let names: Vec<String> = files.iter().map(|(path, _)| format!("`{}`", path.display())).collect();
    let Some((_, first)) = files.into_iter().next() else { return Ok(()) };
    let mut failure = explain(first);
    if names.len() > 1 {
        failure = failure.caused_by(format!("no results: {}", names.join(", ")));
    }
    Err(failure.hint(format!(
        "leave {} out; a pattern that ends in `.json` takes results only",
        if names.len() > 1 { "these files" } else { names.first().map_or("it", String::as_str) }
    )))
}

/// A path, and the labels after its last colon where the whole is no path.
fn split(argument: &str) -> (PathBuf, Vec<(String, String)>) {
    if !Path::new(argument).exists()
        && let Some((path, selector)) = argument.rsplit_once(':')
    {
        let pairs: Option<Vec<_>> = selector
            .split(',')
            .map(|pair| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())))
            .collect();
        if let Some(pairs) = pairs {
            return (PathBuf::from(path), pairs);
        }
    }
    (PathBuf::from(argument), Vec::new())
}

/// What to do about a file that holds too much.
const SMALLER: &str = "leave out what is not compared: run the benchmark without its lists of single requests, or take \
                       them out, as in `jq 'del(.NAME)'`";

/// Why a file has no runs for us.
enum Unread {
    File(Failure),
    Content(ReadError),
}

impl From<Unread> for Failure {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::File(failure) => failure,
            Unread::Content(error) => explain(error),
        }
    }
}

fn load_file(path: &Path) -> Result<Vec<Found>, Unread> {
    let bytes = input_file::bytes(path, input_file::DATA).map_err(|error| {
        let too_large = error.kind() == std::io::ErrorKind::FileTooLarge;
        let failure = Failure::new(format!("failed to read `{}`", path.display())).caused_by(error);
        Unread::File(if too_large { failure.hint(SMALLER) } else { failure })
    })?;
    let file = input_file::one_name(path);
    let text = String::from_utf8_lossy(&bytes);
    let runs = read::read(&path.display().to_string(), &text).map_err(Unread::Content)?;
    let content = same::content(&bytes);
    let runs = runs.into_iter().enumerate();
    Ok(runs.map(|(place, run)| Found { run, file: file.clone(), content, place }).collect())
}

/// The result files of a folder by name; files of other kinds are passed over.
fn load_folder(path: &Path) -> Result<Vec<Found>, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("failed to read the folder `{}`", path.display())).caused_by(error)
    };
    // aiperf leaves a summary and a file of requests: one run.
    let summary = path.join("profile_export_aiperf.json");
    if summary.is_file() {
        return Ok(load_file(&summary)?);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let extension = file.extension().and_then(|extension| extension.to_str());
        // A journal beside its result is the same run; one without was killed.
        let lone = extension == Some("journal") && !file.with_extension("").is_file();
        if file.is_file() && (lone || matches!(extension, Some("json" | "jsonl"))) {
            files.push(file);
        }
    }
    files.sort();
    let mut runs = Vec::new();
    for file in files {
        match load_file(&file) {
            Ok(found) => runs.extend(found),
            Err(Unread::Content(ReadError::Unknown { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if runs.is_empty() {
        return Err(Failure::new(format!("the folder `{}` has no result file", path.display())));
    }
    Ok(runs)
}

fn explain(error: ReadError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        ReadError::Unknown { keys, .. } => {
            let failure = if keys.is_empty() {
                failure
            } else {
                failure.caused_by(format!("its first keys are {}", keys.join(", ")))
            };
            failure.hint(
                "results of vllm bench serve, k3plan bench (and its journals), guidellm, aiperf, InferenceX, lm-eval and CSV \
                 tables are read",
            )
        }
        ReadError::NotPositive { .. } => failure.hint(
            "a latency or rate of zero, below zero or NaN says that the run failed: leave the file out",
        ),
        ReadError::TooLarge { .. } => failure.hint(SMALLER),
        ReadError::TooManyRuns { .. } => {
            failure.hint("a comparison is of a few runs an arm: split the file by load")
        }
        _ => failure,
    }
}
