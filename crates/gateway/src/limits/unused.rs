//! What a node does not use of shared buckets goes back to PostgreSQL: slices, and permits of concurrent calls.

use gateway_core::limits::Unit;
use gateway_store::cluster::limit_permits::{self, HeldPermits, PermitRequest};
use gateway_store::cluster::limit_slices::{self, Returned};

use super::Limits;
use super::slices::{number, slice_of};
use super::state::State;
use super::waiting::BucketKey;

/// What was not used for this long goes back.
const IDLE_MS: i64 = 1_000;

/// Gives back what the node has beyond a slice, or has not used for a second; and takes what it owes.
pub async fn give_back(limits: &Limits, all: bool) {
    let services = &limits.0.services;
    for (org, state) in limits.states() {
        // What cannot be given back now stays here until the database is back.
        if limits.is_cut_off() && !all {
            return;
        }
        if state.lock().sliced.is_empty() {
            continue;
        }
        // No call of this node asks for permits until what is given back is recorded.
        let _guard = state.fetching.lock().await;
        let (returned, permits) = unused(limits, &mut state.lock(), all);
        if !returned.is_empty()
            && let Err(error) =
                limits.in_time(Box::pin(limit_slices::give_back(&services.db, org, &returned))).await
        {
            tracing::debug!(%error, "cannot give back slices of limits; they refill");
        }
        if permits.is_empty() {
            continue;
        }
        let (keys, permits): (Vec<BucketKey>, Vec<PermitRequest>) = permits.into_iter().unzip();
        let node = limits.0.peers.node_name();
        let leased = limits.in_time(Box::pin(limit_permits::lease(&services.db, org, node, &permits))).await;
        let mut state = state.lock();
        match leased {
            Ok(leased) => {
                for (key, leased) in keys.into_iter().zip(leased) {
                    state.record_permits(key, leased.held);
                }
            }
            Err(error) => {
                tracing::debug!(%error, "cannot give back permits; retrying");
                state.sliced.extend(keys);
            }
        }
    }
}

/// Takes what is to be given back out of the node's leases.
fn unused(limits: &Limits, state: &mut State, all: bool) -> (Vec<Returned>, Vec<(BucketKey, PermitRequest)>) {
    let now = limits.0.services.clock.now();
    let nodes = number(limits.0.peers.alive()).max(1);
    let (mut returned, mut permits) = (Vec::new(), Vec::new());
    for key in std::mem::take(&mut state.sliced) {
        let (limit, bucket) = (key.0, key.1.to_string());
        // The buckets are gone if the limit was disabled or others needed the place. Their permits are not.
        let mut keeps = 0;
        let mut is_empty = true;
        if let Some(entry) = state.find(limit, 0, &key.1) {
            let is_idle = all || now.0 - entry.lease.used_at >= IDLE_MS;
            let kept = |capacity: u64| if is_idle { 0 } else { slice_of(number(capacity), nodes) };
            for (unit, credit) in Unit::REFILLING.into_iter().zip(&mut entry.lease.credit) {
                let Some(shared) = entry.account.bucket(unit) else { continue };
                let kept = kept(shared.capacity());
                if *credit < 0 || *credit > kept {
                    let amount = if *credit < 0 { *credit } else { *credit - kept };
                    *credit -= amount;
                    shared.give_back(amount);
                    returned.push(Returned { limit, bucket: bucket.clone(), unit: unit.as_str(), amount });
                }
            }
            keeps = number(entry.account.running()) + entry.account.concurrent().map_or(0, kept);
            keeps = keeps.min(entry.lease.permits);
            entry.lease.permits = keeps;
            is_empty = entry.lease.is_empty();
        }
        if !is_empty {
            state.sliced.insert(key.clone());
        }
        if state.recorded_permits.get(&key).is_some_and(|recorded| *recorded > keeps) {
            // There is always room for fewer.
            let capacity = i64::MAX / 4;
            permits.push((key, PermitRequest { limit, bucket, capacity, floor: 0, wanted: keeps }));
        }
    }
    (returned, permits)
}

/// Extends the leases of the permits that the node holds.
pub async fn renew(limits: &Limits) {
    if let Err(error) = limit_permits::renew(&limits.0.services.db, limits.0.peers.node_name()).await {
        tracing::debug!(%error, "cannot renew permits; retrying");
    }
}

/// After an outage: permits of calls that run may be gone, because their lease ended or the database lost its unlogged
/// tables. They are recorded again, so that the other nodes see them.
pub async fn restore(limits: &Limits) {
    let services = &limits.0.services;
    for (org, state) in limits.states() {
        let _guard = state.fetching.lock().await;
        let held: Vec<HeldPermits> = {
            let state = state.lock();
            let recorded = state.recorded_permits.iter().filter(|(_, held)| **held < i64::MAX);
            recorded
                .map(|((limit, bucket), held)| HeldPermits {
                    limit: *limit,
                    bucket: bucket.to_string(),
                    held: *held,
                })
                .collect()
        };
        if held.is_empty() {
            continue;
        }
        let restored = limit_permits::restore(&services.db, limits.0.peers.node_name(), &held);
        if let Err(error) = limits.in_time(Box::pin(restored)).await {
            tracing::debug!(%error, %org, "cannot record permits again after an outage");
        }
    }
}
