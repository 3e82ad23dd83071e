//! Health of the targets of each organization: circuit breakers, recent latencies, refused options, and the targets that
//! sessions are pinned to. Kept in memory, for targets that have failed or are part of a route with several targets.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::breaker::{Breaker, Permit};
use gateway_core::ids::OrgId;
use gateway_core::time::Timestamp;

const SHARDS: usize = 16;
const MAX_PER_SHARD: usize = 4_096;
/// A latency older than this is ignored, so that the target is measured again.
const LATENCY_TTL: Duration = Duration::from_secs(10 * 60);
/// Weight of the newest latency in the moving average.
const LATENCY_WEIGHT: f64 = 0.3;
/// How long streams are requested without the usage option after the target has refused it.
const USAGE_REFUSAL_TTL: Duration = Duration::from_secs(60 * 60);
/// How long a session stays pinned to its target after its last request.
const PIN_TTL: Duration = Duration::from_secs(30 * 60);

/// Longer names of models are cut in the list of open breakers.
const MAX_NAME_CHARS: usize = 128;

/// A model of a provider, as one organization sees it.
#[derive(Debug, Clone, Copy, Hash)]
pub struct TargetKey<'a> {
    pub org: OrgId,
    pub provider: &'a str,
    pub model: Option<&'a str>,
}

#[derive(Default)]
pub struct TargetHealth {
    /// Its keys are random, so that callers cannot provoke collisions between targets.
    hasher: RandomState,
    /// The number of tracked targets. Usually zero, which lets most requests skip the lock.
    tracked: AtomicUsize,
    targets: [Mutex<HashMap<u64, TrackedTarget>>; SHARDS],
    /// How often a breaker opened.
    opened: AtomicU64,
    sessions: Mutex<HashMap<u64, SessionPin>>,
}

#[derive(Default)]
struct TrackedTarget {
    breaker: Breaker,
    latency: Option<Latency>,
    /// Until then the target is not asked for the usage chunk of a stream.
    usage_refused_until: Option<Timestamp>,
    /// The target itself, since its breaker opened for the first time.
    name: Option<Box<TargetName>>,
}

/// The names of a target.
struct TargetName {
    org: OrgId,
    provider: String,
    model: Option<String>,
}

impl TargetName {
    fn of(key: TargetKey<'_>) -> Self {
        let short = |name: &str| name.chars().take(MAX_NAME_CHARS).collect();
        Self { org: key.org, provider: short(key.provider), model: key.model.map(short) }
    }
}

impl TrackedTarget {
    fn refuses_usage(&self, now: Timestamp) -> bool {
        self.usage_refused_until.is_some_and(|until| until > now)
    }

    /// Returns true if the target can be forgotten without changing any decision.
    fn is_idle(&self, now: Timestamp) -> bool {
        self.breaker.is_idle(now.0)
            && !self.latency.is_some_and(|latency| latency.is_fresh(now))
            && !self.refuses_usage(now)
    }
}

#[derive(Clone, Copy)]
struct Latency {
    ms: f64,
    measured_at: Timestamp,
}

impl Latency {
    fn is_fresh(&self, now: Timestamp) -> bool {
        now.0 - self.measured_at.0 < millis(LATENCY_TTL)
    }
}

struct SessionPin {
    target: u64,
    expires_at: Timestamp,
}

impl TargetHealth {
    /// Asks the circuit breaker whether a call is allowed.
    pub fn permit(&self, key: TargetKey<'_>, now: Timestamp) -> Permit {
        if self.tracked.load(Ordering::Relaxed) == 0 {
            return Permit::Allow;
        }
        let hash = self.hash(key);
        self.shard(hash).get_mut(&hash).map_or(Permit::Allow, |target| target.breaker.permit(now.0))
    }

    pub fn record_failure(&self, key: TargetKey<'_>, now: Timestamp) {
        self.update(self.hash(key), true, now, |target| {
            let was_open = target.breaker.is_open();
            target.breaker.record(false, now.0);
            if !was_open && target.breaker.is_open() {
                self.opened.fetch_add(1, Ordering::Relaxed);
                target.name.get_or_insert_with(|| Box::new(TargetName::of(key)));
            }
        });
    }

