//! An organization's metrics in OpenMetrics.

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;

use gateway_core::totals::usd;
use gateway_store::logs::ModelUsage;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::OrgMetrics;
use crate::metrics::{RequestLabels, TokenLabels, exposition};

const LATENCY: &str = "gateway_latency_milliseconds";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    verdict: &'static str,
}

/// Counters by provider, model and status.
#[derive(Default)]
struct UsageFamilies {
    requests: Family<RequestLabels, Counter>,
    errors: Family<RequestLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    cost: Family<RequestLabels, Counter<f64, AtomicU64>>,
}

impl OrgMetrics {
    pub(super) fn open_metrics(&self) -> String {
        let families = UsageFamilies::default();
        for part in &self.usage {
            families.add(part);
        }
        let verdicts: Family<VerdictLabels, Counter> = Family::default();
        for (verdict, number) in [("passed", self.verdicts.passed), ("failed", self.verdicts.failed)] {
            verdicts.get_or_create(&VerdictLabels { verdict }).inc_by(count(number));
        }
        let mut registry = Registry::default();
        let UsageFamilies { requests, errors, tokens, cost } = families;
        registry.register("gateway_requests", "Requests by provider, model and status", requests);
        registry.register(
            "gateway_errors",
            "Requests that failed, before or after their status was sent",
            errors,
        );
        registry.register("gateway_tokens", "Tokens by provider, model, status and kind", tokens);
        registry.register("gateway_cost_usd", "Cost of requests whose model has a price", cost);
        registry.register("gateway_eval_results", "Verdicts of evals", verdicts);
        registry.register(
            "gateway_uptime_seconds",
            "How long this node has been running",
            ConstGauge::new(self.uptime_seconds),
        );
        exposition::open_metrics(&registry, &self.latency_summary())
    }

    /// Summaries are not supported by `prometheus-client`.
    fn latency_summary(&self) -> String {
        let latencies = &self.total.latencies;
        let mut text = format!("# HELP {LATENCY} Latency of requests.\n# TYPE {LATENCY} summary\n");
        for share in [0.5, 0.95, 0.99] {
            let value = latencies.percentile(share).map_or("NaN".into(), |value| value.to_string());
            let _ = writeln!(text, "{LATENCY}{{quantile=\"{share}\"}} {value}");
        }
        let _ = writeln!(text, "{LATENCY}_sum {}\n{LATENCY}_count {}", latencies.sum, self.total.requests);
        text
    }
}

impl UsageFamilies {
    fn add(&self, part: &ModelUsage) {
        let model = part.model.clone().unwrap_or_default();
        let status = u16::try_from(part.status).unwrap_or_default();
        let labels = RequestLabels { provider: part.provider.clone(), model, status };
        let totals = &part.totals;
        self.requests.get_or_create(&labels).inc_by(count(totals.requests));
        self.errors.get_or_create(&labels).inc_by(count(totals.errors));
        self.cost.get_or_create(&labels).inc_by(usd(totals.cost));
        for (kind, number) in [("prompt", totals.prompt_tokens), ("completion", totals.completion_tokens)] {
            let RequestLabels { provider, model, status } = labels.clone();
            let labels = TokenLabels { provider, model, status, kind };
            self.tokens.get_or_create(&labels).inc_by(count(number));
        }
    }
}

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
