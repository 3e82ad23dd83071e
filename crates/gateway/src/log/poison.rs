//! Rows that the store rejects for a reason of their own. They are separated from their batch, so that nothing behind
//! them waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gateway_core::logs::{BodyStorage, LogRow, LogSource};
use gateway_store::db::Dialect;
use gateway_store::{StoreError, logs};

use super::pacing::Pace;
use super::writer::{DrainError, LogWriter, blocking};

impl LogWriter {
    /// Stores the rows. A batch that is rejected is divided until the row that causes it is found. That row is stored
    /// without its bodies, or else set aside. An unavailable store is an error, and all rows are to be stored again.
    pub(super) async fn store_or_set_aside(&self, rows: Vec<LogRow>, pace: Pace) -> Result<(), DrainError> {
        let mut batches = self.batches(rows);
        while let Some(batch) = batches.pop() {
            match self.store_at_pace(Arc::clone(&batch), pace).await {
                Ok(()) => {}
                Err(error @ StoreError::Unavailable(_)) => return Err(error.into()),
                Err(error) => match Arc::unwrap_or_clone(batch) {
                    mut rows if rows.len() > 1 => {
                        let second = rows.split_off(rows.len() / 2);
                        batches.push(Arc::new(second));
                        batches.push(Arc::new(rows));
                    }
                    rows => {
                        for row in rows {
                            self.store_rejected(row, error.to_string(), pace).await?;
                        }
                    }
                },
            }
        }
        Ok(())
    }

    /// PostgreSQL stores ingested spans under the locks of all writers, so they are not mixed with rows that are stored
    /// beside those of other nodes.
    fn batches(&self, rows: Vec<LogRow>) -> Vec<Arc<Vec<LogRow>>> {
        if self.services.logs.dialect() == Dialect::Sqlite {
            return vec![Arc::new(rows)];
        }
        let (spans, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.source == LogSource::Otel);
        [spans, rows].into_iter().filter(|batch| !batch.is_empty()).map(Arc::new).collect()
    }

    async fn store_rejected(&self, row: LogRow, reason: String, pace: Pace) -> Result<(), DrainError> {
        // If the store rejects any row, this one is not the reason: it must wait like all others.
        self.check_writable(&row, pace).await?;
        if !row.request.is_empty() || !row.response.is_empty() {
            let off = BodyStorage::Off;
            let (request, response) = (Vec::new(), Vec::new());
            let without =
                LogRow { request, response, request_stored: off, response_stored: off, ..row.clone() };
            match self.store_at_pace(Arc::new(vec![without]), pace).await {
                Ok(()) => {
                    self.spool.shed_bodies.fetch_add(1, Ordering::Relaxed);
                    tracing::error!(id = row.id, %reason, "a log row was stored without its bodies");
                    return Ok(());
                }
                Err(error @ StoreError::Unavailable(_)) => return Err(error.into()),
                Err(_) => {}
            }
        }
        let spool = Arc::clone(&self.spool);
        Ok(blocking(move || spool.quarantine(&row, &reason)).await?)
    }

    /// Uses the connections that `store_at_pace` uses.
    async fn check_writable(&self, like: &LogRow, pace: Pace) -> Result<(), StoreError> {
        if pace == Pace::Yielding {
            return logs::check_writable(&self.services.logs_low_priority, like).await;
        }
        let (services, like) = (Arc::clone(&self.services), like.clone());
        self.on_main_runtime(async move { logs::check_writable(&services.logs, &like).await }).await
    }
}
