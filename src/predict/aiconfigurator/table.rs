//! A table of measured operators: Parquet, or comma-separated text with a heading.

use std::collections::BTreeMap;
use std::path::Path;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;

use crate::failure::Failure;
use crate::input_file;

/// The largest table that is read, bytes.
const LIMIT: u64 = 256 << 20;

/// The most rows that are read.
const ROWS: usize = 4_000_000;

/// Columns by name, all of one length.
#[derive(Debug, Default)]
pub(super) struct Table {
    texts: BTreeMap<String, Vec<String>>,
    numbers: BTreeMap<String, Vec<f64>>,
    rows: usize,
}

/// What is asked of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row<'a> {
    pub(super) text: &'a str,
    pub(super) numbers: Vec<f64>,
    pub(super) seconds: f64,
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |cause: &dyn std::fmt::Display| {
            Failure::new(format!("failed to read `{}`", path.display())).caused_by(cause)
        };
        let file = input_file::open(path).map_err(|error| failed(&error))?;
        let size = file.metadata().map_err(|error| failed(&error))?.len();
        if size > LIMIT {
            return Err(failed(&format!("it is larger than {} MiB", LIMIT >> 20)));
        }
        let mut table = Self::default();
        if path.extension().is_some_and(|kind| kind == "parquet") {
            let reader = SerializedFileReader::new(file).map_err(|error| {
                failed(&error)
                    .hint("tables kept by Git LFS are pointers until `git lfs pull` has fetched them")
            })?;
            for row in reader.get_row_iter(None).map_err(|error| failed(&error))?.take(ROWS) {
                let row = row.map_err(|error| failed(&error))?;
                for (name, field) in row.get_column_iter() {
                    table.put(name, field);
                }
                table.rows += 1;
            }
        } else {
            let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(file);
            let heads = reader.headers().map_err(|error| failed(&error))?.clone();
            for record in reader.records().take(ROWS) {
                let record = record.map_err(|error| failed(&error))?;
                for (name, cell) in heads.iter().zip(&record) {
                    match cell.parse::<f64>() {
                        Ok(number) => table.numbers.entry(name.to_owned()).or_default().push(number),
                        Err(_) => table.texts.entry(name.to_owned()).or_default().push(cell.to_owned()),
                    }
                }
                table.rows += 1;
            }
        }
        // A column that is not of one kind, or has holes, is none.
        let rows = table.rows;
        table.texts.retain(|_, cells| cells.len() == rows);
        table.numbers.retain(|_, cells| cells.len() == rows);
        Ok(table)
    }

    #[expect(clippy::cast_precision_loss, reason = "sizes below 2^53")]
    fn put(&mut self, name: &str, field: &Field) {
        let number = match field {
            Field::Str(text) => {
                match self.texts.get_mut(name) {
                    Some(cells) => cells.push(text.clone()),
                    None => drop(self.texts.insert(name.to_owned(), vec![text.clone()])),
                }
                return;
            }
            Field::Int(n) => f64::from(*n),
            Field::UInt(n) => f64::from(*n),
            Field::Long(n) => *n as f64,
            Field::ULong(n) => *n as f64,
            Field::Float(n) => f64::from(*n),
            Field::Double(n) => *n,
            _ => return,
        };
        match self.numbers.get_mut(name) {
            Some(cells) => cells.push(number),
            None => drop(self.numbers.insert(name.to_owned(), vec![number])),
        }
    }

    /// The rows, with one text and some numbers of each; none where a column is missing.
    pub(super) fn rows<'a>(&'a self, text: &str, names: &[&str]) -> impl Iterator<Item = Row<'a>> {
        let columns: Option<Vec<&Vec<f64>>> = names.iter().map(|name| self.numbers.get(*name)).collect();
        let whole = columns.zip(self.texts.get(text)).zip(self.numbers.get("latency"));
        whole.into_iter().flat_map(|((columns, texts), latencies)| {
            texts.iter().zip(latencies).enumerate().map(move |(index, (text, latency))| Row {
                text,
                numbers: columns.iter().filter_map(|column| column.get(index).copied()).collect(),
                // Tables are in milliseconds.
                seconds: latency * 1e-3,
            })
        })
    }

    /// As [`Self::rows`]; of rows that are alike, the fastest kernel's.
    pub(super) fn fastest<'a>(&'a self, text: &str, names: &[&str]) -> Vec<Row<'a>> {
        let mut best: BTreeMap<(&str, Vec<u64>), Row<'a>> = BTreeMap::new();
        for row in self.rows(text, names) {
            let key = (row.text, row.numbers.iter().map(|number| number.to_bits()).collect());
            match best.get_mut(&key) {
                Some(known) if known.seconds <= row.seconds => {}
                Some(known) => *known = row,
                None => drop(best.insert(key, row)),
            }
        }
        best.into_values().collect()
    }
}
