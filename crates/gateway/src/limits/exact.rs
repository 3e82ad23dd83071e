//! Buckets and permits in Redis: one script takes everything that a call wants, or nothing.
//!
//! A call whose caller hangs up while the script runs must give back what it took, so every exchange is a task of its
//! own that ends with a permit.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::{EventId, LimitId};
use gateway_core::limits::{Demand, Floor, Limit, Shortage, Unit};
use gateway_core::time::Timestamp;
use gateway_store::redis::RedisClient;
use gateway_store::redis::limits::{
    self as redis_limits, BucketSettle, BucketState, BucketTake, HeldPermit, PermitState, PermitTake, Taken,
};

use super::permit::{Held, Permit, Source};
use super::state::{Request, Short, Wanted};
use super::{Limits, OrgLimits};

/// When a call ends is not known, so callers above the number of concurrent calls ask again after this.
const CONCURRENT_RETRY: Duration = Duration::from_secs(1);

/// None if Redis does not answer; then nothing counts as taken.
pub async fn take(
    limits: &Limits,
    org: &Arc<OrgLimits>,
    request: &Arc<Request>,
) -> Option<Result<Permit, Short>> {
    let redis = Arc::clone(limits.0.redis.as_ref()?);
    if let Some(short) = never_fits(org, request) {
        return Some(Err(short));
    }
    let (limits, org, request) = (limits.clone(), Arc::clone(org), Arc::clone(request));
    let runtime = limits.0.services.tasks.runtime.clone();
    let exchange = async move { exchange(&limits, &org, &request, &redis).await };
    runtime.spawn(exchange).await.ok().flatten()
}

/// A unit of one wanted limit.
struct Ask {
    wanted: usize,
    unit: Unit,
}

/// One run of the script, with what was asked and what came back.
struct Exchange<'a> {
    org: &'a Arc<OrgLimits>,
    request: &'a Request,
    call: Arc<str>,
    asks: Vec<Ask>,
    permit_asks: Vec<Ask>,
    taken: Taken,
}

async fn exchange(
    limits: &Limits,
    org: &Arc<OrgLimits>,
    request: &Request,
    redis: &RedisClient,
) -> Option<Result<Permit, Short>> {
    let call: Arc<str> = limits.0.services.ids.new_id::<EventId>().to_string().into();
    let (mut asks, mut buckets) = (Vec::new(), Vec::new());
    let (mut permit_asks, mut permits) = (Vec::new(), Vec::new());
    for (index, wanted) in request.wanted.iter().enumerate() {
        let limit = org.limit(wanted.limit);
        for unit in Unit::REFILLING {
            if let Some(bucket) = bucket_take(limit, wanted, unit, request.class.as_deref()) {
                asks.push(Ask { wanted: index, unit });
                buckets.push(bucket);
            }
        }
        if let Some(capacity) = limit.definition.concurrent {
            permit_asks.push(Ask { wanted: index, unit: Unit::Concurrent });
            permits.push(PermitTake {
                limit: limit.id,
                bucket: wanted.bucket.to_string(),
                capacity,
                enforced: limit.is_enforced(),
                class: request.class.as_deref().filter(|class| limit.keeps_for(class)).map(str::to_owned),
                reserved: reserved(limit, request.class.as_deref(), capacity),
            });
        }
    }
    let taken = redis_limits::take(redis, org.org(), &call, &buckets, &permits).await.ok()?;
    let exchange = Exchange { org, request, call, asks, permit_asks, taken };
    let now = limits.0.services.clock.now();
    let refused: Vec<usize> =
        (0..request.wanted.len()).filter(|index| exchange.is_short_of(*index)).collect();
    exchange.mirror(&refused, now);
    if !exchange.taken.ok {
        return Some(Err(exchange.shortage()));
    }
    if !refused.is_empty() {
        exchange.give_back(redis, &refused).await;
    }
    let held = exchange.held(&refused);
    let policies = org.state().lock().policies(&org.set, &request.wanted, now);
    super::refusals::note_dry_runs(org, &held);
    Some(Ok(Permit::new(limits, org, held, policies)))
}

