//! Where requests and attempts are counted on this node. The rule of the window is `gateway_core::limits`; what nodes
//! tell each other of their counts is `nodes::limits`.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::limits::{LimitStatus, window_end, window_of};
use gateway_core::time::{MINUTE, Timestamp};
use uuid::Uuid;

/// Counts the requests of one key or user in one-minute windows. Each word holds the low half of the window's number and a
/// count, so that a new window needs no reset.
#[derive(Default)]
pub struct Counter {
    used: AtomicU64,
    /// What other nodes have counted, as far as is known.
    others: AtomicU64,
    /// How much of `used` the other nodes have been told.
    told: AtomicU64,
    waits_to_tell: AtomicBool,
}

/// A place in a window: this is the `used`th request in it on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub window: i64,
    pub used: u64,
}

const COUNT: u64 = 0xffff_ffff;

impl Counted {
    fn tag(self) -> u64 {
        tag_of(self.window)
    }

    pub fn ends_at(self) -> Timestamp {
        window_end(self.window, MINUTE)
    }

    /// How long ago the window began.
    pub fn since(self, now: Timestamp) -> Duration {
        let began = self.ends_at().0 - MINUTE;
        Duration::from_millis(u64::try_from(now.0 - began).unwrap_or(0))
    }
}

fn tag_of(window: i64) -> u64 {
    (window.cast_unsigned() & COUNT) << 32
}

fn in_window(word: &AtomicU64, tag: u64) -> u64 {
    let seen = word.load(Ordering::Relaxed);
    if seen & !COUNT == tag { seen & COUNT } else { 0 }
}

impl Counter {
    /// Counts one more request.
    pub fn add(&self, now: Timestamp) -> Counted {
        let window = window_of(now, MINUTE);
        let tag = tag_of(window);
        let mut seen = self.used.load(Ordering::Relaxed);
        loop {
            // The count saturates, so that a flood cannot spill into the window's number.
            let next = if seen & !COUNT != tag {
                tag | 1
            } else if seen & COUNT == COUNT {
                seen
            } else {
                seen + 1
            };
            match self.used.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Counted { window, used: next & COUNT },
                Err(now_seen) => seen = now_seen,
            }
        }
    }

    /// What other nodes have counted in the same window, as far as is known.
    pub fn others(&self, counted: Counted) -> u64 {
        in_window(&self.others, counted.tag())
    }

    /// How much of the window the other nodes have been told.
    pub fn told(&self, counted: Counted) -> u64 {
        in_window(&self.told, counted.tag())
    }

    /// True for the first who has something to tell.
    pub fn begin_telling(&self) -> bool {
        !self.waits_to_tell.swap(true, Ordering::AcqRel)
    }

    /// What there is to tell. Whoever counts after this has something new to tell.
    pub fn end_telling(&self) -> Counted {
        self.waits_to_tell.swap(false, Ordering::AcqRel);
        let seen = self.used.load(Ordering::Relaxed);
        Counted { window: (seen >> 32).cast_signed(), used: seen & COUNT }
    }

    /// The other nodes were told, and have told.
    pub fn exchanged(&self, told: Counted, others: u64) {
        self.hear_of_others(told, others);
        self.told.store(told.tag() | told.used, Ordering::Relaxed);
    }

    /// So many were counted on all nodes together. Of those that were not counted here, at least so many are others'.
    pub fn learn(&self, counted: Counted, all: u64) {
        self.hear_of_others(counted, all.saturating_sub(in_window(&self.used, counted.tag())));
    }

    fn hear_of_others(&self, counted: Counted, others: u64) {
        let (tag, others) = (counted.tag(), others.min(COUNT));
        let larger = |seen: u64| (seen & !COUNT != tag || seen & COUNT < others).then_some(tag | others);
        // An error means that as many were known already.
        let _ = self.others.fetch_update(Ordering::Relaxed, Ordering::Relaxed, larger);
    }

    fn is_of(&self, now: Timestamp) -> bool {
        self.used.load(Ordering::Relaxed) & !COUNT == tag_of(window_of(now, MINUTE))
    }
}

