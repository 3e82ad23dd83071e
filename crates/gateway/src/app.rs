//! The application: builds all components, starts the background tasks, and stops them.

mod housekeeping;
mod invalidation;
mod log_observer;
mod start;

use std::sync::Arc;
use std::time::Duration;

use gateway_store::db::Dialect;
use tokio::sync::watch;

use crate::auth::passwords::Passwords;
use crate::cluster::Cluster;
use crate::evals::live::LiveEvals;
use crate::jobs::Bells;
use crate::proxy::state::ProxyState;
use crate::rate_limits::RateLimiter;
use crate::services::Services;

pub struct App {
    pub services: Arc<Services>,
    /// Everything that the request path of the proxy uses.
    pub proxy: Arc<ProxyState>,
    /// The other nodes on the same database.
    pub cluster: Arc<Cluster>,
    pub rate_limiter: Arc<RateLimiter>,
    pub passwords: Passwords,
    /// The evals that judge new log rows.
    pub live_evals: LiveEvals,
    /// Wakes the job workers.
    pub bells: Bells,
    /// Notified when an export was changed on this node, so that a delivery in progress reloads it.
    pub export_changes: watch::Sender<()>,
}

impl App {
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
