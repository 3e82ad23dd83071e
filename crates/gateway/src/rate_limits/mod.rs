//! Rate limits of API keys and users, and limits per address on sign-up, login and wrong credentials. Several nodes count together: with
//! Redis every request is counted there; without it the nodes exchange their counts through PostgreSQL (`exchange`).

mod attempts;
mod exchange;
mod window;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::limits::LimitStatus;
use gateway_core::time::{MINUTE, Timestamp};
use gateway_store::cluster::rate_counts;
use gateway_store::db::Dialect;
use gateway_store::redis::{self, RedisClient};
use uuid::Uuid;

use crate::cluster::Cluster;
use crate::services::Services;
use attempts::{
    ATTEMPT_WINDOW, AccountKey, FAILURE_WINDOW, MAX_ACCOUNT_FAILURES, MAX_INSTALL_FAILURES, WindowCounts,
};
pub use attempts::{AttemptKind, FailureKind, KNOWN_ADDRESS_AGE, network};
use exchange::CountExchange;
pub use window::WindowCounter;

/// The kind of account failures among the attempts of all nodes.
const ACCOUNT_KIND: &str = "account";
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

pub struct RateLimiter {
    services: Arc<Services>,
    cluster: Arc<Cluster>,
    redis: Option<Arc<RedisClient>>,
    /// A counter outlives the cache entry of its key, so that a change of the key does not start a new window.
    counters: Mutex<HashMap<Uuid, Arc<WindowCounter>>>,
    exchange: CountExchange,
    attempts: WindowCounts<(AttemptKind, IpAddr)>,
    failures: WindowCounts<(FailureKind, IpAddr)>,
    account_failures: WindowCounts<AccountKey>,
}

impl RateLimiter {
    pub fn new(services: Arc<Services>, cluster: Arc<Cluster>, redis: Option<Arc<RedisClient>>) -> Self {
        Self {
            services,
            cluster,
            redis,
            counters: Mutex::default(),
            exchange: CountExchange::default(),
            attempts: WindowCounts::new(ATTEMPT_WINDOW),
            failures: WindowCounts::new(FAILURE_WINDOW),
            account_failures: WindowCounts::new(ATTEMPT_WINDOW),
        }
    }

    /// The counter of a key, user or organization.
    pub fn counter(&self, id: Uuid) -> Arc<WindowCounter> {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(counters.entry(id).or_default())
    }

    /// Counts one request on all nodes and compares the total with the limit.
    pub async fn count(&self, id: Uuid, counter: &Arc<WindowCounter>, limit: u64) -> LimitStatus {
        let counted = counter.add(self.services.clock.now());
        let used = match self.services.db.dialect() {
            Dialect::Sqlite => counted.used,
            Dialect::Postgres => self.total(id, counter, counted, limit).await,
        };
        LimitStatus::new(limit, used, counted.ends_at())
    }

    /// Counts an attempt from an address on all nodes.
    pub async fn count_attempt(&self, kind: AttemptKind, address: IpAddr) -> LimitStatus {
        let Services { config, clock, db, .. } = &*self.services;
        let (limit, now) = (config.auth_attempts, clock.now());
        let local = self.attempts.count((kind, network(address)), limit, now);
        if !local.allowed || db.dialect() == Dialect::Sqlite {
            return local;
        }
        let address = network(address).to_string();
        let counted = rate_counts::count_attempt(db, kind.as_str(), &address, ATTEMPT_WINDOW, now).await;
        // Without the database the attempt fails anyway.
        counted.map_or(local, |(began, attempts)| {
            LimitStatus::new(limit, attempts.max(0).cast_unsigned(), began.plus(ATTEMPT_WINDOW))
        })
    }

