//! Samples of all connections, and the measured window.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::connection::ResponseInfo;
use crate::stats::Histogram;

/// The measured part of a run; the warmup comes before it.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) from: Instant,
    pub(super) to: Instant,
}

pub(super) struct Samples {
    pub(super) latency: Histogram,
    pub(super) first: Histogram,
    pub(super) completed: u64,
    pub(super) total: u64,
    pub(super) reconnects: u64,
}

/// Shared by all connections. With one thread the lock is never contended.
pub(super) struct Record {
    window: Window,
    seen: Mutex<Samples>,
}

impl Window {
    pub(super) fn new(warmup: Duration, length: Duration) -> Self {
        let from = Instant::now() + warmup;
        Self { from, to: from + length }
    }

    pub(super) fn holds(&self, at: Instant) -> bool {
        self.from <= at && at < self.to
    }
}

impl Record {
    pub(super) fn new(window: Window) -> Self {
        let seen = Samples {
            latency: Histogram::new(),
            first: Histogram::new(),
            completed: 0,
            total: 0,
            reconnects: 0,
        };
        Self { window, seen: Mutex::new(seen) }
    }

    /// `start` is when the request was due or sent: see `drive`. `counts` is whether its latency belongs to the
    /// window. Work is counted at the end of the response, where CPU time is sampled.
    pub(super) fn add(&self, start: Instant, answer: &ResponseInfo, end: Instant, counts: bool) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.total += 1;
        seen.completed += u64::from(self.window.holds(end));
        if counts {
            seen.latency.record(nanoseconds(end.saturating_duration_since(start)));
            seen.first.record(nanoseconds(answer.first.saturating_duration_since(start)));
        }
    }

    pub(super) fn add_reconnects(&self, reconnects: u64) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).reconnects += reconnects;
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Samples) -> T) -> T {
        read(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
