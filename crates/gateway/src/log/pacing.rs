//! How fast log rows are moved to the store. Requests have priority: while many arrive, rows are moved in small batches
//! by low-priority threads. Otherwise large batches cost less per row. A large or old backlog takes precedence over
//! requests.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::spool::Spool;

/// This many new rows per second count as load. Fewer cost a few hundredths of a core, and a transaction on a low-priority
/// thread may keep readers waiting.
const BUSY_ROWS_PER_SECOND: f64 = 500.0;
/// Rates are measured over at least this long.
const RATE_WINDOW: Duration = Duration::from_millis(100);
/// The backlog is urgent when it fills one part in this many of the spool.
const URGENT_PARTS: u64 = 4;
/// It is also urgent when its oldest row waits for this long. Load of other programs may keep a low-priority thread from
/// running at all.
const URGENT_AGE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Requests need the CPU: small batches at low priority.
    Yielding,
    /// Large batches at normal priority.
    Normal,
    /// The backlog is large or old: normal priority, regardless of load.
    Urgent,
}

impl Pace {
    fn of(rows_per_second: f64, backlog: u64, spool_limit: u64, age: Duration) -> Self {
        if backlog >= spool_limit / URGENT_PARTS || age >= URGENT_AGE {
            Self::Urgent
        } else if rows_per_second < BUSY_ROWS_PER_SECOND {
            Self::Normal
        } else {
            Self::Yielding
        }
    }
}

/// Measures how many rows are appended to the spool.
pub struct LoadMonitor {
    appended: u64,
    measured_at: Instant,
    rows_per_second: f64,
}

impl LoadMonitor {
    pub fn new(spool: &Spool) -> Self {
        let appended = spool.appended.load(Ordering::Relaxed);
        Self { appended, measured_at: Instant::now(), rows_per_second: 0.0 }
    }

    /// `age`: how long the oldest row has been waiting.
    pub fn pace(&mut self, spool: &Spool, age: Duration) -> Pace {
        self.measure(spool);
        Pace::of(self.rows_per_second, spool.backlog(), spool.limit(), age)
    }

    fn measure(&mut self, spool: &Spool) {
        let elapsed = self.measured_at.elapsed();
        if elapsed >= RATE_WINDOW {
            let before = std::mem::replace(&mut self.appended, spool.appended.load(Ordering::Relaxed));
            let rows = u32::try_from(self.appended - before).unwrap_or(u32::MAX);
            self.rows_per_second = f64::from(rows) / elapsed.as_secs_f64();
            self.measured_at = Instant::now();
        }
    }
}

/// The batch size at the yielding pace. A transaction blocks other writers, and a low-priority thread may be kept from
/// ending it, so a batch is as large as can be written in a fixed time.
pub struct AdaptiveBatch {
    rows: usize,
}

impl Default for AdaptiveBatch {
    fn default() -> Self {
        Self { rows: Self::MIN_ROWS }
    }
}

impl AdaptiveBatch {
    const TARGET: Duration = Duration::from_millis(100);
    const MIN_ROWS: usize = 8;

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Adapts the size after a batch: doubles it if the batch was fast enough, otherwise scales it down.
    pub fn record(&mut self, rows: usize, elapsed: Duration, max_rows: usize) {
        let fitting = if elapsed <= Self::TARGET {
            self.rows * 2
        } else {
            rows * Self::TARGET.subsec_millis() as usize
                / usize::try_from(elapsed.as_millis()).unwrap_or(usize::MAX)
        };
        self.rows = fitting.clamp(Self::MIN_ROWS, max_rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_yield_to_load_until_the_backlog_is_large_or_old() {
        let (spool, young) = (1_u64 << 30, Duration::from_millis(1_900));
        assert_eq!(Pace::of(10.0, 0, spool, young), Pace::Normal);
        assert_eq!(Pace::of(5_000.0, 0, spool, young), Pace::Yielding);
        assert_eq!(Pace::of(5_000.0, 250 << 20, spool, young), Pace::Yielding);
        assert_eq!(Pace::of(5_000.0, 256 << 20, spool, young), Pace::Urgent);
        assert_eq!(Pace::of(10.0, 256 << 20, spool, young), Pace::Urgent);
        for rows_per_second in [10.0, 5_000.0] {
            assert_eq!(Pace::of(rows_per_second, 1, spool, Duration::from_secs(2)), Pace::Urgent);
        }
    }

    #[test]
    fn batches_grow_while_they_are_fast_and_shrink_when_they_are_slow() {
        let mut batch = AdaptiveBatch::default();
        for expected in [16, 32, 64, 128, 128] {
            batch.record(batch.rows(), Duration::from_millis(10), 128);
            assert_eq!(batch.rows(), expected);
        }
        for (milliseconds, expected) in [(200, 64), (2_000, 8), (60_000, 8)] {
            batch.record(batch.rows(), Duration::from_millis(milliseconds), 128);
            assert_eq!(batch.rows(), expected);
        }
    }
}
