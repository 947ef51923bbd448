//! Each kernel as a function: checks the sizes it is given against its memory, and makes a launch.
//!
//! Whatever the memory holds, a launch from here stays inside it: the kernels check ids, rows and lengths, and
//! the functions here check shapes. Sizes are `usize`; memory is passed by reference and kept by the launch.

pub mod blocks;
pub mod builder;
pub mod cache;
pub mod probe;
mod shape;
pub mod state;

pub use shape::ShapeError;
