//! Membership of this node in a cluster: several nodes that share one PostgreSQL. Each node leases a number, which is
//! part of its log ids, and knows how many nodes are alive. `invalidation` keeps the caches of all nodes consistent.
//! With SQLite there is one node, and nothing here does any work.

pub mod invalidation;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use gateway_store::cluster::{budget_leases, invalidations, limit_permits, limit_slices, node_ids};
use gateway_store::db::Dialect;
use gateway_store::{Db, StoreError};
use tokio::sync::Notify;

use crate::services::{Services, StartError};
use invalidation::{Invalidation, InvalidationHandler, PollPosition};

const RENEW_INTERVAL: Duration = Duration::from_secs(5);
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A node number that was claimed before the services exist, because ids contain it.
pub struct Membership {
    pub node: i64,
    name: String,
    position: Option<PollPosition>,
}

impl Membership {
    /// Claims a node number. No cache is filled yet, so only later invalidations have to be read.
    pub async fn claim(db: &Db, process: u64) -> Result<Self, StartError> {
        let name = format!("{process:016x}");
        let (node, position) = match db.dialect() {
            Dialect::Sqlite => ((process & 0xff).cast_signed(), None),
            Dialect::Postgres => {
                let node = node_ids::claim(db, &name).await?.ok_or(StartError::TooManyNodes)?;
                (node, Some(invalidations::start_position(db).await?))
            }
        };
        Ok(Self { node, name, position })
    }
}

pub struct Cluster {
    services: Arc<Services>,
    /// Unique among all processes, also past ones.
    name: String,
    live_nodes: AtomicU64,
    /// Where polling for invalidations starts. `None` with SQLite.
    position: Option<PollPosition>,
    /// Wakes the poll when another node committed an invalidation.
    notified: Notify,
    membership_changed: Notify,
    handler: OnceLock<Weak<dyn InvalidationHandler>>,
}

impl Cluster {
    pub fn new(services: Arc<Services>, membership: Membership) -> Self {
        Self {
            services,
            name: membership.name,
            live_nodes: AtomicU64::new(1),
            position: membership.position,
            notified: Notify::new(),
            membership_changed: Notify::new(),
            handler: OnceLock::new(),
        }
    }

    /// Sets the component that applies invalidations. Called once, when all components exist.
    pub fn set_handler(&self, handler: Weak<dyn InvalidationHandler>) {
        let _ = self.handler.set(handler);
    }

    /// The name under which this node holds leases.
    pub fn node_name(&self) -> &str {
        &self.name
    }

    /// The number of nodes, including this one.
    pub fn live_nodes(&self) -> u64 {
        self.live_nodes.load(Ordering::Relaxed).max(1)
    }

    /// Keeps this node consistent with the others until the last request has ended.
    pub async fn run(self: Arc<Self>) {
        let Some(position) = self.position.clone() else { return };
        self.announce_membership_change().await;
        tokio::select! {
            () = self.services.tasks.drained() => {}
            () = self.listen() => {}
            () = self.poll(position) => {}
            () = self.renew_node() => {}
            () = self.sweep() => {}
        }
    }

    /// Releases the node number when this node no longer writes anything.
    pub async fn release_node(&self) {
        let Services { db, ids, .. } = &*self.services;
        if let Err(error) = node_ids::release(db, ids.node(), &self.name).await {
            tracing::debug!(%error, "cannot release the node number; it stays claimed until its lease expires");
        }
        self.announce_membership_change().await;
    }

    /// Makes all nodes count the live nodes now. A node that misses it does so within seconds.
    async fn announce_membership_change(&self) {
        if let Err(error) = self.publish(Invalidation::Nodes).await {
            tracing::debug!(%error, "cannot announce a change of the cluster; the other nodes will poll it");
        }
    }

    /// Renews the lease of the node number, or claims a new one if the lease was lost.
    async fn renew_node(&self) {
        let mut wait = Duration::ZERO;
        loop {
            let _ = tokio::time::timeout(wait, self.membership_changed.notified()).await;
            wait = match self.renew_or_claim().await {
                Ok(()) => RENEW_INTERVAL,
                Err(error) => {
                    tracing::debug!(%error, "cannot renew the lease of the node number");
                    RETRY_DELAY
                }
            };
        }
    }

    async fn renew_or_claim(&self) -> Result<(), StoreError> {
        let Services { db, ids, .. } = &*self.services;
        if let Some(live) = node_ids::renew(db, ids.node(), &self.name).await? {
            self.live_nodes.store(live.cast_unsigned(), Ordering::Relaxed);
            return Ok(());
        }
        if let Some(node) = node_ids::claim(db, &self.name).await? {
            tracing::warn!(node, "the lease of the node number was lost; this node uses a new number");
            ids.set_node(node);
        } else {
            tracing::error!("the lease of the node number was lost, and no number is free");
        }
        Ok(())
    }

    /// Removes invalidations that every node has read, leases of nodes that have stopped, and buckets that are full.
    async fn sweep(&self) {
        let db = &self.services.db;
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let swept = async {
                invalidations::sweep(db).await?;
                budget_leases::sweep(db).await?;
                limit_slices::sweep(db).await?;
                limit_permits::sweep(db).await
            };
            if let Err(error) = swept.await {
                tracing::debug!(%error, "cannot remove old cluster state; retrying later");
            }
        }
    }
}
