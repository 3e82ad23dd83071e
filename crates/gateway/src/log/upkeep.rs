//! What the log needs besides writing, done in the background when there is time: the search index of rows that were put
//! off under load, and the removal of rows that are past their retention.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::time::{MINUTE, Timestamp};
use gateway_store::{StoreError, logs, orgs, verdicts};

use super::tempo::{Tempo, Watch};
use crate::app::App;

const TICK: Duration = Duration::from_secs(1);
const SWEEP_EVERY: i64 = 10 * MINUTE;
/// Rows indexed in one transaction: short enough that a batch of new rows does not wait long behind it.
const INDEX_ROWS: i64 = 100;
const INDEX_ROWS_AT_EASE: i64 = 16;

pub async fn run(app: Arc<App>) {
    let mut next_sweep = app.services.clock.now();
    let mut watch = Watch::new(&app);
    while tokio::time::timeout(TICK, app.services.tasks.stopping()).await.is_err() {
        if let Err(error) = index(&app, &mut watch).await {
            tracing::debug!(%error, "the search index waits");
        }
        let now = app.services.clock.now();
        if now < next_sweep {
            continue;
        }
        match sweep(&app, now).await {
            // There may be more: go on at the next tick.
            Ok(removed) if removed > 0 => {
                tracing::info!(removed, "log rows and verdicts past their retention were removed");
            }
            Ok(_) => next_sweep = now.plus(SWEEP_EVERY),
            Err(error) => {
                tracing::debug!(%error, "retention waits");
                next_sweep = now.plus(MINUTE);
            }
        }
    }
}

async fn index(app: &App, watch: &mut Watch) -> Result<(), StoreError> {
    while !app.services.tasks.is_stopping() {
        let rows = if watch.tempo(app) == Tempo::Swift { INDEX_ROWS } else { INDEX_ROWS_AT_EASE };
        let done = logs::index_pending(&app.services.logs_low_priority, rows).await?;
        if i64::try_from(done).is_ok_and(|done| done < rows) {
            break;
        }
        // Rows that arrive come before the index of those that are there.
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn sweep(app: &App, now: Timestamp) -> Result<u64, StoreError> {
    let overrides = orgs::log_retentions(&app.services.db).await?;
    let days = app.services.config.log_retention_days;
    let judged = verdicts::sweep(&app.services.db, now, days, &overrides).await?;
    Ok(judged + logs::sweep(&app.services.logs_low_priority, now, days, &overrides).await?)
}
