//! Spans of others as log rows. Spans of model calls become rows, all others are passed over; what cannot be a row is
//! refused with a reason, and the rest of the batch goes on.

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

/// Of each text, this much is kept.
const LONGEST_TEXT: usize = 1_024;
/// A clock may be ahead of ours by this much.
const AHEAD: i64 = HOUR;

/// Whose spans they are, and what may be kept of them.
pub struct IngestContext<'a> {
    pub org: OrgId,
    pub key_id: Option<KeyId>,
    pub app_id: Option<AppId>,
    pub team_id: Option<TeamId>,
    /// Counts for spans that name no user.
    pub user: Option<String>,
    /// None: bodies are not kept; else so many bytes of each.
    pub body_limit: Option<usize>,
    pub now: Timestamp,
    /// Rows from before this time would be removed at once.
    pub oldest: Timestamp,
    pub prices: &'a PriceTable,
}

#[derive(Debug, Default)]
pub struct IngestedSpans {
    pub rows: Vec<LogRow>,
    pub rejected: i64,
    /// Why the first of the rejected ones was.
    pub reason: Option<&'static str>,
}

pub fn ingest_spans(request: &ExportTraceServiceRequest, sender: &IngestContext<'_>) -> IngestedSpans {
    let mut arrived = IngestedSpans::default();
    for resource in &request.resource_spans {
        let service = resource.resource.as_ref().and_then(|resource| {
            let pair = resource.attributes.iter().find(|pair| pair.key == names::SERVICE.written)?;
            pair.value.as_ref().and_then(text_of)
        });
        for span in resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
            let attributes = Attributes::of(&span.attributes);
            let Some(operation) = attributes.operation() else { continue };
            match row(span, &attributes, operation, service.as_deref(), sender) {
                Ok(row) => arrived.rows.push(row),
                Err(reason) => {
                    arrived.rejected += 1;
                    arrived.reason.get_or_insert(reason);
                }
            }
        }
    }
    arrived
}

fn row(
    span: &Span,
    attributes: &Attributes<'_>,
    operation: String,
    service: Option<&str>,
    sender: &IngestContext<'_>,
) -> Result<LogRow, &'static str> {
    let (start, latency_ms) = times(span, sender)?;
    if span.trace_id.len() != 16 || span.trace_id.iter().all(|byte| *byte == 0) {
        return Err("a span has no valid trace id");
    }
    if span.span_id.len() != 8 || span.span_id.iter().all(|byte| *byte == 0) {
        return Err("a span has no valid span id");
    }
    let model = attributes.text(&names::REQUEST_MODEL);
    let provider = provider(attributes, model.as_deref(), sender.prices);
    let failed = span.status.as_ref().is_some_and(|status| status.code == STATUS_ERROR);
    let status = status(attributes, failed);
    let error_code =
        (failed || status >= 400).then(|| attributes.text(&names::ERROR).unwrap_or_else(|| "error".into()));
    // An agent's span sums up the calls below it, which are rows themselves.
    let counts =
        !matches!(operation.as_str(), "invoke_agent" | "create_agent" | "invoke_workflow" | "execute_tool");
    let usage = usage(attributes).filter(|_| counts);
    let (cost_usd, unpriced) = cost(attributes, &provider, model.as_deref(), usage.as_ref(), sender.prices);
    let (request, request_stored) =
        body(sender, || request_body(model.as_deref(), |name| attributes.find(name)));
    let (response, response_stored) = body(sender, || response_body(|name| attributes.find(name)));
    let (trace, id) = (hex::encode(&span.trace_id), hex::encode(&span.span_id));
    Ok(LogRow {
        id: log_id(sender.org, start, &span.trace_id, &span.span_id),
        org_id: sender.org,
        request_id: format!("{trace}-{id}"),
        created_at: start,
        level: if error_code.is_some() { LogLevel::Error } else { LogLevel::Info },
        source: LogSource::Otel,
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
        usage_estimated: false,
        cost_usd,
        unpriced,
        prompt: None,
        cache: None,
        attempts: Vec::new(),
        key_id: sender.key_id,
        app_id: sender.app_id,
        team_id: sender.team_id,
        user: attributes.text(&names::USER).or_else(|| sender.user.clone()),
        session_id: attributes.text(&names::CONVERSATION),
        metadata: metadata(span, service),
        traceparent: parent(&trace, span),
        request_stored,
        response_stored,
        request,
        response,
        response_is_stream: false,
        model,
    })
}

