//! Background maintenance of stored log rows: merges the runs of the search index, indexes rows whose words an earlier
//! version has put off, and removes rows that are older than their retention, also from the queues of exports.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::OrgId;
use gateway_core::time::Timestamp;
use gateway_store::{Db, StoreError, exports, logs, orgs, verdicts};

use super::pacing::{LoadMonitor, Pace};
use super::spool::Spool;
use crate::services::Services;

const TICK: Duration = Duration::from_secs(1);
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);
const SWEEP_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Rows indexed in one transaction. Few enough that a batch of new rows does not wait long for it.
const INDEX_ROWS: i64 = 100;
const YIELDING_INDEX_ROWS: i64 = 16;

pub async fn run(services: Arc<Services>, spool: Arc<Spool>) {
    let mut next_sweep = services.clock.now();
    let mut load = LoadMonitor::new(&spool);
    while tokio::time::timeout(TICK, services.tasks.stopping()).await.is_err() {
        if let Err(error) = update_index(&services, &spool, &mut load).await {
            tracing::debug!(%error, "cannot update the search index; it is retried");
        }
        let now = services.clock.now();
        if now < next_sweep {
            continue;
        }
        match sweep(&services, now).await {
            // More rows may be due: the next tick continues.
            Ok(removed) if removed > 0 => {
                tracing::info!(
                    removed,
                    "removed log rows, sessions, usage by user and verdicts past their retention"
                );
            }
            Ok(_) => next_sweep = now.after(SWEEP_INTERVAL),
            Err(error) => {
                tracing::debug!(%error, "cannot apply the log retention; it is retried");
                next_sweep = now.after(SWEEP_RETRY_DELAY);
            }
        }
    }
}

async fn update_index(services: &Services, spool: &Spool, load: &mut LoadMonitor) -> Result<(), StoreError> {
    // New rows take precedence over the index.
    while !services.tasks.is_stopping() && logs::merge_runs(&services.logs_low_priority).await? {
        tokio::task::yield_now().await;
    }
    while !services.tasks.is_stopping() {
        let rows =
            if load.pace(spool, Duration::ZERO) == Pace::Normal { INDEX_ROWS } else { YIELDING_INDEX_ROWS };
        let done = logs::index_pending(&services.logs_low_priority, rows).await?;
        if i64::try_from(done).is_ok_and(|done| done < rows) {
            break;
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The organizations that keep their rows for another time than the operator's. It is never longer.
async fn retentions(db: &Db, longest: u32) -> Result<Vec<(OrgId, u32)>, StoreError> {
    let stored = orgs::log_retentions(db).await?;
    Ok(stored.into_iter().map(|(org, days)| (org, days.min(longest))).collect())
}

async fn sweep(services: &Arc<Services>, now: Timestamp) -> Result<u64, StoreError> {
    let days = services.config.log_retention_days;
    // The write lock of the state database must not be held by a low-priority thread.
    let main = Arc::clone(services);
    let state = services.tasks.runtime.spawn(async move {
        let overrides = retentions(&main.db, days).await?;
        let removed = verdicts::sweep(&main.db, now, days, &overrides).await?;
        Ok::<_, StoreError>((overrides, removed))
    });
    let (overrides, verdicts) = state.await.map_err(|error| StoreError::Other(error.to_string()))??;
    let logs = &services.logs_low_priority;
    let removed = logs::sweep(logs, now, days, &overrides).await?;
    let expired = exports::sweep_expired(logs, now, days, &overrides).await?;
    if expired > 0 {
        tracing::warn!(
            rows = expired,
            "rows waited for exports for longer than they are kept, and were dropped"
        );
    }
    logs::close_days(logs, now).await?;
    Ok(verdicts + removed + expired)
}
