//! One file a subcommand.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod plan;
pub(crate) mod schema;
pub(crate) mod verify;
pub(crate) mod zoo;
