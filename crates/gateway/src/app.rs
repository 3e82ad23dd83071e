//! The application: builds all components, starts the background tasks, and stops them.

pub mod alerts;
mod housekeeping;
mod invalidation;
mod log_observer;
mod start;
mod wal_checkpoints;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::OrgId;
use gateway_store::Db;
use gateway_store::db::Dialect;
use gateway_store::fair_slots::Overloaded;

use crate::attempts::AttemptLimits;
use crate::audit::AuditQueue;
use crate::auth::passwords::Passwords;
use crate::cluster::Cluster;
use crate::connections::Connections;
use crate::health::HealthCache;
use crate::internal_call::InternalCaller;
use crate::jobs::JobServices;
use crate::log::quotas::LogQuotas;
use crate::mcp::Mcp;
use crate::proxy::state::ProxyState;
use crate::quotas::QuotaUsage;
use crate::services::Services;
use crate::shares::{QuerySlot, Shares};

pub use start::open_vault;

pub struct App {
    pub services: Arc<Services>,
    /// Everything that the request path of the proxy uses.
    pub proxy: Arc<ProxyState>,
    /// The other nodes on the same database.
    pub cluster: Arc<Cluster>,
    pub attempts: Arc<AttemptLimits>,
    pub passwords: Passwords,
    pub mcp: Arc<Mcp>,
    /// Model calls of the gateway itself.
    pub models: InternalCaller,
    pub jobs: Arc<JobServices>,
    pub health: HealthCache,
    pub quotas: QuotaUsage,
    /// Audit entries that belong to no transaction.
    pub audit: Arc<AuditQueue>,
    pub log_quotas: Arc<LogQuotas>,
    /// The connections of clients.
    pub connections: Arc<Connections>,
    pub shares: Shares,
}

/// The log database, for the queries of one request.
pub struct LogQueries<'a> {
    db: &'a Db,
    _slot: QuerySlot,
}

impl Deref for LogQueries<'_> {
    type Target = Db;

    fn deref(&self) -> &Db {
        self.db
    }
}

impl App {
    /// The log database with all rows of the organization whose responses have ended on this node.
    pub async fn current_logs(&self, org: OrgId) -> &Db {
        self.proxy.spool.barrier.wait_until_stored(org).await;
        &self.services.logs
    }

    /// Like `current_logs`, for queries that may take long: within the organization's share of concurrent ones.
    pub async fn query_logs(&self, org: OrgId) -> Result<LogQueries<'_>, Overloaded> {
        let db = self.current_logs(org).await;
        let slot = self.shares.query_slot(org).await?;
        Ok(LogQueries { db, _slot: slot })
    }

    /// Waits for the tasks until the timeout, then closes the databases.
    pub async fn finish_stop(&self, timeout: Duration) {
        let Services { db, tasks, .. } = &*self.services;
        tasks.set_drained();
        tasks.join(timeout).await;
        if db.dialect() == Dialect::Postgres
            && tokio::time::timeout(timeout, self.cluster.release_node()).await.is_err()
        {
            tracing::warn!(
                "the database does not respond; the other nodes are not notified that this node stops"
            );
        }
        self.services.close().await;
    }
}
