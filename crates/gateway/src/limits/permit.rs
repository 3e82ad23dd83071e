//! What a call holds of its limits. Settling replaces what was reserved by what was used; dropping it gives back all.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::KeyId;
use gateway_core::limits::{Demand, Limit, Policy, TokensUsed, Unit};
use gateway_core::logs::{DryRunVerdict, LimitUse, LimitUses};

use super::state::Wanted;
use super::{Call, Limits, OrgLimits, exact, slices};

/// Where something was taken.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// The times that it was taken from the bucket of this node.
    Memory(u64),
    Slices,
    /// By the id of the call.
    Redis(Arc<str>),
}

/// What a call took of one limit.
pub struct Held {
    pub wanted: Wanted,
    pub source: Source,
    /// A limit in dry run would have refused the call; nothing was taken of it.
    pub would_refuse: bool,
}

pub struct Permit {
    limits: Limits,
    org: Arc<OrgLimits>,
    held: Vec<Held>,
    /// As it was after the call's own reservation.
    policies: Vec<Policy>,
    waited: Duration,
    /// What failed attempts used, by the limit and the bucket that they counted in.
    spent: Vec<(usize, Arc<str>, TokensUsed)>,
    /// For the average output of calls.
    key: Option<KeyId>,
    model: Option<String>,
    choices: u64,
}

impl Permit {
    pub(super) fn new(limits: &Limits, org: &Arc<OrgLimits>, held: Vec<Held>, policies: Vec<Policy>) -> Self {
        let (limits, org) = (limits.clone(), Arc::clone(org));
        Self {
            limits,
            org,
            held,
            policies,
            waited: Duration::ZERO,
            spent: Vec::new(),
            key: None,
            model: None,
            choices: 1,
        }
    }

    pub(super) fn describe(&mut self, waited: Duration, call: &Call<'_>) {
        (self.waited, self.choices) = (waited, call.tokens.choices);
        (self.key, self.model) = (call.facts.spender.key, call.facts.model.map(str::to_owned));
    }

    pub fn waited(&self) -> Duration {
        self.waited
    }

    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    pub(super) fn wants(&self) -> impl Iterator<Item = &Wanted> {
        self.held.iter().map(|held| &held.wanted)
    }

    /// A failed attempt used tokens. They count in the limits of its target.
    pub fn spend(&mut self, used: TokensUsed) {
        let of = |held: &Held| (held.wanted.limit, Arc::clone(&held.wanted.bucket), used);
        self.spent.extend(self.held.iter().map(of));
    }

    fn spent(&self, wanted: &Wanted) -> TokensUsed {
        let of_limit =
            self.spent.iter().filter(|(limit, bucket, _)| *limit == wanted.limit && *bucket == wanted.bucket);
        of_limit.fold(TokensUsed::default(), |sum, (.., used)| sum.plus(used))
    }

    /// Adds what another target needs, and gives back what it does not.
    pub(super) fn move_to(&mut self, added: Option<Self>, kept: &[(usize, Arc<str>)], model: Option<&str>) {
        let is_kept = |held: &Held| {
            kept.iter().any(|(limit, bucket)| *limit == held.wanted.limit && *bucket == held.wanted.bucket)
        };
        let (stays, leaves) = std::mem::take(&mut self.held).into_iter().partition(is_kept);
        self.held = stays;
        self.release(leaves, |limit, wanted| Demand { requests: 0, ..self.spent(wanted).demand(limit) });
        if let Some(mut added) = added {
            self.held.append(&mut added.held);
        }
        self.model = model.map(str::to_owned);
        let wanted: Vec<Wanted> = self.wants().cloned().collect();
        let now = self.limits.0.services.clock.now();
        self.policies = self.org.state().lock().policies(&self.org.set, &wanted, now);
    }

    /// The call has ended. Returns what it took of each limit.
    pub fn settle(&mut self, used: TokensUsed) -> LimitUses {
        let waited_ms = u64::try_from(self.waited.as_millis()).unwrap_or(u64::MAX);
        let uses = LimitUses::new(self.held.iter().map(|held| {
            let limit = self.org.limit(held.wanted.limit);
            let used = used.plus(&self.spent(&held.wanted)).demand(limit);
            LimitUse {
                name: limit.name().into(),
                reserved: shown(limit, &held.wanted.demand),
                used: shown(limit, &used),
                waited_ms,
                would: held.would_refuse.then_some(DryRunVerdict::Refuse),
            }
        }));
        if let Some(model) = self.model.take().filter(|_| used.output > 0) {
            // The average is that of one choice: an estimate multiplies it by those of its call.
            let output = used.output.div_ceil(self.choices.max(1));
            self.org.state().lock().averages.add(self.key, &model, output);
        }
        let held = std::mem::take(&mut self.held);
        self.release(held, |limit, wanted| used.plus(&self.spent(wanted)).demand(limit));
        uses
    }

    /// Replaces what was reserved by what was used, and ends the call in every limit.
    fn release(&self, held: Vec<Held>, used: impl Fn(&Limit, &Wanted) -> Demand) {
        if held.is_empty() {
            return;
        }
        let now = self.limits.0.services.clock.now();
        let mut in_redis = Vec::new();
        let mut is_slice_due = false;
        let mut state = self.org.state().lock();
        for Held { wanted, source, would_refuse } in held {
            if would_refuse {
                continue;
            }
            let limit = self.org.limit(wanted.limit);
            let used = used(limit, &wanted);
            match source {
                Source::Memory(nodes) => {
                    if let Some(entry) = state.find(limit.id, limit.index, &wanted.bucket) {
                        entry.account.settle(&wanted.demand.times(nodes), &used.times(nodes), now);
                        entry.account.release();
                    }
                }
                Source::Slices => {
                    is_slice_due |= slices::settle(&mut state, limit, &wanted, &used, now);
                }
                Source::Redis(call) => {
                    if let Some(entry) = state.find(limit.id, limit.index, &wanted.bucket) {
                        entry.account.settle(&wanted.demand, &used, now);
                        entry.account.release();
                    }
                    in_redis.push((call, wanted, used));
                }
            }
        }
        state.wake_first();
        drop(state);
        if is_slice_due {
            self.limits.0.wake.notify_one();
        }
        if !in_redis.is_empty() {
            exact::settle(&self.limits, &self.org, in_redis);
        }
    }
}

/// Tokens, or calls of a limit without tokens.
fn shown(limit: &Limit, demand: &Demand) -> u64 {
    let units = [Unit::Tokens, Unit::OutputTokens, Unit::InputTokens];
    let counted = units.into_iter().find(|unit| limit.definition.amount(*unit).is_some());
    demand.of(counted.unwrap_or(Unit::Requests))
}

/// However the call ends: what it held is given back, but not the request that it was.
impl Drop for Permit {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.release(held, |limit, wanted| self.spent(wanted).demand(limit));
    }
}
