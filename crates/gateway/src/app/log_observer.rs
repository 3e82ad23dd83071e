//! Notifies the components of stored log rows: budgets count them, the live tail publishes them, and evals of live
//! traffic sample them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use gateway_core::logs::LogRow;
use gateway_store::StoreError;
use gateway_store::logs::Written;

use super::App;
use crate::jobs::live_evals::{self, Trace};
use crate::log::BatchObserver;
use crate::log::tail::StoredRow;

pub struct LogObserver {
    app: Arc<App>,
    /// Stored rows that evals of live traffic may sample.
    traces: Mutex<Vec<Trace>>,
}

impl BatchObserver for LogObserver {
    fn write_started(&self, rows: &Arc<Vec<LogRow>>) {
        self.app.proxy.budgets.write_started(rows);
    }

    fn stored(&self, mut rows: Arc<Vec<LogRow>>, written: Written) {
        self.app.proxy.budgets.stored(&rows, &written.new);
        if !written.counted.is_empty() {
            // Rows that are beyond a quota are in no list.
            Arc::make_mut(&mut rows).retain(|row| !written.counted.contains(&row.id));
        }
        self.publish(&rows);
        self.traces().extend(rows.iter().filter_map(Trace::of));
    }

    fn pending(&self) -> usize {
        self.traces().len()
    }

    /// Samples rows while the spool still has them, so that a crash skips none. A permanent error does not block
    /// the rows behind.
    fn follow_up(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let traces = std::mem::take(&mut *self.traces());
            match live_evals::sample(&self.app.jobs, &traces).await {
                Err(error @ StoreError::Unavailable(_)) => {
                    self.traces().extend(traces);
                    Err(error)
                }
                Err(error) => {
                    tracing::error!(%error, "cannot sample new log rows for evals");
                    Ok(())
                }
                Ok(()) => Ok(()),
            }
        }
        .boxed()
    }
}

impl LogObserver {
    pub fn new(app: Arc<App>) -> Self {
        Self { app, traces: Mutex::default() }
    }

    /// Publishes rows once they can be read back, so that a subscriber finds a missed row in the store.
    fn publish(&self, rows: &[LogRow]) {
        let tail = &self.app.proxy.tail;
        if tail.receiver_count() > 0 {
            for row in rows {
                // An error means that the last subscriber has disconnected.
                let _ = tail.send(StoredRow::of(row));
            }
        }
    }

    fn traces(&self) -> MutexGuard<'_, Vec<Trace>> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
