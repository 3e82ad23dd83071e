//! Cache invalidation across nodes. An invalidation is recorded in the transaction of the change, announced by NOTIFY
//! at its commit, and polled every 500 ms in case a notification is lost.

use std::time::{Duration, Instant};

use gateway_store::cluster::invalidations::{self, MAX_POLL_GAP, Polled};
pub use gateway_store::cluster::invalidations::{Invalidation, PollPosition};
use gateway_store::{StoreError, Tx};

use super::{Cluster, RETRY_DELAY};

/// Together with the time of a query, an invalidation takes effect within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const POLL_TIMEOUT: Duration = Duration::from_secs(5);

/// Applies invalidations to the caches of this node.
pub trait InvalidationHandler: Send + Sync {
    fn invalidate(&self, invalidation: &Invalidation);

    /// Invalidates every cache, because it is unknown what has changed.
    fn invalidate_all(&self);
}

/// An invalidation recorded in a transaction that is not committed yet.
#[must_use = "commit the transaction with it"]
#[derive(Debug)]
pub struct PendingInvalidation(Invalidation);

/// Records an invalidation for the other nodes, in the transaction of the change.
pub async fn record(tx: &mut Tx, invalidation: Invalidation) -> Result<PendingInvalidation, StoreError> {
    invalidations::record(tx, &invalidation).await?;
    Ok(PendingInvalidation(invalidation))
}

/// Commits the change and applies its invalidations on this node. They are applied after an error too: if the answer of
/// the commit was lost, the change is in force.
pub async fn commit(
    tx: Tx,
    pending: impl IntoIterator<Item = PendingInvalidation>,
    cluster: &Cluster,
) -> Result<(), StoreError> {
    let committed = tx.commit().await;
    for pending in pending {
        pending.apply(cluster);
    }
    committed
}

impl PendingInvalidation {
    /// Applies the invalidation on this node, after the commit.
    pub fn apply(&self, cluster: &Cluster) {
        cluster.apply(&self.0);
    }
}

impl Cluster {
    /// Invalidates on all nodes, for a change that has no transaction.
    pub async fn publish(&self, invalidation: Invalidation) -> Result<(), StoreError> {
        let mut tx = self.services.db.begin().await?;
        let pending = record(&mut tx, invalidation).await?;
        commit(tx, [pending], self).await
    }

    fn apply(&self, invalidation: &Invalidation) {
        if *invalidation == Invalidation::Nodes {
            self.membership_changed.notify_one();
        } else if let Some(handler) = self.handler.get().and_then(std::sync::Weak::upgrade) {
            handler.invalidate(invalidation);
        }
    }

    fn apply_all(&self) {
        if let Some(handler) = self.handler.get().and_then(std::sync::Weak::upgrade) {
            handler.invalidate_all();
        }
    }

    /// Wakes the poll at every notification.
    pub(super) async fn listen(&self) {
        loop {
            let listening = invalidations::listen(&self.services.db, || self.notified.notify_one());
            if let Err(error) = listening.await {
                tracing::debug!(%error, "no notifications of invalidations; only polling");
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    pub(super) async fn poll(&self, mut position: PollPosition) {
        let db = &self.services.db;
        let outage_grace = self.services.config.outage_grace;
        let mut last_poll = Instant::now();
        loop {
            let _ = tokio::time::timeout(POLL_INTERVAL, self.notified.notified()).await;
            match tokio::time::timeout(POLL_TIMEOUT, invalidations::poll(db, &mut position)).await {
                Ok(Ok(Polled::Invalidations(polled))) if last_poll.elapsed() < MAX_POLL_GAP => {
                    for invalidation in &polled {
                        self.apply(invalidation);
                    }
                    last_poll = Instant::now();
                }
                Ok(Ok(_)) => {
                    tracing::warn!("too many changes on other nodes; invalidating all caches");
                    self.apply_all();
                    last_poll = Instant::now();
                }
                // Cached entries may be served for a while, but a key may have been revoked.
                failed => {
                    if let Ok(Err(error)) = failed {
                        tracing::debug!(%error, "cannot read the invalidations of other nodes; retrying");
                    }
                    if last_poll.elapsed() >= outage_grace {
                        self.apply_all();
                    }
                }
            }
        }
    }
}
