//! Encodes log rows as spans. A row becomes one span; if it had several attempts, each becomes a child span. All ids
//! are derived from the row, so sending a row twice produces the same span.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::content::{output_messages, parse_request, parse_response};
use super::names::{self, Name};
use super::proto::{Any, AnyValue, Array, Event, KIND_CLIENT, KeyValue, STATUS_ERROR, Span, Status};
use super::{SpanContext, parse_traceparent};
use crate::audit::checkpoint::{Checkpoint, SignedCheckpoint};
use crate::ids::OrgId;
use crate::llm::paths::{Operation, RequestPath};
use crate::llm::providers::builtin;
use crate::logs::{Attempt, LogRow, LogSource};
use crate::time::Timestamp;
use crate::totals::{cost_units, usd};

/// The W3C trace flag for a sampled trace.
const FLAG_SAMPLED: u32 = 1;

/// Longer explanations are truncated.
const MAX_EXPLANATION_CHARS: usize = 2_000;

/// A verdict on a row, as an export sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationResult {
    /// Unique among the results of one row.
    pub id: String,
    pub name: String,
    pub score: f64,
    pub passed: bool,
    pub explanation: Option<String>,
    pub at: Timestamp,
}

impl EvaluationResult {
    /// Sets the explanation, truncated. A blank explanation counts as none.
    pub fn with_explanation(self, explanation: &str) -> Self {
        let truncated: String = explanation.chars().take(MAX_EXPLANATION_CHARS).collect();
        Self { explanation: Some(truncated).filter(|text| !text.trim().is_empty()), ..self }
    }
}

/// The spans of a row. `content` includes messages and parameters, as far as the bodies were stored.
pub fn row_spans(row: &LogRow, content: bool) -> Vec<Span> {
    let context = span_context(row);
    let mut spans = vec![call_span(row, context, content)];
    if row.attempts.len() > 1 {
        spans.extend(
            (1..).zip(&row.attempts).map(|(number, attempt)| attempt_span(row, context, number, attempt)),
        );
    }
    spans
}

/// A child span of the row that carries the evaluation event of the conventions. The row itself may have been exported
/// long ago. `content` includes the explanation, which may quote messages.
pub fn evaluation_span(row: &LogRow, result: &EvaluationResult, content: bool) -> Span {
    let EvaluationResult { id, name, score, passed, explanation, at } = result;
    let mut attributes = Attributes::default();
    attributes.text(&names::EVALUATION_NAME, name);
    attributes.number(&names::EVALUATION_SCORE, *score);
    attributes.text(&names::EVALUATION_LABEL, if *passed { "passed" } else { "failed" });
    attributes.maybe_text(&names::EVALUATION_EXPLANATION, explanation.as_deref().filter(|_| content));
    attributes.count(&names::LOG_ID, row.id);
    let event = Event {
        time_unix_nano: nanoseconds(*at),
        name: names::EVALUATION_EVENT.into(),
        attributes: attributes.0,
    };
    let context = child_context(row, span_context(row), &format!("evaluation {id}"));
    Span { name: format!("evaluate {name}"), events: vec![event], ..base_span(context, *at, 0) }
}

/// A signed checkpoint of the audit log as a span of its own. Its attributes are all that a verification needs.
pub fn checkpoint_span(org: OrgId, signed: &SignedCheckpoint) -> Span {
    let SignedCheckpoint { checkpoint: Checkpoint { org_id, seq, hash, at }, signature, key_id } = signed;
    let mut attributes = Attributes::default();
    attributes.text(&names::ORG, org_id);
    attributes.count(&names::AUDIT_SEQ, *seq);
    attributes.text(&names::AUDIT_HASH, hash);
    attributes.text(&names::AUDIT_AT, &at.to_string());
    attributes.text(&names::AUDIT_SIGNATURE, signature);
    attributes.text(&names::AUDIT_KEY, key_id);
    let mut span = standalone_span(org, &format!("audit checkpoint {seq}"), *at);
    (span.name, span.attributes) = ("audit checkpoint".into(), attributes.0);
    span
}

/// An empty span that tests whether a destination accepts spans.
pub fn test_span(org: OrgId, id: &str, at: Timestamp) -> Span {
    Span { name: "gateway test".into(), ..standalone_span(org, id, at) }
}

