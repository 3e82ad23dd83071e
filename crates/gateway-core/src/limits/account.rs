//! The buckets of one limit for one subject, with the calls that run, and the shares that are kept for classes of keys.

use std::time::Duration;

use super::bucket::Bucket;
use super::compiled::Limit;
use super::{Lru, Unit, share_left};
use crate::time::Timestamp;

/// A class without a call for this long is idle; and a bucket that was low within this time keeps its shares.
const CLASS_IDLE_MS: i64 = 10_000;
/// When a call ends is not known, so callers above the number of concurrent calls ask again after this.
const CONCURRENT_RETRY: Duration = Duration::from_secs(1);
/// Classes whose last use is remembered.
const MAX_CLASSES: usize = 16;

/// What a call takes of each refilling unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    pub requests: u64,
    pub tokens: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
}

impl Demand {
    pub fn of(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Requests => self.requests,
            Unit::Tokens => self.tokens,
            Unit::InputTokens => self.input_tokens,
            Unit::OutputTokens => self.output_tokens,
            Unit::Concurrent => 1,
        }
    }

    /// What several calls like it take.
    #[must_use]
    pub fn times(&self, count: u64) -> Self {
        Self {
            requests: self.requests.saturating_mul(count),
            tokens: self.tokens.saturating_mul(count),
            input_tokens: self.input_tokens.saturating_mul(count),
            output_tokens: self.output_tokens.saturating_mul(count),
        }
    }
}

/// What must be left for the classes of other keys, in millionths of the capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor(pub u64);

impl Floor {
    pub fn of(self, capacity: u64) -> u64 {
        if self.0 == 0 {
            return 0;
        }
        u64::try_from(u128::from(capacity) * u128::from(self.0) / 1_000_000).unwrap_or(u64::MAX)
    }
}

/// Why a call does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub unit: Unit,
    pub limit: u64,
    pub needed: u64,
    pub left: i64,
    /// When it fits. `None`: never, because it is larger than the whole bucket.
    pub wait: Option<Duration>,
}

/// One bucket as headers and the API show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub unit: Unit,
    pub limit: u64,
    pub left: i64,
    /// Until it is full.
    pub resets_in: Duration,
}

pub struct Account {
    /// In the order of the units.
    buckets: [Option<Bucket>; 4],
    concurrent: Option<u64>,
    running: u64,
    /// The calls on other nodes, as they were known last. For readings only: what this node admits without knowing of them
    /// depends on its own calls.
    running_elsewhere: u64,
    /// When less than a fifth was left last.
    low_at: Option<Timestamp>,
    /// The last call of each class that has a share.
    class_uses: Lru<Box<str>, Timestamp>,
}

impl Account {
    pub fn new(limit: &Limit, now: Timestamp) -> Self {
        let bucket =
            |unit| limit.definition.amount(unit).map(|amount| Bucket::new(amount, limit.window(), now));
        Self {
            buckets: Unit::REFILLING.map(bucket),
            concurrent: limit.definition.concurrent,
            running: 0,
            running_elsewhere: 0,
            low_at: None,
            class_uses: Lru::new(MAX_CLASSES),
        }
    }

    /// Brings it to the given time and to what the limit says now.
    pub fn update(&mut self, limit: &Limit, now: Timestamp) {
        for (unit, bucket) in Unit::REFILLING.into_iter().zip(&mut self.buckets) {
            match (limit.definition.amount(unit), bucket) {
                (Some(amount), Some(bucket)) => {
                    bucket.refill(now);
                    bucket.resize(amount, limit.window());
                }
                (Some(amount), bucket @ None) => *bucket = Some(Bucket::new(amount, limit.window(), now)),
                (None, bucket) => *bucket = None,
            }
        }
        self.concurrent = limit.definition.concurrent;
    }

    /// Adds what time has refilled.
    pub fn refill(&mut self, now: Timestamp) {
        for bucket in self.buckets.iter_mut().flatten() {
            bucket.refill(now);
        }
    }

    pub fn concurrent(&self) -> Option<u64> {
        self.concurrent
    }

    /// The calls of this node.
    pub fn running(&self) -> u64 {
        self.running
    }

    /// The number of calls on all nodes, as it was known last.
    pub fn set_running_everywhere(&mut self, running: u64) {
        self.running_elsewhere = running.saturating_sub(self.running);
    }

    /// A call runs for which another store has counted what it takes.
    pub fn begin(&mut self) {
        self.running += 1;
    }

    pub fn is_held(&self) -> bool {
        self.running > 0
    }

    /// Whether a new one would be the same.
    pub fn is_unused(&self) -> bool {
        self.running == 0 && self.buckets.iter().flatten().all(Bucket::is_full)
    }

    pub fn bucket(&mut self, unit: Unit) -> Option<&mut Bucket> {
        self.buckets.get_mut(unit as usize)?.as_mut()
    }

    /// What must be left for other classes than that of the caller.
    pub fn floor(&self, limit: &Limit, class: Option<&str>, now: Timestamp) -> Floor {
        if limit.reserve.is_empty() {
            return Floor(0);
        }
        let was_low = self.is_low() || self.low_at.is_some_and(|at| now.0 - at.0 < CLASS_IDLE_MS);
        let is_idle = |other: &str| {
            let used = self.class_uses.peek(other);
            used.is_none_or(|at| now.0 - at.0 >= CLASS_IDLE_MS)
        };
        let kept = limit.reserve.iter().filter(|(other, _)| class != Some(other));
        let kept = kept.filter(|(other, _)| was_low || !is_idle(other));
        Floor(kept.map(|(_, share)| share).sum())
    }

