//! What each organization may use of resources that all share, besides computation (`compute`).

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gateway_core::ids::OrgId;
use gateway_core::time::{MINUTE, Timestamp};
use gateway_store::fair_slots::{FairSlots, Overloaded, Slot, SlotLimits};
use gateway_store::org_owners::OrgOwners;
use tokio::runtime::Handle;

use crate::log::tail::LogTails;

/// Imports that are stored at the same time. Their transactions take turns with those of all other writers.
const IMPORTS: SlotLimits = SlotLimits { slots: 2, per_org: 1, waiting_per_org: 8 };
/// An organization verifies its audit log once at a time. A second request is refused at once, and others do not wait.
const VERIFICATIONS: SlotLimits = SlotLimits { slots: 1_000, per_org: 1, waiting_per_org: 0 };
/// Open streams of audit logs.
const AUDIT_STREAMS: SlotLimits = SlotLimits { slots: 10_000, per_org: 10, waiting_per_org: 0 };
/// Concurrent queries of log rows, sessions, usage and audit entries by one organization.
const QUERIES_PER_ORG: usize = 2;
const WAITING_QUERIES_PER_ORG: usize = 32;
/// How long a query waits for one of the organization's other queries to end.
pub const QUERY_MAX_WAIT: Duration = Duration::from_secs(5);

/// The longest pause after a query, while others have queries as well.
const MAX_QUERY_PAUSE: Duration = Duration::from_millis(100);
/// An organization that had a query within this time counts as one of those others.
const RECENT: Duration = Duration::from_secs(1);

/// The least time between updates of the database's statistics, in milliseconds.
const ANALYSIS_INTERVAL: i64 = MINUTE;

pub struct Shares {
    pub imports: Arc<FairSlots>,
    /// Queries that may take long. All together leave a third of the connections for everything else.
    pub queries: Arc<FairSlots>,
    latest_queries: Arc<Mutex<LatestQueries>>,
    pub verifications: Arc<FairSlots>,
    pub audit_streams: Arc<FairSlots>,
    pub log_tails: Arc<LogTails>,
    /// When an import last updated the database's statistics, in milliseconds.
    analyzed_at: AtomicI64,
}

impl Shares {
    /// `readers` is the number of connections that queries may use at the same time.
    pub fn new(readers: u32, owners: &Arc<OrgOwners>) -> Self {
        let readers = usize::try_from(readers).unwrap_or(usize::MAX);
        let queries = SlotLimits {
            slots: (readers * 2 / 3).max(1),
            per_org: QUERIES_PER_ORG,
            waiting_per_org: WAITING_QUERIES_PER_ORG,
        };
        Self {
            imports: FairSlots::new(IMPORTS, owners),
            queries: FairSlots::new(queries, owners),
            latest_queries: Arc::default(),
            verifications: FairSlots::new(VERIFICATIONS, owners),
            audit_streams: FairSlots::new(AUDIT_STREAMS, owners),
            log_tails: Arc::default(),
            analyzed_at: AtomicI64::new(0),
        }
    }

    /// A slot for queries of log rows.
    pub async fn query_slot(&self, org: OrgId) -> Result<QuerySlot, Overloaded> {
        let slot = self.queries.acquire(org, Some(QUERY_MAX_WAIT)).await?;
        let started = Instant::now();
        let latest = Arc::clone(&self.latest_queries);
        latest.lock().unwrap_or_else(PoisonError::into_inner).add(org, started);
        Ok(QuerySlot { slot: Some(slot), org, started, latest })
    }

    /// Whether an import may update the database's statistics. They concern the data of all organizations, so many
    /// imports update them no more often than one.
    pub fn may_analyze(&self, now: Timestamp) -> bool {
        let before = self.analyzed_at.load(Ordering::Relaxed);
        (now.0 - before).abs() >= ANALYSIS_INTERVAL
            && self.analyzed_at.compare_exchange(before, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// A slot that stays in use after the query for as long as the query took, if others have queries as well. A query takes
/// the time of a core, on which the short statements of all others run: an organization that always has the next query
/// waiting leaves half of the time to them.
pub struct QuerySlot {
    slot: Option<Slot>,
    org: OrgId,
    started: Instant,
    latest: Arc<Mutex<LatestQueries>>,
}

impl Drop for QuerySlot {
    fn drop(&mut self) {
        let now = Instant::now();
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = latest.pause(self.org, now, now - self.started);
        drop(latest);
        if let (Some(slot), Some(pause), Ok(runtime)) = (self.slot.take(), pause, Handle::try_current()) {
            runtime.spawn(async move {
                tokio::time::sleep(pause).await;
                drop(slot);
            });
        }
    }
}

/// The organization with the latest query, and the one that had the latest query before it.
#[derive(Default)]
struct LatestQueries([Option<(OrgId, Instant)>; 2]);

impl LatestQueries {
    fn add(&mut self, org: OrgId, now: Instant) {
        if self.0[0].is_some_and(|(latest, _)| latest != org) {
            self.0[1] = self.0[0];
        }
        self.0[0] = Some((org, now));
    }

    /// How long the slot of a query that took so long stays in use. `None` if nobody else has queries.
    fn pause(&self, org: OrgId, now: Instant, took: Duration) -> Option<Duration> {
        let is_other = |(other, at): &(OrgId, Instant)| *other != org && now.duration_since(*at) < RECENT;
        self.0.iter().flatten().any(is_other).then(|| took.min(MAX_QUERY_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::poll_immediate;

    use super::*;

    #[test]
    fn a_query_leaves_time_to_others_only_if_there_are_some() {
        let [one, two, three] = [1, 2, 3].map(|number| OrgId(uuid::Uuid::from_u128(number)));
        let (start, took) = (Instant::now(), Duration::from_millis(30));
        let mut latest = LatestQueries::default();
        latest.add(one, start);
        latest.add(one, start);
        assert_eq!(latest.pause(one, start, took), None, "it is alone");
        assert_eq!(latest.pause(two, start, took), Some(took));
        latest.add(two, start);
        assert_eq!(latest.pause(one, start, took), Some(took));
        latest.add(one, start + RECENT / 2);
        assert_eq!(latest.pause(one, start + RECENT / 2, took * 10), Some(MAX_QUERY_PAUSE));
        assert_eq!(latest.pause(one, start + RECENT, took), None, "the other one has no more queries");
        assert_eq!(latest.pause(three, start + RECENT, took), Some(took));
    }

    #[tokio::test]
    async fn a_slot_stays_in_use_for_as_long_as_its_query_took() {
        let shares = Shares::new(6, &Arc::default());
        let [one, two] = [1, 2].map(|number| OrgId(uuid::Uuid::from_u128(number)));
        // Alone, both slots of the organization are free at once.
        for _ in 0..2 {
            let [first, second] = [shares.query_slot(one), shares.query_slot(one)].map(Box::pin);
            let (first, second) = (poll_immediate(first).await, poll_immediate(second).await);
            assert!(matches!((first, second), (Some(Ok(_)), Some(Ok(_)))));
        }
        drop(shares.query_slot(two).await.unwrap());
        let mut slot = shares.query_slot(one).await.unwrap();
        slot.started -= Duration::from_millis(80);
        let held = shares.queries.acquire(one, None).await.unwrap();
        drop(slot);
        let started = Instant::now();
        let next = shares.queries.acquire(one, None).await.unwrap();
        assert!(started.elapsed() >= Duration::from_millis(80));
        drop((held, next));
    }
}