impl Exchange<'_> {
    fn wanted(&self, ask: &Ask) -> (&Limit, &Wanted) {
        let wanted = &self.request.wanted[ask.wanted];
        (self.org.limit(wanted.limit), wanted)
    }

    fn buckets(&self) -> impl Iterator<Item = (&Ask, &BucketState)> {
        self.asks.iter().zip(&self.taken.buckets)
    }

    fn permits(&self) -> impl Iterator<Item = (&Ask, &PermitState)> {
        self.permit_asks.iter().zip(&self.taken.permits)
    }

    /// Whether a limit in dry run has too little.
    fn is_short_of(&self, index: usize) -> bool {
        self.buckets().any(|(ask, found)| ask.wanted == index && !found.taken)
            || self.permits().any(|(ask, found)| ask.wanted == index && !found.taken)
    }

    /// What the call holds. Its permits are renewed from now on.
    fn held(&self, refused: &[usize]) -> Vec<Held> {
        let leased = self.permits().filter(|(ask, found)| found.taken && !refused.contains(&ask.wanted));
        let leased: Vec<_> = leased
            .map(|(ask, _)| self.wanted(ask))
            .map(|(limit, wanted)| (limit.id, Arc::clone(&wanted.bucket)))
            .collect();
        if !leased.is_empty() {
            self.org.state().lock().leased_calls.insert(Arc::clone(&self.call), leased);
        }
        let held = self.request.wanted.iter().enumerate().map(|(index, wanted)| Held {
            wanted: wanted.clone(),
            source: Source::Redis(Arc::clone(&self.call)),
            would_refuse: refused.contains(&index),
        });
        held.collect()
    }

    /// Remembers what Redis said, for headers and for the API, and which calls of this node run, for the time after a loss
    /// of Redis. `refused`: limits in dry run of which the call takes nothing.
    fn mirror(&self, refused: &[usize], now: Timestamp) {
        let mut state = self.org.state().lock();
        let is_taken = |index: &usize| self.taken.ok && !refused.contains(index);
        for wanted in (0..self.request.wanted.len()).filter(is_taken).map(|index| &self.request.wanted[index])
        {
            state.entry(self.org.limit(wanted.limit), &wanted.bucket, now).account.begin();
        }
        for (ask, found) in self.buckets() {
            let (limit, wanted) = self.wanted(ask);
            if let Some(bucket) = state.entry(limit, &wanted.bucket, now).account.bucket(ask.unit) {
                bucket.set_left(found.left, now);
            }
        }
        for (ask, found) in self.permits() {
            let (limit, wanted) = self.wanted(ask);
            state.entry(limit, &wanted.bucket, now).account.set_running_everywhere(found.held);
        }
    }

    /// Which limit the caller is told: the one that takes longest.
    fn shortage(&self) -> Short {
        let mut worst: Option<Short> = None;
        let mut note = |ask: &Ask, left: i64, wait: Duration| {
            let (limit, wanted) = self.wanted(ask);
            if limit.is_enforced() {
                let shortage = Shortage {
                    unit: ask.unit,
                    limit: limit.definition.amount(ask.unit).unwrap_or(0),
                    needed: wanted.demand.of(ask.unit),
                    left,
                    wait: Some(wait),
                };
                let short = Short { limit: wanted.limit, bucket: Arc::clone(&wanted.bucket), shortage };
                worst = Some(short.worse(worst.take()));
            }
        };
        for (ask, found) in self.buckets().filter(|(_, found)| !found.wait.is_zero()) {
            note(ask, found.left, found.wait);
        }
        for (ask, _) in self.permits().filter(|(_, found)| !found.fits) {
            note(ask, 0, CONCURRENT_RETRY);
        }
        worst.unwrap_or_else(|| {
            let wanted = &self.request.wanted[0];
            let wait = Some(CONCURRENT_RETRY);
            let shortage = Shortage { unit: Unit::Requests, limit: 0, needed: 1, left: 0, wait };
            Short { limit: wanted.limit, bucket: Arc::clone(&wanted.bucket), shortage }
        })
    }

    /// A limit in dry run took what it had of some units: a call that it would refuse takes nothing.
    async fn give_back(&self, redis: &RedisClient, refused: &[usize]) {
        let buckets = self.buckets().filter(|(ask, found)| found.taken && refused.contains(&ask.wanted));
        let buckets: Vec<BucketSettle> = buckets
            .map(|(ask, _)| {
                let (limit, wanted) = self.wanted(ask);
                settle_of(limit, wanted, ask.unit, &Demand::default())
            })
            .collect();
        let permits = self.permits().filter(|(ask, found)| found.taken && refused.contains(&ask.wanted));
        let permits: Vec<_> = permits
            .map(|(ask, _)| self.wanted(ask))
            .map(|(limit, wanted)| (limit.id, wanted.bucket.to_string()))
            .collect();
        let org = self.org.org();
        if let Err(error) = redis_limits::settle(redis, org, &self.call, &buckets, &permits).await {
            tracing::debug!(%error, "cannot give back what a limit in dry run took");
        }
    }
}

fn bucket_take(limit: &Limit, wanted: &Wanted, unit: Unit, class: Option<&str>) -> Option<BucketTake> {
    let capacity = limit.definition.amount(unit)?;
    let amount = wanted.demand.of(unit);
    if amount == 0 {
        return None;
    }
    Some(BucketTake {
        limit: limit.id,
        bucket: wanted.bucket.to_string(),
        unit: unit.as_str(),
        capacity,
        window: limit.definition.window.length(),
        amount,
        enforced: limit.is_enforced(),
        class: class.map(str::to_owned),
        reserved: reserved(limit, class, capacity),
    })
}

