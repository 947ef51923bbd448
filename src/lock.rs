//! The lock file: what each scenario's plan came to, one table a scenario and engine, in TOML.
//!
//! ```toml
//! version = 1
//!
//! [policy]
//! max_groups = 8
//!
//! [plans."kimi-k3"."0.33"]
//! groups = 4
//! ...
//! ```
//!
//! Comments and the order of entries are kept when an entry is rewritten.

mod entry;
mod file;
mod policy;

pub(crate) use entry::{Entry, Moved, Verdict};
pub(crate) use file::{Lock, write_beside};
pub(crate) use policy::Policy;