fn times(span: &Span, sender: &IngestContext<'_>) -> Result<(Timestamp, i64), &'static str> {
    let of = |nanoseconds: u64| i64::try_from(nanoseconds / 1_000_000).unwrap_or(i64::MAX);
    let (start, end) = (of(span.start_time_unix_nano), of(span.end_time_unix_nano));
    if start < LOG_EPOCH.max(sender.oldest.0) {
        return Err("a span began before the time that log rows are kept for");
    }
    if start > sender.now.0 + AHEAD {
        return Err("a span begins in the future");
    }
    Ok((Timestamp(start), end.saturating_sub(start).max(0)))
}

fn status(attributes: &Attributes<'_>, failed: bool) -> u16 {
    let told = attributes.count(&names::HTTP_STATUS);
    let told =
        told.and_then(|status| u16::try_from(status).ok()).filter(|status| (100..=599).contains(status));
    match told {
        Some(status) => status,
        None if failed => 500,
        None => 200,
    }
}

fn provider(attributes: &Attributes<'_>, model: Option<&str>, prices: &PriceTable) -> String {
    let Some(named) = attributes.text(&names::PROVIDER).map(|name| name.to_ascii_lowercase()) else {
        let maker = model.and_then(|model| prices.providers_for_model(model).first().copied());
        return maker.unwrap_or("unknown").to_owned();
    };
    let by_convention = all().iter().find(|known| known.otel_name == named).map(|known| known.name);
    let by_habit = || names::PROVIDERS.iter().find(|(theirs, _)| *theirs == named).map(|(_, ours)| *ours);
    by_convention.or_else(by_habit).map_or(named, ToOwned::to_owned)
}

/// Counts as the conventions have them: input with what came from a cache, output with reasoning. Some senders leave the
/// cached part out of the input; that shows when it is larger than the whole.
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
    let ours = price.and_then(|price| pricing::cost(price, usage));
    let told = || {
        attributes.number(&names::COST).filter(|cost| (0.0..1e6).contains(cost)).and_then(Decimal::from_f64)
    };
    let cost = ours.or_else(told);
    (cost, cost.is_none())
}

fn tokens(usage: &Usage) -> Tokens {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    Tokens {
        prompt: number(usage.prompt_tokens()),
        completion: number(usage.completion_tokens()),
        cached: number(usage.cache_read),
        cache_write: number(usage.cache_write),
        reasoning: number(usage.reasoning),
        audio: 0,
    }
}

fn body(sender: &IngestContext<'_>, make: impl FnOnce() -> Option<Vec<u8>>) -> (Vec<u8>, BodyStorage) {
    let Some(limit) = sender.body_limit else { return (Vec::new(), BodyStorage::Off) };
    let mut body = make().unwrap_or_default();
    let stored = if body.len() > limit { BodyStorage::Truncated } else { BodyStorage::Full };
    body.truncate(limit);
    (body, stored)
}

fn metadata(span: &Span, service: Option<&str>) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("span_name".into(), json!(short(&span.name)));
    if let Some(service) = service {
        metadata.insert("service_name".into(), json!(short(service)));
    }
    metadata
}

/// The trace, and the span that this one is below.
fn parent(trace: &str, span: &Span) -> Option<String> {
    let text = format!("00-{trace}-{}-01", hex::encode(&span.parent_span_id));
    parse_traceparent(&text).map(|_| text)
}

fn milliseconds(seconds: f64) -> i64 {
    format!("{:.0}", (seconds * 1_000.0).clamp(0.0, 1e12)).parse().unwrap_or(0)
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).map(|c| if c == '\0' { ' ' } else { c }).collect()
}

struct Attributes<'a>(HashMap<&'a str, &'a AnyValue>);

impl<'a> Attributes<'a> {
    fn of(pairs: &'a [KeyValue]) -> Self {
        Self(pairs.iter().filter_map(|pair| Some((pair.key.as_str(), pair.value.as_ref()?))).collect())
    }

    /// What the span is a call of; None when it is none of a model.
    fn operation(&self) -> Option<String> {
        let kind = self.0.get(names::OPENINFERENCE_KIND).and_then(|value| text_of(value));
        let by_kind = kind.and_then(|kind| {
            names::OPENINFERENCE_CALLS
                .iter()
                .find(|(theirs, _)| *theirs == kind)
                .map(|(_, ours)| (*ours).to_owned())
        });
        let speaks = by_kind.is_some() || self.0.keys().any(|key| key.starts_with(names::GEN_AI));
        speaks.then(|| {
            let named = self.text(&names::OPERATION).map(|name| name.to_ascii_lowercase());
            // A name that looks like a path would be taken for one.
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
        self.first(name).and_then(text_of).map(|text| short(&text))
    }

    fn number(&self, name: &Name) -> Option<f64> {
        match self.first(name)?.value.as_ref()? {
            Any::Double(number) => Some(*number),
            Any::String(text) => text.parse().ok(),
            #[expect(clippy::cast_precision_loss, reason = "counts of tokens and seconds are small")]
            Any::Int(number) => Some(*number as f64),
            _ => None,
        }
        .filter(|number: &f64| number.is_finite())
    }

    fn count(&self, name: &Name) -> Option<i64> {
        match self.first(name)?.value.as_ref()? {
            Any::Int(number) => Some(*number),
            Any::Double(number) => format!("{number:.0}").parse().ok(),
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
