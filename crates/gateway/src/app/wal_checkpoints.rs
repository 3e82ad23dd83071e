//! Makes the checkpoints of the SQLite files, so that no commit has to.

use std::sync::Arc;
use std::time::Duration;

use crate::services::Services;

const INTERVAL: Duration = Duration::from_millis(250);

pub async fn run(services: Arc<Services>) {
    let Some(checkpoints) = services.db.wal_checkpoints().zip(services.logs.wal_checkpoints()) else {
        return;
    };
    let both = [checkpoints.0, checkpoints.1];
    while tokio::time::timeout(INTERVAL, services.tasks.drained()).await.is_err() {
        for file in &both {
            if let Err(error) = file.run_if_due().await {
                tracing::debug!(%error, "cannot make a checkpoint; it is retried");
            }
        }
    }
    for file in &both {
        file.close().await;
    }
}