    /// Notes a call of a class, before it is admitted: one that has to wait is not idle.
    pub fn note_class(&mut self, limit: &Limit, class: Option<&str>, now: Timestamp) {
        if let Some((class, _)) = limit.reserve.iter().find(|(name, _)| class == Some(name)) {
            *self.class_uses.entry(class, || now, |_| false) = now;
        }
    }

    /// Whether the call fits. `needed` is compared with whole buckets first: one that is larger never fits. `nodes`: how
    /// many admit calls without seeing each other, and have a part of the limit each.
    pub fn check(&self, demand: &Demand, floor: Floor, nodes: u64) -> Result<(), Shortage> {
        let mut worst: Option<Shortage> = None;
        for (unit, bucket) in Unit::REFILLING.into_iter().zip(&self.buckets) {
            let (Some(bucket), needed) = (bucket, demand.of(unit)) else { continue };
            let (limit, floor) = (bucket.capacity(), floor.of(bucket.capacity()));
            let shortage = |wait| Shortage { unit, limit, needed, left: bucket.left(), wait };
            if needed > limit {
                return Err(shortage(None));
            }
            // A call that is larger than the node's part needs a full bucket.
            let counted = needed.saturating_mul(nodes).min(limit);
            if needed > 0 && !bucket.has(counted, floor) {
                let found = shortage(Some(bucket.time_until(counted, floor)));
                worst = worst.filter(|worst| worst.wait >= found.wait).or(Some(found));
            }
        }
        let of_this_node = |limit: u64| (limit / nodes.max(1)).max(1);
        if let Some(limit) = self.concurrent
            && self.running + 1 + floor.of(of_this_node(limit)) > of_this_node(limit)
            && worst.is_none()
        {
            let left =
                i64::try_from(limit).unwrap_or(i64::MAX) - i64::try_from(self.running).unwrap_or(i64::MAX);
            let wait = Some(CONCURRENT_RETRY);
            worst = Some(Shortage { unit: Unit::Concurrent, limit, needed: 1, left, wait });
        }
        worst.map_or(Ok(()), Err)
    }

    pub fn take(&mut self, demand: &Demand, now: Timestamp) {
        for (unit, bucket) in Unit::REFILLING.into_iter().zip(&mut self.buckets) {
            if let Some(bucket) = bucket {
                bucket.take(demand.of(unit));
            }
        }
        self.running += 1;
        // What was known of other nodes' calls does not include this one.
        self.running_elsewhere = 0;
        self.note_low(now);
    }

    /// Replaces what was reserved by what was used.
    pub fn settle(&mut self, reserved: &Demand, used: &Demand, now: Timestamp) {
        for (unit, bucket) in Unit::REFILLING.into_iter().zip(&mut self.buckets) {
            if let Some(bucket) = bucket {
                bucket.refill(now);
                bucket.give_back(difference(reserved.of(unit), used.of(unit)));
            }
        }
        self.note_low(now);
    }

    /// The call has ended.
    pub fn release(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// The part of each bucket that is left.
    pub fn for_each_share(&self, mut visit: impl FnMut(Unit, f64)) {
        for (unit, bucket) in Unit::REFILLING.into_iter().zip(&self.buckets) {
            if let Some(bucket) = bucket {
                visit(unit, bucket.share());
            }
        }
        if let Some(limit) = self.concurrent {
            let running =
                i64::try_from(self.running.saturating_add(self.running_elsewhere)).unwrap_or(i64::MAX);
            visit(Unit::Concurrent, 1.0 - share_left(running, limit));
        }
    }

    /// One bucket.
    pub fn reading(&self, unit: Unit) -> Option<Reading> {
        if unit == Unit::Concurrent {
            let limit = self.concurrent?;
            let running = self.running.saturating_add(self.running_elsewhere);
            let left = i64::try_from(limit.saturating_sub(running)).unwrap_or(i64::MAX);
            return Some(Reading { unit, limit, left, resets_in: Duration::ZERO });
        }
        let bucket = self.buckets.get(unit as usize)?.as_ref()?;
        let (limit, left) = (bucket.capacity(), bucket.left());
        Some(Reading { unit, limit, left, resets_in: bucket.time_until_full() })
    }

    pub fn readings(&self) -> impl Iterator<Item = Reading> {
        Unit::ALL.into_iter().filter_map(|unit| self.reading(unit))
    }

    fn note_low(&mut self, now: Timestamp) {
        if self.is_low() {
            self.low_at = Some(now);
        }
    }

    /// Whether less than a fifth of something is left.
    fn is_low(&self) -> bool {
        let is_busy = self.concurrent.is_some_and(|limit| self.running * 5 > limit * 4);
        is_busy || self.buckets.iter().flatten().any(Bucket::is_low)
    }
}

/// What is given back: negative if more was used than reserved.
fn difference(reserved: u64, used: u64) -> i64 {
    let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
    number(reserved) - number(used)
}
