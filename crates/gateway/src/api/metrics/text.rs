//! An organization's metrics in the text formats of Prometheus.

use std::collections::BTreeMap;

use gateway_core::totals::usd;

use super::OrgMetrics;
use crate::metrics::exposition::{Exposition, Format, Kind};

/// Sums by provider, model and status.
#[derive(Default)]
struct Sums {
    requests: i64,
    errors: i64,
    prompt_tokens: i64,
    completion_tokens: i64,
    cost: f64,
}

/// The name and the help of a counter, and how its value is written.
type SumFamily = (&'static str, &'static str, fn(&Sums) -> String);

impl OrgMetrics {
    pub(super) fn text(&self, format: Format) -> String {
        let mut out = Exposition::new(format);
        self.write_usage(&mut out);
        let mut family = out.family("gateway_eval_results", Kind::Counter, "Verdicts of evals.");
        for (verdict, number) in [("passed", self.verdicts.passed), ("failed", self.verdicts.failed)] {
            family.sample(&[("verdict", verdict)], number);
        }
        let help = "How long this node has been running.";
        out.single("gateway_uptime_seconds", Kind::Gauge, help, self.uptime_seconds);
        self.write_latency(&mut out);
        out.finish()
    }

    fn write_usage(&self, out: &mut Exposition) {
        let mut all: BTreeMap<(&str, &str, i64), Sums> = BTreeMap::new();
        for part in &self.usage {
            let model = part.model.as_deref().unwrap_or_default();
            let sums = all.entry((&part.provider, model, part.status)).or_default();
            sums.requests += part.totals.requests;
            sums.errors += part.totals.errors;
            sums.prompt_tokens += part.totals.prompt_tokens;
            sums.completion_tokens += part.totals.completion_tokens;
            sums.cost += usd(part.totals.cost);
        }
        let all: Vec<([(&str, String); 3], Sums)> = all
            .into_iter()
            .map(|((provider, model, status), sums)| {
                let labels = [("provider", provider.to_owned()), ("model", model.to_owned())];
                let [provider, model] = labels;
                ([provider, model, ("status", status.to_string())], sums)
            })
            .collect();
        let families: [SumFamily; 3] = [
            ("gateway_requests", "Requests by provider, model and status.", |sums| sums.requests.to_string()),
            ("gateway_errors", "Requests that failed, before or after their status was sent.", |sums| {
                sums.errors.to_string()
            }),
            ("gateway_cost_usd", "Cost of requests whose model has a price.", |sums| sums.cost.to_string()),
        ];
        for (name, help, value) in families {
            let mut family = out.family(name, Kind::Counter, help);
            for (labels, sums) in &all {
                family.sample(&labels.each_ref().map(|(name, value)| (*name, value.as_str())), value(sums));
            }
        }
        let mut family =
            out.family("gateway_tokens", Kind::Counter, "Tokens by provider, model, status and kind.");
        for (labels, sums) in &all {
            for (kind, number) in [("prompt", sums.prompt_tokens), ("completion", sums.completion_tokens)] {
                let [provider, model, status] =
                    labels.each_ref().map(|(name, value)| (*name, value.as_str()));
                family.sample(&[provider, model, status, ("kind", kind)], number);
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "latencies in milliseconds")]
    fn write_latency(&self, out: &mut Exposition) {
        let latencies = &self.total.latencies;
        for (name, unit, help) in [
            ("gateway_request_duration_seconds", 1_000.0, "Duration of requests."),
            (
                "gateway_latency_milliseconds",
                1.0,
                "Deprecated, use gateway_request_duration_seconds. Latency of requests.",
            ),
        ] {
            let mut family = out.family(name, Kind::Summary, help);
            for (share, label) in [(0.5, "0.5"), (0.95, "0.95"), (0.99, "0.99")] {
                let value = latencies.percentile(share).map_or(f64::NAN, |value| value as f64 / unit);
                family.sample(&[("quantile", label)], value);
            }
            family.part("_sum", latencies.sum as f64 / unit);
            family.part("_count", self.total.requests);
        }
    }
}
