//! What follows from stored rows, such as jobs for sampled rows. It may wait for other writers of the state database, so
//! readers of the rows must not wait for it. A segment is removed only after it: a crash skips nothing.

use std::sync::Arc;
use std::time::Instant;

use gateway_store::StoreError;
use tokio::task::JoinHandle;

use super::writer::{LogWriter, RETRY_DELAY};

/// Above this number of rows, the writer waits.
const MAX_PENDING: usize = 1 << 16;

/// The task that runs meanwhile.
#[derive(Default)]
pub(super) struct FollowUp {
    running: Option<JoinHandle<Result<(), StoreError>>>,
    retry_at: Option<Instant>,
}

impl LogWriter {
    /// Begins with what is pending, unless an earlier task still runs. Waits for it only if too much is pending.
    pub(super) async fn start_follow_up(&self, follow_up: &mut FollowUp) -> Result<(), StoreError> {
        let pending = self.observer.pending();
        if pending > MAX_PENDING {
            return self.finish_follow_up(follow_up).await;
        }
        if follow_up.running.as_ref().is_some_and(JoinHandle::is_finished)
            && let Err(error) = self.join_follow_up(follow_up).await
        {
            tracing::warn!(%error, retry_ms = RETRY_DELAY.as_millis(), "cannot sample stored log rows; retrying");
            follow_up.retry_at = Some(Instant::now() + RETRY_DELAY);
        }
        let is_due = follow_up.retry_at.is_none_or(|at| at <= Instant::now());
        if pending > 0 && follow_up.running.is_none() && is_due {
            let observer = Arc::clone(&self.observer);
            let task = async move { observer.follow_up().await };
            follow_up.running = Some(self.services.tasks.runtime.spawn(task));
        }
        Ok(())
    }

    /// Completes everything that is pending.
    pub(super) async fn finish_follow_up(&self, follow_up: &mut FollowUp) -> Result<(), StoreError> {
        // What failed is pending again.
        let _ = self.join_follow_up(follow_up).await;
        if self.observer.pending() == 0 {
            return Ok(());
        }
        let observer = Arc::clone(&self.observer);
        self.on_main_runtime(async move { observer.follow_up().await }).await
    }

    async fn join_follow_up(&self, follow_up: &mut FollowUp) -> Result<(), StoreError> {
        follow_up.retry_at = None;
        match follow_up.running.take() {
            None => Ok(()),
            Some(task) => task.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string()))),
        }
    }
}
