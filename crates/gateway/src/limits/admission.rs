//! Admission of a call: everything that it needs of its limits, at once or after waiting for its turn.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::limits::{
    CallFacts, MissingSubject, Order, Per, Policy, Reading, Shortage, TokenEstimate, Unit,
};
use gateway_core::logs::{LimitUse, LimitUses};
use tokio::time::Instant;

use super::permit::{Held, Permit, Source};
use super::state::{Request, Short, Taken, Wanted};
use super::waiting::{BucketKey, Place};
use super::{Limits, OrgLimits, exact, slices};

/// The first in the queue looks again after this at the latest, because other nodes give back too.
const MAX_PAUSE: Duration = Duration::from_millis(250);
const MIN_PAUSE: Duration = Duration::from_millis(2);
/// Limits that mostly apply to one call.
const MAX_EXPECTED: usize = 16;

/// A call as limits see it.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub facts: CallFacts<'a>,
    pub class: Option<&'a str>,
    pub tokens: TokenEstimate,
    /// The gateway makes the call for the organization: it has no user or session.
    pub is_internal: bool,
}

/// How long and in which order a call waits for its limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    pub max: Duration,
    pub priority: u8,
    pub body_bytes: usize,
}

/// Why a call is not admitted.
pub enum Refusal {
    /// The call lacks what a limit counts by.
    Missing(MissingSubject),
    Over(Box<Over>),
    /// The service stops.
    Stopping,
}

/// A limit has too little left.
pub struct Over {
    pub name: String,
    pub per: String,
    pub unit: Unit,
    pub limit: u64,
    pub needed: u64,
    pub left: i64,
    /// When to try again. `None`: it never fits.
    pub wait: Option<Duration>,
    /// What all limits of the call have left, that one first.
    pub policies: Vec<Policy>,
    pub waited: Duration,
    pub uses: LimitUses,
}

/// Where a call waits, and for what.
struct Turn {
    order: Order,
    /// The bucket for which others wait that are served earlier.
    behind: Option<BucketKey>,
    short: Short,
}

impl Limits {
    /// Takes what the call needs of every limit that applies, or nothing. `None` if none applies.
    pub async fn admit(
        &self,
        org: &Arc<OrgLimits>,
        call: &Call<'_>,
        wait: Wait,
    ) -> Result<Option<Permit>, Refusal> {
        let request = request(org, call)?;
        if request.wanted.is_empty() {
            return Ok(None);
        }
        let describe = |mut permit: Permit, waited| {
            permit.describe(waited, call);
            Ok(Some(permit))
        };
        let (request, short) = match self.take_in_memory(org, request) {
            Ok(permit) => return describe(permit, Duration::ZERO),
            Err(found) => found,
        };
        if let Some(short) = short.filter(|short| wait.max.is_zero() || short.shortage.wait.is_none()) {
            let over = self.refuse(org, &request, &short, Duration::ZERO);
            return Err(Refusal::Over(Box::new(over)));
        }
        let request = Arc::new(request);
        let (admitted, waited) = self.take_in_turn(org, &request, wait).await;
        match admitted {
            Ok(permit) => describe(permit, waited),
            Err(Some(short)) => Err(Refusal::Over(Box::new(self.refuse(org, &request, &short, waited)))),
            Err(None) => Err(Refusal::Stopping),
        }
    }