    /// The target rejected a request because of the request itself. That is not a success, but it ends a probe.
    pub fn record_alive(&self, key: TargetKey<'_>, now: Timestamp) {
        if self.tracked.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.update(self.hash(key), false, now, |target| {
            if target.breaker.is_open() {
                target.breaker.record(true, now.0);
            }
        });
    }

    /// A response started well after `latency`. `track`: start to track the target if it is not tracked yet.
    pub fn record_success(&self, key: TargetKey<'_>, now: Timestamp, latency: Duration, track: bool) {
        if !track && self.tracked.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.update(self.hash(key), track, now, |target| {
            target.breaker.record(true, now.0);
            let ms = latency.as_secs_f64() * 1_000.0;
            let previous = target.latency.filter(|latency| latency.is_fresh(now));
            let ms = previous.map_or(ms, |previous| previous.ms + (ms - previous.ms) * LATENCY_WEIGHT);
            target.latency = Some(Latency { ms, measured_at: now });
        });
    }

    /// The recent time to the start of a response, in milliseconds.
    pub fn latency(&self, key: TargetKey<'_>, now: Timestamp) -> Option<f64> {
        let hash = self.hash(key);
        let latency = self.shard(hash).get(&hash)?.latency?;
        latency.is_fresh(now).then_some(latency.ms)
    }

    /// Returns true if the target has refused the usage option lately.
    pub fn refuses_usage(&self, key: TargetKey<'_>, now: Timestamp) -> bool {
        if self.tracked.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let hash = self.hash(key);
        self.shard(hash).get(&hash).is_some_and(|target| target.refuses_usage(now))
    }

    /// The target refused a stream because of the usage option. It may depend on the caller's API version, so it is
    /// remembered for one organization and not for ever.
    pub fn record_usage_refusal(&self, key: TargetKey<'_>, now: Timestamp) {
        self.update(self.hash(key), true, now, |target| {
            target.usage_refused_until = Some(now.plus(millis(USAGE_REFUSAL_TTL)));
        });
    }

