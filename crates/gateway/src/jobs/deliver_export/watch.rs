//! What a delivery in progress watches: whether its export was changed, and whether this node still holds the lease.

use std::time::Duration;

use gateway_core::ids::ExportId;
use gateway_store::exports;

use super::LEASE;
use crate::jobs::JobServices;

/// How often a running delivery checks whether its export was changed by another node.
const REVISION_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Several attempts fit into the time of a lease.
const RENEW_INTERVAL: Duration = Duration::from_secs(8);

/// Returns when the export was changed, disabled or deleted.
pub async fn wait_for_change(job_services: &JobServices, id: ExportId, revision: i64) {
    let mut local_changes = job_services.export_changes.subscribe();
    loop {
        // Changes on this node notify. Changes on other nodes are detected by polling.
        let _ = tokio::time::timeout(REVISION_CHECK_INTERVAL, local_changes.changed()).await;
        match exports::revision(&job_services.services.logs_low_priority, id).await {
            Ok(Some(found)) if found == revision => {}
            Ok(_) => return,
            Err(error) => {
                tracing::debug!(%error, "cannot check whether an export was changed; its delivery continues");
            }
        }
    }
}

/// Renews the lease while a batch waits or is sent. Returns only when another node has it. While the database is
/// unreachable the delivery continues; its result is recorded only if the lease is still held then.
pub async fn renew_lease(job_services: &JobServices, id: ExportId, owner: &str) {
    loop {
        tokio::time::sleep(RENEW_INTERVAL).await;
        let until = job_services.services.clock.now().after(LEASE);
        match exports::renew(&job_services.services.logs_low_priority, id, owner, until).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => tracing::debug!(%error, export = %id, "cannot renew the lease of an export"),
        }
    }
}
