//! Step times of real models: what the simulator's cost model needs to know of a model, a device and a load.

pub(crate) mod aiconfigurator;
pub(crate) mod calibration;
pub(crate) mod effects;
pub(crate) mod groups;
pub(crate) mod layouts;
pub(crate) mod models;
pub(crate) mod points;
pub(crate) mod precision;
pub(crate) mod running;
pub(crate) mod slo;
