//! How fast the log's background work goes. Requests come first: while many of them pass, rows are moved in small steps
//! with pauses between them, and wait on disk meanwhile. When it is quiet, or too many wait, it goes as fast as it can.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::app::App;

/// As many rows in a second are load.
const BUSY: f64 = 200.0;
/// Rates are taken over at least this long.
const WINDOW: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(2);
/// The share of the spool that may wait before load is no excuse any more.
const SHARE: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tempo {
    /// The wait before each step; none when there is no need to hold back.
    pub pause: Duration,
}

impl Tempo {
    pub const SWIFT: Self = Self { pause: Duration::ZERO };

    pub fn is_swift(self) -> bool {
        self.pause.is_zero()
    }

    /// The more rows wait, the shorter the pauses.
    fn of(rate: f64, backlog: u64, spool_bytes: u64) -> Self {
        let bearable = spool_bytes / SHARE;
        if rate < BUSY || backlog >= bearable {
            return Self::SWIFT;
        }
        let room = u32::try_from((bearable - backlog) * 4 / bearable.max(1)).unwrap_or(4);
        // The timer counts whole milliseconds.
        let pause = (PAUSE * (room + 1) / 4).clamp(Duration::from_millis(1), PAUSE);
        Self { pause }
    }
}

/// Watches how many requests pass.
pub struct Watch {
    appended: u64,
    at: Instant,
    rate: f64,
}

impl Watch {
    pub fn new(app: &App) -> Self {
        Self { appended: app.spool.appended.load(Ordering::Relaxed), at: Instant::now(), rate: 0.0 }
    }

    pub fn tempo(&mut self, app: &App) -> Tempo {
        let elapsed = self.at.elapsed();
        if elapsed >= WINDOW {
            let before = std::mem::replace(&mut self.appended, app.spool.appended.load(Ordering::Relaxed));
            let rows = u32::try_from(self.appended - before).unwrap_or(u32::MAX);
            self.rate = f64::from(rows) / elapsed.as_secs_f64();
            self.at = Instant::now();
        }
        Tempo::of(self.rate, app.spool.backlog(), app.config.spool_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_made_under_load_and_end_when_too_much_waits() {
        let spool = 1_u64 << 30;
        assert!(Tempo::of(10.0, 0, spool).is_swift());
        assert_eq!(Tempo::of(5_000.0, 0, spool).pause, PAUSE);
        assert_eq!(Tempo::of(5_000.0, 50 << 20, spool).pause, Duration::from_millis(1));
        assert!(Tempo::of(5_000.0, 64 << 20, spool).is_swift());
    }
}