/// A span that starts a trace of its own.
fn standalone_span(org: OrgId, id: &str, at: Timestamp) -> Span {
    let digest = digest(org, id);
    Span {
        trace_id: digest[..16].to_vec(),
        span_id: digest[16..24].to_vec(),
        kind: KIND_CLIENT,
        start_time_unix_nano: nanoseconds(at),
        end_time_unix_nano: nanoseconds(at),
        flags: FLAG_SAMPLED,
        ..Span::default()
    }
}

/// An ingested span keeps its ids. A request with a `traceparent` becomes a child of the caller's span. Any other row
/// starts a trace of its own.
fn span_context(row: &LogRow) -> SpanContext {
    let digest = digest(row.org_id, &row.id.to_string());
    let mut span = [0; 8];
    span.copy_from_slice(&digest[16..24]);
    let mut trace = [0; 16];
    trace.copy_from_slice(&digest[..16]);
    let own = SpanContext { trace, span, parent: None };
    if row.source == LogSource::Otel {
        return ingested_context(row).unwrap_or(own);
    }
    match row.traceparent.as_deref().and_then(parse_traceparent) {
        Some((trace, parent)) => SpanContext { trace, span, parent: Some(parent) },
        None => own,
    }
}

fn ingested_context(row: &LogRow) -> Option<SpanContext> {
    let (trace, span) = row.request_id.split_once('-')?;
    let mut context = SpanContext { trace: [0; 16], span: [0; 8], parent: None };
    hex::decode_to_slice(trace, &mut context.trace).ok()?;
    hex::decode_to_slice(span, &mut context.span).ok()?;
    context.parent = row.traceparent.as_deref().and_then(parse_traceparent).map(|(_, parent)| parent);
    Some(context)
}

fn digest(org: OrgId, text: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(org.0.as_bytes());
    digest.update(text.as_bytes());
    digest.finalize().into()
}

fn call_span(row: &LogRow, context: SpanContext, content: bool) -> Span {
    let operation = operation_name(row);
    let mut attributes = Attributes::default();
    attributes.maybe_text(&names::OPERATION, operation);
    attributes.text(&names::PROVIDER, provider_name(&row.provider));
    attributes.maybe_text(&names::REQUEST_MODEL, row.model.as_deref());
    if row.source == LogSource::Mcp {
        attributes.maybe_text(&names::MCP_METHOD, row.operation.as_deref());
        let is_tool = row.operation.as_deref() == Some(TOOL_CALL);
        attributes.maybe_text(&names::TOOL_NAME, row.tool.as_deref().filter(|_| is_tool));
    }
    attributes.flag(&names::STREAM, row.stream);
    usage_attributes(row, &mut attributes);
    if let Some(ttft) = row.ttft_ms.filter(|_| row.stream) {
        attributes.number(&names::FIRST_CHUNK, seconds(ttft));
    }
    attributes.maybe_text(&names::CONVERSATION, row.session_id.as_deref());
    attributes.maybe_text(&names::USER, row.user.as_deref());
    attributes.text(&names::HTTP_METHOD, &row.method);
    attributes.text(&names::URL_PATH, &row.path);
    attributes.count(&names::HTTP_STATUS, i64::from(row.status));
    let failed = row.status >= 400 || row.error_code.is_some();
    if failed {
        let code = row.error_code.clone().unwrap_or_else(|| row.status.to_string());
        attributes.text(&names::ERROR, &code);
    }
    gateway_attributes(row, &mut attributes);
    // The bodies of other rows are those of models.
    if content && row.source != LogSource::Mcp {
        content_attributes(row, &mut attributes);
    }
    let message = row.attempts.last().and_then(|attempt| attempt.error.clone());
    Span {
        name: span_name(row, operation),
        attributes: attributes.0,
        status: failed.then(|| error_status(message)),
        ..base_span(context, row.created_at, row.latency_ms)
    }
}

fn usage_attributes(row: &LogRow, attributes: &mut Attributes) {
    if let Some(tokens) = row.tokens {
        attributes.count(&names::INPUT_TOKENS, tokens.prompt);
        attributes.count(&names::OUTPUT_TOKENS, tokens.completion);
        for (name, count) in [
            (&names::CACHE_READ, tokens.cached),
            (&names::CACHE_WRITE, tokens.cache_write),
            (&names::REASONING, tokens.reasoning),
        ] {
            if count > 0 {
                attributes.count(name, count);
            }
        }
    }
    if let Some(cost) = row.cost_usd {
        attributes.number(&names::COST, usd(cost_units(cost)));
    }
}

