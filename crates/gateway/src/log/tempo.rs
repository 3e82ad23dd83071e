//! How the log's rows are moved. Requests come first: while many of them pass, rows are moved in small steps by threads
//! that step back, and wait on disk meanwhile. When it is quiet, large batches cost less; when too many rows wait, they come
//! first themselves.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::app::App;

/// As many rows in a second are load.
const BUSY: f64 = 200.0;
/// Rates are taken over at least this long.
const WINDOW: Duration = Duration::from_millis(100);
/// The share of the spool that may wait before load is no excuse any more.
const SHARE: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tempo {
    /// Others may want the core: in small steps.
    AtEase,
    /// There is no need to hold back.
    Swift,
    /// Load is no excuse any more.
    Pressed,
}

impl Tempo {
    fn of(rate: f64, backlog: u64, spool_bytes: u64) -> Self {
        if backlog >= spool_bytes / SHARE {
            Self::Pressed
        } else if rate < BUSY {
            Self::Swift
        } else {
            Self::AtEase
        }
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
        Self { appended: app.proxy.spool.appended.load(Ordering::Relaxed), at: Instant::now(), rate: 0.0 }
    }

    pub fn tempo(&mut self, app: &App) -> Tempo {
        Tempo::of(self.rate(app), app.proxy.spool.backlog(), app.services.config.spool_bytes)
    }

    fn rate(&mut self, app: &App) -> f64 {
        let elapsed = self.at.elapsed();
        if elapsed >= WINDOW {
            let before =
                std::mem::replace(&mut self.appended, app.proxy.spool.appended.load(Ordering::Relaxed));
            let rows = u32::try_from(self.appended - before).unwrap_or(u32::MAX);
            self.rate = f64::from(rows) / elapsed.as_secs_f64();
            self.at = Instant::now();
        }
        self.rate
    }
}

/// How many rows go into one transaction at ease. While it lasts nobody else can write, and a thread that steps back may be
/// kept from ending it: so the steps are as long as can be done within a moment.
pub struct Step(usize);

impl Default for Step {
    fn default() -> Self {
        Self(Self::FEWEST)
    }
}

impl Step {
    const MOMENT: Duration = Duration::from_millis(100);
    const FEWEST: usize = 8;

    pub fn rows(&self) -> usize {
        self.0
    }

    /// A step of so many rows took so long.
    pub fn took(&mut self, rows: usize, time: Duration, most: usize) {
        let fitting = if time <= Self::MOMENT {
            self.0 * 2
        } else {
            rows * Self::MOMENT.subsec_millis() as usize
                / usize::try_from(time.as_millis()).unwrap_or(usize::MAX)
        };
        self.0 = fitting.clamp(Self::FEWEST, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_moved_at_ease_under_load_until_too_many_wait() {
        let spool = 1_u64 << 30;
        assert_eq!(Tempo::of(10.0, 0, spool), Tempo::Swift);
        assert_eq!(Tempo::of(5_000.0, 0, spool), Tempo::AtEase);
        assert_eq!(Tempo::of(5_000.0, 250 << 20, spool), Tempo::AtEase);
        assert_eq!(Tempo::of(5_000.0, 256 << 20, spool), Tempo::Pressed);
        assert_eq!(Tempo::of(10.0, 256 << 20, spool), Tempo::Pressed);
    }

    #[test]
    fn steps_grow_while_they_are_done_in_a_moment_and_shrink_when_they_are_not() {
        let mut step = Step::default();
        for expected in [16, 32, 64, 128, 128] {
            step.took(step.rows(), Duration::from_millis(10), 128);
            assert_eq!(step.rows(), expected);
        }
        for (milliseconds, expected) in [(200, 64), (2_000, 8), (60_000, 8)] {
            step.took(step.rows(), Duration::from_millis(milliseconds), 128);
            assert_eq!(step.rows(), expected);
        }
    }
}
