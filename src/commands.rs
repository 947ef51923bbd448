//! One file a subcommand.

pub(crate) mod bench;
pub(crate) mod bench_device;
pub(crate) mod calibrate;
pub(crate) mod capacity;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod devices;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod fit;
pub(crate) mod import;
pub(crate) mod import_log;
pub(crate) mod optimize;
pub(crate) mod plan;
pub(crate) mod predict;
pub(crate) mod schema;
pub(crate) mod simulate;
pub(crate) mod verify;
pub(crate) mod zoo;