/// What is kept for each class other than this one.
fn reserved(limit: &Limit, class: Option<&str>, capacity: u64) -> Vec<(String, u64)> {
    let others = limit.reserve.iter().filter(|(name, _)| class != Some(name));
    others.map(|(name, share)| (name.to_string(), Floor(*share).of(capacity))).collect()
}

fn never_fits(org: &OrgLimits, request: &Request) -> Option<Short> {
    request.wanted.iter().find_map(|wanted| {
        let limit = org.limit(wanted.limit);
        let unit = Unit::REFILLING.into_iter().find(|unit| {
            limit.definition.amount(*unit).is_some_and(|amount| wanted.demand.of(*unit) > amount)
        })?;
        let amount = limit.definition.amount(unit)?;
        let left = i64::try_from(amount).unwrap_or(i64::MAX);
        let shortage = Shortage { unit, limit: amount, needed: wanted.demand.of(unit), left, wait: None };
        limit.is_enforced().then(|| Short {
            limit: wanted.limit,
            bucket: Arc::clone(&wanted.bucket),
            shortage,
        })
    })
}

fn settle_of(limit: &Limit, wanted: &Wanted, unit: Unit, used: &Demand) -> BucketSettle {
    let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
    BucketSettle {
        limit: limit.id,
        bucket: wanted.bucket.to_string(),
        unit: unit.as_str(),
        give_back: number(wanted.demand.of(unit)) - number(used.of(unit)),
    }
}

/// Settles in the background: the end of a response does not wait for Redis. What cannot be given back refills, and
/// permits end with their lease.
pub fn settle(limits: &Limits, org: &Arc<OrgLimits>, held: Vec<(Arc<str>, Wanted, Demand)>) {
    let Some(redis) = limits.0.redis.clone() else { return };
    let mut by_call: Vec<(Arc<str>, Vec<BucketSettle>, Vec<_>)> = Vec::new();
    for (call, wanted, used) in held {
        let limit = org.limit(wanted.limit);
        let units = Unit::REFILLING.into_iter();
        let units = units.filter(|unit| limit.definition.amount(*unit).is_some());
        let units = units.filter(|unit| wanted.demand.of(*unit) != used.of(*unit));
        let buckets = units.map(|unit| settle_of(limit, &wanted, unit, &used));
        let permit = limit.definition.concurrent.map(|_| (limit.id, wanted.bucket.to_string()));
        match by_call.iter_mut().find(|(known, _, _)| *known == call) {
            Some((_, known, permits)) => {
                known.extend(buckets);
                permits.extend(permit);
            }
            None => by_call.push((call, buckets.collect(), permit.into_iter().collect())),
        }
    }
    let org = Arc::clone(org);
    limits.0.services.tasks.runtime.spawn(async move {
        for (call, buckets, permits) in by_call {
            forget(&org, &call, &permits);
            if buckets.is_empty() && permits.is_empty() {
                continue;
            }
            if let Err(error) = redis_limits::settle(&redis, org.org(), &call, &buckets, &permits).await {
                tracing::debug!(%error, "cannot settle a call in Redis; its tokens refill, its permits expire");
            }
        }
        org.state().lock().wake_first();
    });
}

/// The permits of a call are no longer renewed.
fn forget(org: &OrgLimits, call: &Arc<str>, permits: &[(LimitId, String)]) {
    let mut state = org.state().lock();
    let is_empty = state.leased_calls.get_mut(call).is_some_and(|leased| {
        leased.retain(|(limit, bucket)| !permits.iter().any(|(id, name)| id == limit && **name == **bucket));
        leased.is_empty()
    });
    if is_empty {
        state.leased_calls.remove(call);
    }
}

/// Renews the permits of all calls that run.
pub async fn renew(limits: &Limits) {
    let Some(redis) = limits.0.redis.as_ref().filter(|redis| redis.is_up()) else { return };
    for (org, state) in limits.states() {
        let held: Vec<HeldPermit> = {
            let state = state.lock();
            let calls = state.leased_calls.iter();
            calls
                .flat_map(|(call, leased)| {
                    leased.iter().map(|(limit, bucket)| HeldPermit {
                        limit: *limit,
                        bucket: bucket.to_string(),
                        call: call.to_string(),
                    })
                })
                .collect()
        };
        if held.is_empty() {
            continue;
        }
        let is_held = |permit: &HeldPermit| {
            let state = state.lock();
            let leased = state.leased_calls.get(&*permit.call);
            leased.is_some_and(|leased| {
                leased.iter().any(|(limit, bucket)| *limit == permit.limit && **bucket == *permit.bucket)
            })
        };
        if let Err(error) = redis_limits::renew_permits(redis, org, &held, is_held).await {
            tracing::debug!(%error, "cannot renew permits in Redis; retrying");
        }
    }
}
