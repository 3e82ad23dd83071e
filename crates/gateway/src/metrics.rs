//! Counters of the whole process, for the operator's Prometheus. Sharded by the writing thread's lane, summed when read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use gateway_core::logs::LogRow;

const SHARDS: usize = 16;
/// Upper bounds of the latency buckets, in milliseconds.
const BUCKETS: [i64; 12] = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 15_000, 60_000];
/// Distinct label sets at most; beyond that the model is not told apart, so that callers cannot fill the memory.
const SERIES: usize = 2_000;

#[derive(Default)]
pub struct Metrics {
    shards: [Mutex<BTreeMap<Labels, Counts>>; SHARDS],
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Labels {
    provider: String,
    model: String,
    status: u16,
}

#[derive(Clone, Default)]
struct Counts {
    requests: u64,
    prompt_tokens: i64,
    completion_tokens: i64,
    latency_sum_ms: i64,
    latency: [u64; BUCKETS.len()],
}

impl Metrics {
    pub fn count(&self, row: &LogRow) {
        let shard = usize::try_from(row.id).unwrap_or(0) % SHARDS;
        let mut series = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        let model = if series.len() < SERIES / SHARDS { row.model.clone() } else { None };
        let labels =
            Labels { provider: row.provider.clone(), model: model.unwrap_or_default(), status: row.status };
        let counts = series.entry(labels).or_default();
        counts.requests += 1;
        counts.prompt_tokens += row.tokens.map_or(0, |tokens| tokens.prompt);
        counts.completion_tokens += row.tokens.map_or(0, |tokens| tokens.completion);
        counts.latency_sum_ms += row.latency_ms;
        for (count, bound) in counts.latency.iter_mut().zip(BUCKETS) {
            *count += u64::from(row.latency_ms <= bound);
        }
    }

    /// Prometheus text.
    pub fn render(&self) -> String {
        let mut all: BTreeMap<Labels, Counts> = BTreeMap::new();
        for shard in &self.shards {
            for (labels, counts) in &*shard.lock().unwrap_or_else(PoisonError::into_inner) {
                let sum = all.entry(labels.clone()).or_default();
                sum.requests += counts.requests;
                sum.prompt_tokens += counts.prompt_tokens;
                sum.completion_tokens += counts.completion_tokens;
                sum.latency_sum_ms += counts.latency_sum_ms;
                sum.latency.iter_mut().zip(counts.latency).for_each(|(sum, count)| *sum += count);
            }
        }
        let mut text = String::from("# TYPE gateway_requests_total counter\n");
        for (labels, counts) in &all {
            let _ = writeln!(text, "gateway_requests_total{{{}}} {}", labels.text(), counts.requests);
        }
        text.push_str("# TYPE gateway_tokens_total counter\n");
        for (labels, counts) in &all {
            for (kind, count) in [("prompt", counts.prompt_tokens), ("completion", counts.completion_tokens)]
            {
                let _ = writeln!(text, "gateway_tokens_total{{{},kind=\"{kind}\"}} {count}", labels.text());
            }
        }
        text.push_str("# TYPE gateway_latency_ms histogram\n");
        for (labels, counts) in &all {
            for (bound, count) in BUCKETS.iter().zip(counts.latency) {
                let _ =
                    writeln!(text, "gateway_latency_ms_bucket{{{},le=\"{bound}\"}} {count}", labels.text());
            }
            let (labels, requests, sum) = (labels.text(), counts.requests, counts.latency_sum_ms);
            let _ = writeln!(text, "gateway_latency_ms_bucket{{{labels},le=\"+Inf\"}} {requests}");
            let _ = writeln!(text, "gateway_latency_ms_sum{{{labels}}} {sum}");
            let _ = writeln!(text, "gateway_latency_ms_count{{{labels}}} {requests}");
        }
        text
    }
}

impl Labels {
    fn text(&self) -> String {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!(
            "provider=\"{}\",model=\"{}\",status=\"{}\"",
            quoted(&self.provider),
            quoted(&self.model),
            self.status
        )
    }
}
