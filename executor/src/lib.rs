//! Plans on real devices, live servers under load, and whether a change is real.

pub mod compare;
pub mod device;
pub mod kernel;
pub mod launch_limits;
pub mod load;
pub mod measure;
pub mod replay;
pub mod server;
