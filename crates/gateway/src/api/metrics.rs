//! What an organization's traffic looks like at a glance: all requests of which usage is known, as JSON, or as
//! Prometheus text for whoever asks for it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use gateway_core::totals::{Totals, usd};
use gateway_store::evals::{self, VerdictCounts};
use gateway_store::logs::{self, ModelUsage};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::caller::{AppState, Caller, Viewer};
use super::openapi::{Area, Operation, OperationInput, OperationOutput};
use super::response::Json;
use crate::problem::{ApiResult, Problem};

pub fn area() -> Area {
    Area::new("metrics", "Metrics of the caller's organization.").get(
        "/metrics",
        snapshot,
        "Counts and latencies; Prometheus text with Accept: text/plain or application/openmetrics-text",
    )
}

#[derive(Serialize, JsonSchema)]
struct Snapshot {
    total_requests: i64,
    total_tokens: i64,
    /// 0 without requests.
    avg_latency_ms: f64,
    providers: BTreeMap<String, Counts>,
    models: BTreeMap<String, Counts>,
    /// How many requests ended with each status.
    status_codes: BTreeMap<String, i64>,
    latency_ms: Percentiles,
    evals: Evals,
    /// Of this node.
    uptime_seconds: u64,
}

#[derive(Serialize, JsonSchema, Default)]
struct Counts {
    requests: i64,
    errors: i64,
}

