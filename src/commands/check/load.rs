//! Which scenarios are to be checked, where is each, and which cannot be read?

use std::collections::{BTreeMap, BTreeSet};

use crate::failure::Failure;
use crate::lock::{Lock, Place, Places};
use crate::scenario::{Changes, Placed, Scenario};

/// A scenario to check.
pub(super) struct Loaded {
    /// The file or shipped name that it was read by.
    pub(super) file: String,
    /// Its key in the lock.
    pub(super) key: String,
    /// Itself.
    pub(super) scenario: Scenario,
}

/// What cannot be read, and why.
pub(super) struct Unread {
    /// A file, or a key of the lock.
    pub(super) place: String,
    /// Why.
    pub(super) failure: Failure,
}

/// What was found.
#[derive(Default)]
pub(super) struct Found {
    /// To be checked.
    pub(super) scenarios: Vec<Loaded>,
    /// Broken, or of an unknown place.
    pub(super) unread: Vec<Unread>,
    /// Keys whose scenario is not there any more, each with the reason.
    pub(super) gone: Vec<(String, String)>,
}

/// The scenarios of one file, each with its key; several of one key are numbered.
fn read(file: &str, places: &Places, changes: &Changes) -> Result<Vec<Loaded>, Failure> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let placed: Vec<Placed> = changes.load_placed(file)?;
    Ok(placed
        .into_iter()
        .map(|placed| {
            let key = places.key(file, &placed);
            let times = seen.entry(key.clone()).or_default();
            *times += 1;
            let key = if *times == 1 { key } else { format!("{key} ({times})") };
            Loaded { file: file.to_owned(), key, scenario: placed.scenario }
        })
        .collect())
}

/// The scenarios of files that the command line names.
pub(super) fn named(files: &[String], places: &Places, changes: &Changes) -> Found {
    let mut found = Found::default();
    let mut keys: BTreeSet<String> = BTreeSet::new();
    for file in files {
        match read(file, places, changes) {
            // A file that is named twice is one file.
            Ok(all) => {
                found.scenarios.extend(all.into_iter().filter(|loaded| keys.insert(loaded.key.clone())));
            }
            Err(failure) => found.unread.push(Unread { place: file.clone(), failure }),
        }
    }
    found
}

/// Every scenario that the lock holds, under the engines that it holds it for. Each file is read once an engine.
pub(super) fn of_lock(lock: &Lock, places: &Places, changes: &Changes) -> Found {
    let mut found = Found::default();
    let mut files: BTreeMap<String, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (key, engines) in lock.scenarios() {
        match places.find(key) {
            Place::Shipped => {
                files.entry(key.to_owned()).or_default().entry(key).or_default().extend(engines);
            }
            Place::File(file, _) => {
                files.entry(file).or_default().entry(key).or_default().extend(engines);
            }
            place => lost(lock, key, &place, &mut found),
        }
    }
    for (file, wanted) in files {
        let engines: BTreeSet<&str> = match &changes.engine {
            Some(engine) => [engine.as_str()].into(),
            None => wanted.values().flatten().copied().collect(),
        };
        let mut left: BTreeSet<&str> = wanted.keys().copied().collect();
        let mut broken = false;
        for engine in engines {
            let of_engine = Changes { engine: Some(engine.to_owned()), ..changes.clone() };
            match read(&file, places, &of_engine) {
                Ok(all) => {
                    for loaded in all {
                        let Some((key, locked)) = wanted.get_key_value(loaded.key.as_str()) else { continue };
                        left.remove(key);
                        if changes.engine.is_some() || locked.contains(engine) {
                            found.scenarios.push(loaded);
                        }
                    }
                }
                Err(failure) => {
                    found.unread.push(Unread { place: file.clone(), failure });
                    broken = true;
                    break;
                }
            }
        }
        if !broken {
            let why = format!("`{file}` has no such arm or case");
            found.gone.extend(left.into_iter().map(|key| (key.to_owned(), why.clone())));
        }
    }
    found.scenarios.sort_by(|a, b| a.key.cmp(&b.key));
    found
}

/// Keys of the lock whose scenario is not there any more.
pub(super) fn gone(lock: &Lock, places: &Places) -> Vec<(String, String)> {
    of_lock(lock, places, &Changes::default()).gone
}

/// Notes an entry whose file is not there, or not known.
fn lost(lock: &Lock, key: &str, place: &Place, found: &mut Found) {
    match place {
        Place::Gone(file) => found.gone.push((key.to_owned(), format!("there is no file `{file}`"))),
        _ if lock.is_by_name() => {
            let failure = Failure::new(format!("failed to check `{key}`, which the lock holds"))
                .caused_by("the lock is of version 1, which does not say in which file a scenario is")
                .hint("`k3plan check FILE... --update` with the scenarios' files writes where each is")
                .hint("where it is no more, take its table out of the lock by hand");
            found.unread.push(Unread { place: key.to_owned(), failure });
        }
        _ => found
            .gone
            .push((key.to_owned(), "there is no file and no shipped scenario of that name".to_owned())),
    }
}
