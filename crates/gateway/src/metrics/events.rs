//! Counts of what happens on the way of a request, by causes that the code knows. Tenants choose no label but the names of
//! their limits.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use gateway_core::histogram::{Histogram, HistogramReading};
use gateway_core::ids::OrgId;
use gateway_core::llm::failure::AttemptOutcome;
use gateway_core::llm::providers::{self, Provider};

use super::exposition::{Exposition, Family, Kind, Unit};
use super::leaves_room;

/// Upper bounds of the buckets of a stage, in microseconds.
const STAGE_BUCKETS: [u64; 12] =
    [50, 100, 250, 1_000, 5_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000, 60_000_000, 300_000_000];

/// Names of limits that are counted on their own. Tenants choose them, so the rest is counted together.
const MAX_LIMIT_NAMES: usize = 500;
const OTHER_LIMITS: &str = "other";

/// A part of the time of a proxied request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The credential is checked.
    Authenticate,
    /// The request is counted against its rate limit, while its body begins to arrive.
    Limit,
    /// Until the first attempt: body, route, budgets, prompt, cache. Until the response, if the cache has it.
    Prepare,
    /// From the first to the last attempt, if there are several.
    Failover,
    /// From the start of the last attempt to the head of its response.
    Upstream,
    /// From the head of the response to its end.
    Response,
}

/// Why a target is called once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    SameCredential,
    NextCredential,
    WithoutUsageOption,
}

/// What a request that asked for the cache got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheResult {
    Hit,
    /// Stored by another node.
    SharedHit,
    /// An identical request was in progress.
    CoalescedHit,
    SemanticHit,
    Miss,
    Refresh,
    /// The request or the entry cannot be used with the cache.
    Bypass,
}

/// Why a caller was not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthFailure {
    Missing,
    Invalid,
    /// Too many wrong credentials came from the address.
    Limited,
    /// The database is unreachable.
    Unavailable,
    WrongPassword,
}

/// Who answered with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Surface {
    Proxy,
    Api,
}

const STAGES: [&str; 6] = ["authenticate", "limit", "prepare", "failover", "upstream", "response"];
const RETRIES: [&str; 3] = ["same_credential", "next_credential", "without_usage_option"];
const CACHE_RESULTS: [&str; 7] =
    ["hit", "shared_hit", "coalesced_hit", "semantic_hit", "miss", "refresh", "bypass"];
const AUTH_FAILURES: [&str; 5] = ["missing", "invalid", "limited", "unavailable", "wrong_password"];
const OUTCOMES: [&str; 10] = [
    "success",
    "client_error",
    "rate_limited",
    "server_error",
    "connect_error",
    "timeout",
    "reset",
    "invalid_response",
    "stream_error",
    "not_sent",
];

/// Counts by a fixed set of names.
struct Counts<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const N: usize> Counts<N> {
    fn add(&self, index: usize) {
        self.0[index].fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }

    fn write(&self, mut family: Family<'_>, label: &str, names: [&str; N]) {
        for (index, name) in names.into_iter().enumerate() {
            family.sample(&[(label, name)], self.get(index));
        }
    }
}

/// What every proxied request counts. Each worker thread has its own, so that they do not slow each other down.
pub struct LaneEvents {
    stages: [Histogram; STAGES.len()],
    /// Of each provider in the built-in table.
    attempts: Vec<Counts<{ OUTCOMES.len() }>>,
}

impl Default for LaneEvents {
    fn default() -> Self {
        Self {
            stages: std::array::from_fn(|_| Histogram::new(&STAGE_BUCKETS)),
            attempts: providers::all().iter().map(|_| Counts::default()).collect(),
        }
    }
}

impl LaneEvents {
    pub fn stage(&self, stage: Stage, duration: Duration) {
        self.stages[stage as usize].observe(duration);
    }

    /// An attempt ended. A tenant's own provider is counted under the built-in one whose API it has.
    pub fn attempt(&self, provider: &'static Provider, outcome: Option<AttemptOutcome>) {
        if let Some(counts) = index_of(provider).and_then(|index| self.attempts.get(index)) {
            counts.add(outcome_index(outcome));
        }
    }
}

/// What is counted rarely.
pub struct Events {
    retries: Counts<{ RETRIES.len() }>,
    failovers: AtomicU64,
    /// By the position of the provider in the built-in table, as far as any was skipped.
    skipped: RwLock<BTreeMap<usize, u64>>,
    cache: Counts<{ CACHE_RESULTS.len() }>,
    auth_failures: Counts<{ AUTH_FAILURES.len() }>,
    /// The codes are constants of the program.
    errors: RwLock<BTreeMap<(Surface, &'static str), AtomicU64>>,
    limit_refusals: RwLock<LimitRefusals>,
    queue: Histogram,
}

#[derive(Default)]
struct LimitRefusals {
    by_name: BTreeMap<String, u64>,
    /// How many names each organization was the first to use.
    names_of: HashMap<OrgId, usize>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            retries: Counts::default(),
            failovers: AtomicU64::default(),
            skipped: RwLock::default(),
            cache: Counts::default(),
            auth_failures: Counts::default(),
            errors: RwLock::default(),
            limit_refusals: RwLock::default(),
            queue: Histogram::new(&STAGE_BUCKETS),
        }
    }
}

