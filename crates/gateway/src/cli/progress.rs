//! Progress of long work, for people: one line on the terminal that is written over a few times a second, and removed at the
//! end. Nothing is written where the output is no terminal.

use std::io::{IsTerminal as _, Write as _};
use std::pin::pin;
use std::time::{Duration, Instant};

/// Work that is done sooner shows nothing.
const QUIET: Duration = Duration::from_millis(500);
const INTERVAL: Duration = Duration::from_millis(200);

pub struct Progress {
    /// Such as `entries checked`.
    what: String,
    is_terminal: bool,
    next: Instant,
    is_shown: bool,
}

impl Progress {
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_terminal: std::io::stderr().is_terminal(),
            next: Instant::now() + QUIET,
            is_shown: false,
        }
    }

    /// Notes how much is done.
    pub fn at(&mut self, done: u64) {
        if self.is_terminal
            && let Some(line) = self.line(done, Instant::now())
        {
            let _ = write!(std::io::stderr(), "{line}");
        }
    }

    /// The line that replaces the one before. None: it is too early for another.
    fn line(&mut self, done: u64, now: Instant) -> Option<String> {
        if now < self.next {
            return None;
        }
        (self.next, self.is_shown) = (now + INTERVAL, true);
        Some(format!("\r\x1b[K{done} {}", self.what))
    }
}

/// Shows the seconds that work takes which does not say how far it is.
pub async fn seconds_of<T>(what: &str, work: impl Future<Output = T>) -> T {
    let (mut progress, started) = (Progress::new(format!("s: {what}")), Instant::now());
    let mut ticks = tokio::time::interval(INTERVAL);
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => progress.at(started.elapsed().as_secs()),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_after_a_while_and_then_at_intervals() {
        let mut progress = Progress::new("entries checked");
        let start = progress.next.checked_sub(QUIET).unwrap();
        assert_eq!(progress.line(10, start + QUIET / 2), None);
        assert_eq!(progress.line(1_000, start + QUIET).unwrap(), "\r\x1b[K1000 entries checked");
        assert_eq!(progress.line(1_001, start + QUIET + INTERVAL / 2), None);
        assert!(progress.line(2_000, start + QUIET + INTERVAL).is_some());
        // Nothing is left to remove.
        progress.is_shown = false;
    }

    #[tokio::test]
    async fn work_is_awaited_with_its_result() {
        let work = async {
            tokio::time::sleep(INTERVAL * 2).await;
            7
        };
        assert_eq!(seconds_of("importing 3 keys", work).await, 7);
    }
}
