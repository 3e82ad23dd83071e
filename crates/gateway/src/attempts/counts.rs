//! Limits per address on sign-up, login, setup and password reset, and on requests with a wrong credential; and a limit
//! per account on wrong passwords.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use gateway_core::limits::LimitStatus;
use gateway_core::time::{DAY, MINUTE, Timestamp};
use sha2::{Digest as _, Sha256};

/// An action without authentication whose attempts are limited per address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptKind {
    Signup,
    Login,
    Setup,
    Reset,
}

pub const ATTEMPT_WINDOW: i64 = 15 * MINUTE;
/// Wrong passwords of an account in the attempt window, after which only known addresses may try.
pub const MAX_ACCOUNT_FAILURES: u64 = 20;
/// An address from which an account signed in within this time stays allowed.
pub const KNOWN_ADDRESS_AGE: i64 = 30 * DAY;
/// At this number the window that began first is forgotten for each new one.
const MAX_ADDRESSES: usize = 100_000;
/// Old windows that one attempt removes: more than it can add, so that their number falls.
const REMOVED_PER_ATTEMPT: usize = 2;

/// What failed for lack of a valid credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    Request,
    /// The database was asked for a key and does not have it.
    KeyLookup,
    /// A link for installing skills that does not exist.
    InstallToken,
}

/// Unknown install links per window and address.
pub const MAX_INSTALL_FAILURES: u64 = 60;

/// The window of failures.
pub const FAILURE_WINDOW: i64 = MINUTE;

/// Counts by key on this node, such as kind and address. A window begins with the first attempt.
pub struct WindowCounts<K> {
    window: i64,
    seen: Mutex<Seen<K>>,
}

struct Seen<K> {
    counts: HashMap<K, (Timestamp, u64)>,
    /// The windows in the order in which they began. Entries of windows that began again later are outdated.
    begun: VecDeque<(Timestamp, K)>,
}

impl<K: Copy + Eq + Hash> Seen<K> {
    /// Removes a few windows that are over, and the oldest one if there are too many. Every attempt does the same small
    /// amount of work, however many addresses there are.
    fn make_room(&mut self, window: i64, now: Timestamp) {
        for _ in 0..REMOVED_PER_ATTEMPT {
            let Some((start, _)) = self.begun.front() else { return };
            let is_over = now.0 >= start.0 + window;
            if !is_over && self.begun.len() < MAX_ADDRESSES {
                return;
            }
            if let Some((start, key)) = self.begun.pop_front()
                && self.counts.get(&key).is_some_and(|(current, _)| *current == start)
            {
                self.counts.remove(&key);
            }
        }
    }

    fn begin(&mut self, key: K, now: Timestamp) {
        self.counts.insert(key, (now, 0));
        self.begun.push_back((now, key));
    }
}

impl<K: Copy + Eq + Hash> WindowCounts<K> {
    pub fn new(window: i64) -> Self {
        Self { window, seen: Mutex::new(Seen { counts: HashMap::new(), begun: VecDeque::new() }) }
    }

    pub fn count(&self, key: K, limit: u64, now: Timestamp) -> LimitStatus {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let current = seen.counts.get(&key).is_some_and(|(start, _)| now.0 < start.0 + self.window);
        if !current {
            seen.make_room(self.window, now);
            seen.begin(key, now);
        }
        let entry = seen.counts.entry(key).or_insert((now, 0));
        entry.1 = entry.1.saturating_add(1);
        LimitStatus::new(limit, entry.1, entry.0.plus(self.window))
    }

    /// The status of one more attempt, without counting it.
    pub fn peek(&self, key: K, limit: u64, now: Timestamp) -> LimitStatus {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let current = seen.counts.get(&key).filter(|(start, _)| now.0 < start.0 + self.window);
        let (start, used) = current.copied().unwrap_or((now, 0));
        LimitStatus::new(limit, used.saturating_add(1), start.plus(self.window))
    }

    /// Takes back one count.
    pub fn uncount(&self, key: K) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, used)) = seen.counts.get_mut(&key) {
            *used = used.saturating_sub(1);
        }
    }
}

/// The account of an email as a key of counters. Emails without an account are counted too, so that the limit does not
/// tell which have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccountKey([u8; 16]);

