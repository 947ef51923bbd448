//! Step times of real models: what the simulator's cost model needs to know of a model, a device and a load.

pub(crate) mod calibration;
<<<<<<< HEAD
pub(crate) mod effects;
=======
pub(crate) mod groups;
>>>>>>> 6a81682 (optimize: which settings serve a load better than today's, and what each change gives by itself)
pub(crate) mod layouts;
pub(crate) mod models;
pub(crate) mod points;
pub(crate) mod precision;
pub(crate) mod running;
pub(crate) mod slo;