/// The counters by key or user id. A counter outlives what else is remembered of its key, so that a change of the
/// key does not open a new window.
#[derive(Default)]
pub struct Counters(Mutex<HashMap<Uuid, Arc<Counter>>>);

impl Counters {
    pub fn of(&self, id: Uuid) -> Arc<Counter> {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(counters.entry(id).or_default())
    }

    /// Drops counters that nobody holds and whose window is over.
    pub fn sweep(&self, now: Timestamp) {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counters.retain(|_, counter| Arc::strong_count(counter) > 1 || counter.is_of(now));
    }
}

/// What a stranger may only try so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attempt {
    Signup,
    Login,
    Setup,
}

pub const ATTEMPT_WINDOW: i64 = 15 * MINUTE;
/// Addresses remembered at most; beyond that expired ones go first, then any.
const ADDRESSES: usize = 100_000;

/// Attempts by kind and address. The window begins with the first attempt.
#[derive(Default)]
pub struct Attempts(Mutex<HashMap<(Attempt, IpAddr), (Timestamp, u64)>>);

impl Attempts {
    pub fn count(&self, kind: Attempt, address: IpAddr, limit: u64, now: Timestamp) -> LimitStatus {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= ADDRESSES {
            seen.retain(|_, (start, _)| now.0 < start.0 + ATTEMPT_WINDOW);
            let victim = seen.keys().next().copied().filter(|_| seen.len() >= ADDRESSES);
            victim.map(|key| seen.remove(&key));
        }
        let entry = seen.entry((kind, network(address))).or_insert((now, 0));
        if now.0 >= entry.0.0 + ATTEMPT_WINDOW {
            *entry = (now, 0);
        }
        entry.1 = entry.1.saturating_add(1);
        LimitStatus::new(limit, entry.1, entry.0.plus(ATTEMPT_WINDOW))
    }
}

impl Attempt {
    pub fn as_str(self) -> &'static str {
        match self {
            Attempt::Signup => "signup",
            Attempt::Login => "login",
            Attempt::Setup => "setup",
        }
    }
}

/// One IPv6 customer has a whole /64, so that is what counts as one address.
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6((v6.to_bits() & (u128::MAX << 64)).into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_minute_opens_a_new_window() {
        let counter = Counter::default();
        let used = |now| counter.add(Timestamp(now)).used;
        assert_eq!([used(0), used(1), used(59_999), used(60_000)], [1, 2, 3, 1]);
    }

    #[test]
    fn what_other_nodes_counted_holds_for_its_window_only() {
        let counter = Counter::default();
        let first = counter.add(Timestamp(0));
        assert!(counter.begin_telling());
        assert!(!counter.begin_telling(), "it waits already");
        assert_eq!(counter.end_telling(), first);
        counter.exchanged(first, 7);
        assert_eq!((counter.others(first), counter.told(first)), (7, 1));
        counter.learn(first, 6);
        assert_eq!(counter.others(first), 7, "what was heard before is still true");
        counter.learn(first, 10);
        assert_eq!(counter.others(first), 9);
        let next = counter.add(Timestamp(60_000));
        assert_eq!((counter.others(next), counter.told(next)), (0, 0));
    }

    #[test]
    fn attempts_are_counted_apart_by_kind_and_address() {
        let attempts = Attempts::default();
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        assert!(attempts.count(Attempt::Login, a, 1, Timestamp(0)).allowed);
        assert!(!attempts.count(Attempt::Login, a, 1, Timestamp(1)).allowed);
        assert!(attempts.count(Attempt::Signup, a, 1, Timestamp(1)).allowed);
        assert!(attempts.count(Attempt::Login, b, 1, Timestamp(1)).allowed);
        assert!(attempts.count(Attempt::Login, a, 1, Timestamp(ATTEMPT_WINDOW)).allowed);
    }

    #[test]
    fn neighbours_in_one_ipv6_network_share_their_attempts() {
        assert_eq!(network("2001:db8::1".parse().unwrap()), network("2001:db8::2".parse().unwrap()));
        assert_ne!(network("2001:db8::1".parse().unwrap()), network("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(network("::ffff:192.0.2.1".parse().unwrap()), network("192.0.2.1".parse().unwrap()));
    }
}
