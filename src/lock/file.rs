//! Reading the lock, changing single entries of it, and writing it without ever leaving half a file.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml_edit::{Array, DocumentMut, Item, Table, value};

use super::place::{Place, Places};
use super::{Entry, Policy};
use crate::failure::Failure;
use crate::input_file;
use crate::output_file::is_special;

/// The version of the format that is written; those from [`OLDEST`] on are read.
const VERSION: i64 = 2;

/// The oldest version that is read. Its entries have the scenario's name for a key, and not its place.
const OLDEST: i64 = 1;

const HEAD: &str = "\
# What each scenario's KV cache groups come to, by vLLM version.
# `k3plan check` holds plans to it; `k3plan check --update` rewrites what changed.
";

/// A lock file.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    document: DocumentMut,
    plans: BTreeMap<String, BTreeMap<String, Entry>>,
    policy: Policy,
    special: BTreeMap<String, Policy>,
    /// Whether there was a file.
    pub(crate) existed: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Content {
    version: Option<i64>,
    policy: PolicyTable,
    plans: BTreeMap<String, BTreeMap<String, Entry>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PolicyTable {
    max_groups: Option<u64>,
    max_padding_percent: Option<f64>,
    min_concurrency: Option<f64>,
    scenarios: BTreeMap<String, Policy>,
}

impl Lock {
    /// Reads the lock at `path`; a missing file is an empty lock.
    ///
    /// # Errors
    /// If it cannot be read, is no lock, or is of another version.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let failed = || Failure::new(format!("failed to read the lock `{}`", path.display()));
        let (text, existed) = match input_file::text(path, input_file::SETTINGS) {
            Ok(text) => (text, true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (String::new(), false),
            Err(error) => return Err(failed().caused_by(error)),
        };
        let again = "`git checkout` brings an earlier lock back; `k3plan check --update` with no lock in its place makes a new one";
        let broken =
            |error: &dyn std::fmt::Display| failed().caused_by(error.to_string().trim_end()).hint(again);
        let document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| broken(&error))?;
        if existed {
            let version = document.get("version").and_then(Item::as_integer);
            if version.is_none_or(|version| !(OLDEST..=VERSION).contains(&version)) {
                let found =
                    version.map_or_else(|| "no version".to_owned(), |version| format!("version {version}"));
                let older = version.is_none_or(|version| version < OLDEST);
                return Err(failed()
                    .caused_by(format!(
                        "it has {found}, and this k3plan reads versions {OLDEST} and {VERSION}"
                    ))
                    .hint(if older {
                        "remove it and make a new one with `k3plan check --update`"
                    } else {
                        "use the k3plan that wrote it, or a newer one"
                    }));
            }
        }
        let content: Content =
            toml_edit::de::from_document(document.clone()).map_err(|error| broken(&error))?;
        debug_assert!(content.version.is_none_or(|version| version <= VERSION));
        let PolicyTable { max_groups, max_padding_percent, min_concurrency, scenarios } = content.policy;
        Ok(Self {
            path: path.to_owned(),
            document,
            plans: content.plans,
            policy: Policy { max_groups, max_padding_percent, min_concurrency },
            special: scenarios,
            existed,
        })
    }

    /// The entry of a scenario under an engine.
    pub(crate) fn entry(&self, scenario: &str, engine: &str) -> Option<&Entry> {
        self.plans.get(scenario)?.get(engine)
    }

    /// The only entry under `engine`, with its scenario, if there is just one.
    pub(crate) fn only_entry(&self, engine: &str) -> Option<(&str, &Entry)> {
        let mut entries = self
            .plans
            .iter()
            .filter_map(|(scenario, entries)| Some((scenario.as_str(), entries.get(engine)?)));
        let first = entries.next()?;
        entries.next().is_none().then_some(first)
    }

    /// Every scenario, with the engines that it is locked for.
    pub(crate) fn scenarios(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.plans
            .iter()
            .map(|(scenario, entries)| (scenario.as_str(), entries.keys().map(String::as_str).collect()))
    }

    /// The limits of a scenario, by its key or its name.
    pub(crate) fn policy(&self, key: &str, name: &str) -> Policy {
        self.policy.overlaid(self.special.get(key).or_else(|| self.special.get(name)))
    }

    /// Whether its entries may have a name for a key and no place.
    pub(crate) fn is_by_name(&self) -> bool {
        self.document.get("version").and_then(Item::as_integer).is_some_and(|version| version < VERSION)
    }

    /// Gives the entries of `old` the key `new`.
    pub(crate) fn rename(&mut self, old: &str, new: &str) {
        if let Some(plans) = self.document.get_mut("plans").and_then(Item::as_table_mut)
            && !plans.contains_key(new)
            && let Some(item) = plans.remove(old)
        {
            plans.insert(new, item);
        }
        if let Some(entries) = self.plans.remove(old) {
            self.plans.entry(new.to_owned()).or_insert(entries);
        }
    }

    /// Says that each key is a place, where that is so.
    fn raise_version(&mut self) {
        let places = Places::of(&self.path);
        let placed = self.plans.keys().all(|key| places.find(key) != Place::Unknown);
        if self.is_by_name()
            && placed
            && let Some(version) = self.document.get_mut("version").and_then(Item::as_value_mut)
        {
            let decor = version.decor().clone();
            *version = VERSION.into();
            *version.decor_mut() = decor;
        }
    }

    /// Puts an entry in the place of an old one, or adds it.
    pub(crate) fn set(&mut self, scenario: &str, engine: &str, entry: &Entry) {
        if self.document.get("version").is_none() {
            self.document.insert("version", value(VERSION));
            self.document.decor_mut().set_prefix("");
            if let Some(mut key) = self.document.key_mut("version") {
                key.leaf_decor_mut().set_prefix(HEAD);
            }
        }
        let implicit = || {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        };
        let plans = self.document.entry("plans").or_insert_with(implicit);
        let Some(plans) = plans.as_table_mut() else { return };
        let of_scenario = plans.entry(scenario).or_insert_with(implicit);
        let Some(of_scenario) = of_scenario.as_table_mut() else { return };
        let old = of_scenario.entry(engine).or_insert_with(|| Item::Table(Table::new()));
        let Some(table) = old.as_table_mut() else { return };
        let integer = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let Entry {
            groups,
            group_layers,
            padding_layers,
            bytes_per_block,
            num_blocks,
            max_concurrency,
            kv_tp_replicas,
            error,
            fingerprint,
            settings,
            layers,
        } = entry;
        for (key, new) in [
            ("groups", Some(value(integer(*groups)))),
            ("group_layers", Some(value(group_layers.as_str()))),
            ("padding_layers", padding_layers.map(|n| value(integer(n)))),
            ("bytes_per_block", bytes_per_block.map(|n| value(integer(n)))),
            ("num_blocks", num_blocks.map(|n| value(integer(n)))),
            ("max_concurrency", max_concurrency.map(value)),
            ("kv_tp_replicas", kv_tp_replicas.map(|n| value(integer(n)))),
            ("error", error.as_deref().map(value)),
            ("fingerprint", Some(value(fingerprint.as_str()))),
            ("settings", settings.as_deref().map(value)),
            ("layers", layers.as_deref().map(|lines| value(one_a_line(lines)))),
        ] {
            match new {
                Some(new) => {
                    let same =
                        table.get(key).is_some_and(|old| old.to_string().trim() == new.to_string().trim());
                    if !same {
                        table.insert(key, new);
                    }
                }
                None => {
                    table.remove(key);
                }
            }
        }
        self.plans.entry(scenario.to_owned()).or_default().insert(engine.to_owned(), entry.clone());
    }

    /// Takes a scenario out.
    pub(crate) fn remove(&mut self, scenario: &str) {
        if let Some(plans) = self.document.get_mut("plans").and_then(Item::as_table_mut) {
            plans.remove(scenario);
        }
        self.plans.remove(scenario);
    }

    /// The file's text, scenarios in the order of their names.
    pub(crate) fn text(&mut self) -> String {
        if let Some(plans) = self.document.get_mut("plans").and_then(Item::as_table_mut) {
            plans.sort_values();
            for (_, engines) in plans.iter_mut() {
                if let Some(engines) = engines.as_table_mut() {
                    engines.sort_values();
                }
            }
        }
        self.document.to_string()
    }

    /// Changes the lock on disk: reads it again while no other run can, lets `change` alter it, and puts
    /// the new file in its place at once.
    ///
    /// # Errors
    /// If another run is at it, or the disk refuses; the old lock is then as it was.
    pub(crate) fn update(path: &Path, change: impl FnOnce(&mut Self)) -> Result<(), Failure> {
        let failed = || Failure::new(format!("failed to update the lock `{}`", path.display()));
        if is_special(path) {
            return Err(failed().caused_by("it is no regular file"));
        }
        let beside = beside(path);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&beside)
            .map_err(|error| failed().caused_by(error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(failed()
                    .caused_by("another run is updating it")
                    .hint("run this again when the other one has ended"));
            }
            Err(TryLockError::Error(error)) => return Err(failed().caused_by(error)),
        }
        let result = Self::read(path).and_then(|mut lock| {
            change(&mut lock);
            lock.raise_version();
            let text = lock.text();
            write_and_rename(&file, &beside, path, text.as_bytes())
                .map_err(|error| failed().caused_by(error).hint("the old lock is as it was"))
        });
        if result.is_err() {
            // What could not be completed is worth nothing.
            let _ = fs::remove_file(&beside);
        }
        result
    }
}

/// An array with each text on a line of its own.
fn one_a_line(lines: &[String]) -> Array {
    let mut array: Array = lines.iter().map(String::as_str).collect();
    for line in array.iter_mut() {
        line.decor_mut().set_prefix("\n  ");
    }
    array.set_trailing_comma(true);
    array.set_trailing("\n");
    array
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn write_and_rename(mut file: &File, beside: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(beside, path)
}

/// Writes a file beside its place and renames it, so that a reader sees the old one or the new one.
///
/// # Errors
/// If the disk refuses; the old file is then as it was.
pub(crate) fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_special(path) {
        return File::create(path)?.write_all(bytes);
    }
    let beside = beside(path);
    let file = File::create(&beside)?;
    let result = write_and_rename(&file, &beside, path, bytes);
    if result.is_err() {
        let _ = fs::remove_file(&beside);
    }
    result
}
