//! Where requests and attempts are counted on this node. The rule of the window is `gateway_core::limits`.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gateway_core::limits::{Verdict, window_end, window_of};
use gateway_core::time::{MINUTE, Timestamp};
use uuid::Uuid;

/// Counts the requests of one key or user in one-minute windows: the window's number and the count in one word.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn count(&self, limit: u64, now: Timestamp) -> Verdict {
        let window = window_of(now, MINUTE);
        let tag = (window.cast_unsigned() & 0xffff_ffff) << 32;
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            // The count saturates, so that a flood cannot spill into the window's number.
            let next = if seen & !0xffff_ffff != tag {
                tag | 1
            } else if seen & 0xffff_ffff == 0xffff_ffff {
                seen
            } else {
                seen + 1
            };
            match self.0.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Verdict::of(limit, next & 0xffff_ffff, window_end(window, MINUTE)),
                Err(now_seen) => seen = now_seen,
            }
        }
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
        let tag = (window_of(now, MINUTE).cast_unsigned() & 0xffff_ffff) << 32;
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counters.retain(|_, counter| {
            Arc::strong_count(counter) > 1 || counter.0.load(Ordering::Relaxed) & !0xffff_ffff == tag
        });
    }
}

/// What a stranger may only try so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attempt {
    Signup,
    Login,
    Setup,
}

const ATTEMPT_WINDOW: i64 = 15 * MINUTE;
/// Addresses remembered at most; beyond that expired ones go first, then any.
const ADDRESSES: usize = 100_000;

/// Attempts by kind and address. The window begins with the first attempt.
#[derive(Default)]
pub struct Attempts(Mutex<HashMap<(Attempt, IpAddr), (Timestamp, u64)>>);

impl Attempts {
    pub fn count(&self, kind: Attempt, address: IpAddr, limit: u64, now: Timestamp) -> Verdict {
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
        Verdict::of(limit, entry.1, entry.0.plus(ATTEMPT_WINDOW))
    }
}

/// One IPv6 customer has a whole /64, so that is what counts as one address.
fn network(address: IpAddr) -> IpAddr {
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
        assert_eq!(counter.count(2, Timestamp(0)).remaining, 1);
        assert!(counter.count(2, Timestamp(1)).allowed);
        assert!(!counter.count(2, Timestamp(59_999)).allowed);
        assert!(counter.count(2, Timestamp(60_000)).allowed);
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
