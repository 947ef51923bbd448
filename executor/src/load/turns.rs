//! When may a place send its next request? After the bytes that lie there were read.
//!
//! Streams of a wave end together. Building and sending a request costs several times what reading a token does, so
//! that a thousand of them in a row would let the other streams' bytes lie for milliseconds. Sends go one at a time,
//! each after a look at all sockets; the wait is part of the request's send lag.

use tokio::sync::Semaphore;

/// The order of one thread's sends.
#[derive(Debug)]
pub(crate) struct Turns {
    next: Semaphore,
}

impl Default for Turns {
    fn default() -> Self {
        Self { next: Semaphore::new(1) }
    }
}

impl Turns {
    /// Ready once those before had their turn and what was readable then was read.
    pub(crate) async fn after_reads(&self) {
        let turn = self.next.acquire().await;
        // Comes back behind the tasks that the event queue wakes.
        tokio::task::yield_now().await;
        drop(turn);
    }
}
