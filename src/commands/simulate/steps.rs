//! The steps as a Parquet table, a row a step.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::data_type::Int64Type;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use simulator::Step;
use simulator::metadata::Cost;

use super::adapter::Setup;
use super::trace::{beside, failure};
use crate::failure::Failure;
use crate::output_file::persist;

/// Columns before those of the groups.
const COLUMNS: [&str; 19] = [
    "step",
    "start_ns",
    "duration_ns",
    "requests",
    "tokens",
    "drafts",
    "new_requests",
    "resumed_requests",
    "preempted_requests",
    "finished_requests",
    "running",
    "waiting",
    "blocks_free",
    "metadata_builds",
    "metadata_reuses",
    "launches",
    "h2d_copies",
    "block_table_bytes",
    "slot_mapping_entries",
];
/// Rows that are kept before they are written.
const ROWS: usize = 65_536;

/// A table that is being written beside its place, and moved there when it is whole.
pub(super) struct Writer {
    path: PathBuf,
    file: SerializedFileWriter<tempfile::NamedTempFile>,
    columns: Vec<Vec<i64>>,
}

impl Writer {
    /// Starts the table.
    pub(super) fn create(path: &Path, setup: &Setup) -> Result<Self, Failure> {
        let file = beside(path)?;
        let groups = (0..setup.groups.len()).map(|group| format!("new_blocks_group_{group}"));
        let names: Vec<String> = COLUMNS.iter().map(|&name| name.to_owned()).chain(groups).collect();
        let fields: Vec<String> = names.iter().map(|name| format!("REQUIRED INT64 {name};")).collect();
        let message = format!("message steps {{ {} }}", fields.join(" "));
        let schema = parse_message_type(&message).map_err(|error| failure(path, &error))?;
        let properties = WriterProperties::builder().set_created_by("k3plan".to_owned()).build();
        let file = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
            .map_err(|error| failure(path, &error))?;
        Ok(Self { path: path.to_owned(), file, columns: vec![Vec::new(); names.len()] })
    }

    /// Adds a step.
    pub(super) fn step(&mut self, step: &Step, start: u64, end: u64, cost: &Cost) -> Result<(), Failure> {
        let drafts: u64 = step.scheduled.iter().map(|part| u64::from(part.drafts)).sum();
        let row = [
            step.index,
            start,
            end - start,
            step.scheduled.len() as u64,
            step.tokens(),
            drafts,
            step.new.len() as u64,
            step.resumed.len() as u64,
            step.preempted.len() as u64,
            step.finished.len() as u64,
            u64::from(step.running),
            u64::from(step.waiting),
            step.free_blocks,
            cost.builds,
            cost.reuses,
            cost.launches,
            cost.h2d,
            cost.table_bytes,
            cost.slots,
        ];
        let (fixed, groups) = self.columns.split_at_mut(COLUMNS.len());
        for (column, value) in fixed.iter_mut().zip(row) {
            column.push(i64::try_from(value).unwrap_or(i64::MAX));
        }
        for column in groups.iter_mut() {
            column.push(0);
        }
        for part in &step.scheduled {
            let mut group = 0_usize;
            for &(count_groups, count) in step.new_blocks(part) {
                for column in groups.iter_mut().skip(group).take(count_groups as usize) {
                    if let Some(last) = column.last_mut() {
                        *last += i64::from(count);
                    }
                }
                group += count_groups as usize;
            }
        }
        if fixed[0].len() >= ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if self.columns.first().is_none_or(Vec::is_empty) {
            return Ok(());
        }
        let write = || -> Result<(), parquet::errors::ParquetError> {
            let mut rows = self.file.next_row_group()?;
            let mut columns = self.columns.iter();
            while let Some(mut writer) = rows.next_column()? {
                if let Some(column) = columns.next() {
                    writer.typed::<Int64Type>().write_batch(column, None, None)?;
                }
                writer.close()?;
            }
            rows.close().map(|_| ())
        };
        let mut write = write;
        write().map_err(|error| failure(&self.path, &error))?;
        for column in &mut self.columns {
            column.clear();
        }
        Ok(())
    }

    /// Ends the table and moves it to its place.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        self.flush()?;
        let Self { path, file, .. } = self;
        let file = file.into_inner().map_err(|error| failure(&path, &error))?;
        persist(file, &path).map_err(|error| failure(&path, &error))
    }
}