    /// Returns true if the session's last request was served by this target.
    pub fn is_pinned(&self, session: &str, key: TargetKey<'_>, now: Timestamp) -> bool {
        let (session, target) = (self.hasher.hash_one((key.org, session)), self.hash(key));
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&session).is_some_and(|pin| pin.target == target && pin.expires_at > now)
    }

    pub fn pin_session(&self, session: &str, key: TargetKey<'_>, now: Timestamp) {
        let (session, target) = (self.hasher.hash_one((key.org, session)), self.hash(key));
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= SHARDS * MAX_PER_SHARD {
            sessions.retain(|_, pin| pin.expires_at > now);
        }
        if sessions.len() < SHARDS * MAX_PER_SHARD {
            sessions.insert(session, SessionPin { target, expires_at: now.plus(millis(PIN_TTL)) });
        }
    }

    /// The targets of an organization whose breakers are open or half open: provider and model.
    pub fn open_targets(&self, org: OrgId) -> Vec<(String, Option<String>)> {
        if self.tracked.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut open = Vec::new();
        for shard in &self.targets {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let targets = shard.values().filter(|target| target.breaker.is_open());
            let names = targets.filter_map(|target| target.name.as_deref()).filter(|name| name.org == org);
            open.extend(names.map(|name| (name.provider.clone(), name.model.clone())));
        }
        open.sort_unstable();
        open
    }

    /// How often a breaker opened.
    pub fn breakers_opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// The number of breakers that are closed, open and half open.
    pub fn breaker_counts(&self) -> [u64; 3] {
        let mut counts = [0; 3];
        for shard in &self.targets {
            for target in shard.lock().unwrap_or_else(PoisonError::into_inner).values() {
                let state = usize::from(target.breaker.is_open()) + usize::from(target.breaker.is_probing());
                counts[state] += 1;
            }
        }
        counts
    }

    /// Applies `change` to the tracked target. An untracked one is ignored unless `track` is set.
    fn update(&self, hash: u64, track: bool, now: Timestamp, change: impl FnOnce(&mut TrackedTarget)) {
        let mut shard = self.shard(hash);
        if let Some(target) = shard.get_mut(&hash) {
            return change(target);
        }
        if !track {
            return;
        }
        if shard.len() >= MAX_PER_SHARD {
            let before = shard.len();
            shard.retain(|_, target| !target.is_idle(now));
            self.tracked.fetch_sub(before - shard.len(), Ordering::Relaxed);
        }
        if shard.len() < MAX_PER_SHARD {
            self.tracked.fetch_add(1, Ordering::Relaxed);
            change(shard.entry(hash).or_default());
        }
    }

    fn hash(&self, key: TargetKey<'_>) -> u64 {
        self.hasher.hash_one(key)
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, HashMap<u64, TrackedTarget>> {
        let shard = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        self.targets[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    fn key<'a>(org: u128, provider: &'a str, model: Option<&'a str>) -> TargetKey<'a> {
        TargetKey { org: OrgId(uuid::Uuid::from_u128(org)), provider, model }
    }

    #[test]
    fn a_breaker_is_of_one_organization_provider_and_model() {
        let health = TargetHealth::default();
        (0..5).for_each(|_| health.record_failure(key(1, "openai", Some("m")), NOW));
        assert_eq!(health.permit(key(1, "openai", Some("m")), NOW), Permit::Deny);
        assert_eq!(health.permit(key(2, "openai", Some("m")), NOW), Permit::Allow);
        assert_eq!(health.permit(key(1, "openai", Some("n")), NOW), Permit::Allow);
        assert_eq!(health.permit(key(1, "groq", Some("m")), NOW), Permit::Allow);
        assert_eq!((health.breaker_counts(), health.breakers_opened()), ([0, 1, 0], 1));
        let open = |org: u128| health.open_targets(OrgId(uuid::Uuid::from_u128(org)));
        assert_eq!(open(1), [("openai".to_owned(), Some("m".to_owned()))]);
        assert_eq!(open(2), []);
        assert_eq!(health.permit(key(1, "openai", Some("m")), NOW.plus(60_000)), Permit::Probe);
        assert_eq!(health.breaker_counts(), [0, 0, 1]);
        health.record_success(key(1, "openai", Some("m")), NOW.plus(60_000), Duration::ZERO, true);
        assert_eq!((health.breaker_counts(), health.breakers_opened()), ([1, 0, 0], 1));
        assert_eq!(open(1), []);
    }

    #[test]
    fn latency_is_a_moving_average_that_expires() {
        let (health, target) = (TargetHealth::default(), key(1, "a", None));
        let latency_after = |ms, track| {
            health.record_success(target, NOW, Duration::from_millis(ms), track);
            health.latency(target, NOW)
        };
        assert_eq!(latency_after(100, false), None);
        assert_eq!(latency_after(100, true), Some(100.0));
        assert_eq!(latency_after(200, false), Some(130.0));
        assert_eq!(health.latency(target, NOW.plus(millis(LATENCY_TTL))), None);
    }

    #[test]
    fn a_session_is_pinned_until_the_pin_expires() {
        let health = TargetHealth::default();
        health.pin_session("s", key(1, "a", None), NOW);
        let is_pinned = |org, provider, at| health.is_pinned("s", key(org, provider, None), at);
        assert!(is_pinned(1, "a", NOW) && !is_pinned(2, "a", NOW) && !is_pinned(1, "b", NOW));
        assert!(!is_pinned(1, "a", NOW.plus(millis(PIN_TTL))));
    }

    #[test]
    fn a_refused_usage_option_is_of_one_organization_and_is_tried_again() {
        let health = TargetHealth::default();
        health.record_usage_refusal(key(1, "a", Some("m")), NOW);
        assert!(health.refuses_usage(key(1, "a", Some("m")), NOW));
        assert!(!health.refuses_usage(key(2, "a", Some("m")), NOW));
        assert!(!health.refuses_usage(key(1, "a", Some("m")), NOW.plus(millis(USAGE_REFUSAL_TTL))));
        assert_eq!(health.permit(key(1, "a", Some("m")), NOW), Permit::Allow);
    }

    #[test]
    fn memory_is_bounded() {
        let health = TargetHealth::default();
        let fail = |org, model: u32, now| health.record_failure(key(org, "a", Some(&model.to_string())), now);
        (0..100_000).for_each(|model| fail(1, model, NOW));
        assert!(health.tracked.load(Ordering::Relaxed) <= SHARDS * MAX_PER_SHARD);
        let later = NOW.plus(millis(LATENCY_TTL));
        (0..100_000).for_each(|model| fail(2, model, later));
        assert_eq!(health.permit(key(1, "a", Some("1")), later), Permit::Allow);
    }
}
