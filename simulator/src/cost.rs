//! How long a step takes: what the device does, what the host does, and what of it is hidden.
//!
//! A model's [`Shape`] says what a layer computes and reads; [`Hardware`] gives a device's peaks; [`Factors`] say
//! what of them is reached. [`CostModel`] makes a [`Breakdown`] of a [`Batch`]; [`closed_loop`] puts steps together
//! to what a client measures; [`calibrate`] fits the factors to measurements. All times are seconds, all sizes
//! bytes, all rates a second.

pub mod calibrate;
pub mod closed_loop;
mod factors;
mod hardware;
mod host;
pub mod leftover;
pub mod shape;
mod step;
mod weights;

pub use factors::{Factor, FactorError, FactorText, Factors};
pub use hardware::{Hardware, HardwareError, known_hardware};
pub use host::{Dispatch, Exposure};
pub use shape::{Shape, ShapeError};
pub use step::{Batch, Breakdown, Component, CostError, CostModel, Layout, Prompt};
pub use weights::{Precision, WeightFormat};
