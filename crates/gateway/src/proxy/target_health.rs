//! How the targets of each organization have been doing of late: whether a breaker is open, and how soon answers
//! begin. Kept in memory only, for targets that have failed or stand in a chain.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::breaker::{Breaker, Permit};
use gateway_core::ids::OrgId;
use gateway_core::time::Timestamp;

const SHARDS: usize = 16;
const PER_SHARD: usize = 4_096;
/// A measurement counts for so long; then the target is measured anew.
const MEASURED_MS: i64 = 10 * 60_000;
/// How much the newest measurement says against all before it.
const NEWEST: f64 = 0.3;
/// A session stays with the target that was the fastest for so long after its last request.
const SESSION_MS: i64 = 30 * 60_000;

#[derive(Default)]
pub struct TargetHealth {
    hasher: RandomState,
    /// Targets that are known here; none is the usual case, and costs nothing.
    known: AtomicUsize,
    targets: [Mutex<HashMap<u64, Pulse>>; SHARDS],
    sessions: Mutex<HashMap<u64, Stay>>,
}

#[derive(Default)]
struct Pulse {
    breaker: Breaker,
    latency: Option<Latency>,
}

#[derive(Clone, Copy)]
struct Latency {
    ms: f64,
    at: i64,
}

/// Where a session was served last.
struct Stay {
    target: u64,
    until: i64,
}

impl TargetHealth {
    /// May a call go to this target?
    pub fn ask(&self, org: OrgId, provider: &str, model: Option<&str>, now: Timestamp) -> Permit {
        let place = self.place(org, provider, model);
        self.shard(place).get_mut(&place).map_or(Permit::Go, |pulse| pulse.breaker.ask(now.0))
    }

    pub fn failed(&self, org: OrgId, provider: &str, model: Option<&str>, now: Timestamp) {
        self.saw(self.place(org, provider, model), true, now, |pulse| pulse.breaker.saw(false, now.0));
    }

    /// It refused a request for what was wrong with that request: no success, but the end of a probe.
    pub fn lives(&self, org: OrgId, provider: &str, model: Option<&str>, now: Timestamp) {
        if self.known.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.saw(self.place(org, provider, model), false, now, |pulse| {
            if pulse.breaker.is_open() {
                pulse.breaker.saw(true, now.0);
            }
        });
    }

    /// An answer began well. `keep`: remember it even of a target of which nothing is known yet.
    pub fn answered(
        &self,
        org: OrgId,
        provider: &str,
        model: Option<&str>,
        now: Timestamp,
        took: Duration,
        keep: bool,
    ) {
        if !keep && self.known.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.saw(self.place(org, provider, model), keep, now, |pulse| {
            pulse.breaker.saw(true, now.0);
            let ms = took.as_secs_f64() * 1_000.0;
            let before = pulse.latency.filter(|latency| now.0 - latency.at < MEASURED_MS);
            let ms = before.map_or(ms, |before| before.ms + (ms - before.ms) * NEWEST);
            pulse.latency = Some(Latency { ms, at: now.0 });
        });
    }

    /// Milliseconds until answers begin, of late.
    pub fn latency(&self, org: OrgId, provider: &str, model: Option<&str>, now: Timestamp) -> Option<f64> {
        let place = self.place(org, provider, model);
        let latency = self.shard(place).get(&place)?.latency?;
        (now.0 - latency.at < MEASURED_MS).then_some(latency.ms)
    }

