//! The application's clock: the system time plus an offset that only tests set.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::UNIX_EPOCH;

use gateway_core::time::Timestamp;

#[derive(Clone, Debug, Default)]
pub struct Clock {
    offset: Arc<AtomicI64>,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
    pub fn now(&self) -> Timestamp {
        let since_epoch = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let system = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        Timestamp(system.saturating_add(self.offset.load(Ordering::Relaxed)))
    }

    /// Moves the clock forward. Only for tests.
    pub fn advance(&self, milliseconds: i64) {
        self.offset.fetch_add(milliseconds, Ordering::Relaxed);
    }
}
