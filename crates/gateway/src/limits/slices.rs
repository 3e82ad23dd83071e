//! Buckets that nodes share through PostgreSQL. A node takes slices of a bucket and admits calls from them; what it does
//! not use goes back. The slices that all nodes hold together are at most a tenth of a limit.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::limits::{Demand, Limit, Policy, Shortage, Unit};
use gateway_core::time::Timestamp;
use gateway_store::StoreError;
use gateway_store::cluster::limit_permits::{self, PermitRequest};
use gateway_store::cluster::limit_slices::{self, SliceRequest};

use super::admission::short_for_now;
use super::permit::{Held, Permit, Source};
use super::state::{NodeLease, RefusedFetch, Request, Short, State, Wanted};
use super::{Limits, OrgLimits};

/// Attempts for one call: other calls of this node may use up what was fetched for it.
const MAX_ROUNDS: usize = 3;
const CONCURRENT_RETRY: Duration = Duration::from_secs(1);
/// How long a refused fetch stands for those that would ask for as much: calls over a limit do not queue for the database.
const REFUSED_MS: i64 = 50;

/// Why a call cannot be admitted from what the node has.
enum Lacking {
    Short(Short),
    /// Slices of these limits are needed: places in `wanted`.
    Slices(Vec<usize>),
}

pub async fn take(limits: &Limits, org: &Arc<OrgLimits>, request: &Arc<Request>) -> Result<Permit, Short> {
    match take_from_credit(limits, org, request, &[]) {
        Ok(permit) => return Ok(permit),
        Err(Lacking::Short(short)) => return Err(short),
        Err(Lacking::Slices(_)) => {}
    }
    if limits.is_cut_off() {
        return limits.take_local(org, request, limits.0.peers.alive());
    }
    // Only tasks of the main runtime use the database. A caller that hangs up drops the permit that the task returns.
    let (task_limits, task_org, task_request) = (limits.clone(), Arc::clone(org), Arc::clone(request));
    let fetching = async move { fetch(&task_limits, &task_org, &task_request).await };
    match limits.0.services.tasks.runtime.spawn(fetching).await {
        Ok(Some(taken)) => taken,
        Ok(None) | Err(_) => limits.take_local(org, request, limits.0.peers.alive()),
    }
}

/// One call of an organization at a time fetches slices. None if the node has to go on with its part.
async fn fetch(limits: &Limits, org: &Arc<OrgLimits>, request: &Request) -> Option<Result<Permit, Short>> {
    let Some(_guard) = limits.lock_in_time(&org.state().fetching).await else {
        // The database answers, but too many calls ask it.
        return (!limits.is_cut_off()).then(|| Err(short_for_now(org, &request.wanted[0])));
    };
    // Another call may have found out while this one waited.
    if limits.is_cut_off() {
        return None;
    }
    let fetched = limits.in_time(Box::pin(fetch_until_admitted(limits, org, request))).await;
    fetched.inspect_err(|error| tracing::debug!(%error, "cannot take slices of limits")).ok()
}

/// Fetches slices until the call can be admitted.
async fn fetch_until_admitted(
    limits: &Limits,
    org: &Arc<OrgLimits>,
    request: &Request,
) -> Result<Result<Permit, Short>, StoreError> {
    let mut refused = Vec::new();
    for _ in 0..MAX_ROUNDS + request.wanted.len() {
        let lacking = match take_from_credit(limits, org, request, &refused) {
            Ok(permit) => return Ok(Ok(permit)),
            Err(Lacking::Short(short)) => return Ok(Err(short)),
            Err(Lacking::Slices(lacking)) => lacking,
        };
        let (enforced, dry): (Vec<usize>, Vec<usize>) =
            lacking.into_iter().partition(|index| org.limit(request.wanted[*index].limit).is_enforced());
        for index in dry {
            if fetch_slices(limits, org, request, &[index]).await?.is_some() {
                refused.push(index);
            }
        }
        if !enforced.is_empty()
            && let Some(short) = fetch_slices(limits, org, request, &enforced).await?
        {
            return Ok(Err(short));
        }
    }
    // Concurrent calls used up what was fetched.
    Ok(Err(short_for_now(org, &request.wanted[0])))
}

