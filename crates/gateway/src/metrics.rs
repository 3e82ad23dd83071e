//! Metrics of the whole process, for the operator's Prometheus.
//!
//! Each worker thread caches handles of the series it uses, so that counting a request takes only an uncontended lock
//! and a few atomic additions.

pub mod exposition;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError, RwLock};

use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::fair_slots::SlotStats;

/// Upper bounds of the latency buckets, in milliseconds.
const LATENCY_BUCKETS: [f64; 12] =
    [5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 15_000.0, 60_000.0];
/// Distinct label sets. Further ones are counted together, because callers choose models and tenants name providers.
const MAX_SERIES: usize = 2_000;
/// The most label sets of one organization, so that it leaves room for others.
const MAX_SERIES_OF_ORG: usize = MAX_SERIES / 2;
/// Longer names of providers and models are not labels.
const MAX_LABEL_BYTES: usize = 128;
/// The provider and model of requests whose own label set is not tracked.
const OVERFLOW: &str = "other";

pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    latency: Family<RequestLabels, Histogram, LatencyBuckets>,
    /// One cache of handles per worker thread.
    lanes: Vec<Mutex<SeriesCache>>,
    tracked: RwLock<TrackedSeries>,
    max_series: usize,
}

/// The label sets that have series of their own.
#[derive(Default)]
struct TrackedSeries {
    labels: HashSet<RequestLabels>,
    /// How many each organization was the first to use.
    by_org: HashMap<OrgId, usize>,
}