fn gateway_attributes(row: &LogRow, attributes: &mut Attributes) {
    attributes.count(&names::LOG_ID, row.id);
    attributes.text(&names::REQUEST_ID, &row.request_id);
    attributes.text(&names::SOURCE, row.source.as_str());
    attributes.maybe_text(&names::CACHE, row.cache.as_deref());
    if row.usage_estimated {
        attributes.flag(&names::ESTIMATED, true);
    }
    if row.attempts.len() > 1 {
        attributes.count(&names::ATTEMPTS, i64::try_from(row.attempts.len()).unwrap_or(i64::MAX));
    }
    attributes.maybe_text(&names::KEY, row.key_id.map(|id| id.to_string()).as_deref());
    attributes.maybe_text(&names::APP, row.app_id.map(|id| id.to_string()).as_deref());
    attributes.maybe_text(&names::TEAM, row.team_id.map(|id| id.to_string()).as_deref());
    for (key, value) in &row.metadata {
        let value = match value {
            Value::String(text) => Any::String(text.clone()),
            Value::Bool(flag) => Any::Bool(*flag),
            other => Any::String(other.to_string()),
        };
        attributes.push(format!("{}{key}", names::METADATA), value);
    }
}

/// Messages and parameters, read from the stored bodies.
fn content_attributes(row: &LogRow, attributes: &mut Attributes) {
    let request = parse_request(&row.request);
    attributes.maybe_text(&names::SYSTEM_INSTRUCTIONS, request.system.as_deref());
    attributes.maybe_text(&names::INPUT_MESSAGES, request.messages.as_deref());
    if let Some(body) = &request.body {
        parameter_attributes(body, attributes);
    }
    let response = if row.response_is_stream { None } else { parse_response(&row.response) };
    let mut finish_reason = "stop";
    if let Some(body) = &response {
        attributes.maybe_text(&names::RESPONSE_ID, body.get("id").and_then(Value::as_str));
        attributes.maybe_text(&names::RESPONSE_MODEL, body.get("model").and_then(Value::as_str));
        let found = ["/choices/0/finish_reason", "/stop_reason", "/candidates/0/finishReason", "/stopReason"]
            .iter()
            .find_map(|at| body.pointer(at)?.as_str());
        if let Some(found) = found {
            let value = AnyValue { value: Some(Any::String(found.to_owned())) };
            let list = Any::Array(Array { values: vec![value] });
            attributes.push(names::FINISH_REASONS.written.into(), list);
            finish_reason = found;
        }
    }
    let messages = output_messages(&row.response, row.response_is_stream, response.as_ref(), finish_reason);
    attributes.maybe_text(&names::OUTPUT_MESSAGES, messages.as_deref());
}

fn parameter_attributes(body: &Value, attributes: &mut Attributes) {
    for (name, keys) in [
        (&names::MAX_TOKENS, &["max_tokens", "max_completion_tokens", "max_output_tokens"][..]),
        (&names::SEED, &["seed"]),
        (&names::CHOICES, &["n"]),
    ] {
        if let Some(count) = keys.iter().find_map(|key| body.get(*key)?.as_i64()) {
            attributes.count(name, count);
        }
    }
    for (name, key) in [
        (&names::TEMPERATURE, "temperature"),
        (&names::TOP_P, "top_p"),
        (&names::TOP_K, "top_k"),
        (&names::FREQUENCY_PENALTY, "frequency_penalty"),
        (&names::PRESENCE_PENALTY, "presence_penalty"),
    ] {
        if let Some(number) = body.get(key).and_then(Value::as_f64) {
            attributes.number(name, number);
        }
    }
}