    /// The call goes to another target: its permit moves to the limits of that one. `None` before: none applied.
    pub async fn move_to(
        &self,
        org: &Arc<OrgLimits>,
        permit: &mut Option<Permit>,
        call: &Call<'_>,
    ) -> Result<(), Refusal> {
        let held: Vec<(usize, Arc<str>)> = permit
            .iter()
            .flat_map(Permit::wants)
            .map(|wanted| (wanted.limit, Arc::clone(&wanted.bucket)))
            .collect();
        let wanted = request(org, call)?;
        let key_of = |wanted: &Wanted| (wanted.limit, Arc::clone(&wanted.bucket));
        let kept: Vec<(usize, Arc<str>)> = wanted.wanted.iter().map(key_of).collect();
        let added: Vec<Wanted> =
            wanted.wanted.into_iter().filter(|one| !held.contains(&key_of(one))).collect();
        let taken = if added.is_empty() {
            None
        } else {
            let request = Arc::new(Request { wanted: added, class: wanted.class });
            match self.take(org, &request).await {
                Ok(taken) => Some(taken),
                Err(short) => {
                    let over = self.refuse(org, &request, &short, Duration::ZERO);
                    return Err(Refusal::Over(Box::new(over)));
                }
            }
        };
        match (permit.as_mut(), taken) {
            (Some(permit), taken) => permit.move_to(taken, &kept, call.facts.model),
            (None, Some(mut taken)) => {
                taken.describe(Duration::ZERO, call);
                *permit = Some(taken);
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// The usual case on one node, with one look at the state: nobody waits, and all is in memory. Otherwise the request
    /// comes back, with what it lacks.
    fn take_in_memory(
        &self,
        org: &Arc<OrgLimits>,
        request: Request,
    ) -> Result<Permit, (Request, Option<Short>)> {
        if self.0.redis.is_some() || self.is_sliced() {
            return Err((request, None));
        }
        let now = self.0.services.clock.now();
        let mut state = org.state().lock();
        if !state.queue.is_empty() {
            return Err((request, None));
        }
        match state.take(&org.set, &request, now, 1) {
            Ok(taken) => {
                drop(state);
                Ok(self.permit_of(org, request.wanted.into_iter(), taken, 1))
            }
            Err(short) => Err((request, Some(short))),
        }
    }

    fn permit_of(
        &self,
        org: &Arc<OrgLimits>,
        wanted: impl ExactSizeIterator<Item = Wanted>,
        taken: Taken,
        nodes: u64,
    ) -> Permit {
        let source = Source::Memory(nodes);
        let held = wanted.zip(taken.would_refuse());
        let held = held.map(|(wanted, would_refuse)| Held { wanted, source: source.clone(), would_refuse });
        let held: Vec<Held> = held.collect();
        super::refusals::note_dry_runs(org, &held);
        Permit::new(self, org, held, taken.policies)
    }

    /// Takes at once, or waits for its turn. Returns how long it has waited, too.
    async fn take_in_turn(
        &self,
        org: &Arc<OrgLimits>,
        request: &Arc<Request>,
        wait: Wait,
    ) -> (Result<Permit, Option<Short>>, Duration) {
        let now = || self.0.services.clock.now();
        let (order, behind) = {
            let mut state = org.state().lock();
            let order = (!state.queue.is_empty()).then(|| state.queue.place(wait.priority, now()));
            (order, order.and_then(|order| state.behind(order, &keys(org, request))))
        };
        let short = match &behind {
            Some(key) => short_of(org, request, key),
            None => match self.take(org, request).await {
                Ok(permit) => return (Ok(permit), Duration::ZERO),
                Err(short) => short,
            },
        };
        if wait.max.is_zero() || short.shortage.wait.is_none() {
            return (Err(Some(short)), Duration::ZERO);
        }
        let started = Instant::now();
        let order = order.unwrap_or_else(|| org.state().lock().queue.place(wait.priority, now()));
        let taken = self.wait_for_turn(org, request, wait, Turn { order, behind, short }).await;
        (taken, started.elapsed())
    }

    /// Takes when it is the call's turn. An error without a shortage: the service stops.
    async fn wait_for_turn(
        &self,
        org: &Arc<OrgLimits>,
        request: &Arc<Request>,
        wait: Wait,
        Turn { order, behind, mut short }: Turn,
    ) -> Result<Permit, Option<Short>> {
        let services = &self.0.services;
        let key = behind.clone().unwrap_or_else(|| short.key(org));
        let place = Place::enter(org.state(), order, key, wait.body_bytes);
        let Some(place) = place else { return Err(Some(short)) };
        let (deadline, keys) = (Instant::now() + wait.max, keys(org, request));
        let mut next_try = if behind.is_some() { deadline } else { pause(&short) };
        loop {
            let is_called = tokio::select! {
                () = place.turn.notified() => true,
                () = tokio::time::sleep_until(next_try.min(deadline)) => false,
                () = services.tasks.stopping() => return Err(None),
            };
            if Instant::now() >= deadline && !is_called {
                return Err(Some(short));
            }
            let behind = org.state().lock().behind(place.order, &keys);
            if let Some(key) = behind {
                place.wait_for(key);
                next_try = deadline;
                continue;
            }
            match self.take(org, request).await {
                Ok(permit) => return Ok(permit),
                Err(found) if found.shortage.wait.is_none() => return Err(Some(found)),
                Err(found) => {
                    place.wait_for(found.key(org));
                    (next_try, short) = (pause(&found), found);
                }
            }
        }
    }

    /// Takes from Redis if it is there, else from slices of PostgreSQL or from memory.
    async fn take(&self, org: &Arc<OrgLimits>, request: &Arc<Request>) -> Result<Permit, Short> {
        if self.0.redis.as_ref().is_some_and(|redis| redis.is_up())
            && let Some(taken) = exact::take(self, org, request).await
        {
            return taken;
        }
        if self.is_sliced() {
            slices::take(self, org, request).await
        } else {
            self.take_local(org, request, 1)
        }
    }

    /// Takes from buckets in memory, as one of several nodes that do not see each other.
    pub(super) fn take_local(
        &self,
        org: &Arc<OrgLimits>,
        request: &Request,
        nodes: u64,
    ) -> Result<Permit, Short> {
        let now = self.0.services.clock.now();
        let mut state = org.state().lock();
        let taken = state.take(&org.set, request, now, nodes)?;
        drop(state);
        Ok(self.permit_of(org, request.wanted.iter().cloned(), taken, nodes))
    }

    /// Counts a refusal, and says what the caller is told.
    fn refuse(&self, org: &Arc<OrgLimits>, request: &Request, short: &Short, waited: Duration) -> Over {
        let limit = org.limit(short.limit);
        let Shortage { unit, limit: amount, needed, left, wait } = short.shortage;
        let now = self.0.services.clock.now();
        let mut state = org.state().lock();
        let mut policies = state.policies(&org.set, &request.wanted, now);
        if wait.is_some() {
            state.note_refusal(limit, short, now);
        }
        drop(state);
        let name = limit.policy_name(unit);
        // Both ways to say when to retry mean the same moment.
        let at = policies.iter().position(|policy| policy.name() == &**name);
        let resets_in = wait.or(at.map(|at| policies[at].resets_in)).unwrap_or_default();
        if let Some(at) = at {
            policies.remove(at);
        }
        let reading = Reading { unit, limit: amount, left: left.max(0), resets_in };
        policies.insert(0, Policy::new(limit, &reading, 0));
        let uses = LimitUse {
            name: limit.name().into(),
            reserved: 0,
            used: 0,
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            would: None,
        };
        Over {
            name: limit.name().to_owned(),
            per: limit.definition.per.to_string(),
            unit,
            limit: amount,
            needed,
            left,
            wait,
            policies,
            waited,
            uses: LimitUses::new([uses].into_iter()),
        }
    }
}

/// What the call wants of each limit that applies.
fn request(org: &OrgLimits, call: &Call<'_>) -> Result<Request, Refusal> {
    let mut wanted: Vec<Wanted> = Vec::with_capacity(org.set.limits.len().min(MAX_EXPECTED));
    let mut shared = None;
    let mut without_subject = || Arc::clone(shared.get_or_insert_with(|| "".into()));
    for (index, limit) in org.set.limits.iter().enumerate() {
        if !limit.applies_to(&call.facts) {
            continue;
        }
        let is_of_all = limit.definition.per == Per::None;
        // Limits often count by the same, whose name is made once.
        let known = wanted
            .iter()
            .filter(|_| !is_of_all)
            .find(|one| !one.bucket.is_empty() && org.limit(one.limit).has_subject_of(limit));
        let bucket: Arc<str> = match known.map(|one| Arc::clone(&one.bucket)) {
            Some(bucket) => bucket,
            None => match limit.bucket_of(&call.facts) {
                Ok(bucket) if bucket.is_empty() => without_subject(),
                Ok(bucket) => (&*bucket).into(),
                Err(_) if call.is_internal || !limit.is_enforced() => without_subject(),
                Err(missing) => return Err(Refusal::Missing(missing)),
            },
        };
        wanted.push(Wanted { limit: index, bucket, demand: call.tokens.demand(limit) });
    }
    Ok(Request { wanted, class: call.class.map(Into::into) })
}

/// The buckets for which it has to wait in order.
fn keys(org: &OrgLimits, request: &Request) -> Vec<BucketKey> {
    let enforced = request.wanted.iter().filter(|wanted| org.limit(wanted.limit).is_enforced());
    enforced.map(|wanted| (org.limit(wanted.limit).id, Arc::clone(&wanted.bucket))).collect()
}

/// Others wait before this call for a bucket: what it is told if it does not wait.
fn short_of(org: &OrgLimits, request: &Request, key: &BucketKey) -> Short {
    let is_meant = |wanted: &&Wanted| org.limit(wanted.limit).id == key.0 && wanted.bucket == key.1;
    short_for_now(org, request.wanted.iter().find(is_meant).unwrap_or(&request.wanted[0]))
}

/// What a call is told that cannot be admitted now although its limit may have enough.
pub(super) fn short_for_now(org: &OrgLimits, wanted: &Wanted) -> Short {
    let limit = org.limit(wanted.limit);
    let mut units = Unit::REFILLING.into_iter().chain([Unit::Concurrent]);
    let amount = |unit| limit.definition.amount(unit).map(|amount| (unit, amount));
    let (unit, amount) = units.find_map(amount).unwrap_or((Unit::Requests, 1));
    let shortage = Shortage {
        unit,
        limit: amount,
        needed: wanted.demand.of(unit),
        left: 0,
        wait: Some(Duration::from_secs(1)),
    };
    Short { limit: wanted.limit, bucket: Arc::clone(&wanted.bucket), shortage }
}

fn pause(short: &Short) -> Instant {
    Instant::now() + short.shortage.wait.unwrap_or(MAX_PAUSE).clamp(MIN_PAUSE, MAX_PAUSE)
}