    /// Is this where the session was served last?
    pub fn stays(
        &self,
        org: OrgId,
        session: &str,
        provider: &str,
        model: Option<&str>,
        now: Timestamp,
    ) -> bool {
        let (session, place) = (self.hasher.hash_one((org, session)), self.place(org, provider, model));
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&session).is_some_and(|stay| stay.target == place && stay.until > now.0)
    }

    pub fn served(&self, org: OrgId, session: &str, provider: &str, model: Option<&str>, now: Timestamp) {
        let (session, target) = (self.hasher.hash_one((org, session)), self.place(org, provider, model));
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= SHARDS * PER_SHARD {
            sessions.retain(|_, stay| stay.until > now.0);
        }
        if sessions.len() < SHARDS * PER_SHARD {
            sessions.insert(session, Stay { target, until: now.0 + SESSION_MS });
        }
    }

    fn saw(&self, place: u64, keep: bool, now: Timestamp, note: impl FnOnce(&mut Pulse)) {
        let mut shard = self.shard(place);
        if let Some(pulse) = shard.get_mut(&place) {
            return note(pulse);
        }
        if !keep {
            return;
        }
        if shard.len() >= PER_SHARD {
            let before = shard.len();
            let fresh = |latency: Option<Latency>| latency.is_some_and(|at| now.0 - at.at < MEASURED_MS);
            shard.retain(|_, pulse| !pulse.breaker.is_idle(now.0) || fresh(pulse.latency));
            self.known.fetch_sub(before - shard.len(), Ordering::Relaxed);
        }
        if shard.len() < PER_SHARD {
            self.known.fetch_add(1, Ordering::Relaxed);
            note(shard.entry(place).or_default());
        }
    }

    /// A target by its hash. The hasher's keys are random: nobody can make two targets meet.
    fn place(&self, org: OrgId, provider: &str, model: Option<&str>) -> u64 {
        self.hasher.hash_one((org, provider, model))
    }

    fn shard(&self, place: u64) -> MutexGuard<'_, HashMap<u64, Pulse>> {
        let shard = usize::try_from(place % SHARDS as u64).unwrap_or(0);
        self.targets[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn org(number: u128) -> OrgId {
        OrgId(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn a_breaker_is_of_one_organization_provider_and_model() {
        let (pulses, now) = (TargetHealth::default(), Timestamp(1_000));
        (0..5).for_each(|_| pulses.failed(org(1), "openai", Some("m"), now));
        assert_eq!(pulses.ask(org(1), "openai", Some("m"), now), Permit::Stay);
        assert_eq!(pulses.ask(org(2), "openai", Some("m"), now), Permit::Go);
        assert_eq!(pulses.ask(org(1), "openai", Some("n"), now), Permit::Go);
        assert_eq!(pulses.ask(org(1), "groq", Some("m"), now), Permit::Go);
    }

    #[test]
    fn latency_follows_the_newest_and_is_forgotten() {
        let (pulses, now) = (TargetHealth::default(), Timestamp(1_000));
        let saw = |ms, keep| {
            pulses.answered(org(1), "a", None, now, Duration::from_millis(ms), keep);
            pulses.latency(org(1), "a", None, now)
        };
        assert_eq!(saw(100, false), None);
        assert_eq!(saw(100, true), Some(100.0));
        assert_eq!(saw(200, false), Some(130.0));
        assert_eq!(pulses.latency(org(1), "a", None, now.plus(MEASURED_MS)), None);
    }

    #[test]
    fn a_session_stays_for_a_while() {
        let (pulses, now) = (TargetHealth::default(), Timestamp(1_000));
        pulses.served(org(1), "s", "a", None, now);
        let stays = |org, provider, at| pulses.stays(org, "s", provider, None, at);
        assert!(stays(org(1), "a", now) && !stays(org(2), "a", now) && !stays(org(1), "b", now));
        assert!(!stays(org(1), "a", now.plus(SESSION_MS)));
    }

    #[test]
    fn memory_is_bounded() {
        let (pulses, now) = (TargetHealth::default(), Timestamp(1_000));
        (0..100_000u32).for_each(|model| pulses.failed(org(1), "a", Some(&model.to_string()), now));
        assert!(pulses.known.load(Ordering::Relaxed) <= SHARDS * PER_SHARD);
        let later = now.plus(MEASURED_MS);
        (0..100_000u32).for_each(|model| pulses.failed(org(2), "a", Some(&model.to_string()), later));
        assert_eq!(pulses.ask(org(1), "a", Some("1"), later), Permit::Go);
    }
}
