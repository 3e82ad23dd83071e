//! The daily quotas of log rows and bodies. The store counts what an organization has stored on a day, over all nodes,
//! and returns it with every batch. Only organizations that are close to the lowest quota of any plan need a look at
//! their plan, so most batches need none.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::access::Plan;
use gateway_core::ids::OrgId;
use gateway_core::logs::{LogRow, log_id_time};
use gateway_core::quotas::Quota;
use gateway_core::time::{DAY, Timestamp};
use gateway_store::logs::{BatchLimits, DayQuota, StoredDay, Written};
use gateway_store::orgs;

use crate::services::Services;

/// How long a plan is remembered.
const PLAN_AGE: Duration = Duration::from_secs(30);
const MAX_DAYS: usize = 10_000;

pub struct LogQuotas {
    services: Arc<Services>,
    known: Mutex<Known>,
    pub stored_rows: AtomicU64,
    /// Bodies that were stored, before and after compression.
    pub body_bytes: AtomicU64,
    pub compressed_bytes: AtomicU64,
    /// Rows that were counted but not stored.
    pub counted_rows: AtomicU64,
    /// Rows that were stored without their bodies.
    pub dropped_bodies: AtomicU64,
}

#[derive(Default)]
struct Known {
    days: HashMap<(OrgId, i64), StoredDay>,
    plans: HashMap<OrgId, (Timestamp, Plan)>,
}

impl LogQuotas {
    pub fn new(services: Arc<Services>) -> Self {
        Self {
            services,
            known: Mutex::default(),
            stored_rows: AtomicU64::new(0),
            body_bytes: AtomicU64::new(0),
            compressed_bytes: AtomicU64::new(0),
            counted_rows: AtomicU64::new(0),
            dropped_bodies: AtomicU64::new(0),
        }
    }

    /// What these rows may store. An organization whose plan cannot be read has no quota for now. Runs on the main
    /// runtime, because it reads the state database.
    pub async fn limits(&self, rows: &[LogRow]) -> BatchLimits {
        let mut limits = BatchLimits::default();
        for org in self.close_to_a_quota(rows) {
            if let Some(plan) = self.plan(org).await {
                let limit = |quota| self.services.config.quotas.limit(plan, quota);
                let quota =
                    DayQuota { rows: limit(Quota::RowsPerDay), body_bytes: limit(Quota::BodyBytesPerDay) };
                limits.quotas.insert(org, quota);
            }
        }
        limits
    }

    pub fn record(&self, written: &Written) {
        let counted = written.counted.len() as u64;
        for (total, added) in [
            (&self.stored_rows, (written.new.len() as u64).saturating_sub(counted)),
            (&self.body_bytes, written.bodies.whole),
            (&self.compressed_bytes, written.bodies.compressed),
            (&self.counted_rows, counted),
            (&self.dropped_bodies, written.without_bodies),
        ] {
            total.fetch_add(added, Ordering::Relaxed);
        }
        let mut known = self.lock();
        if known.days.len() >= MAX_DAYS {
            let yesterday = self.services.clock.now().plus(-DAY);
            known.days.retain(|(_, day), _| *day >= yesterday.0);
            known.plans.clear();
        }
        if known.days.len() < MAX_DAYS {
            known.days.extend(written.days.iter().map(|day| ((day.org, day.day.0), *day)));
        }
    }

    fn close_to_a_quota(&self, rows: &[LogRow]) -> Vec<OrgId> {
        let quotas = &self.services.config.quotas;
        let (lowest_rows, lowest_bytes) =
            (quotas.lowest(Quota::RowsPerDay), quotas.lowest(Quota::BodyBytesPerDay));
        let mut batch: HashMap<(OrgId, i64), (u64, u64)> = HashMap::new();
        for row in rows {
            let day = log_id_time(row.id).0.div_euclid(DAY) * DAY;
            let (rows, bytes) = batch.entry((row.org_id, day)).or_default();
            *rows += 1;
            *bytes += (row.request.len() + row.response.len()) as u64;
        }
        let known = self.lock();
        let reaches = |added: u64, stored: i64, lowest: Option<u64>| {
            lowest.is_some_and(|lowest| added.saturating_add(u64::try_from(stored).unwrap_or(0)) >= lowest)
        };
        let is_close = |(day, (rows, bytes)): &(&(OrgId, i64), &(u64, u64))| {
            let (stored_rows, stored_bytes) =
                known.days.get(day).map_or((0, 0), |day| (day.rows, day.body_bytes));
            reaches(*rows, stored_rows, lowest_rows) || reaches(*bytes, stored_bytes, lowest_bytes)
        };
        let close: BTreeSet<OrgId> = batch.iter().filter(is_close).map(|((org, _), _)| *org).collect();
        close.into_iter().collect()
    }

    async fn plan(&self, org: OrgId) -> Option<Plan> {
        let now = self.services.clock.now();
        let known = self.lock().plans.get(&org).copied();
        if let Some((at, plan)) = known
            && now.since(at) < PLAN_AGE
        {
            return Some(plan);
        }
        let plan = orgs::find(&self.services.db, org).await.ok()??.plan;
        self.lock().plans.insert(org, (now, plan));
        Some(plan)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
