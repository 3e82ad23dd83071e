//! Whether the database with the shared buckets can be reached. While it cannot, no call waits for it: each node goes on
//! with its part at once, and a task asks once a second whether the database is back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gateway_store::StoreError;

use super::{Limits, unused};

/// The database counts as unreachable when an answer takes longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_DELAY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Outage(AtomicBool);

impl Limits {
    pub(super) fn is_cut_off(&self) -> bool {
        self.0.outage.0.load(Ordering::Relaxed)
    }

    /// Waits for an answer of the database, but not for long. Without one, an outage begins.
    pub(super) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, answer).await;
        let answer = answer.unwrap_or_else(|_| Err(StoreError::Unavailable("it does not answer".into())));
        if let Err(StoreError::Unavailable(_)) = answer {
            self.begin_outage();
        }
        answer
    }

    /// Waits for a lock that is held while the database is asked. None if that takes too long.
    pub(super) async fn lock_in_time<'a>(
        &self,
        lock: &'a tokio::sync::Mutex<()>,
    ) -> Option<tokio::sync::MutexGuard<'a, ()>> {
        tokio::time::timeout(ANSWER_TIMEOUT, lock.lock()).await.ok()
    }

    fn begin_outage(&self) {
        if self.0.outage.0.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::debug!("the database is not reachable; this node goes on with its part of the limits");
        let limits = self.clone();
        self.0.services.tasks.runtime.spawn(async move {
            let services = &limits.0.services;
            let mut is_over = false;
            while !is_over {
                tokio::time::sleep(RETRY_DELAY).await;
                let answer = tokio::time::timeout(ANSWER_TIMEOUT, services.db.ping()).await;
                is_over = matches!(answer, Ok(Ok(()))) || services.tasks.is_drained();
            }
            limits.0.outage.0.store(false, Ordering::Relaxed);
            if limits.is_sliced() {
                unused::restore(&limits).await;
            }
        });
    }
}
