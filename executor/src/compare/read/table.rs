//! What does a person's table of runs say?
//!
//! Comma-separated with a heading; lines that begin with `#` are remarks. Two shapes are understood: one row a
//! run, with columns named as vLLM's keys or as `tpot_p50_ms`, `output_tok_s`, and a `seed`, `block`, `repeat`
//! or `run` column; and one row a figure, with a column `metric` and pairs of columns `X_mean`, `X_sd` (each
//! pair gives the runs labelled `side=X`). All other columns are labels.

use planner::import::json::{Budget, MEMORY};

use super::{RUNS, ReadError};
use crate::compare::metric::Metric;
use crate::compare::run::{Measured, Run, Tool};

pub(super) fn read(file: &str, text: &str) -> Result<Vec<Run>, ReadError> {
    let mut rows = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let unknown = || ReadError::Unknown { file: file.to_owned(), keys: Vec::new() };
    let (_, heading) = rows.next().filter(|(_, line)| !is_too_wide(line)).ok_or_else(unknown)?;
    let heading = cells(heading);
    if heading.len() < 2 {
        return Err(unknown());
    }
    let summary = heading.iter().any(|name| name == "metric");
    if !summary && !heading.iter().any(|name| column(name).is_some()) {
        // A log is no table of runs because its lines have commas.
        return Err(unknown());
    }
    let mut runs = Runs { budget: Budget::new(MEMORY), runs: Vec::new() };
    for (index, line) in rows {
        let line_number = index + 1;
        if is_too_wide(line) {
            let cause = format!("more than {MOST_COLUMNS} columns");
            return Err(ReadError::Row { file: file.to_owned(), line: line_number, cause });
        }
        let cells = cells(line);
        if cells.len() != heading.len() {
            return Err(ReadError::Row {
                file: file.to_owned(),
                line: line_number,
                cause: format!("{} cells under a heading of {}", cells.len(), heading.len()),
            });
        }
        let row: Vec<(&str, &str)> =
            heading.iter().map(String::as_str).zip(cells.iter().map(String::as_str)).collect();
        let source = format!("{file}#{line_number}");
        if summary {
            read_summary_row(&source, file, line_number, &row, &mut runs)?;
        } else {
            runs.push(file, read_run_row(&source, file, line_number, &row)?)?;
        }
    }
    Ok(runs.runs)
}

/// The runs of a table, while there are not too many.
struct Runs {
    budget: Budget,
    runs: Vec<Run>,
}

impl Runs {
    fn push(&mut self, file: &str, run: Run) -> Result<(), ReadError> {
        /// What a text takes beside its characters, and a place in a map, bytes.
        const TEXT: usize = size_of::<String>() + 16;
        if self.runs.len() >= RUNS {
            return Err(ReadError::TooManyRuns { file: file.to_owned(), most: RUNS });
        }
        let labels = run.labels.iter().map(|(name, cell)| 4 * TEXT + name.len() + cell.len()).sum::<usize>();
        // A map takes room for several entries at once.
        let figures = 2 * run.figures.len().max(8) * (size_of::<Metric>() + size_of::<Measured>() + TEXT);
        let all = size_of::<Run>() + run.source.len() + labels + figures;
        self.budget
            .take::<serde::de::value::Error>(all)
            .map_err(|_full| ReadError::TooLarge { file: file.to_owned(), most_mib: MEMORY >> 20 })?;
        self.runs.push(run);
        Ok(())
    }
}

/// The most columns of a table.
const MOST_COLUMNS: usize = 1000;

/// Whether a line has more columns than a table.
fn is_too_wide(line: &str) -> bool {
    line.bytes().filter(|byte| *byte == b',').count() >= MOST_COLUMNS
}

/// One run a row.
fn read_run_row(source: &str, file: &str, line: usize, row: &[(&str, &str)]) -> Result<Run, ReadError> {
    let mut run = Run::new(source, Tool::Table);
    for (name, cell) in row {
        if let Some((metric, factor)) = column(name) {
            if !cell.is_empty() {
                if run.figures.contains_key(&metric) {
                    let cause = format!("`{name}` gives `{metric}` a second time");
                    return Err(ReadError::Row { file: file.to_owned(), line, cause });
                }
                run = run.with(metric, positive(source, name, cell)? * factor);
            }
        } else if matches!(*name, "seed" | "block" | "repeat" | "run") {
            run.seed = cell.parse().ok();
            run.labels.insert((*name).to_owned(), (*cell).to_owned());
        } else {
            run.labels.insert((*name).to_owned(), (*cell).to_owned());
        }
    }
    Ok(run)
}

