//! The health check behind `/healthz`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use gateway_core::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::clock::Clock;
use crate::loading_cache::LoadingCache;
use crate::proxy::state::ProxyState;
use crate::services::Services;

/// The endpoint needs no credential, so a result is reused for this time, in milliseconds.
const REUSE_TIME: i64 = 1_000;
/// A store that does not respond within this time counts as down.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Serialize, JsonSchema, Clone)]
pub struct Health {
    /// `ok`, or `degraded` when a component that the service needs is down.
    pub status: Status,
    /// Each backing store by name.
    pub components: BTreeMap<&'static str, Component>,
}

#[derive(Serialize, JsonSchema, Clone)]
pub struct Component {
    /// `ok` or `down`. The log spool is `degraded` while rows that cannot be stored are in quarantine; the service as a
    /// whole is not.
    pub status: Status,
}

#[derive(Serialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    Degraded,
    Down,
}

impl Health {
    pub fn is_ok(&self) -> bool {
        self.status == Status::Ok
    }
}

/// The last result, and the check in progress.
pub struct HealthCache(LoadingCache<(), (Timestamp, Health)>);

impl Default for HealthCache {
    fn default() -> Self {
        Self(LoadingCache::with_capacity(1))
    }
}

impl HealthCache {
    /// Returns the last result, or checks. Concurrent callers share one check.
    pub async fn check(&self, services: &Services, proxy: &ProxyState) -> Health {
        self.get(&services.clock, || check(services, proxy)).await
    }

    async fn get<F: Future<Output = Health>>(&self, clock: &Clock, check: impl Fn() -> F) -> Health {
        if let Some(last) = self.0.peek(&()) {
            if (last.0..last.0.plus(REUSE_TIME)).contains(&clock.now()) {
                return last.1.clone();
            }
            self.0.invalidate(&());
        }
        let checked = self.0.get(&(), || async {
            let health = check().await;
            Ok::<_, Infallible>(Some((clock.now(), health)))
        });
        match checked.await {
            Ok(Some(checked)) => checked.1.clone(),
            Ok(None) => check().await,
            Err(never) => match never {},
        }
    }
}

async fn check(services: &Services, proxy: &ProxyState) -> Health {
    let component = |is_up: bool| Component { status: if is_up { Status::Ok } else { Status::Down } };
    let database = matches!(tokio::time::timeout(PING_TIMEOUT, services.db.ping()).await, Ok(Ok(())));
    let spool = proxy.spool.is_healthy();
    let mut log_spool = component(spool);
    // The service works, but the operator should look at the rows that cannot be stored.
    if spool && proxy.spool.set_aside.has_quarantine() {
        log_spool.status = Status::Degraded;
    }
    let mut components = BTreeMap::from([("database", component(database)), ("log_spool", log_spool)]);
    // Reported but not required: without Redis each node continues on its own.
    if let Some(redis) = &proxy.redis {
        components.insert("redis", component(redis.ping(PING_TIMEOUT).await));
    }
    Health { status: if database && spool { Status::Ok } else { Status::Degraded }, components }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn many_callers_cause_one_check_a_second() {
        let (cache, clock, checks) = (HealthCache::default(), Clock::default(), AtomicUsize::new(0));
        let check = || async {
            tokio::task::yield_now().await;
            checks.fetch_add(1, Ordering::Relaxed);
            Health { status: Status::Ok, components: BTreeMap::new() }
        };
        futures_util::future::join_all((0..50).map(|_| cache.get(&clock, check))).await;
        assert_eq!(checks.load(Ordering::Relaxed), 1);
        clock.advance(REUSE_TIME);
        futures_util::future::join_all((0..50).map(|_| cache.get(&clock, check))).await;
        assert_eq!(checks.load(Ordering::Relaxed), 2);
        // A clock that was set back does not keep an old result.
        clock.advance(-REUSE_TIME);
        cache.get(&clock, check).await;
        assert_eq!(checks.load(Ordering::Relaxed), 3);
    }
}
