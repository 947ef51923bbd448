//! Who holds which KV cache blocks: the pool, the prefix index and one manager a kind of group.

mod adopt;
pub(crate) mod block_pool;
pub(crate) mod cache;
mod caching;
pub(crate) mod class;
pub(crate) mod hit;
pub(crate) mod index;
mod keys;
mod pieces;
mod queue;
pub(crate) mod state;
pub(crate) mod tokens;