/// Off by less than a tenth; null without requests.
#[derive(Serialize, JsonSchema)]
struct Percentiles {
    p50: Option<i64>,
    p95: Option<i64>,
    p99: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
struct Evals {
    passed: i64,
    failed: i64,
}

async fn snapshot(State(app): AppState, caller: Caller<Viewer>, wants: Wants) -> ApiResult<Answer> {
    let usage = logs::usage_by_model_and_status(&app.services.logs, caller.org.id).await?;
    let mut all = Totals::default();
    for part in &usage {
        all.add(&part.totals);
    }
    let evals = evals::count_verdicts(&app.services.db, caller.org.id).await?;
    let uptime_seconds = app.services.started.elapsed().as_secs();
    Ok(match wants {
        Wants::Json => Answer::Json(summed(&usage, &all, evals, uptime_seconds)),
        Wants::Prometheus | Wants::OpenMetrics => {
            Answer::Text(text(&usage, &all, evals, uptime_seconds, wants), wants)
        }
    })
}

fn summed(usage: &[ModelUsage], all: &Totals, evals: VerdictCounts, uptime_seconds: u64) -> Snapshot {
    let mut providers: BTreeMap<String, Counts> = BTreeMap::new();
    let mut models: BTreeMap<String, Counts> = BTreeMap::new();
    let mut status_codes: BTreeMap<String, i64> = BTreeMap::new();
    for part in usage {
        let provider = Some((&mut providers, &part.provider));
        let model = part.model.as_ref().map(|model| (&mut models, model));
        for (map, name) in [provider, model].into_iter().flatten() {
            let counts = map.entry(name.clone()).or_default();
            counts.requests += part.totals.requests;
            counts.errors += part.totals.errors;
        }
        *status_codes.entry(part.status.to_string()).or_default() += part.totals.requests;
    }
    Snapshot {
        total_requests: all.requests,
        total_tokens: all.total_tokens(),
        avg_latency_ms: average(all),
        providers,
        models,
        status_codes,
        latency_ms: Percentiles {
            p50: all.latencies.percentile(0.5),
            p95: all.latencies.percentile(0.95),
            p99: all.latencies.percentile(0.99),
        },
        evals: Evals { passed: evals.passed, failed: evals.failed },
        uptime_seconds,
    }
}

#[expect(clippy::cast_precision_loss, reason = "an average in milliseconds")]
fn average(all: &Totals) -> f64 {
    if all.requests == 0 { 0.0 } else { all.latencies.sum as f64 / all.requests as f64 }
}

/// The exposition format. OpenMetrics names a counter's family without `_total` and wants an end.
fn text(
    usage: &[ModelUsage],
    all: &Totals,
    evals: VerdictCounts,
    uptime_seconds: u64,
    wants: Wants,
) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, lines: Vec<String>| {
        let counted = kind == "counter" && matches!(wants, Wants::Prometheus);
        let shown = if counted { format!("{name}_total") } else { name.to_owned() };
        let _ = writeln!(text, "# HELP {shown} {help}\n# TYPE {shown} {kind}");
        for line in lines {
            let _ = writeln!(text, "{line}");
        }
    };
    let labels = |part: &ModelUsage| {
        let model = escaped(part.model.as_deref().unwrap_or_default());
        format!("provider=\"{}\",model=\"{model}\",status=\"{}\"", escaped(&part.provider), part.status)
    };
    let each = |line: &dyn Fn(&ModelUsage) -> Vec<String>| usage.iter().flat_map(line).collect::<Vec<_>>();
    family(
        "gateway_requests",
        "counter",
        "Requests by provider, model and status.",
        each(&|part| vec![format!("gateway_requests_total{{{}}} {}", labels(part), part.totals.requests)]),
    );
    family(
        "gateway_errors",
        "counter",
        "Requests that failed, before or after their status was sent.",
        each(&|part| vec![format!("gateway_errors_total{{{}}} {}", labels(part), part.totals.errors)]),
    );
    family(
        "gateway_tokens",
        "counter",
        "Tokens by provider, model, status and kind.",
        each(&|part| {
            [("prompt", part.totals.prompt_tokens), ("completion", part.totals.completion_tokens)]
                .map(|(kind, n)| format!("gateway_tokens_total{{{},kind=\"{kind}\"}} {n}", labels(part)))
                .to_vec()
        }),
    );
    family(
        "gateway_cost_usd",
        "counter",
        "Cost of requests whose model has a price.",
        each(&|part| vec![format!("gateway_cost_usd_total{{{}}} {}", labels(part), usd(part.totals.cost))]),
    );
    let quantile = |share: f64| {
        let value = all.latencies.percentile(share).map_or("NaN".into(), |value| value.to_string());
        format!("gateway_latency_milliseconds{{quantile=\"{share}\"}} {value}")
    };
    family(
        "gateway_latency_milliseconds",
        "summary",
        "Latency of requests.",
        vec![
            quantile(0.5),
            quantile(0.95),
            quantile(0.99),
            format!("gateway_latency_milliseconds_sum {}", all.latencies.sum),
            format!("gateway_latency_milliseconds_count {}", all.requests),
        ],
    );
    family(
        "gateway_eval_results",
        "counter",
        "Verdicts of evals.",
        [("passed", evals.passed), ("failed", evals.failed)]
            .map(|(verdict, n)| format!("gateway_eval_results_total{{verdict=\"{verdict}\"}} {n}"))
            .to_vec(),
    );
    family(
        "gateway_uptime_seconds",
        "gauge",
        "How long this node has been running.",
        vec![format!("gateway_uptime_seconds {uptime_seconds}")],
    );
    if matches!(wants, Wants::OpenMetrics) {
        text.push_str("# EOF\n");
    }
    text
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// What the Accept header asks for. Whoever takes JSON as well gets JSON.
#[derive(Clone, Copy)]
enum Wants {
    Json,
    Prometheus,
    OpenMetrics,
}

impl<S: Send + Sync> FromRequestParts<S> for Wants {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let accept: Vec<&str> =
            parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        let accept = accept.join(",").to_ascii_lowercase();
        Ok(if accept.contains("application/json") {
            Self::Json
        } else if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else if accept.contains("text/plain") {
            Self::Prometheus
        } else {
            Self::Json
        })
    }
}

impl OperationInput for Wants {
    fn describe(_: &mut Operation<'_>) {}
}

enum Answer {
    Json(Snapshot),
    Text(String, Wants),
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        match self {
            Self::Json(snapshot) => Json(snapshot).into_response(),
            Self::Text(text, wants) => {
                let kind = match wants {
                    Wants::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
                    Wants::Json | Wants::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
                };
                ([(CONTENT_TYPE, kind)], text).into_response()
            }
        }
    }
}

impl OperationOutput for Answer {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_response::<Snapshot>(200);
        if let Some((_, response)) = operation.responses.last_mut() {
            for kind in ["text/plain", "application/openmetrics-text"] {
                response["content"][kind] = json!({"schema": {"type": "string"}});
            }
        }
    }
}
