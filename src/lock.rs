//! The lock file: what each scenario's plan came to, one table a scenario and engine, in TOML.
//!
//! ```toml
//! version = 2
//!
//! [policy]
//! max_groups = 8
//!
//! [plans."models/k3.yaml"."0.33"]
//! groups = 4
//! ...
//! ```
//!
//! The key is where the scenario is ([`place`]). Version 1 kept the scenario's name alone, and no settings or layers; it is
//! read as before.
//!
//! Comments and the order of entries are kept when an entry is rewritten.

pub(crate) mod declared;
mod entry;
mod file;
mod place;
mod policy;

pub(crate) use entry::{Entry, Metric, Moved, Verdict};
pub(crate) use file::{Lock, write_beside};
pub(crate) use place::{Place, Places};
pub(crate) use policy::Policy;
