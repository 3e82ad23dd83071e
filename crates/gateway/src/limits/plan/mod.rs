//! The requests per minute of a plan, which each key, user and organization has. It is a limit that nobody defines: its
//! windows are fixed, because the response headers promise when they end. Several nodes count together: with Redis every
//! request is counted there; without it the nodes exchange their counts through PostgreSQL (`exchange`).

mod exchange;
mod window;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::limits::LimitStatus;
use gateway_core::time::{MINUTE, Timestamp};
use gateway_store::cluster::rate_counts;
use gateway_store::db::Dialect;
use gateway_store::redis::{self, RedisClient};
use uuid::Uuid;

use super::Limits;
use crate::services::Services;
use exchange::CountExchange;
pub use window::WindowCounter;

const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The counts of all callers.
#[derive(Default)]
pub(super) struct PlanCounts {
    /// A counter outlives the cache entry of its key, so that a change of the key does not start a new window.
    counters: Mutex<HashMap<Uuid, Arc<WindowCounter>>>,
    exchange: CountExchange,
}

impl Limits {
    /// The counter of a key, user or organization.
    pub fn plan_counter(&self, id: Uuid) -> Arc<WindowCounter> {
        let mut counters = self.0.plan.counters.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(counters.entry(id).or_default())
    }

    /// Counts one request on all nodes and compares the total with the limit of the plan.
    pub async fn count_request(&self, id: Uuid, counter: &Arc<WindowCounter>, limit: u64) -> LimitStatus {
        let services = &self.0.services;
        let counted = counter.add(services.clock.now());
        let used = match services.db.dialect() {
            Dialect::Sqlite => counted.used,
            Dialect::Postgres => self.total(id, counter, counted, limit).await,
        };
        LimitStatus::new(limit, used, counted.ends_at())
    }

    /// Removes counters that no cached key uses and whose window is over.
    pub fn sweep_plan_counters(&self, now: Timestamp) {
        let mut counters = self.0.plan.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.retain(|_, counter| Arc::strong_count(counter) > 1 || counter.is_current(now));
    }

    /// Exchanges counts with the other nodes until the last request has ended. Only for PostgreSQL.
    pub async fn run_plan_exchange(self) {
        let Services { tasks, db, .. } = &*self.0.services;
        tokio::select! {
            () = tasks.drained() => {}
            () = self.0.plan.exchange.run(db, self.0.peers.node_name()) => {}
            () = self.sweep_counts() => {}
        }
    }

    async fn sweep_counts(&self) {
        let Services { clock, db, .. } = &*self.0.services;
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let oldest = clock.now().0.div_euclid(MINUTE) - 1;
            if let Err(error) = rate_counts::sweep_windows(db, oldest).await {
                tracing::debug!(%error, "cannot remove old rate counts; retrying later");
            }
        }
    }

    /// Returns the number of requests in this window on all nodes, including this one.
    async fn total(
        &self,
        id: Uuid,
        counter: &Arc<WindowCounter>,
        counted: window::Counted,
        limit: u64,
    ) -> u64 {
        let (services, exchange) = (&self.0.services, &self.0.plan.exchange);
        let known = counted.used + counter.remote(counted);
        if known > limit {
            return known;
        }
        // Reported also while Redis counts, because Redis may be unreachable for one node only.
        exchange.enqueue(id, counter);
        let mut total = known;
        if let Some(client) = self.0.redis.as_ref().filter(|client| client.is_up())
            && let Some(shared) = count_in_redis(client, id, counted).await
        {
            // Remembered, in case Redis becomes unreachable.
            counter.observe_total(counted, shared);
            total = total.max(shared);
            // A Redis that reconnected in this window may have lost a part of its count.
            if !client.reconnected_within(counted.elapsed(services.clock.now())) {
                return total;
            }
        }
        let nodes = self.0.peers.alive();
        if nodes > 1 {
            let share = (limit / 10 / nodes).max(1);
            exchange.wait_until_reported(counter, counted, share).await;
        }
        total.max(counted.used + counter.remote(counted))
    }
}

async fn count_in_redis(client: &RedisClient, id: Uuid, counted: window::Counted) -> Option<u64> {
    redis::limits::increment(client, &id.to_string(), counted.window).await.ok()
}
