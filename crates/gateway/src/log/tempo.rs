//! How fast the log's background work goes. Requests come first: while many of them pass, rows are moved in small steps
//! with pauses between them, and wait on disk meanwhile. When it is quiet, it goes as fast as it can; when too many wait,
//! they come first themselves.

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
pub enum Tempo {
    /// With this wait before each step.
    AtEase(Duration),
    /// There is no need to hold back.
    Swift,
    /// Load is no excuse any more.
    Pressed,
}

impl Tempo {
    pub fn pause(self) -> Duration {
        match self {
            Self::AtEase(pause) => pause,
            Self::Swift | Self::Pressed => Duration::ZERO,
        }
    }

    /// The more rows wait, the shorter the pauses.
    fn of(rate: f64, backlog: u64, spool_bytes: u64) -> Self {
        let bearable = spool_bytes / SHARE;
        if backlog >= bearable {
            return Self::Pressed;
        }
        if rate < BUSY {
            return Self::Swift;
        }
        let room = u32::try_from((bearable - backlog) * 4 / bearable.max(1)).unwrap_or(4);
        // The timer counts whole milliseconds.
        let pause = (PAUSE * (room + 1) / 4).clamp(Duration::from_millis(1), PAUSE);
        Self::AtEase(pause)
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
        Tempo::of(self.rate(app), app.spool.backlog(), app.config.spool_bytes)
    }

    /// The tempo of work that can wait for longer than rows on disk can.
    pub fn patient_tempo(&mut self, app: &App) -> Tempo {
        Tempo::of(self.rate(app), 0, app.config.spool_bytes)
    }

    fn rate(&mut self, app: &App) -> f64 {
        let elapsed = self.at.elapsed();
        if elapsed >= WINDOW {
            let before = std::mem::replace(&mut self.appended, app.spool.appended.load(Ordering::Relaxed));
            let rows = u32::try_from(self.appended - before).unwrap_or(u32::MAX);
            self.rate = f64::from(rows) / elapsed.as_secs_f64();
            self.at = Instant::now();
        }
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_made_under_load_and_end_when_too_much_waits() {
        let spool = 1_u64 << 30;
        assert_eq!(Tempo::of(10.0, 0, spool), Tempo::Swift);
        assert_eq!(Tempo::of(5_000.0, 0, spool), Tempo::AtEase(PAUSE));
        assert_eq!(Tempo::of(5_000.0, 50 << 20, spool), Tempo::AtEase(Duration::from_millis(1)));
        assert_eq!(Tempo::of(5_000.0, 64 << 20, spool), Tempo::Pressed);
        assert_eq!(Tempo::of(10.0, 64 << 20, spool), Tempo::Pressed);
    }
}