impl Events {
    /// A limit of an organization refused a call.
    pub fn limit_refused(&self, org: OrgId, name: &str) {
        let mut refusals = self.limit_refusals.write().unwrap_or_else(PoisonError::into_inner);
        let LimitRefusals { by_name, names_of } = &mut *refusals;
        if let Some(count) = by_name.get_mut(name) {
            *count += 1;
            return;
        }
        let own = names_of.get(&org).copied().unwrap_or(0);
        if leaves_room(MAX_LIMIT_NAMES, by_name.len(), own) {
            names_of.insert(org, own + 1);
            by_name.insert(name.to_owned(), 1);
        } else {
            *by_name.entry(OTHER_LIMITS.to_owned()).or_default() += 1;
        }
    }

    /// A call waited for its limits.
    pub fn queued(&self, waited: Duration) {
        self.queue.observe(waited);
    }

    pub fn retry(&self, why: Retry) {
        self.retries.add(why as usize);
    }

    pub fn failover(&self) {
        self.failovers.fetch_add(1, Ordering::Relaxed);
    }

    /// A target was left out because its circuit breaker is open.
    pub fn skip(&self, provider: &'static Provider) {
        if let Some(index) = index_of(provider) {
            *self.skipped.write().unwrap_or_else(PoisonError::into_inner).entry(index).or_default() += 1;
        }
    }

    pub fn cache(&self, result: CacheResult) {
        self.cache.add(result as usize);
    }

    pub fn auth_failure(&self, why: AuthFailure) {
        self.auth_failures.add(why as usize);
    }

    /// The gateway itself answered with an error.
    pub fn error(&self, surface: Surface, code: &'static str) {
        let key = (surface, code);
        if let Some(count) = self.errors.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut errors = self.errors.write().unwrap_or_else(PoisonError::into_inner);
        errors.entry(key).or_default().fetch_add(1, Ordering::Relaxed);
    }

    pub fn write(&self, out: &mut Exposition) {
        let mut family = out.family(
            "gateway_error_responses",
            Kind::Counter,
            "Errors that the gateway itself answered with, by surface (proxy, api) and error code.",
        );
        for ((surface, code), count) in &*self.errors.read().unwrap_or_else(PoisonError::into_inner) {
            let surface = match surface {
                Surface::Proxy => "proxy",
                Surface::Api => "api",
            };
            family.sample(&[("surface", surface), ("code", code)], count.load(Ordering::Relaxed));
        }
        let help = "Calls that a limit refused, by the name of the limit.";
        let mut family = out.family("gateway_limit_refused", Kind::Counter, help);
        let refusals = self.limit_refusals.read().unwrap_or_else(PoisonError::into_inner);
        for (name, count) in &refusals.by_name {
            family.sample(&[("name", name)], count);
        }
        drop(refusals);
        let help = "Time that calls waited for their limits.";
        let mut family = out.family("gateway_queue_seconds", Kind::Histogram, help);
        family.histogram(&[], &self.queue.read(), Unit::Seconds, &[]);
        let help = "Requests whose caller was not authenticated, by reason.";
        let family = out.family("gateway_authentication_failures", Kind::Counter, help);
        self.auth_failures.write(family, "reason", AUTH_FAILURES);
        let help = "What requests that asked for the cache got.";
        self.cache.write(out.family("gateway_cache_results", Kind::Counter, help), "result", CACHE_RESULTS);
        let help = "Further attempts at the same target, by reason.";
        self.retries.write(out.family("gateway_upstream_retries", Kind::Counter, help), "reason", RETRIES);
        out.single(
            "gateway_upstream_failovers",
            Kind::Counter,
            "Times that a request went on to its next target.",
            self.failovers.load(Ordering::Relaxed),
        );
        let mut family = out.family(
            "gateway_upstream_skipped",
            Kind::Counter,
            "Targets that were left out because their circuit breaker was open, by provider.",
        );
        for (index, count) in &*self.skipped.read().unwrap_or_else(PoisonError::into_inner) {
            if let Some(provider) = providers::all().get(*index) {
                family.sample(&[("provider", provider.name)], count);
            }
        }
    }
}

/// Writes what the worker threads counted together.
pub(super) fn write_lanes(out: &mut Exposition, lanes: &[LaneEvents]) {
    let mut family = out.family(
        "gateway_upstream_attempts",
        Kind::Counter,
        "Attempts at providers that have ended, by built-in provider and outcome.",
    );
    for (index, provider) in providers::all().iter().enumerate() {
        for (outcome, name) in OUTCOMES.into_iter().enumerate() {
            let count: u64 = lanes.iter().map(|lane| lane.attempts[index].get(outcome)).sum();
            // Most providers are not used.
            if count > 0 {
                family.sample(&[("provider", provider.name), ("outcome", name)], count);
            }
        }
    }
    let mut family = out.family(
        "gateway_stage_duration_seconds",
        Kind::Histogram,
        "Time that proxied requests spend in each stage.",
    );
    for (stage, name) in STAGES.into_iter().enumerate() {
        let mut reading = HistogramReading::new(&STAGE_BUCKETS);
        for lane in lanes {
            lane.stages[stage].add_to(&mut reading);
        }
        family.histogram(&[("stage", name)], &reading, Unit::Seconds, &[]);
    }
}

