//! Notifies the components of stored log rows: budgets count them, the live tail publishes them, and evals of live
//! traffic sample them.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use gateway_core::logs::LogRow;
use gateway_store::StoreError;
use gateway_store::logs::Written;

use super::App;
use crate::jobs::live_evals;
use crate::log::BatchObserver;
use crate::log::tail::StoredRow;

pub struct LogObserver(pub Arc<App>);

impl BatchObserver for LogObserver {
    fn write_started(&self, rows: &Arc<Vec<LogRow>>) {
        self.0.proxy.budgets.write_started(rows);
    }

    fn stored(&self, mut rows: Arc<Vec<LogRow>>, written: Written) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.proxy.budgets.stored(&rows, &written.new);
        if !written.counted.is_empty() {
            // Rows that are beyond a quota are in no list.
            Arc::make_mut(&mut rows).retain(|row| !written.counted.contains(&row.id));
        }
        self.publish(&rows);
        async move { self.sample(&rows).await }.boxed()
    }
}

impl LogObserver {
    /// Publishes rows once they can be read back, so that a subscriber finds a missed row in the store.
    fn publish(&self, rows: &[LogRow]) {
        let tail = &self.0.proxy.tail;
        if tail.receiver_count() > 0 {
            for row in rows {
                // An error means that the last subscriber has disconnected.
                let _ = tail.send(StoredRow::of(row));
            }
        }
    }

    /// Samples rows while the spool still has them, so that a crash skips none. A permanent error does not block
    /// the rows behind.
    async fn sample(&self, rows: &[LogRow]) -> Result<(), StoreError> {
        match live_evals::sample(&self.0.jobs, rows).await {
            Err(error @ StoreError::Unavailable(_)) => Err(error),
            Err(error) => {
                tracing::error!(%error, "cannot sample new log rows for evals");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}
