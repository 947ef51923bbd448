//! Where is the scenario that an entry of the lock is of? An entry's key is its file, seen from the lock's own
//! folder, with `#` and the arm or case; or a shipped name.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::scenario::{Placed, shipped_names};

/// A lock's folder, from which keys count.
pub(crate) struct Places {
    folder: PathBuf,
    shipped: BTreeSet<String>,
}

/// What a key stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A shipped scenario.
    Shipped,
    /// A file that is there, as a path to read it by, and the part of it.
    File(String, Option<String>),
    /// A file that is not there.
    Gone(String),
    /// A bare name: a lock of version 1 does not say where its file is.
    Unknown,
}

impl Places {
    /// The places of the lock at `lock`.
    pub(crate) fn of(lock: &Path) -> Self {
        let folder = lock.parent().map(Path::to_owned).unwrap_or_default();
        Self { folder, shipped: shipped_names().into_iter().collect() }
    }

    /// The key of a scenario that was read by `argument`.
    pub(crate) fn key(&self, argument: &str, placed: &Placed) -> String {
        if placed.shipped {
            return placed.scenario.name.clone();
        }
        let file = match argument.rsplit_once('#') {
            Some((file, _)) if !Path::new(argument).exists() => file,
            _ => argument,
        };
        let path = relative(Path::new(file), &self.folder);
        match &placed.part {
            Some(part) => format!("{path}#{part}"),
            None => path,
        }
    }

    /// What `key` stands for.
    pub(crate) fn find(&self, key: &str) -> Place {
        if self.shipped.contains(key) {
            return Place::Shipped;
        }
        let here = |file: &str| self.folder.join(file);
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        if here(key).exists() {
            return Place::File(text(here(key)), None);
        }
        // A case's id may hold a `#`, and so may a file's name.
        for (at, _) in key.match_indices('#') {
            let (file, part) = (&key[..at], &key[at + 1..]);
            if here(file).exists() {
                return Place::File(text(here(file)), Some(part.to_owned()));
            }
        }
        if names_no_file(key) {
            return Place::Unknown;
        }
        let file = key.split_once('#').map_or(key, |(file, _)| file);
        Place::Gone(text(here(file)))
    }
}

/// Whether `key` is a name alone, as version 1 wrote it.
fn names_no_file(key: &str) -> bool {
    let file = [".yaml", ".yml", ".json", ".jsonl", ".gz"];
    !key.starts_with("./") && !file.iter().any(|ending| key.contains(ending))
}

/// `file` as seen from `folder`, with `/` between the parts.
fn relative(file: &Path, folder: &Path) -> String {
    let (file, folder) = (parts(file), parts(folder));
    let common = file.iter().zip(&folder).take_while(|(a, b)| a == b).count();
    let up = folder.len() - common;
    let mut all: Vec<&str> = vec![".."; up];
    all.extend(file[common..].iter().map(String::as_str));
    let path = all.join("/");
    if names_no_file(&path) && up == 0 { format!("./{path}") } else { path }
}

/// The parts of the absolute path, `.` and `..` resolved as they are written.
fn parts(path: &Path) -> Vec<String> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                parts.pop();
            }
            Component::Prefix(_) | Component::Normal(_) => {
                parts.push(component.as_os_str().to_string_lossy().into_owned());
            }
            Component::RootDir | Component::CurDir => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_seen_from_the_lock() {
        for (file, folder, expected) in [
            ("models/g.yaml", "", "models/g.yaml"),
            ("./models/../g.yaml", ".", "g.yaml"),
            ("g.yaml", "locks", "../g.yaml"),
            ("/a/b/c.jsonl", "/a/x/y", "../../b/c.jsonl"),
            ("plain", "", "./plain"),
        ] {
            assert_eq!(relative(Path::new(file), Path::new(folder)), expected, "{file} from {folder}");
        }
    }
}