/// State of the process that is read when metrics are scraped.
#[derive(Debug, Default)]
pub struct ProcessState {
    pub uptime_seconds: u64,
    pub spool_bytes: u64,
    pub rows_appended: u64,
    pub bodies_shed: u64,
    pub rows_shed: u64,
    pub rows_over_quota: u64,
    pub bodies_over_quota: u64,
    pub rows_quarantined: u64,
    pub spool_damage: u64,
    pub cache_bytes: u64,
    pub memory_bytes: u64,
    pub memory_refusals: u64,
    pub connections: u64,
    pub connections_refused: [(&'static str, u64); 2],
    pub connections_closed: [(&'static str, u64); 3],
    /// Computation that tenants cause.
    pub compute: SlotStats,
    /// Queries of log rows, sessions and usage.
    pub queries: SlotStats,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    pub provider: String,
    pub model: String,
    pub status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TokenLabels {
    pub provider: String,
    pub model: String,
    pub status: u16,
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Handles of the series of one label set.
#[derive(Clone)]
struct Series {
    requests: Counter,
    prompt_tokens: Counter,
    completion_tokens: Counter,
    latency: Histogram,
}

/// Series by provider, model and status, nested so that a lookup needs no allocation.
type SeriesCache = HashMap<String, HashMap<String, HashMap<u16, Series>>>;

#[derive(Clone, Copy)]
struct LatencyBuckets;

impl MetricConstructor<Histogram> for LatencyBuckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(LATENCY_BUCKETS)
    }
}

impl Metrics {
    /// `lanes` is the number of worker threads.
    pub fn new(lanes: usize) -> Self {
        Self::with_max_series(lanes, MAX_SERIES)
    }

    fn with_max_series(lanes: usize, max_series: usize) -> Self {
        Self {
            requests: Family::default(),
            tokens: Family::default(),
            latency: Family::new_with_constructor(LatencyBuckets),
            lanes: (0..lanes.max(1)).map(|_| Mutex::default()).collect(),
            tracked: RwLock::default(),
            max_series,
        }
    }

    /// Counts a finished request. `lane` is the worker thread that served it.
    pub fn count(&self, lane: usize, row: &LogRow) {
        let model = row.model.as_deref().unwrap_or_default();
        let mut cache = self.lanes[lane % self.lanes.len()].lock().unwrap_or_else(PoisonError::into_inner);
        let known = cache.get(&row.provider).and_then(|models| models.get(model)?.get(&row.status));
        if let Some(series) = known {
            series.count(row);
            return;
        }
        let labels =
            RequestLabels { provider: row.provider.clone(), model: model.to_owned(), status: row.status };
        let Some(series) = self.admit(&labels, row.org_id) else {
            drop(cache);
            let labels =
                RequestLabels { provider: OVERFLOW.into(), model: OVERFLOW.into(), status: row.status };
            self.series(&labels).count(row);
            return;
        };
        series.count(row);
        let RequestLabels { provider, model, status } = labels;
        cache.entry(provider).or_default().entry(model).or_default().insert(status, series);
    }

    /// Prometheus text format.
    pub fn render(&self, state: &ProcessState) -> String {
        let mut registry = Registry::default();
        registry.register(
            "gateway_requests",
            "Requests by provider, model and status",
            self.requests.clone(),
        );
        registry.register(
            "gateway_tokens",
            "Tokens by provider, model, status and kind",
            self.tokens.clone(),
        );
        registry.register("gateway_latency_ms", "Latency of requests in milliseconds", self.latency.clone());
        let gauges = [
            ("gateway_uptime_seconds", "How long the process has been running", state.uptime_seconds),
            ("gateway_log_spool_bytes", "Log rows on disk that are not stored yet", state.spool_bytes),
            ("gateway_cache_bytes", "Size of the response cache in memory", state.cache_bytes),
            ("gateway_memory_bytes", "Memory reserved for bodies that are held", state.memory_bytes),
            ("gateway_connections", "Open client connections", state.connections),
            (
                "gateway_compute_waiting",
                "Pieces of computation that wait for a thread",
                state.compute.waiting,
            ),
            ("gateway_queries_waiting", "Queries that wait for their turn", state.queries.waiting),
        ];
        for (name, help, value) in gauges {
            registry.register(name, help, ConstGauge::new(value));
        }
        let counters = [
            ("gateway_log_rows_appended", "Log rows appended to the spool", state.rows_appended),
            ("gateway_log_bodies_shed", "Log rows whose bodies were dropped", state.bodies_shed),
            ("gateway_log_rows_shed", "Log rows that were dropped", state.rows_shed),
            (
                "gateway_log_rows_over_quota",
                "Log rows beyond a quota, which were counted but not stored",
                state.rows_over_quota,
            ),
            (
                "gateway_log_bodies_over_quota",
                "Log rows whose bodies are beyond a quota and were not stored",
                state.bodies_over_quota,
            ),
            ("gateway_log_rows_quarantined", "Log rows that cannot be stored", state.rows_quarantined),
            ("gateway_log_spool_damage", "Damaged places found in the spool", state.spool_damage),
            (
                "gateway_memory_refusals",
                "Bodies that were not held for lack of memory",
                state.memory_refusals,
            ),
            ("gateway_compute_started", "Pieces of computation that were started", state.compute.granted),
            ("gateway_compute_refused", "Pieces of computation that were refused", state.compute.refused),
            ("gateway_queries_refused", "Queries that were refused with overloaded", state.queries.refused),
            (
                "gateway_compute_wait_ms",
                "Milliseconds that computation has waited for a thread",
                state.compute.waited_ms,
            ),
        ];
        for (name, help, value) in counters {
            registry.register(name, help, ConstCounter::new(value));
        }
        registry.register(
            "gateway_connections_refused",
            "Client connections that were refused, by the limit that was reached",
            by_reason(&state.connections_refused),
        );
        registry.register(
            "gateway_connections_closed",
            "Client connections that the gateway closed, by reason",
            by_reason(&state.connections_closed),
        );
        exposition::prometheus_text(&exposition::open_metrics(&registry, ""))
    }

    /// The series of a label set, if it is tracked or can still be added.
    fn admit(&self, labels: &RequestLabels, org: OrgId) -> Option<Series> {
        if labels.provider.len().max(labels.model.len()) > MAX_LABEL_BYTES {
            return None;
        }
        let tracked = self.tracked.read().unwrap_or_else(PoisonError::into_inner);
        let (is_tracked, has_room) =
            (tracked.labels.contains(labels), tracked.has_room(self.max_series, org));
        drop(tracked);
        let is_tracked = is_tracked || (has_room && self.track(labels, org));
        if !is_tracked {
            return None;
        }
        Some(self.series(labels))
    }

    /// Adds a label set. Returns false if other threads have used up the space.
    fn track(&self, labels: &RequestLabels, org: OrgId) -> bool {
        let mut tracked = self.tracked.write().unwrap_or_else(PoisonError::into_inner);
        if tracked.has_room(self.max_series, org) && tracked.labels.insert(labels.clone()) {
            *tracked.by_org.entry(org).or_default() += 1;
        }
        tracked.labels.contains(labels)
    }

    fn series(&self, labels: &RequestLabels) -> Series {
        let tokens = |kind| {
            let RequestLabels { provider, model, status } = labels.clone();
            self.tokens.get_or_create_owned(&TokenLabels { provider, model, status, kind })
        };
        Series {
            requests: self.requests.get_or_create_owned(labels),
            prompt_tokens: tokens("prompt"),
            completion_tokens: tokens("completion"),
            latency: self.latency.get_or_create_owned(labels),
        }
    }
}

impl TrackedSeries {
    fn has_room(&self, max_series: usize, org: OrgId) -> bool {
        self.labels.len() < max_series && self.by_org.get(&org).is_none_or(|count| *count < MAX_SERIES_OF_ORG)
    }
}

fn by_reason(counts: &[(&'static str, u64)]) -> Family<ReasonLabels, Counter> {
    let family = Family::<ReasonLabels, Counter>::default();
    for (reason, count) in counts {
        family.get_or_create_owned(&ReasonLabels { reason }).inc_by(*count);
    }
    family
}

impl Series {
    #[expect(clippy::cast_precision_loss, reason = "a latency in milliseconds")]
    fn count(&self, row: &LogRow) {
        self.requests.inc();
        if let Some(tokens) = &row.tokens {
            self.prompt_tokens.inc_by(u64::try_from(tokens.prompt).unwrap_or(0));
            self.completion_tokens.inc_by(u64::try_from(tokens.completion).unwrap_or(0));
        }
        self.latency.observe(row.latency_ms as f64);
    }
}

#[cfg(test)]
mod tests;