/// One attempt of several, as a child of the call's span. Usage is reported on the call's span only.
fn attempt_span(row: &LogRow, call: SpanContext, number: i64, attempt: &Attempt) -> Span {
    let Attempt { provider, model, status, start_ms, ttft_ms: _, latency_ms, error } = attempt;
    let mut attributes = Attributes::default();
    attributes.text(&names::PROVIDER, provider_name(provider));
    attributes.maybe_text(&names::REQUEST_MODEL, model.as_deref());
    attributes.count(&names::ATTEMPT, number);
    if let Some(status) = status {
        attributes.count(&names::HTTP_STATUS, i64::from(*status));
    }
    let failed = error.is_some() || status.is_none_or(|status| status >= 400);
    if failed {
        let kind = status.map_or_else(|| "no_answer".to_owned(), |status| status.to_string());
        attributes.text(&names::ERROR, &kind);
    }
    Span {
        name: format!("attempt {provider}"),
        attributes: attributes.0,
        status: failed.then(|| error_status(error.clone())),
        ..base_span(
            child_context(row, call, &format!("attempt {number}")),
            row.created_at.plus(*start_ms),
            *latency_ms,
        )
    }
}

fn child_context(row: &LogRow, call: SpanContext, label: &str) -> SpanContext {
    let digest = digest(row.org_id, &format!("{}/{label}", row.id));
    let mut span = [0; 8];
    span.copy_from_slice(&digest[..8]);
    SpanContext { trace: call.trace, span, parent: Some(call.span) }
}

fn base_span(context: SpanContext, start: Timestamp, duration_ms: i64) -> Span {
    Span {
        trace_id: context.trace.to_vec(),
        span_id: context.span.to_vec(),
        parent_span_id: context.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        kind: KIND_CLIENT,
        start_time_unix_nano: nanoseconds(start),
        end_time_unix_nano: nanoseconds(start.plus(duration_ms.max(0))),
        flags: FLAG_SAMPLED,
        ..Span::default()
    }
}

fn error_status(message: Option<String>) -> Status {
    Status { message: message.unwrap_or_default(), code: STATUS_ERROR }
}

/// The method of a call of a tool.
const TOOL_CALL: &str = "tools/call";

fn operation_name(row: &LogRow) -> Option<&str> {
    if row.source == LogSource::Mcp {
        return (row.operation.as_deref() == Some(TOOL_CALL)).then_some("execute_tool");
    }
    if row.source == LogSource::Otel {
        // Ingestion stores the span's operation as the row's path.
        return Some(row.path.as_str()).filter(|path| !path.starts_with('/'));
    }
    match RequestPath::parse(&row.path).operation() {
        Operation::Chat | Operation::Responses | Operation::Messages | Operation::Converse => Some("chat"),
        Operation::GenerateContent => Some("generate_content"),
        Operation::Embeddings => Some("embeddings"),
        Operation::Completions => Some("text_completion"),
        Operation::Models | Operation::Other => None,
    }
}

fn span_name(row: &LogRow, operation: Option<&str>) -> String {
    if let Some(method) = row.operation.as_deref().filter(|_| row.source == LogSource::Mcp) {
        return row.tool.as_ref().map_or_else(|| method.to_owned(), |tool| format!("{method} {tool}"));
    }
    match (operation, row.model.as_deref()) {
        (Some(operation), Some(model)) => format!("{operation} {model}"),
        (Some(operation), None) => operation.to_owned(),
        (None, _) => format!("{} {}", row.method, row.path),
    }
}

/// The provider's name in the GenAI conventions, if they define one.
fn provider_name(provider: &str) -> &str {
    builtin(provider).map_or(provider, |known| known.otel_name)
}

#[expect(clippy::cast_precision_loss, reason = "a request's duration is far below 2^53 ms")]
fn seconds(milliseconds: i64) -> f64 {
    milliseconds as f64 / 1_000.0
}

fn nanoseconds(at: Timestamp) -> u64 {
    at.0.max(0).cast_unsigned().saturating_mul(1_000_000)
}

#[derive(Default)]
pub(super) struct Attributes(pub(super) Vec<KeyValue>);

impl Attributes {
    fn push(&mut self, key: String, value: Any) {
        self.0.push(KeyValue { key, value: Some(AnyValue { value: Some(value) }) });
    }

    pub(super) fn text(&mut self, name: &Name, text: &str) {
        self.push(name.written.into(), Any::String(text.to_owned()));
    }

    fn maybe_text(&mut self, name: &Name, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    fn count(&mut self, name: &Name, count: i64) {
        self.push(name.written.into(), Any::Int(count));
    }

    fn number(&mut self, name: &Name, number: f64) {
        self.push(name.written.into(), Any::Double(number));
    }

    fn flag(&mut self, name: &Name, flag: bool) {
        self.push(name.written.into(), Any::Bool(flag));
    }
}

#[cfg(test)]
mod tests;
