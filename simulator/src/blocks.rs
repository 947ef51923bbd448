//! Who holds which KV cache blocks: the pool, the prefix index and one manager a kind of group.

pub(crate) mod block_pool;
pub(crate) mod cache;
pub(crate) mod class;
pub(crate) mod hit;
pub(crate) mod index;
pub(crate) mod state;
pub(crate) mod tokens;
