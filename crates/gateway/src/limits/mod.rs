//! The limits of organizations on the request path: what a call needs of every limit that applies is taken at once or
//! not at all, before the call, and settled when it has ended. The rules are in `gateway_core::limits`.
//!
//! One state per organization and node (`state`) has the buckets, and those who wait (`waiting`). A permit (`permit`)
//! is what a call holds; dropping it gives everything back. Where the buckets are depends on the installation:
//!
//! - SQLite, one node: in memory (`state`), exact.
//! - Redis: in Redis, exact; one script per call takes all of them or none (`exact`).
//! - PostgreSQL without Redis: each node takes slices of the shared buckets and admits calls from them (`slices`); what
//!   it does not use goes back (`unused`). All nodes together exceed a limit by at most a tenth and one call. While the
//!   database is unreachable (`outage`), each node goes on with its part.
//!
//! The requests per minute of a plan are the limit that everybody has (`plan`): it also counts calls of the management API,
//! so it is taken when the caller is identified.
//!
//! What was refused is counted, and written once a second (`refusals`).

mod admission;
mod exact;
mod outage;
mod permit;
mod plan;
mod refusals;
mod slices;
mod state;
mod unused;
mod usage;
mod waiting;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gateway_core::ids::{LimitId, OrgId};
use gateway_core::limits::{Definition, LimitSet};
use gateway_store::db::Dialect;
use gateway_store::limits::{self as store, StoredLimit};
use gateway_store::redis::RedisClient;
use gateway_store::{Db, StoreError};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Notify;

pub use admission::{Call, Over, Refusal, Wait};
pub use permit::Permit;
pub use plan::WindowCounter;
pub use usage::{BucketUsage, UsageScope};

use crate::budgets::Peers;
use crate::services::Services;
use outage::Outage;
use plan::PlanCounts;
use state::OrgState;

/// How often leases of permits are renewed. They last for 30 s.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(50);
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// How close to its limits all nodes together stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exactness {
    /// Never above: one node, or all count in Redis.
    Exact,
    /// By at most a tenth and one call: the nodes take slices from PostgreSQL.
    Slices,
}

/// The limits of one organization, as they are defined now.
pub struct OrgLimits {
    id: OrgId,
    pub set: LimitSet,
    state: Arc<OrgState>,
}

/// The limits of all organizations. Clones share one state.
#[derive(Clone)]
pub struct Limits(Arc<Inner>);

struct Inner {
    services: Arc<Services>,
    peers: Arc<dyn Peers>,
    redis: Option<Arc<RedisClient>>,
    orgs: Mutex<HashMap<OrgId, Arc<OrgState>>>,
    plan: PlanCounts,
    outage: Outage,
    /// Wakes the background task: something is to be given back to the store.
    wake: Notify,
}

impl Limits {
    pub fn new(services: Arc<Services>, peers: Arc<dyn Peers>, redis: Option<Arc<RedisClient>>) -> Self {
        let (orgs, plan, wake) = (Mutex::default(), PlanCounts::default(), Notify::new());
        let outage = Outage::default();
        Self(Arc::new(Inner { services, peers, redis, orgs, plan, outage, wake }))
    }

    /// Reads the limits of an organization. `None` if none is enabled. What its buckets hold stays.
    pub async fn load(&self, db: &Db, org: OrgId) -> Result<Option<Arc<OrgLimits>>, StoreError> {
        let stored = store::list_all(db, org).await?;
        let set = LimitSet::new(stored.into_iter().filter_map(parse));
        if set.is_empty() {
            return Ok(None);
        }
        let state = Arc::clone(self.orgs().entry(org).or_default());
        state.lock().retain(&set);
        Ok(Some(Arc::new(OrgLimits { id: org, set, state })))
    }

    pub fn exactness(&self) -> Exactness {
        match self.0.services.db.dialect() {
            Dialect::Postgres if self.0.redis.as_ref().is_none_or(|redis| !redis.is_up()) => {
                Exactness::Slices
            }
            _ => Exactness::Exact,
        }
    }

    /// How many calls of an organization wait on this node.
    pub fn waiting(&self, org: OrgId) -> usize {
        self.orgs().get(&org).map_or(0, |state| state.lock().queue.len())
    }

    /// Renews leases, gives back what is not used and writes what was refused, until the service has drained.
    pub async fn run(self) {
        // A slow database delays what is written, but not the renewal of leases in Redis.
        tokio::join!(self.renew_leases(), self.write_back());
    }

    async fn renew_leases(&self) {
        let tasks = &self.0.services.tasks;
        while !tasks.is_drained() {
            let started = Instant::now();
            self.renew().await;
            tokio::select! {
                () = tokio::time::sleep(RENEW_INTERVAL.saturating_sub(started.elapsed())) => {}
                () = tasks.drained() => {}
            }
        }
    }

    async fn write_back(&self) {
        let tasks = &self.0.services.tasks;
        let (mut ticks, mut flushed) = (0_u64, Instant::now());
        loop {
            let woken = async {
                tokio::select! {
                    () = self.0.wake.notified() => {}
                    () = tasks.drained() => {}
                }
            };
            // Woken or not: what several calls give back is written together.
            if tokio::time::timeout(FLUSH_INTERVAL, woken).await.is_ok() {
                tokio::time::sleep(GIVE_BACK_PAUSE).await;
            }
            let is_last = tasks.is_drained();
            self.give_back_unused(is_last).await;
            if flushed.elapsed() < FLUSH_INTERVAL && !is_last {
                continue;
            }
            flushed = Instant::now();
            refusals::flush(self).await;
            if is_last {
                return;
            }
            ticks += 1;
            if ticks.is_multiple_of(SWEEP_INTERVAL.as_secs()) {
                self.sweep().await;
            }
        }
    }

    async fn renew(&self) {
        exact::renew(self).await;
        if self.is_sliced() {
            unused::renew(self).await;
        }
    }

    async fn give_back_unused(&self, all: bool) {
        if self.is_sliced() {
            unused::give_back(self, all).await;
        }
    }

    /// Forgets organizations that use nothing of their limits, and makes room in those that are full.
    async fn sweep(&self) {
        let now = self.0.services.clock.now();
        for (_, state) in self.states() {
            state.lock().make_room();
        }
        self.orgs().retain(|_, state| Arc::strong_count(state) > 1 || !state.lock().is_unused(now));
        refusals::sweep(self).await;
    }

    fn is_sliced(&self) -> bool {
        self.0.services.db.dialect() == Dialect::Postgres
    }

    fn orgs(&self) -> MutexGuard<'_, HashMap<OrgId, Arc<OrgState>>> {
        self.0.orgs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn states(&self) -> Vec<(OrgId, Arc<OrgState>)> {
        self.orgs().iter().map(|(org, state)| (*org, Arc::clone(state))).collect()
    }
}

type Parsed = (LimitId, Definition, Vec<gateway_core::ids::KeyId>);

fn parse(stored: StoredLimit) -> Option<Parsed> {
    match serde_json::from_str(&stored.definition) {
        Ok(definition) => Some((stored.id, definition, stored.keys)),
        Err(error) => {
            tracing::error!(limit = %stored.id, %error, "the stored limit is invalid and does not apply");
            None
        }
    }
}
