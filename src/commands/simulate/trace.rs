//! The steps in the Chrome trace format: one track a group, the KV pool as a counter.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use simulator::Step;

use super::adapter::Setup;
use crate::failure::Failure;
use crate::output_file::persist;

/// A trace that is being written beside its place, and moved there when it is whole.
pub(super) struct Writer {
    path: PathBuf,
    file: Option<BufWriter<tempfile::NamedTempFile>>,
    new_blocks: Vec<u64>,
}

impl Writer {
    /// Starts the trace.
    pub(super) fn create(path: &Path, setup: &Setup) -> Result<Self, Failure> {
        let file = beside(path)?;
        let mut writer = Self {
            path: path.to_owned(),
            file: Some(BufWriter::new(file)),
            new_blocks: vec![0; setup.groups.len()],
        };
        let mut heads = vec![String::from("{\"traceEvents\":[")];
        heads.push(event_name(0, "scheduler"));
        for (group, words) in setup.words.iter().enumerate() {
            heads.push(format!(",{}", event_name(group + 1, &format!("group {group}: {words}"))));
        }
        writer.write(&heads.concat())?;
        Ok(writer)
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(text.as_bytes()).map_err(|error| failure(&self.path, &error))
    }

    /// Adds a step.
    pub(super) fn step(&mut self, step: &Step, start: u64, end: u64, blocks: u64) -> Result<(), Failure> {
        use std::fmt::Write as _;
        if step.scheduled.is_empty() {
            return Ok(());
        }
        let at = microseconds(start);
        let long = microseconds(end - start);
        let mut text = format!(
            ",\n{{\"name\":\"step {}\",\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":{at},\"dur\":{long},\"args\":{{\"requests\":{},\
             \"tokens\":{},\"preempted\":{}}}}},\n{{\"name\":\"KV pool\",\"ph\":\"C\",\"pid\":1,\"ts\":{at},\"args\":{{\"used\":{},\
             \"free\":{}}}}}",
            step.index,
            step.scheduled.len(),
            step.tokens(),
            step.preempted.len(),
            blocks - step.free_blocks.min(blocks),
            step.free_blocks,
        );
        self.new_blocks.fill(0);
        for part in &step.scheduled {
            let mut group = 0_usize;
            for &(groups, count) in step.new_blocks(part) {
                for sum in self.new_blocks.iter_mut().skip(group).take(groups as usize) {
                    *sum += u64::from(count);
                }
                group += groups as usize;
            }
        }
        for (group, count) in self.new_blocks.iter().enumerate() {
            let _ = write!(
                text,
                ",\n{{\"name\":\"metadata\",\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{at},\"dur\":{long},\"args\":{{\"new_blocks\":{count}}}}}",
                group + 1,
            );
        }
        self.write(&text)
    }

    /// Ends the trace and moves it to its place.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        self.write("\n],\"displayTimeUnit\":\"ms\"}\n")?;
        let Some(file) = self.file.take() else { return Ok(()) };
        let file = file.into_inner().map_err(|error| failure(&self.path, &error))?;
        persist(file, &self.path).map_err(|error| failure(&self.path, &error))
    }
}

fn event_name(track: usize, name: &str) -> String {
    let name = serde_json::Value::from(name);
    format!(
        "\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{track},\"args\":{{\"name\":{name}}}}}"
    )
}

/// Nanoseconds as microseconds, exactly.
fn microseconds(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}

/// A file in the folder of `path` that vanishes unless it is moved there.
pub(super) fn beside(path: &Path) -> Result<tempfile::NamedTempFile, Failure> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    // As any new file: readable for others unless the mask says no.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(directory).map_err(|error| failure(path, &error))
}

pub(super) fn failure(path: &Path, cause: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("failed to write `{}`", path.display())).caused_by(cause)
}