impl AccountKey {
    pub fn of(email: &str) -> Self {
        let mut key = [0; 16];
        key.copy_from_slice(&Sha256::digest(email.as_bytes())[..16]);
        Self(key)
    }

    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

impl AttemptKind {
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptKind::Signup => "signup",
            AttemptKind::Login => "login",
            AttemptKind::Setup => "setup",
            AttemptKind::Reset => "reset",
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
        let attempts = WindowCounts::new(ATTEMPT_WINDOW);
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        assert!(attempts.peek((AttemptKind::Login, a), 1, Timestamp(0)).allowed);
        assert!(attempts.count((AttemptKind::Login, a), 1, Timestamp(0)).allowed);
        assert!(!attempts.peek((AttemptKind::Login, a), 1, Timestamp(1)).allowed);
        assert!(!attempts.count((AttemptKind::Login, a), 1, Timestamp(1)).allowed);
        assert!(attempts.count((AttemptKind::Signup, a), 1, Timestamp(1)).allowed);
        assert!(attempts.count((AttemptKind::Login, b), 1, Timestamp(1)).allowed);
        assert!(attempts.peek((AttemptKind::Login, a), 1, Timestamp(ATTEMPT_WINDOW)).allowed);
        assert!(attempts.count((AttemptKind::Login, a), 1, Timestamp(ATTEMPT_WINDOW)).allowed);
    }

    #[test]
    fn a_count_is_taken_back() {
        let failures = WindowCounts::new(ATTEMPT_WINDOW);
        let key = AccountKey::of("ada@example.com");
        assert_ne!(key, AccountKey::of("bob@example.com"));
        failures.uncount(key);
        for _ in 0..3 {
            assert!(failures.count(key, 1, Timestamp(0)).allowed);
            failures.uncount(key);
        }
        failures.count(key, 1, Timestamp(0));
        assert!(!failures.count(key, 1, Timestamp(0)).allowed);
    }

    #[test]
    fn neighbours_in_one_ipv6_network_share_their_attempts() {
        assert_eq!(network("2001:db8::1".parse().unwrap()), network("2001:db8::2".parse().unwrap()));
        assert_ne!(network("2001:db8::1".parse().unwrap()), network("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(network("::ffff:192.0.2.1".parse().unwrap()), network("192.0.2.1".parse().unwrap()));
    }

    /// An attempt of a new address among as many as are counted costs what one among few costs: nothing is walked.
    #[test]
    fn the_number_of_addresses_is_bounded_and_the_oldest_is_forgotten_first() {
        let attempts = WindowCounts::new(ATTEMPT_WINDOW);
        let address = |number: usize| IpAddr::V4(u32::try_from(number).unwrap().into());
        for number in 0..MAX_ADDRESSES {
            attempts.count((AttemptKind::Login, address(number)), 1, Timestamp(0));
        }
        assert!(!attempts.peek((AttemptKind::Login, address(0)), 1, Timestamp(1)).allowed);
        let started = std::time::Instant::now();
        for number in MAX_ADDRESSES..2 * MAX_ADDRESSES {
            attempts.count((AttemptKind::Login, address(number)), 1, Timestamp(1));
        }
        // Walking the map for each would take hours in this build.
        assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
        assert!(attempts.peek((AttemptKind::Login, address(0)), 1, Timestamp(1)).allowed, "forgotten");
        assert!(
            !attempts.peek((AttemptKind::Login, address(2 * MAX_ADDRESSES - 1)), 1, Timestamp(1)).allowed
        );
        let length = || {
            let seen = attempts.seen.lock().unwrap();
            (seen.counts.len(), seen.begun.len())
        };
        assert!(length().0 <= MAX_ADDRESSES && length().1 <= MAX_ADDRESSES, "{:?}", length());
        // Windows that are over go two by two.
        for number in 0..MAX_ADDRESSES / 2 {
            attempts.count((AttemptKind::Signup, address(number)), 1, Timestamp(2 * ATTEMPT_WINDOW));
        }
        assert!(length().0 <= MAX_ADDRESSES / 2 + 2, "{:?}", length());
    }
}
