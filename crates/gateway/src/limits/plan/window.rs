//! The request counter of one key or user. The window arithmetic is in `gateway_core::limits`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gateway_core::limits::{window_end, window_of};
use gateway_core::time::{MINUTE, Timestamp};

/// Counts the requests of one key or user in one-minute windows, without a lock. Each word contains the low half of the
/// window number and a count, so that a new window needs no reset.
#[derive(Default)]
pub struct WindowCounter {
    used: AtomicU64,
    /// The known count of the other nodes.
    remote: AtomicU64,
    /// How much of `used` was reported to the other nodes.
    reported: AtomicU64,
    is_queued: AtomicBool,
}

/// The position of a request in its window: it is the `used`th request on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub window: i64,
    pub used: u64,
}

const COUNT_MASK: u64 = 0xffff_ffff;

impl Counted {
    fn tag(self) -> u64 {
        tag_of(self.window)
    }

    pub fn ends_at(self) -> Timestamp {
        window_end(self.window, MINUTE)
    }

    /// The time since the window began.
    pub fn elapsed(self, now: Timestamp) -> Duration {
        let began = self.ends_at().0 - MINUTE;
        Duration::from_millis(u64::try_from(now.0 - began).unwrap_or(0))
    }
}

fn tag_of(window: i64) -> u64 {
    (window.cast_unsigned() & COUNT_MASK) << 32
}

fn in_window(word: &AtomicU64, tag: u64) -> u64 {
    let seen = word.load(Ordering::Relaxed);
    if seen & !COUNT_MASK == tag { seen & COUNT_MASK } else { 0 }
}

impl WindowCounter {
    /// Counts one more request.
    pub fn add(&self, now: Timestamp) -> Counted {
        let window = window_of(now, MINUTE);
        let tag = tag_of(window);
        let mut seen = self.used.load(Ordering::Relaxed);
        loop {
            // The count saturates, so that it cannot overflow into the window number.
            let next = if seen & !COUNT_MASK != tag {
                tag | 1
            } else if seen & COUNT_MASK == COUNT_MASK {
                seen
            } else {
                seen + 1
            };
            match self.used.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Counted { window, used: next & COUNT_MASK },
                Err(now_seen) => seen = now_seen,
            }
        }
    }

    /// The known count of the other nodes in the same window.
    pub fn remote(&self, counted: Counted) -> u64 {
        in_window(&self.remote, counted.tag())
    }

    /// How much of the window was reported to the other nodes.
    pub fn reported(&self, counted: Counted) -> u64 {
        in_window(&self.reported, counted.tag())
    }

    /// Marks the counter as queued for a report. Returns false if it is queued already.
    pub fn mark_queued(&self) -> bool {
        !self.is_queued.swap(true, Ordering::AcqRel)
    }

    /// Returns the count to report. Later requests queue the counter again.
    pub fn take_report(&self) -> Counted {
        self.is_queued.swap(false, Ordering::AcqRel);
        let seen = self.used.load(Ordering::Relaxed);
        Counted { window: (seen >> 32).cast_signed(), used: seen & COUNT_MASK }
    }

    /// Records a completed exchange: what this node reported, and the count of the others.
    pub fn record_exchange(&self, reported: Counted, remote: u64) {
        self.raise_remote(reported, remote);
        self.reported.store(reported.tag() | reported.used, Ordering::Relaxed);
    }

    /// Records the total of all nodes; what was not counted here was counted by the others.
    pub fn observe_total(&self, counted: Counted, total: u64) {
        self.raise_remote(counted, total.saturating_sub(in_window(&self.used, counted.tag())));
    }

    fn raise_remote(&self, counted: Counted, remote: u64) {
        let (tag, remote) = (counted.tag(), remote.min(COUNT_MASK));
        let larger =
            |seen: u64| (seen & !COUNT_MASK != tag || seen & COUNT_MASK < remote).then_some(tag | remote);
        // An error means that the known count is as large.
        let _ = self.remote.fetch_update(Ordering::Relaxed, Ordering::Relaxed, larger);
    }

    /// True if requests were counted in the current window.
    pub fn is_current(&self, now: Timestamp) -> bool {
        self.used.load(Ordering::Relaxed) & !COUNT_MASK == tag_of(window_of(now, MINUTE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_minute_opens_a_new_window() {
        let counter = WindowCounter::default();
        let used = |now| counter.add(Timestamp(now)).used;
        assert_eq!([used(0), used(1), used(59_999), used(60_000)], [1, 2, 3, 1]);
    }

    #[test]
    fn remote_counts_apply_to_their_window_only() {
        let counter = WindowCounter::default();
        let first = counter.add(Timestamp(0));
        assert!(counter.mark_queued());
        assert!(!counter.mark_queued(), "it is queued already");
        assert_eq!(counter.take_report(), first);
        counter.record_exchange(first, 7);
        assert_eq!((counter.remote(first), counter.reported(first)), (7, 1));
        counter.observe_total(first, 6);
        assert_eq!(counter.remote(first), 7, "the known count never decreases");
        counter.observe_total(first, 10);
        assert_eq!(counter.remote(first), 9);
        let next = counter.add(Timestamp(60_000));
        assert_eq!((counter.remote(next), counter.reported(next)), (0, 0));
    }
}
