//! Deletes what deleted organizations have in the log database: rows with bodies and words, sessions, usage and exports;
//! and their audit log.
//! The entry that asks for it is written in the transaction of the deletion. The work is idempotent and done in short
//! transactions under a lease, so a node that dies leaves it to another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::audit::Chain;
use gateway_core::ids::OrgId;
use gateway_store::db::Dialect;
use gateway_store::{Lease, StoreError, audit, logs, org_purges};

use super::JobServices;

const NAME: &str = "purge_orgs";
/// How often a node looks for organizations that another node deleted or left half purged.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
const RETRY_DELAY: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
const RENEW_INTERVAL: Duration = Duration::from_secs(10);

/// Wakes the task of this node after an organization was deleted.
pub fn notify(job_services: &JobServices) {
    job_services.notifiers.get(NAME).notify_one();
}

pub async fn run(job_services: Arc<JobServices>) {
    let services = &job_services.services;
    if services.db.dialect() == Dialect::Sqlite
        && let Err(error) = org_purges::release_all(&services.db).await
    {
        tracing::debug!(%error, "cannot release the purges of the previous run; their leases expire");
    }
    let deleted = job_services.notifiers.get(NAME);
    while !services.tasks.is_stopping() {
        let delay = match purge_next(&job_services).await {
            Ok(true) => continue,
            Ok(false) => POLL_INTERVAL,
            Err(error) => {
                tracing::debug!(%error, "cannot delete the rows of a deleted organization yet; it is retried");
                RETRY_DELAY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = deleted.notified() => {}
            () = services.tasks.stopping() => {}
        }
    }
}

/// Purges one organization. Returns false if there is none.
async fn purge_next(job_services: &JobServices) -> Result<bool, StoreError> {
    let services = &job_services.services;
    let owner = services.ids.new_id::<uuid::Uuid>().to_string();
    let now = services.clock.now();
    let lease = Lease { owner: &owner, now, until: now.after(LEASE) };
    let Some(org) = org_purges::claim(&services.db, &lease).await? else { return Ok(false) };
    let purged = purge(job_services, org, &owner).await;
    if !matches!(purged, Ok(true)) {
        org_purges::release(&services.db, org, &owner).await?;
    }
    purged.map(|_| true)
}

/// Deletes everything of the organization. Returns false if it has to stop before.
async fn purge(job_services: &JobServices, org: OrgId, owner: &str) -> Result<bool, StoreError> {
    let services = &job_services.services;
    logs::mark_deleted(&services.logs, org).await?;
    let mut renewed = Instant::now();
    while logs::purge_slice(&services.logs, org).await? > 0
        || audit::purge(&services.db, Chain::Org(org)).await?
    {
        if services.tasks.is_stopping() {
            return Ok(false);
        }
        if renewed.elapsed() >= RENEW_INTERVAL {
            let until = services.clock.now().after(LEASE);
            if !org_purges::renew(&services.db, org, owner, until).await? {
                return Ok(false);
            }
            renewed = Instant::now();
        }
    }
    org_purges::finish(&services.db, org).await?;
    tracing::info!(%org, "deleted the log rows, sessions and usage of a deleted organization");
    Ok(true)
}