    /// Counts a password check of an account as failed, on all nodes. It is counted before the check, so that concurrent
    /// attempts cannot exceed the limit; `forgive_account` takes it back after any other result.
    pub async fn count_account_failure(&self, email: &str) -> LimitStatus {
        let Services { clock, db, .. } = &*self.services;
        let (account, now) = (AccountKey::of(email), clock.now());
        let local = self.account_failures.count(account, MAX_ACCOUNT_FAILURES, now);
        if db.dialect() == Dialect::Sqlite {
            return local;
        }
        let counted =
            rate_counts::count_attempt(db, ACCOUNT_KIND, &account.to_hex(), ATTEMPT_WINDOW, now).await;
        counted.map_or(local, |(began, failures)| {
            let failures = failures.max(0).cast_unsigned();
            LimitStatus::new(MAX_ACCOUNT_FAILURES, failures, began.plus(ATTEMPT_WINDOW))
        })
    }

    /// The password check did not fail.
    pub async fn forgive_account(&self, email: &str) {
        let account = AccountKey::of(email);
        self.account_failures.uncount(account);
        let db = &self.services.db;
        if db.dialect() == Dialect::Postgres
            && let Err(error) = rate_counts::uncount_attempt(db, ACCOUNT_KIND, &account.to_hex()).await
        {
            tracing::debug!(%error, "cannot take back the count of a password check");
        }
    }

    /// Counts a failure of an address on this node. Other nodes are not asked, because that would cost what the limit
    /// is to save.
    pub fn count_failure(&self, kind: FailureKind, address: IpAddr) -> LimitStatus {
        self.failures.count((kind, network(address)), self.max_failures(kind), self.services.clock.now())
    }

    fn max_failures(&self, kind: FailureKind) -> u64 {
        match kind {
            FailureKind::Request | FailureKind::KeyLookup => self.services.config.auth_failures,
            FailureKind::InstallToken => MAX_INSTALL_FAILURES,
        }
    }

    /// Whether one more failure of the address would be allowed.
    pub fn peek_failure(&self, kind: FailureKind, address: IpAddr) -> LimitStatus {
        self.failures.peek((kind, network(address)), self.max_failures(kind), self.services.clock.now())
    }

    /// Removes counters that no cached key uses and whose window is over.
    pub fn sweep(&self, now: Timestamp) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.retain(|_, counter| Arc::strong_count(counter) > 1 || counter.is_current(now));
    }

    /// Exchanges counts with the other nodes until the last request has ended. Only for PostgreSQL.
    pub async fn run(self: Arc<Self>) {
        let db = &self.services.db;
        tokio::select! {
            () = self.services.tasks.drained() => {}
            () = self.exchange.run(db, self.cluster.node_name()) => {}
            () = self.sweep_store() => {}
        }
    }

    async fn sweep_store(&self) {
        let Services { clock, db, .. } = &*self.services;
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let now = clock.now();
            let oldest = now.0.div_euclid(MINUTE) - 1;
            if let Err(error) = rate_counts::sweep(db, oldest, now.plus(-ATTEMPT_WINDOW)).await {
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
        let known = counted.used + counter.remote(counted);
        if known > limit {
            return known;
        }
        // Reported also while Redis counts, because Redis may be unreachable for one node only.
        self.exchange.enqueue(id, counter);
        let mut total = known;
        if let Some(client) = self.redis.as_ref().filter(|client| client.is_up())
            && let Ok(shared) = redis::limits::increment(client, &id.to_string(), counted.window).await
        {
            // Remembered, in case Redis becomes unreachable.
            counter.observe_total(counted, shared);
            total = total.max(shared);
            // A Redis that reconnected in this window may have lost a part of its count.
            if !client.reconnected_within(counted.elapsed(self.services.clock.now())) {
                return total;
            }
        }
        let nodes = self.cluster.live_nodes();
        if nodes > 1 {
            let share = (limit / 10 / nodes).max(1);
            self.exchange.wait_until_reported(counter, counted, share).await;
        }
        total.max(counted.used + counter.remote(counted))
    }
}
