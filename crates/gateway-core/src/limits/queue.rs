//! The order of calls that wait: by priority, then by arrival, and every two seconds of waiting count as one step of
//! priority. All waiters age alike, so the place of two of them never changes while they wait.

use std::collections::BTreeMap;

use crate::time::Timestamp;

/// How long waiting counts as one step of priority, in milliseconds.
const STEP_MS: i64 = 2_000;

/// The place of a waiter. The smallest is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order {
    rank: i64,
    arrival: u64,
}

pub struct WaitQueue<T> {
    waiting: BTreeMap<Order, T>,
    arrivals: u64,
}

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), arrivals: 0 }
    }
}

impl<T> WaitQueue<T> {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The place that a call of this priority would get. The highest priority is 9.
    pub fn place(&mut self, priority: u8, now: Timestamp) -> Order {
        self.arrivals += 1;
        Order { rank: now.0 - i64::from(priority) * STEP_MS, arrival: self.arrivals }
    }

    pub fn insert(&mut self, order: Order, waiter: T) {
        self.waiting.insert(order, waiter);
    }

    pub fn get_mut(&mut self, order: Order) -> Option<&mut T> {
        self.waiting.get_mut(&order)
    }

    pub fn remove(&mut self, order: Order) -> Option<T> {
        self.waiting.remove(&order)
    }

    /// Those before a place, in order.
    pub fn before(&self, order: Order) -> impl Iterator<Item = &T> {
        self.waiting.range(..order).map(|(_, waiter)| waiter)
    }

    /// All in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Order, &T)> {
        self.waiting.iter()
    }
}
