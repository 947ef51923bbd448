//! Which scenarios are shipped: the files of `scenarios/models/`, embedded in the command.

use std::rc::Rc;

use super::tree::Source;

/// Name and text of each file, sorted by name.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/zoo.rs"));

/// Names of the shipped files, sorted.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The shipped file of that name.
pub(super) fn source(name: &str) -> Option<Rc<Source>> {
    let (name, text) = FILES.iter().find(|(known, _)| *known == name)?;
    Some(Rc::new(Source { name: format!("scenarios/models/{name}.yaml"), text: (*text).to_owned() }))
}

/// The shipped file and arm that `name` stands for, as in `kimi-k3-dspark-rocm-fixed`.
pub(super) fn with_arm(name: &str) -> impl Iterator<Item = (&'static str, &str)> {
    names().filter_map(move |file| Some((file, name.strip_prefix(file)?.strip_prefix('-')?)))
}
