//! One file a subcommand.

pub(crate) mod check;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod fit;
pub(crate) mod import;
pub(crate) mod plan;
pub(crate) mod schema;
pub(crate) mod verify;
