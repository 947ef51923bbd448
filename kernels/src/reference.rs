//! What must each kernel give? Plain loops over slices, written apart from the kernels.
//!
//! Everything but the reads is held to bit by bit; [`paged_read::TOLERANCE`] is that of the reads.

pub mod block_table;
pub mod kv_cache_write;
pub mod metadata;
pub mod numbers;
pub mod paged_read;
pub mod slot_mapping;
pub mod state_update;