/// One figure of two or more sides a row, as means and standard deviations.
///
/// Runs are made up that have exactly the stated mean and standard deviation (and, with three runs, the stated
/// median); they carry no seed and no order.
fn read_summary_row(
    source: &str,
    file: &str,
    line: usize,
    row: &[(&str, &str)],
    runs: &mut Runs,
) -> Result<(), ReadError> {
    let cell = |name: &str| row.iter().find(|(column, _)| *column == name).map(|(_, cell)| *cell);
    let metric_name = cell("metric").unwrap_or("");
    let Some((metric, factor)) = column(metric_name) else {
        let cause = format!("`metric` is `{metric_name}`, which is no known figure");
        return Err(ReadError::Row { file: file.to_owned(), line, cause });
    };
    for side in row.iter().filter_map(|(name, _)| name.strip_suffix("_mean")) {
        let key = format!("{side}_mean");
        let mean = positive(source, &key, cell(&key).unwrap_or(""))?;
        let key = format!("{side}_sd");
        let Some(text) = cell(&key) else { continue };
        let spread = text.parse::<f64>().ok().filter(|spread| spread.is_finite() && *spread >= 0.0);
        let spread = spread.ok_or_else(|| not_positive(source, &key, text))?;
        let stated_count = cell(&format!("{side}_n")).or_else(|| cell("n"));
        let count = stated_count.and_then(|count| count.parse().ok()).unwrap_or(3_usize);
        if count > RUNS {
            let cause = format!("{count} runs are more than the {RUNS} that a row may stand for");
            return Err(ReadError::Row { file: file.to_owned(), line, cause });
        }
        let median = cell(&format!("{side}_median")).and_then(|median| median.parse::<f64>().ok());
        for (index, value) in spread_out(mean, spread, count, median).into_iter().enumerate() {
            if value <= 0.0 {
                let cause = format!("`{side}_sd` is so large that a run would be below zero");
                return Err(ReadError::Row { file: file.to_owned(), line, cause });
            }
            let mut run = Run::new(format!("{source}:{side}:{}", index + 1), Tool::Table)
                .with(metric.clone(), value * factor);
            run.in_order = false;
            for (name, cell) in row {
                let figure = name.ends_with("_mean") || name.ends_with("_sd") || name.ends_with("_median");
                if !figure && *name != "metric" {
                    run.labels.insert((*name).to_owned(), (*cell).to_owned());
                }
            }
            run.labels.insert("side".to_owned(), side.to_owned());
            runs.push(file, run)?;
        }
    }
    Ok(())
}

/// `count` values of the given mean and standard deviation (and, for three, median).
fn spread_out(mean: f64, spread: f64, count: usize, median: Option<f64>) -> Vec<f64> {
    if count < 2 {
        return vec![mean; count];
    }
    if let (3, Some(median)) = (count, median) {
        // With d = median - mean, the others are u and -d - u from the mean, u^2 + d u + d^2 - sd^2 = 0.
        let d = median - mean;
        let under_root = d * d / 4.0 - (d * d - spread * spread);
        if under_root >= 0.0 {
            let root = under_root.sqrt();
            return vec![mean - d / 2.0 + root, median, mean - d / 2.0 - root];
        }
    }
    // Half the runs above, half below, the odd one in the middle; scaled to the standard deviation.
    let pairs = count / 2;
    let size = spread * ((count - 1) as f64 / (2 * pairs) as f64).sqrt();
    let mut values = Vec::with_capacity(count);
    for _ in 0..pairs {
        values.extend([mean + size, mean - size]);
    }
    if count % 2 == 1 {
        values.push(mean);
    }
    values
}

/// The figure that a column's name means, and how many of our units one of its units is.
fn column(name: &str) -> Option<(Metric, f64)> {
    if let Some(metric) = Metric::named(name) {
        return Some((metric, 1.0));
    }
    if matches!(name, "output_tok_s" | "output_tokens_per_second" | "tok_s") {
        return Metric::named("output_throughput").map(|metric| (metric, 1.0));
    }
    let (rest, factor) =
        if let Some(rest) = name.strip_suffix("_ms") { (rest, 1.0) } else { (name.strip_suffix("_s")?, 1e3) };
    // `tpot_p50` and `median_tpot` are the same.
    let (left, right) = rest.split_once('_')?;
    let (quantity, statistic) =
        if matches!(left, "ttft" | "tpot" | "itl" | "e2el") { (left, right) } else { (right, left) };
    let statistic = if statistic == "p50" { "median" } else { statistic };
    Metric::named(&format!("{statistic}_{quantity}_ms")).map(|metric| (metric, factor))
}

fn positive(source: &str, key: &str, cell: &str) -> Result<f64, ReadError> {
    let number = cell.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| not_positive(source, key, cell))
}

fn not_positive(source: &str, key: &str, cell: &str) -> ReadError {
    let value = if cell.is_empty() { "empty".to_owned() } else { cell.to_owned() };
    ReadError::NotPositive { file: source.to_owned(), key: key.to_owned(), value }
}

/// The cells of a line; a cell in double quotes may hold commas.
fn cells(line: &str) -> Vec<String> {
    let mut cells = Vec::new();
    let mut cell = String::new();
    let mut quoted = false;
    for character in line.trim_end_matches('\r').chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell).trim().to_owned()),
            _ => cell.push(character),
        }
    }
    cells.push(cell.trim().to_owned());
    cells
}
