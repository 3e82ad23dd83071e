//! Ingests spans as log rows. Spans of model calls become rows; other spans are skipped. An invalid span is rejected
//! with a reason, and the rest of the batch is still ingested.

use std::collections::HashMap;

use rust_decimal::Decimal;
use rust_decimal::prelude::FromPrimitive as _;
use serde_json::{Map, Value, json};

use super::content::{request_body, response_body, text_of};
use super::names::{self, Name};
use super::proto::{Any, AnyValue, ExportTraceServiceRequest, KeyValue, STATUS_ERROR, Span};
use super::{log_id, parse_traceparent};
use crate::ids::{AppId, KeyId, OrgId, TeamId};
use crate::llm::ProviderFormat;
use crate::llm::providers::{all, builtin};
use crate::llm::usage::Usage;
use crate::logs::{BodyStorage, LOG_EPOCH, LogLevel, LogRow, LogSource, Tokens};
use crate::pricing::{self, PriceTable};
use crate::time::{HOUR, Timestamp};

/// Longer attribute texts are truncated.
const MAX_TEXT_CHARS: usize = 1_024;
/// How far a context's clock may be ahead of the gateway's, in milliseconds.
const MAX_CLOCK_SKEW: i64 = HOUR;

/// The tenant that sent the spans, and how they are stored.
pub struct IngestContext<'a> {
    pub org: OrgId,
    pub key_id: Option<KeyId>,
    pub app_id: Option<AppId>,
    pub team_id: Option<TeamId>,
    /// The default for spans without a user.
    pub user: Option<String>,
    /// The maximum size of a stored body; `None` stores no bodies.
    pub body_limit: Option<usize>,
    pub now: Timestamp,
    /// Start of the retention period: older rows would be removed at once.
    pub oldest: Timestamp,
    pub prices: &'a PriceTable,
}

#[derive(Debug, Default)]
pub struct IngestedSpans {
    pub rows: Vec<LogRow>,
    pub rejected: i64,
    /// Why the first rejected span was rejected.
    pub reason: Option<&'static str>,
}

pub fn ingest_spans(request: &ExportTraceServiceRequest, context: &IngestContext<'_>) -> IngestedSpans {
    let mut ingested = IngestedSpans::default();
    for resource in &request.resource_spans {
        let service = resource.resource.as_ref().and_then(|resource| {
            let pair = resource.attributes.iter().find(|pair| pair.key == names::SERVICE.written)?;
            pair.value.as_ref().and_then(text_of)
        });
        for span in resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
            let attributes = Attributes::new(&span.attributes);
            let Some(operation) = attributes.operation() else { continue };
            match log_row(span, &attributes, operation, service.as_deref(), context) {
                Ok(row) => ingested.rows.push(row),
                Err(reason) => {
                    ingested.rejected += 1;
                    ingested.reason.get_or_insert(reason);
                }
            }
        }
    }
    ingested
}

fn log_row(
    span: &Span,
    attributes: &Attributes<'_>,
    operation: String,
    service: Option<&str>,
    context: &IngestContext<'_>,
) -> Result<LogRow, &'static str> {
    let (start, latency_ms) = start_and_duration(span, context)?;
    if span.trace_id.len() != 16 || span.trace_id.iter().all(|byte| *byte == 0) {
        return Err("a span has no valid trace id");
    }
    if span.span_id.len() != 8 || span.span_id.iter().all(|byte| *byte == 0) {
        return Err("a span has no valid span id");
    }
    let model = attributes.text(&names::REQUEST_MODEL);
    let provider = provider(attributes, model.as_deref(), context.prices);
    let failed = span.status.as_ref().is_some_and(|status| status.code == STATUS_ERROR);
    let status = status(attributes, failed);
    let error_code =
        (failed || status >= 400).then(|| attributes.text(&names::ERROR).unwrap_or_else(|| "error".into()));
    // An agent's span sums up its child calls, which are rows themselves. Counting both would double the usage.
    let has_own_usage =
        !matches!(operation.as_str(), "invoke_agent" | "create_agent" | "invoke_workflow" | "execute_tool");
    let usage = usage(attributes).filter(|_| has_own_usage);
    let (cost_usd, unpriced) = cost(attributes, &provider, model.as_deref(), usage.as_ref(), context.prices);
    let (request, request_stored) =
        body(context, || request_body(model.as_deref(), |name| attributes.find(name)));
    let (response, response_stored) = body(context, || response_body(|name| attributes.find(name)));
    let (trace, id) = (hex::encode(&span.trace_id), hex::encode(&span.span_id));
    Ok(LogRow {
        request_id: format!("{trace}-{id}"),
        level: if error_code.is_some() { LogLevel::Error } else { LogLevel::Info },
        provider_format: Some(ProviderFormat::OpenAi),
        provider,
        method: attributes.text(&names::HTTP_METHOD).unwrap_or_else(|| "POST".into()),
        path: operation,
        status,
        error_code,
        stream: attributes.flag(&names::STREAM),
        latency_ms,
        ttft_ms: attributes.number(&names::FIRST_CHUNK).map(|seconds| milliseconds(seconds).min(latency_ms)),
        tokens: usage.as_ref().map(tokens),
        cost_usd,
        unpriced,
        key_id: context.key_id,
        app_id: context.app_id,
        team_id: context.team_id,
        user: attributes.text(&names::USER).or_else(|| context.user.clone()),
        session_id: attributes.text(&names::CONVERSATION),
        metadata: metadata(span, service),
        traceparent: traceparent(&trace, span),
        request_stored,
        response_stored,
        request,
        response,
        model,
        ..LogRow::new(
            log_id(context.org, start, &span.trace_id, &span.span_id),
            context.org,
            start,
            LogSource::Otel,
        )
    })
}