/// Admits the call from what the node has. `refused`: limits in dry run that would refuse the call.
fn take_from_credit(
    limits: &Limits,
    org: &Arc<OrgLimits>,
    request: &Request,
    refused: &[usize],
) -> Result<Permit, Lacking> {
    let now = limits.0.services.clock.now();
    let mut state = org.state().lock();
    let mut refused = refused.to_vec();
    let mut lacking = Vec::new();
    let mut worst: Option<Short> = None;
    for (index, wanted) in request.wanted.iter().enumerate() {
        let limit = org.limit(wanted.limit);
        if refused.contains(&index) {
            continue;
        }
        match check(&mut state, limit, wanted, request.class.as_deref(), now) {
            Ok(true) => {}
            Ok(false) => lacking.push(index),
            Err(shortage) if limit.is_enforced() => {
                let short = Short { limit: wanted.limit, bucket: Arc::clone(&wanted.bucket), shortage };
                worst = Some(short.worse(worst.take()));
            }
            Err(_) => refused.push(index),
        }
    }
    if let Some(short) = worst {
        return Err(Lacking::Short(short));
    }
    if !lacking.is_empty() {
        return Err(Lacking::Slices(lacking));
    }
    let mut held = Vec::with_capacity(request.wanted.len());
    for (index, wanted) in request.wanted.iter().enumerate() {
        let would_refuse = refused.contains(&index);
        if !would_refuse {
            let limit = org.limit(wanted.limit);
            let entry = state.entry(limit, &wanted.bucket, now);
            for (unit, credit) in Unit::REFILLING.into_iter().zip(&mut entry.lease.credit) {
                if limit.definition.amount(unit).is_some() {
                    *credit -= number(wanted.demand.of(unit));
                }
            }
            entry.lease.used_at = now.0;
            entry.lease.unreserved = 0;
            // The buckets of the account show what is left of the shared ones; only the calls are counted here.
            entry.account.take(&Demand::default(), now);
        }
        held.push(Held { wanted: wanted.clone(), source: Source::Slices, would_refuse });
    }
    let policies: Vec<Policy> = state.policies(&org.set, &request.wanted, now);
    drop(state);
    super::refusals::note_dry_runs(org, &held);
    Ok(Permit::new(limits, org, held, policies))
}

/// Whether the node has enough of one limit. An error if it cannot get enough.
fn check(
    state: &mut State,
    limit: &Limit,
    wanted: &Wanted,
    class: Option<&str>,
    now: Timestamp,
) -> Result<bool, Shortage> {
    let entry = state.entry(limit, &wanted.bucket, now);
    entry.account.note_class(limit, class, now);
    let floor = entry.account.floor(limit, class, now);
    let lease = entry.lease;
    let mut has_enough = true;
    for (unit, credit) in Unit::REFILLING.into_iter().zip(lease.credit) {
        let (Some(bucket), needed) = (entry.account.bucket(unit), wanted.demand.of(unit)) else { continue };
        if needed == 0 {
            continue;
        }
        let (capacity, kept) = (bucket.capacity(), floor.of(bucket.capacity()));
        let shortage = |wait| Shortage { unit, limit: capacity, needed, left: bucket.left() + credit, wait };
        if needed > capacity {
            return Err(shortage(None));
        }
        if kept > 0 && number(kept) + number(needed) > bucket.left().saturating_add(credit) {
            return Err(shortage(Some(bucket.time_until(needed, kept).max(CONCURRENT_RETRY))));
        }
        has_enough &= credit >= number(needed);
    }
    if let Some(capacity) = limit.definition.concurrent {
        has_enough &= number(entry.account.running()) < lease.permits_beside(floor.of(capacity));
    }
    match lease.refused {
        Some(RefusedFetch { until, shortage }) if !has_enough && now.0 < until => {
            let needed = wanted.demand.of(shortage.unit);
            if needed >= shortage.needed { Err(Shortage { needed, ..shortage }) } else { Ok(false) }
        }
        _ => Ok(has_enough),
    }
}

/// Takes slices for the given limits, of all or of none. Returns the limit that has too little.
async fn fetch_slices(
    limits: &Limits,
    org: &Arc<OrgLimits>,
    request: &Request,
    lacking: &[usize],
) -> Result<Option<Short>, StoreError> {
    let services = &limits.0.services;
    let nodes = number(limits.0.peers.alive()).max(1);
    let now = services.clock.now();
    let (mut slices, mut permits) = (Vec::new(), Vec::new());
    {
        let mut state = org.state().lock();
        for index in lacking {
            let wanted = &request.wanted[*index];
            let limit = org.limit(wanted.limit);
            let entry = state.entry(limit, &wanted.bucket, now);
            slices.extend(
                slice_requests(limit, wanted, entry.lease, nodes).map(|(unit, slice)| (*index, unit, slice)),
            );
            let running = number(entry.account.running());
            if let Some(capacity) = limit.definition.concurrent {
                let kept = entry.account.floor(limit, request.class.as_deref(), now).of(capacity);
                if running >= entry.lease.permits_beside(kept) {
                    let asked = PermitRequest {
                        limit: limit.id,
                        bucket: wanted.bucket.to_string(),
                        capacity: number(capacity),
                        floor: number(kept),
                        wanted: running + 1,
                    };
                    permits.push((*index, asked));
                }
            }
        }
    }
    if !slices.is_empty() {
        let requests: Vec<SliceRequest> = slices.iter().map(|(_, _, slice)| slice.clone()).collect();
        let granted = limit_slices::take(&services.db, org.org(), &requests).await?;
        let mut worst: Option<Short> = None;
        let mut state = org.state().lock();
        for ((index, unit, asked), slice) in slices.iter().zip(&granted) {
            let wanted = &request.wanted[*index];
            state.sliced.insert((asked.limit, Arc::clone(&wanted.bucket)));
            let entry = state.entry(org.limit(wanted.limit), &wanted.bucket, now);
            let place = Unit::REFILLING.iter().position(|known| known == unit).unwrap_or(0);
            entry.lease.credit[place] += slice.granted;
            entry.lease.used_at = now.0;
            let credit = entry.lease.credit[place];
            let Some(bucket) = entry.account.bucket(*unit) else { continue };
            bucket.set_left(slice.left, now);
            if slice.granted == 0 && slice.left < asked.need {
                let wait = bucket.time_until(u64::try_from(asked.need).unwrap_or(0), 0);
                let shortage = Shortage {
                    unit: *unit,
                    limit: bucket.capacity(),
                    needed: wanted.demand.of(*unit),
                    left: slice.left.saturating_add(credit),
                    wait: Some(wait.max(Duration::from_millis(1))),
                };
                entry.lease.refused = Some(RefusedFetch { until: now.0 + REFUSED_MS, shortage });
                let short = Short { limit: wanted.limit, bucket: Arc::clone(&wanted.bucket), shortage };
                worst = Some(short.worse(worst.take()));
            }
        }
        if worst.is_some() {
            return Ok(worst);
        }
    }
    if permits.is_empty() {
        return Ok(None);
    }
    fetch_permits(limits, org, request, &permits).await
}

