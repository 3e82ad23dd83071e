//! Quotas of organizations: the check before something is added, and how much of each is used.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::access::Plan;
use gateway_core::ids::{OrgId, UserId};
use gateway_core::quotas::{MAX_VERSIONS, Quota};
use gateway_core::time::Timestamp;
use gateway_store::{StoreError, Tx, accounts, members, orgs, quotas};

use crate::auth::CachedOrg;
use crate::problem::{ApiResult, Problem};
use crate::services::Services;

/// The name of the limit on organizations of one account.
pub const ORGS: &str = "orgs";
/// How long a count is shown again. Checks never use it.
const KEPT: Duration = Duration::from_secs(1);
const MAX_KEPT: usize = 10_000;

/// Checks that the organization may have one more. The organization is locked until the transaction ends, so that
/// concurrent requests do not exceed the quota.
pub async fn check(services: &Services, tx: &mut Tx, org: &CachedOrg, quota: Quota) -> ApiResult<()> {
    check_of(services, tx, (org.id, org.plan), quota).await
}

/// The same for an organization that is not the caller's.
pub async fn check_of(
    services: &Services,
    tx: &mut Tx,
    (org, plan): (OrgId, Plan),
    quota: Quota,
) -> ApiResult<()> {
    let Some(limit) = services.config.quotas.limit(plan, quota) else { return Ok(()) };
    orgs::lock_for_update(tx, org).await?;
    let used = quotas::count(tx, org, quota, services.clock.now()).await?;
    if used < limit { Ok(()) } else { Err(exceeded(plan, quota, limit)) }
}

pub fn exceeded(plan: Plan, quota: Quota, limit: u64) -> Problem {
    let name = quota.as_str();
    Problem::quota_exceeded(
        (name, limit),
        format!(
            "the organization has all {limit} {name} that the {plan} plan allows; delete some, change the plan, or ask \
             the operator for a higher quota"
        ),
    )
}

/// Checks that a prompt, skill, dataset or named model may have this version.
pub fn check_version(what: &str, version: i64) -> ApiResult<()> {
    if version <= MAX_VERSIONS {
        return Ok(());
    }
    let message = format!(
        "the {what} has all {MAX_VERSIONS} versions that one may have; create another one, or delete this one and create \
         it again"
    );
    Err(Problem::quota_exceeded(("versions", MAX_VERSIONS.unsigned_abs()), message))
}

/// Checks that a person may own one more organization. The account is locked until the transaction ends, so that
/// concurrent requests do not exceed the limit.
pub async fn check_orgs_of(services: &Services, tx: &mut Tx, user: UserId) -> ApiResult<()> {
    let Some(limit) = services.config.orgs_per_user.map(NonZeroU64::get) else { return Ok(()) };
    accounts::lock(tx, user).await?;
    let owned = members::count_owned(tx, user).await?.unsigned_abs();
    if owned < limit {
        return Ok(());
    }
    let message = format!(
        "this account owns all {limit} organizations that one account may own; delete one, or ask the operator for a \
         higher limit"
    );
    Err(Problem::quota_exceeded((ORGS, limit), message))
}

/// How much of their quotas organizations use.
pub struct QuotaUsage {
    services: Arc<Services>,
    kept: Mutex<HashMap<OrgId, (Timestamp, Counts)>>,
}

type Counts = Arc<Vec<(Quota, u64)>>;

impl QuotaUsage {
    pub fn new(services: Arc<Services>) -> Self {
        Self { services, kept: Mutex::default() }
    }

    /// Counted at most once in a second for each organization.
    pub async fn of(&self, org: OrgId) -> Result<Counts, StoreError> {
        let Services { db, logs, clock, .. } = &*self.services;
        let now = clock.now();
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, counts)) = lock().get(&org)
            && now.since(*at) < KEPT
        {
            return Ok(Arc::clone(counts));
        }
        let counts = Arc::new(quotas::usage(db, logs, org, now).await?);
        let mut kept = lock();
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, (at, _)| now.since(*at) < KEPT);
        }
        if kept.len() < MAX_KEPT {
            kept.insert(org, (now, Arc::clone(&counts)));
        }
        Ok(counts)
    }
}
