//! Counts of finished requests by provider, model and status. Callers choose models and tenants name providers, so the
//! number of series is limited, for all and for each organization; the rest is counted together.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use gateway_core::histogram::Histogram;
use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;
use gateway_core::otlp::parse_traceparent;

use super::exposition::{Exemplar, Exposition, Kind, Unit};
use super::leaves_room;

/// Upper bounds of the latency buckets, in microseconds.
const LATENCY_BUCKETS: [u64; 12] = [
    5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 15_000_000,
    60_000_000,
];
/// Distinct label sets.
pub(super) const MAX_SERIES: usize = 2_000;
/// Longer names of providers and models are not labels.
const MAX_LABEL_BYTES: usize = 128;
/// The provider and model of requests whose own label set is not tracked.
pub(super) const OVERFLOW: &str = "other";

pub(super) struct Requests {
    /// One cache per worker thread, so that counting a request takes only an uncontended lock and a few additions.
    pub(super) lanes: Vec<Mutex<SeriesCache>>,
    tracked: RwLock<Tracked>,
    max_series: usize,
}

/// Series by provider, model and status, nested so that a lookup needs no allocation.
pub(super) type SeriesCache = HashMap<String, HashMap<String, HashMap<u16, Arc<Series>>>>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RequestLabels {
    provider: String,
    model: String,
    status: u16,
}

type LabelValues = [(&'static str, String); 3];
type LabelledSeries = (LabelValues, Arc<Series>);

#[derive(Default)]
struct Tracked {
    series: BTreeMap<RequestLabels, Arc<Series>>,
    /// The series of all other label sets, by status.
    overflow: BTreeMap<u16, Arc<Series>>,
    /// How many each organization was the first to use.
    by_org: HashMap<OrgId, usize>,
}

pub(super) struct Series {
    requests: AtomicU64,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    latency: Histogram,
    /// The latest traced request of each bucket; empty until there is one.
    exemplars: Mutex<Vec<Option<Exemplar>>>,
}

impl Requests {
    pub fn new(lanes: usize, max_series: usize) -> Self {
        let lanes = (0..lanes.max(1)).map(|_| Mutex::default()).collect();
        Self { lanes, tracked: RwLock::default(), max_series }
    }

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
            self.overflow(row.status).count(row);
            return;
        };
        series.count(row);
        let RequestLabels { provider, model, status } = labels;
        cache.entry(provider).or_default().entry(model).or_default().insert(status, series);
    }

    pub fn write(&self, out: &mut Exposition) {
        let tracked = self.tracked.read().unwrap_or_else(PoisonError::into_inner);
        let own = tracked.series.iter().map(|(RequestLabels { provider, model, status }, series)| {
            (label_values(provider, model, *status), Arc::clone(series))
        });
        let overflow = tracked
            .overflow
            .iter()
            .map(|(status, series)| (label_values(OVERFLOW, OVERFLOW, *status), Arc::clone(series)));
        let all: Vec<LabelledSeries> = own.chain(overflow).collect();
        drop(tracked);
        write_series(out, &all);
    }

    /// The series of a label set, if it is tracked or can still be added.
    fn admit(&self, labels: &RequestLabels, org: OrgId) -> Option<Arc<Series>> {
        if labels.provider.len().max(labels.model.len()) > MAX_LABEL_BYTES {
            return None;
        }
        let tracked = self.tracked.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = tracked.series.get(labels) {
            return Some(Arc::clone(series));
        }
        let has_room = tracked.has_room(self.max_series, org);
        drop(tracked);
        if has_room { self.track(labels, org) } else { None }
    }

    /// Adds a label set, unless other threads have used up the space.
    fn track(&self, labels: &RequestLabels, org: OrgId) -> Option<Arc<Series>> {
        let mut tracked = self.tracked.write().unwrap_or_else(PoisonError::into_inner);
        if !tracked.series.contains_key(labels) && tracked.has_room(self.max_series, org) {
            tracked.series.insert(labels.clone(), Arc::default());
            *tracked.by_org.entry(org).or_default() += 1;
        }
        tracked.series.get(labels).map(Arc::clone)
    }

    fn overflow(&self, status: u16) -> Arc<Series> {
        let tracked = self.tracked.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = tracked.overflow.get(&status) {
            return Arc::clone(series);
        }
        drop(tracked);
        let mut tracked = self.tracked.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(tracked.overflow.entry(status).or_default())
    }
}

