//! In which order requests wait.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::engine::Policy;

/// Priority, arrival and name of a request, then its slot.
pub(crate) type Place = (i64, u64, u32, u32);

/// The waiting requests.
#[derive(Debug, Clone)]
pub(crate) enum Queue {
    Fcfs(VecDeque<u32>),
    Priority(BinaryHeap<Reverse<Place>>),
}

impl Queue {
    pub(crate) fn new(policy: Policy) -> Self {
        match policy {
            Policy::Fcfs => Self::Fcfs(VecDeque::new()),
            Policy::Priority => Self::Priority(BinaryHeap::new()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Fcfs(queue) => queue.len(),
            Self::Priority(heap) => heap.len(),
        }
    }

    pub(crate) fn peek(&self) -> Option<u32> {
        match self {
            Self::Fcfs(queue) => queue.front().copied(),
            Self::Priority(heap) => heap.peek().map(|Reverse(place)| place.3),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<u32> {
        match self {
            Self::Fcfs(queue) => queue.pop_front(),
            Self::Priority(heap) => heap.pop().map(|Reverse(place)| place.3),
        }
    }

    pub(crate) fn push(&mut self, place: Place) {
        match self {
            Self::Fcfs(queue) => queue.push_back(place.3),
            Self::Priority(heap) => heap.push(Reverse(place)),
        }
    }

    pub(crate) fn push_front(&mut self, place: Place) {
        match self {
            Self::Fcfs(queue) => queue.push_front(place.3),
            Self::Priority(heap) => heap.push(Reverse(place)),
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        match self {
            Self::Fcfs(queue) => queue.retain(|&other| other != slot),
            Self::Priority(heap) => heap.retain(|Reverse(place)| place.3 != slot),
        }
    }

    /// The waiting requests' slots, in no order.
    pub(crate) fn slots(&self) -> Vec<u32> {
        match self {
            Self::Fcfs(queue) => queue.iter().copied().collect(),
            Self::Priority(heap) => heap.iter().map(|Reverse(place)| place.3).collect(),
        }
    }
}