/// The start and the duration in milliseconds.
fn start_and_duration(span: &Span, context: &IngestContext<'_>) -> Result<(Timestamp, i64), &'static str> {
    let milliseconds = |nanoseconds: u64| i64::try_from(nanoseconds / 1_000_000).unwrap_or(i64::MAX);
    let (start, end) = (milliseconds(span.start_time_unix_nano), milliseconds(span.end_time_unix_nano));
    if start < LOG_EPOCH.max(context.oldest.0) {
        return Err("a span started before the retention period");
    }
    if start > context.now.0 + MAX_CLOCK_SKEW {
        return Err("a span starts in the future");
    }
    Ok((Timestamp(start), end.saturating_sub(start).max(0)))
}

fn status(attributes: &Attributes<'_>, failed: bool) -> u16 {
    let reported = attributes.count(&names::HTTP_STATUS).and_then(|status| u16::try_from(status).ok());
    match reported.filter(|status| (100..=599).contains(status)) {
        Some(status) => status,
        None if failed => 500,
        None => 200,
    }
}

fn provider(attributes: &Attributes<'_>, model: Option<&str>, prices: &PriceTable) -> String {
    let Some(named) = attributes.text(&names::PROVIDER).map(|name| name.to_ascii_lowercase()) else {
        let by_model = model.and_then(|model| prices.providers_for_model(model).first().copied());
        return by_model.unwrap_or("unknown").to_owned();
    };
    let by_convention = all().iter().find(|known| known.otel_name == named).map(|known| known.name);
    let by_alias = || names::PROVIDERS.iter().find(|(theirs, _)| *theirs == named).map(|(_, ours)| *ours);
    by_convention.or_else(by_alias).map_or(named, ToOwned::to_owned)
}

/// Token counts. In the conventions input includes cached tokens and output includes reasoning. Some senders exclude
/// the cached part from the input, which shows when the cached part is larger.
fn usage(attributes: &Attributes<'_>) -> Option<Usage> {
    let count = |name: &Name| attributes.count(name).and_then(|count| u64::try_from(count).ok());
    let (input, output) = (count(&names::INPUT_TOKENS), count(&names::OUTPUT_TOKENS));
    if input.is_none() && output.is_none() {
        return None;
    }
    let (read, written) = (count(&names::CACHE_READ).unwrap_or(0), count(&names::CACHE_WRITE).unwrap_or(0));
    let (input, output) = (input.unwrap_or(0), output.unwrap_or(0));
    let reasoning = count(&names::REASONING).unwrap_or(0).min(output);
    Some(Usage {
        input: input.checked_sub(read.saturating_add(written)).unwrap_or(input),
        cache_read: read,
        cache_write: written,
        output: output - reasoning,
        reasoning,
        ..Usage::default()
    })
}

fn cost(
    attributes: &Attributes<'_>,
    provider: &str,
    model: Option<&str>,
    usage: Option<&Usage>,
    prices: &PriceTable,
) -> (Option<Decimal>, bool) {
    let Some(usage) = usage else { return (None, false) };
    let kind = builtin(provider).map_or(provider, |known| known.name);
    let price = model.and_then(|model| prices.find(kind, model));
    let computed = price.and_then(|price| pricing::cost(price, usage));
    let reported = || {
        attributes.number(&names::COST).filter(|cost| (0.0..1e6).contains(cost)).and_then(Decimal::from_f64)
    };
    let cost = computed.or_else(reported);
    (cost, cost.is_none())
}

fn tokens(usage: &Usage) -> Tokens {
    let saturated = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    Tokens {
        prompt: saturated(usage.prompt_tokens()),
        completion: saturated(usage.completion_tokens()),
        cached: saturated(usage.cache_read),
        cache_write: saturated(usage.cache_write),
        reasoning: saturated(usage.reasoning),
        audio: 0,
    }
}

fn body(context: &IngestContext<'_>, build: impl FnOnce() -> Option<Vec<u8>>) -> (Vec<u8>, BodyStorage) {
    let Some(limit) = context.body_limit else { return (Vec::new(), BodyStorage::Off) };
    let mut body = build().unwrap_or_default();
    let stored = if body.len() > limit { BodyStorage::Truncated } else { BodyStorage::Full };
    body.truncate(limit);
    (body, stored)
}

fn metadata(span: &Span, service: Option<&str>) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("span_name".into(), json!(truncated(&span.name)));
    if let Some(service) = service {
        metadata.insert("service_name".into(), json!(truncated(service)));
    }
    metadata
}

