//! Plans on real devices, live servers under load, and whether a change is real.

pub mod compare;
pub mod device;
pub mod load;
pub mod server;
