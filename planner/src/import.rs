//! What people already have, as layers and settings: a server's log.

pub mod beside;
pub mod log;
