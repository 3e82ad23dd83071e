//! Time-ordered 53-bit ids, unique across nodes. A log row has its id before the response starts.

use std::sync::atomic::{AtomicI64, Ordering};

use gateway_core::logs::{LOG_ID_LOW_BITS, LOG_ID_NODE_BITS, OTEL_NODE, first_log_id};
use gateway_core::time::Timestamp;

const COUNT_BITS: u32 = LOG_ID_LOW_BITS - LOG_ID_NODE_BITS;

/// Generates ids that ascend on this node. When a millisecond has no number left, the sequence borrows from the next
/// one.
pub struct IdSequence {
    node: AtomicI64,
    /// Milliseconds and count, without the node.
    last: AtomicI64,
}

impl IdSequence {
    pub fn new(node: i64) -> Self {
        let ids = Self { node: AtomicI64::new(0), last: AtomicI64::new(0) };
        ids.set_node(node);
        ids
    }

    pub fn node(&self) -> i64 {
        self.node.load(Ordering::Relaxed)
    }

    pub fn set_node(&self, node: i64) {
        self.node.store(node % OTEL_NODE, Ordering::Relaxed);
    }

    pub fn next(&self, now: Timestamp) -> i64 {
        let earliest = first_log_id(now) >> LOG_ID_NODE_BITS;
        let before = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some((last + 1).max(earliest)))
            .unwrap_or_else(|last| last);
        let ticket = (before + 1).max(earliest);
        let (time, count) = (ticket >> COUNT_BITS, ticket & ((1 << COUNT_BITS) - 1));
        (time << LOG_ID_LOW_BITS) | (self.node() << COUNT_BITS) | count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_core::logs::log_id_time;

    #[test]
    fn ids_ascend_and_carry_their_time() {
        let ids = IdSequence::new(3);
        let now = Timestamp(1_794_700_000_000);
        let made: Vec<i64> = (0..1_000).map(|_| ids.next(now)).collect();
        assert!(made.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(log_id_time(made[0]), now);
        assert!(log_id_time(made[999]).0 - now.0 < 10);
    }

    #[test]
    fn nodes_never_make_the_same_id() {
        let now = Timestamp(1_794_700_000_000);
        let (a, b) = (IdSequence::new(1), IdSequence::new(2));
        let first: std::collections::HashSet<i64> = (0..1_000).map(|_| a.next(now)).collect();
        assert!((0..1_000).all(|_| !first.contains(&b.next(now))));
    }
}
