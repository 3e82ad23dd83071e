//! The error type of the benchmark, a message for the terminal, and the flag that stops a run early.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) type BenchResult<T> = Result<T, BenchError>;

#[derive(Debug)]
pub(crate) struct BenchError(String);

impl BenchError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub(crate) fn stopped() -> Self {
        Self::new("stopped")
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BenchError {}

impl From<std::io::Error> for BenchError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

pub(crate) trait Context<T> {
    /// Prefixes the error with the attempted operation.
    fn context(self, doing: impl fmt::Display) -> BenchResult<T>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, doing: impl fmt::Display) -> BenchResult<T> {
        self.map_err(|error| BenchError(format!("{doing}: {error}")))
    }
}

/// Set once, by a signal or the time limit. Every wait of the controller checks it.
#[derive(Clone, Default)]
pub(crate) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    pub(crate) fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn check(&self) -> BenchResult<()> {
        if self.0.load(Ordering::Relaxed) { Err(BenchError::stopped()) } else { Ok(()) }
    }

    pub(crate) fn sleep(&self, time: Duration) -> BenchResult<()> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }
}