fn index_of(provider: &'static Provider) -> Option<usize> {
    providers::all().iter().position(|known| std::ptr::eq(known, provider))
}

/// The index in `OUTCOMES`. None: the caller's request failed before the target could answer.
fn outcome_index(outcome: Option<AttemptOutcome>) -> usize {
    match outcome {
        Some(AttemptOutcome::Status { code: 429 }) => 2,
        Some(AttemptOutcome::Status { code: 400..=499 } | AttemptOutcome::Refused(_)) => 1,
        Some(AttemptOutcome::Status { code: 500.. }) => 3,
        Some(AttemptOutcome::Status { .. }) => 0,
        Some(AttemptOutcome::Connect) => 4,
        Some(AttemptOutcome::Timeout) => 5,
        Some(AttemptOutcome::Reset) => 6,
        Some(AttemptOutcome::InvalidResponse) => 7,
        Some(AttemptOutcome::StreamError) => 8,
        Some(AttemptOutcome::Untranslatable) | None => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::exposition::Format;

    #[test]
    fn attempts_of_all_threads_are_added_up_by_outcome() {
        let lanes = [LaneEvents::default(), LaneEvents::default()];
        let openai = providers::builtin("openai").unwrap();
        let status = |code| Some(AttemptOutcome::Status { code });
        for lane in &lanes {
            lane.attempt(openai, status(200));
        }
        for outcome in [status(404), status(429), status(503), Some(AttemptOutcome::Timeout), None] {
            lanes[1].attempt(openai, outcome);
        }
        lanes[0].stage(Stage::Upstream, Duration::from_millis(3));
        lanes[1].stage(Stage::Upstream, Duration::from_millis(30));
        let mut out = Exposition::new(Format::Prometheus);
        write_lanes(&mut out, &lanes);
        let text = out.finish();
        let attempts =
            |outcome| format!(r#"gateway_upstream_attempts_total{{provider="openai",outcome="{outcome}"}}"#);
        for (series, value) in [
            (attempts("success"), 2),
            (attempts("client_error"), 1),
            (attempts("rate_limited"), 1),
            (attempts("server_error"), 1),
            (attempts("timeout"), 1),
            (attempts("not_sent"), 1),
            (r#"gateway_stage_duration_seconds_bucket{le="0.005",stage="upstream"}"#.into(), 1),
            (r#"gateway_stage_duration_seconds_count{stage="upstream"}"#.into(), 2),
            (r#"gateway_stage_duration_seconds_count{stage="limit"}"#.into(), 0),
        ] {
            assert!(text.lines().any(|line| line == format!("{series} {value}")), "{series} in\n{text}");
        }
    }

    #[test]
    fn errors_are_counted_by_surface_and_code() {
        let events = Events::default();
        events.error(Surface::Proxy, "rate_limited");
        events.error(Surface::Proxy, "rate_limited");
        events.error(Surface::Api, "rate_limited");
        events.auth_failure(AuthFailure::WrongPassword);
        events.cache(CacheResult::SemanticHit);
        events.retry(Retry::NextCredential);
        events.skip(providers::builtin("groq").unwrap());
        let mut out = Exposition::new(Format::Prometheus);
        events.write(&mut out);
        let text = out.finish();
        for line in [
            r#"gateway_error_responses_total{surface="proxy",code="rate_limited"} 2"#,
            r#"gateway_error_responses_total{surface="api",code="rate_limited"} 1"#,
            r#"gateway_authentication_failures_total{reason="wrong_password"} 1"#,
            r#"gateway_cache_results_total{result="semantic_hit"} 1"#,
            r#"gateway_upstream_retries_total{reason="next_credential"} 1"#,
            r#"gateway_upstream_skipped_total{provider="groq"} 1"#,
            "gateway_upstream_failovers_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn the_limits_of_one_organization_leave_names_to_those_of_others() {
        let (events, orgs) = (Events::default(), [1, 2, 3].map(|id| OrgId(uuid::Uuid::from_u128(id))));
        for org in &orgs[..2] {
            for number in 0..MAX_LIMIT_NAMES {
                events.limit_refused(*org, &format!("{org}-{number}"));
            }
        }
        events.limit_refused(orgs[2], "mine");
        events.limit_refused(orgs[2], "mine");
        let mut out = Exposition::new(Format::Prometheus);
        events.write(&mut out);
        let text = out.finish();
        let names = text.lines().filter(|line| line.starts_with("gateway_limit_refused_total{"));
        // Half of the names, half of the rest, one more, and one for all others.
        assert_eq!(names.count(), 250 + 125 + 1 + 1);
        for line in [
            r#"gateway_limit_refused_total{name="mine"} 2"#,
            r#"gateway_limit_refused_total{name="other"} 625"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
