//! The kernels compile for GPUs without one.
