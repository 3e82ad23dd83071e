//! The policies that headers show: buckets of the limits of a call, the tightest first.

use std::sync::Arc;
use std::time::Duration;

use rust_decimal::prelude::ToPrimitive as _;

use super::account::Reading;
use super::compiled::Limit;
use super::headers::policy_item;
use super::{LimitStatus, Unit};
use crate::time::{MINUTE, Timestamp};

/// Policies in one answer.
const MAX_POLICIES: usize = 8;
const PLAN: &str = "plan";

/// One bucket of a limit, as it is after the call's reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What `RateLimit-Policy` says of it, which begins with its name.
    pub item: Arc<str>,
    pub name_bytes: usize,
    pub unit: Unit,
    pub limit: u64,
    pub left: u64,
    pub resets_in: Duration,
}

impl Policy {
    /// `credit`: what this node has taken of the bucket and not used.
    pub fn new(limit: &Limit, reading: &Reading, credit: i64) -> Self {
        let left = u64::try_from(reading.left.saturating_add(credit)).unwrap_or(0);
        Self {
            item: Arc::clone(limit.policy_item(reading.unit)),
            name_bytes: limit.policy_name(reading.unit).len(),
            unit: reading.unit,
            limit: reading.limit,
            left: left.min(reading.limit),
            resets_in: reading.resets_in,
        }
    }

    /// What `RateLimit-Policy` says of a plan with so many requests per minute.
    pub fn item_of_plan(limit: u64) -> Arc<str> {
        policy_item(PLAN, Unit::Requests, limit, MINUTE).into()
    }

    /// The requests per minute of the plan. `item`: that of its limit.
    pub fn of_plan(item: Arc<str>, status: &LimitStatus, now: Timestamp) -> Self {
        Self {
            item,
            name_bytes: PLAN.len(),
            unit: Unit::Requests,
            limit: status.limit,
            left: status.remaining,
            resets_in: status.resets_at.since(now),
        }
    }

    /// What headers call it.
    pub fn name(&self) -> &str {
        self.item.get(1..=self.name_bytes).unwrap_or_default()
    }

    pub(super) fn quoted_name(&self) -> &str {
        self.item.get(..self.name_bytes + 2).unwrap_or_default()
    }

    /// Whether a smaller share is left.
    pub(super) fn is_tighter_than(&self, other: &Self) -> bool {
        let share = |policy: &Self, of: &Self| u128::from(policy.left) * u128::from(of.limit);
        share(self, other) < share(other, self)
    }
}

/// The tightest first, as many as a header shows.
pub fn tightest<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> Vec<&'a Policy> {
    let mut tightest: Vec<&Policy> = Vec::with_capacity(MAX_POLICIES);
    for policy in policies {
        // They mostly come in this order.
        let is_last = tightest.last().is_none_or(|last| !policy.is_tighter_than(last));
        let at = if is_last {
            tightest.len()
        } else {
            tightest.partition_point(|other| !policy.is_tighter_than(other))
        };
        if at < MAX_POLICIES {
            tightest.truncate(MAX_POLICIES - 1);
            tightest.insert(at, policy);
        }
    }
    tightest
}

/// Chooses what headers may show among many buckets: the tightest of all, and the tightest of each unit. What is not
/// chosen is never made a policy.
pub struct Tightest<T> {
    all: [Option<(f64, Unit, T)>; MAX_POLICIES],
    chosen: usize,
    by_unit: [Option<(f64, T)>; Unit::ALL.len()],
}

impl<T: Copy> Default for Tightest<T> {
    fn default() -> Self {
        Self { all: [None; MAX_POLICIES], chosen: 0, by_unit: [None; Unit::ALL.len()] }
    }
}

impl<T: Copy> Tightest<T> {
    /// `share`: the part of the bucket that is left.
    pub fn add(&mut self, share: f64, unit: Unit, bucket: T) {
        let tightest = &mut self.by_unit[unit as usize];
        if tightest.is_none_or(|(least, _)| share < least) {
            *tightest = Some((share, bucket));
        }
        let is_tighter = |place: &Option<(f64, Unit, T)>| place.is_some_and(|(other, ..)| share < other);
        if self.chosen == MAX_POLICIES && !is_tighter(&self.all[MAX_POLICIES - 1]) {
            return;
        }
        let mut at = self.chosen.min(MAX_POLICIES - 1);
        self.chosen = (self.chosen + 1).min(MAX_POLICIES);
        while at > 0 && is_tighter(&self.all[at - 1]) {
            self.all[at] = self.all[at - 1];
            at -= 1;
        }
        self.all[at] = Some((share, unit, bucket));
    }

    /// The tightest first.
    pub fn chosen(&self) -> impl Iterator<Item = (Unit, T)> {
        let all = self.all[..self.chosen].iter().flatten().map(|(_, unit, bucket)| (*unit, *bucket));
        // The tightest of a unit is there if any of the unit is.
        let mut is_there = [false; Unit::ALL.len()];
        for (unit, _) in all.clone() {
            is_there[unit as usize] = true;
        }
        let of_units = Unit::ALL.into_iter().zip(&self.by_unit);
        let of_units = of_units.filter_map(|(unit, tightest)| tightest.map(|(_, bucket)| (unit, bucket)));
        all.chain(of_units.filter(move |(unit, _)| !is_there[*unit as usize]))
    }

    /// No more than this are chosen.
    pub fn max_chosen(&self) -> usize {
        self.chosen + if self.chosen < MAX_POLICIES { 0 } else { Unit::ALL.len() }
    }
}

/// The part of a number that is left.
pub fn share_left(left: i64, limit: u64) -> f64 {
    let (left, limit) = (left.to_f64().unwrap_or(0.0), limit.max(1).to_f64().unwrap_or(1.0));
    left / limit
}