/// Leases permits for calls that run at the same time. `permits`: with the places of their limits in `wanted`.
async fn fetch_permits(
    limits: &Limits,
    org: &Arc<OrgLimits>,
    request: &Request,
    permits: &[(usize, PermitRequest)],
) -> Result<Option<Short>, StoreError> {
    let services = &limits.0.services;
    let now = services.clock.now();
    let requests: Vec<PermitRequest> = permits.iter().map(|(_, permit)| permit.clone()).collect();
    let key = |index: usize, asked: &PermitRequest| (asked.limit, Arc::clone(&request.wanted[index].bucket));
    {
        // Until the answer is here, the database may count any number of permits for this node.
        let mut state = org.state().lock();
        for (index, asked) in permits {
            state.sliced.insert(key(*index, asked));
            state.record_permits(key(*index, asked), i64::MAX);
        }
    }
    let node = limits.0.peers.node_name();
    let leased = limit_permits::lease(&services.db, org.org(), node, &requests).await?;
    let is_granted = leased.iter().all(|leased| leased.fits);
    let mut state = org.state().lock();
    let mut short = None;
    for ((index, asked), leased) in permits.iter().zip(leased) {
        let wanted = &request.wanted[*index];
        state.record_permits(key(*index, asked), leased.held);
        let entry = state.entry(org.limit(wanted.limit), &wanted.bucket, now);
        entry.lease.permits = leased.held;
        entry.lease.unreserved = if is_granted { asked.wanted } else { 0 };
        entry.lease.used_at = now.0;
        if !leased.fits {
            let limit = u64::try_from(asked.capacity).unwrap_or(0);
            let wait = Some(CONCURRENT_RETRY);
            let shortage = Shortage { unit: Unit::Concurrent, limit, needed: 1, left: 0, wait };
            // With a floor, the calls of another class may fit.
            if asked.floor == 0 {
                entry.lease.refused = Some(RefusedFetch { until: now.0 + REFUSED_MS, shortage });
            }
            short = Some(Short { limit: wanted.limit, bucket: Arc::clone(&wanted.bucket), shortage });
        }
    }
    Ok(short)
}

/// The slices that a limit lacks for a call.
fn slice_requests(
    limit: &Limit,
    wanted: &Wanted,
    lease: NodeLease,
    nodes: i64,
) -> impl Iterator<Item = (Unit, SliceRequest)> {
    Unit::REFILLING.into_iter().zip(lease.credit).filter_map(move |(unit, credit)| {
        let capacity = number(limit.definition.amount(unit)?);
        let need = number(wanted.demand.of(unit)) - credit;
        (wanted.demand.of(unit) > 0 && need > 0).then(|| {
            let slice = need.max(slice_of(capacity, nodes));
            let window = limit.definition.window.length();
            let bucket = wanted.bucket.to_string();
            (
                unit,
                SliceRequest { limit: limit.id, bucket, unit: unit.as_str(), capacity, window, need, slice },
            )
        })
    })
}

/// What one node holds at most without using it.
pub(super) fn slice_of(capacity: i64, nodes: i64) -> i64 {
    capacity / 10 / nodes.max(1)
}

/// Ends a call that was admitted from slices. True if the node has more than a slice, or owes something.
pub fn settle(state: &mut State, limit: &Limit, wanted: &Wanted, used: &Demand, now: Timestamp) -> bool {
    let Some(entry) = state.find(limit.id, limit.index, &wanted.bucket) else { return false };
    let mut is_due = false;
    for (unit, credit) in Unit::REFILLING.into_iter().zip(&mut entry.lease.credit) {
        let Some(capacity) = limit.definition.amount(unit) else { continue };
        *credit += number(wanted.demand.of(unit)) - number(used.of(unit));
        is_due |= *credit < 0 || *credit > slice_of(number(capacity), 1);
    }
    entry.account.release();
    entry.lease.used_at = now.0;
    is_due |= limit.definition.concurrent.is_some();
    is_due
}

pub(super) fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
