//! Metrics of an organization's requests: as JSON, or in a text format for Prometheus.

mod text;

use std::collections::BTreeMap;

use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use gateway_core::totals::Totals;
use gateway_store::evals::{self, VerdictCounts};
use gateway_store::logs::{self, ModelUsage};
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::caller::{AppState, Caller, Viewer};
use super::openapi::{Area, Operation, OperationInput, OperationOutput};
use super::response::Json;
use crate::auth::RowAccess;
use crate::metrics::exposition::Format;
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
    /// The number of requests by status.
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

/// Accurate to within a tenth; null without requests.
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

/// The format that the Accept header asks for. JSON takes precedence.
#[derive(Clone, Copy)]
enum MetricsFormat {
    Json,
    Text(Format),
}

enum MetricsResponse {
    Json(Snapshot),
    Text { format: Format, text: String },
}

/// What the metrics of an organization are made of.
struct OrgMetrics {
    usage: Vec<ModelUsage>,
    total: Totals,
    verdicts: VerdictCounts,
    uptime_seconds: u64,
}

async fn snapshot(
    State(app): AppState,
    caller: Caller<Viewer>,
    format: MetricsFormat,
) -> ApiResult<MetricsResponse> {
    if caller.row_access() != RowAccess::All {
        let message =
            "the key's scopes allow only its own usage; add the scope 'read' for the organization's metrics";
        return Err(Problem::new(StatusCode::FORBIDDEN, "scope_denied", message));
    }
    let stored = app.query_logs(caller.org.id).await?;
    let usage = logs::usage_by_model_and_status(&stored, caller.org.id).await?;
    let mut total = Totals::default();
    for part in &usage {
        total.add(&part.totals);
    }
    let verdicts = evals::count_verdicts(&app.services.db, caller.org.id).await?;
    let uptime_seconds = app.services.started.elapsed().as_secs();
    let metrics = OrgMetrics { usage, total, verdicts, uptime_seconds };
    Ok(match format {
        MetricsFormat::Json => MetricsResponse::Json(metrics.snapshot()),
        MetricsFormat::Text(format) => MetricsResponse::Text { format, text: metrics.text(format) },
    })
}

impl OrgMetrics {
    fn snapshot(&self) -> Snapshot {
        let mut providers: BTreeMap<String, Counts> = BTreeMap::new();
        let mut models: BTreeMap<String, Counts> = BTreeMap::new();
        let mut status_codes: BTreeMap<String, i64> = BTreeMap::new();
        for part in &self.usage {
            let provider = Some((&mut providers, &part.provider));
            let model = part.model.as_ref().map(|model| (&mut models, model));
            for (map, name) in [provider, model].into_iter().flatten() {
                let counts = map.entry(name.clone()).or_default();
                counts.requests += part.totals.requests;
                counts.errors += part.totals.errors;
            }
            *status_codes.entry(part.status.to_string()).or_default() += part.totals.requests;
        }
        let percentile = |share| self.total.latencies.percentile(share);
        Snapshot {
            total_requests: self.total.requests,
            total_tokens: self.total.total_tokens(),
            avg_latency_ms: average_latency(&self.total),
            providers,
            models,
            status_codes,
            latency_ms: Percentiles { p50: percentile(0.5), p95: percentile(0.95), p99: percentile(0.99) },
            evals: Evals { passed: self.verdicts.passed, failed: self.verdicts.failed },
            uptime_seconds: self.uptime_seconds,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an average in milliseconds")]
fn average_latency(total: &Totals) -> f64 {
    if total.requests == 0 { 0.0 } else { total.latencies.sum as f64 / total.requests as f64 }
}

impl<S: Send + Sync> FromRequestParts<S> for MetricsFormat {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let accept: Vec<&str> =
            parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        let accept = accept.join(",").to_ascii_lowercase();
        Ok(if accept.contains("application/json") {
            Self::Json
        } else if ["application/openmetrics-text", "text/plain"].iter().any(|kind| accept.contains(kind)) {
            Self::Text(Format::from_accept(&accept))
        } else {
            Self::Json
        })
    }
}

impl OperationInput for MetricsFormat {
    fn describe(_: &mut Operation<'_>) {}
}

impl IntoResponse for MetricsResponse {
    fn into_response(self) -> Response {
        match self {
            Self::Json(snapshot) => Json(snapshot).into_response(),
            Self::Text { format, text } => ([(CONTENT_TYPE, format.content_type())], text).into_response(),
        }
    }
}

impl OperationOutput for MetricsResponse {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_response::<Snapshot>(200);
        if let Some((_, response)) = operation.responses.last_mut() {
            for content_type in ["text/plain", "application/openmetrics-text"] {
                response["content"][content_type] = json!({"schema": {"type": "string"}});
            }
        }
    }
}
