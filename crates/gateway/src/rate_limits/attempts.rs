//! Limits per address: on sign-up, login and setup attempts, and on requests with a wrong credential.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use gateway_core::limits::LimitStatus;
use gateway_core::time::{MINUTE, Timestamp};

/// An action without authentication whose attempts are limited per address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptKind {
    Signup,
    Login,
    Setup,
}

pub const ATTEMPT_WINDOW: i64 = 15 * MINUTE;
/// Above this number expired addresses are removed, then an arbitrary one.
const MAX_ADDRESSES: usize = 100_000;

/// What failed for lack of a valid credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    Request,
    /// The database was asked for a key and does not have it.
    KeyLookup,
}

/// The window of failures.
pub const FAILURE_WINDOW: i64 = MINUTE;

/// Counts by kind and address on this node. A window begins with the first attempt.
pub struct AddressCounters<K> {
    window: i64,
    seen: Mutex<HashMap<(K, IpAddr), (Timestamp, u64)>>,
}

impl<K: Copy + Eq + Hash> AddressCounters<K> {
    pub fn new(window: i64) -> Self {
        Self { window, seen: Mutex::default() }
    }

    pub fn count(&self, kind: K, address: IpAddr, limit: u64, now: Timestamp) -> LimitStatus {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MAX_ADDRESSES {
            seen.retain(|_, (start, _)| now.0 < start.0 + self.window);
            let victim = seen.keys().next().copied().filter(|_| seen.len() >= MAX_ADDRESSES);
            victim.map(|key| seen.remove(&key));
        }
        let entry = seen.entry((kind, network(address))).or_insert((now, 0));
        if now.0 >= entry.0.0 + self.window {
            *entry = (now, 0);
        }
        entry.1 = entry.1.saturating_add(1);
        LimitStatus::new(limit, entry.1, entry.0.plus(self.window))
    }

    /// The status of one more attempt, without counting it.
    pub fn peek(&self, kind: K, address: IpAddr, limit: u64, now: Timestamp) -> LimitStatus {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let current = seen.get(&(kind, network(address))).filter(|(start, _)| now.0 < start.0 + self.window);
        let (start, used) = current.copied().unwrap_or((now, 0));
        LimitStatus::new(limit, used.saturating_add(1), start.plus(self.window))
    }
}

impl AttemptKind {
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptKind::Signup => "signup",
            AttemptKind::Login => "login",
            AttemptKind::Setup => "setup",
        }
    }
}

/// Reduces an IPv6 address to its /64 network, because one customer usually has a whole /64.
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
    fn attempts_are_counted_separately_by_kind_and_address() {
        let attempts = AddressCounters::new(ATTEMPT_WINDOW);
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        assert!(attempts.peek(AttemptKind::Login, a, 1, Timestamp(0)).allowed);
        assert!(attempts.count(AttemptKind::Login, a, 1, Timestamp(0)).allowed);
        assert!(!attempts.peek(AttemptKind::Login, a, 1, Timestamp(1)).allowed);
        assert!(!attempts.count(AttemptKind::Login, a, 1, Timestamp(1)).allowed);
        assert!(attempts.count(AttemptKind::Signup, a, 1, Timestamp(1)).allowed);
        assert!(attempts.count(AttemptKind::Login, b, 1, Timestamp(1)).allowed);
        assert!(attempts.peek(AttemptKind::Login, a, 1, Timestamp(ATTEMPT_WINDOW)).allowed);
        assert!(attempts.count(AttemptKind::Login, a, 1, Timestamp(ATTEMPT_WINDOW)).allowed);
    }

    #[test]
    fn neighbours_in_one_ipv6_network_share_their_attempts() {
        assert_eq!(network("2001:db8::1".parse().unwrap()), network("2001:db8::2".parse().unwrap()));
        assert_ne!(network("2001:db8::1".parse().unwrap()), network("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(network("::ffff:192.0.2.1".parse().unwrap()), network("192.0.2.1".parse().unwrap()));
    }
}