/// The `traceparent` that names the trace and the parent span, if the span has a parent.
fn traceparent(trace: &str, span: &Span) -> Option<String> {
    let text = format!("00-{trace}-{}-01", hex::encode(&span.parent_span_id));
    parse_traceparent(&text).map(|_| text)
}

#[expect(clippy::cast_possible_truncation, reason = "the value is rounded and clamped far below 2^53")]
fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1_000.0).clamp(0.0, 1e12).round_ties_even() as i64
}

/// The nearest whole number, if it fits.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked before the cast")]
fn whole_number(number: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let rounded = number.round_ties_even();
    (-LIMIT..LIMIT).contains(&rounded).then_some(rounded as i64)
}

/// The text within `MAX_TEXT_CHARS`, without NUL, which PostgreSQL cannot store.
fn truncated(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).map(|c| if c == '\0' { ' ' } else { c }).collect()
}

struct Attributes<'a>(HashMap<&'a str, &'a AnyValue>);

impl<'a> Attributes<'a> {
    fn new(pairs: &'a [KeyValue]) -> Self {
        Self(pairs.iter().filter_map(|pair| Some((pair.key.as_str(), pair.value.as_ref()?))).collect())
    }

    /// The operation, or `None` if the span is not a model call.
    fn operation(&self) -> Option<String> {
        let kind = self.0.get(names::OPENINFERENCE_KIND).and_then(|value| text_of(value));
        let by_kind = kind.and_then(|kind| {
            names::OPENINFERENCE_CALLS
                .iter()
                .find(|(theirs, _)| *theirs == kind)
                .map(|(_, ours)| (*ours).to_owned())
        });
        let is_model_call = by_kind.is_some() || self.0.keys().any(|key| key.starts_with(names::GEN_AI));
        is_model_call.then(|| {
            let named = self.text(&names::OPERATION).map(|name| name.to_ascii_lowercase());
            // The operation is stored as the row's path; a leading slash would turn it into a real one.
            let named =
                named.map(|name| name.trim_start_matches('/').to_owned()).filter(|name| !name.is_empty());
            named.or(by_kind).unwrap_or_else(|| "chat".into())
        })
    }

    fn find(&self, name: &str) -> Option<&'a AnyValue> {
        self.0.get(name).copied()
    }

    fn first(&self, name: &Name) -> Option<&'a AnyValue> {
        self.find(name.written).or_else(|| name.also.iter().find_map(|other| self.find(other)))
    }

    fn text(&self, name: &Name) -> Option<String> {
        self.first(name).and_then(text_of).map(|text| truncated(&text))
    }

    fn number(&self, name: &Name) -> Option<f64> {
        match self.first(name)?.value.as_ref()? {
            Any::Double(number) => Some(*number),
            Any::String(text) => text.parse().ok(),
            #[expect(clippy::cast_precision_loss, reason = "token counts and seconds are far below 2^53")]
            Any::Int(number) => Some(*number as f64),
            _ => None,
        }
        .filter(|number: &f64| number.is_finite())
    }

    fn count(&self, name: &Name) -> Option<i64> {
        match self.first(name)?.value.as_ref()? {
            Any::Int(number) => Some(*number),
            Any::Double(number) => whole_number(*number),
            Any::String(text) => text.parse().ok(),
            _ => None,
        }
    }

    fn flag(&self, name: &Name) -> bool {
        match self.first(name).and_then(|value| value.value.as_ref()) {
            Some(Any::Bool(flag)) => *flag,
            Some(Any::String(text)) => text == "true",
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