fn label_values(provider: &str, model: &str, status: u16) -> LabelValues {
    [("provider", provider.to_owned()), ("model", model.to_owned()), ("status", status.to_string())]
}

fn write_series(out: &mut Exposition, all: &[LabelledSeries]) {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let mut family = out.family(
        "gateway_requests",
        Kind::Counter,
        "Requests to providers that have ended, by provider, model and status.",
    );
    for (labels, series) in all {
        family.sample(&borrowed(labels), read(&series.requests));
    }
    let mut family =
        out.family("gateway_tokens", Kind::Counter, "Tokens by provider, model, status and kind.");
    for (labels, series) in all {
        for (kind, count) in [("prompt", &series.prompt_tokens), ("completion", &series.completion_tokens)] {
            let [provider, model, status] = borrowed(labels);
            family.sample(&[provider, model, status, ("kind", kind)], read(count));
        }
    }
    for (name, unit, help) in [
        (
            "gateway_request_duration_seconds",
            Unit::Seconds,
            "Time from the admission of a request to the end of its response.",
        ),
        (
            "gateway_latency_ms",
            Unit::Milliseconds,
            "Deprecated, use gateway_request_duration_seconds. Latency of requests.",
        ),
    ] {
        let mut family = out.family(name, Kind::Histogram, help);
        for (labels, series) in all {
            let exemplars = series.exemplars.lock().unwrap_or_else(PoisonError::into_inner).clone();
            family.histogram(&borrowed(labels), &series.latency.read(), unit, &exemplars);
        }
    }
}

fn borrowed(labels: &LabelValues) -> [(&str, &str); 3] {
    labels.each_ref().map(|(name, value)| (*name, value.as_str()))
}

impl Tracked {
    fn has_room(&self, max_series: usize, org: OrgId) -> bool {
        let own = self.by_org.get(&org).copied().unwrap_or(0);
        leaves_room(max_series, self.series.len(), own)
    }
}

impl Default for Series {
    fn default() -> Self {
        Self {
            requests: AtomicU64::new(0),
            prompt_tokens: AtomicU64::new(0),
            completion_tokens: AtomicU64::new(0),
            latency: Histogram::new(&LATENCY_BUCKETS),
            exemplars: Mutex::default(),
        }
    }
}

impl Series {
    fn count(&self, row: &LogRow) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(tokens) = &row.tokens {
            let add = |count: &AtomicU64, tokens: i64| {
                count.fetch_add(u64::try_from(tokens).unwrap_or(0), Ordering::Relaxed)
            };
            add(&self.prompt_tokens, tokens.prompt);
            add(&self.completion_tokens, tokens.completion);
        }
        let latency = Duration::from_millis(u64::try_from(row.latency_ms).unwrap_or(0));
        let bucket = self.latency.observe(latency);
        if let Some((trace_id, _)) = row.traceparent.as_deref().and_then(parse_traceparent)
            // A thread that would have to wait leaves the example to the other one.
            && let Ok(mut exemplars) = self.exemplars.try_lock()
        {
            if exemplars.is_empty() {
                exemplars.resize(LATENCY_BUCKETS.len() + 1, None);
            }
            let at = row.created_at.0.saturating_add(row.latency_ms);
            exemplars[bucket] = Some(Exemplar { trace_id, seconds: latency.as_secs_f64(), at });
        }
    }
}
