//! Tests of ingesting spans as rows.

use proptest::prelude::*;
use prost::Message as _;
use serde_json::json;

use super::*;
use crate::otlp::batch::Batch;
use crate::otlp::encode::row_spans;
use crate::time::DAY;

const NOW: Timestamp = Timestamp(1_794_700_000_000);

fn take(attributes: &Value) -> IngestedSpans {
    take_span(&json!({"attributes": attributes}))
}

/// Ingests a span of 1.5 s that started 10 s ago, with other fields overridden.
fn take_span(fields: &Value) -> IngestedSpans {
    take_span_at(fields, &PriceTable::builtin().unwrap()).unwrap()
}

/// None if the request cannot be decoded.
fn take_span_at(fields: &Value, prices: &PriceTable) -> Option<IngestedSpans> {
    let mut span = json!({
        "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331", "name": "chat gpt-4o",
        "startTimeUnixNano": "1794699990000000000", "endTimeUnixNano": "1794699991500000000",
    });
    span.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": "bot"}}]});
    let request = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]});
    let request = serde_json::from_value(request).ok()?;
    let sender = IngestContext {
        org: "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap(),
        key_id: None,
        app_id: None,
        team_id: None,
        user: None,
        body_limit: Some(1_000),
        now: NOW,
        oldest: NOW.plus(-30 * DAY),
        prices,
    };
    Some(ingest_spans(&request, &sender))
}

fn only(mut arrived: IngestedSpans) -> LogRow {
    assert_eq!((arrived.rows.len(), arrived.rejected), (1, 0), "{:?}", arrived.reason);
    arrived.rows.remove(0)
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn number(key: &str, value: i64) -> Value {
    json!({"key": key, "value": {"intValue": value}})
}

#[test]
fn a_span_of_the_conventions_is_a_row_with_its_price() {
    let messages = json!([{"role": "user", "parts": [{"type": "text", "content": "hello"}]}]).to_string();
    let answer = json!([{"role": "assistant", "parts": [{"type": "text", "content": "hi"}]}]).to_string();
    let row = only(take(&json!([
        text("gen_ai.operation.name", "chat"),
        text("gen_ai.provider.name", "openai"),
        text("gen_ai.request.model", "gpt-4o"),
        number("gen_ai.usage.input_tokens", 1_000),
        number("gen_ai.usage.output_tokens", 100),
        number("gen_ai.usage.cache_read.input_tokens", 200),
        number("gen_ai.usage.reasoning.output_tokens", 40),
        text("gen_ai.conversation.id", "c-1"),
        text("user.id", "ada"),
        text("gen_ai.input.messages", &messages),
        text("gen_ai.output.messages", &answer),
        {"key": "gen_ai.response.time_to_first_chunk", "value": {"doubleValue": 0.25}},
        {"key": "gen_ai.request.stream", "value": {"boolValue": true}},
    ])));
    assert_eq!(
        (row.source, row.provider.as_str(), row.model.as_deref()),
        (LogSource::Otel, "openai", Some("gpt-4o"))
    );
    assert_eq!((row.status, row.latency_ms, row.ttft_ms, row.stream), (200, 1_500, Some(250), true));
    let tokens = row.tokens.unwrap();
    assert_eq!((tokens.prompt, tokens.completion, tokens.cached, tokens.reasoning), (1_000, 100, 200, 40));
    let prices = PriceTable::builtin().unwrap();
    let usage = Usage { input: 800, cache_read: 200, output: 60, reasoning: 40, ..Usage::default() };
    assert_eq!(row.cost_usd, pricing::cost(prices.find("openai", "gpt-4o").unwrap(), &usage));
    assert!(row.cost_usd.is_some() && !row.unpriced);
    assert_eq!((row.session_id.as_deref(), row.user.as_deref()), (Some("c-1"), Some("ada")));
    assert_eq!(row.request_id, "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331");
    assert_eq!(row.metadata["service_name"], "bot");
    let request: Value = serde_json::from_slice(&row.request).unwrap();
    assert_eq!(request["messages"], json!([{"role": "user", "content": "hello"}]));
    let response: Value = serde_json::from_slice(&row.response).unwrap();
    assert_eq!(response["choices"][0]["message"]["content"], "hi");
}

#[test]
fn openinference_and_older_names_are_understood() {
    let row = only(take(&json!([
        text("openinference.span.kind", "LLM"),
        text("llm.model_name", "claude-sonnet-4-20250514"),
        text("llm.provider", "anthropic"),
        number("llm.token_count.prompt", 12),
        number("llm.token_count.completion", 7),
        text("llm.input_messages.0.message.role", "user"),
        text("llm.input_messages.0.message.content", "what is it"),
        text("llm.output_messages.0.message.content", "a test"),
        text("session.id", "s-9"),
    ])));
    assert_eq!((row.provider.as_str(), row.path.as_str()), ("anthropic", "chat"));
    assert_eq!(row.tokens.map(|tokens| (tokens.prompt, tokens.completion)), Some((12, 7)));
    assert!(row.cost_usd.is_some());
    assert_eq!(row.session_id.as_deref(), Some("s-9"));
    assert!(String::from_utf8(row.request).unwrap().contains("what is it"));
    assert!(String::from_utf8(row.response).unwrap().contains("a test"));
    let row = only(take(&json!([
        text("gen_ai.system", "az.ai.openai"),
        text("gen_ai.response.model", "gpt-4o"),
        number("gen_ai.usage.prompt_tokens", 3),
        text("gen_ai.prompt.0.content", "older still"),
    ])));
    assert_eq!((row.provider.as_str(), row.model.as_deref()), ("azure-openai", Some("gpt-4o")));
    assert!(String::from_utf8(row.request).unwrap().contains("older still"));
    let row =
        only(take(&json!([text("openinference.span.kind", "EMBEDDING"), text("input.value", "words")])));
    assert_eq!((row.path.as_str(), row.provider.as_str(), row.tokens), ("embeddings", "unknown", None));
}

#[test]
fn spans_that_are_not_model_calls_are_skipped() {
    for attributes in [
        json!([]),
        json!([text("http.request.method", "GET")]),
        json!([text("openinference.span.kind", "CHAIN"), text("input.value", "x")]),
    ] {
        let arrived = take(&attributes);
        assert_eq!((arrived.rows.len(), arrived.rejected), (0, 0), "{attributes}");
    }
}

#[test]
fn usage_that_an_agent_sums_up_is_not_counted_again() {
    let row = only(take(&json!([
        text("gen_ai.operation.name", "invoke_agent"),
        text("gen_ai.provider.name", "openai"),
        number("gen_ai.usage.input_tokens", 1_000),
    ])));
    assert_eq!((row.tokens, row.cost_usd, row.unpriced), (None, None, false));
}

#[test]
fn a_cached_part_outside_of_the_input_is_added_to_it() {
    let row = only(take(&json!([
        text("gen_ai.provider.name", "anthropic"),
        number("gen_ai.usage.input_tokens", 5),
        number("gen_ai.usage.cache_read.input_tokens", 1_000),
    ])));
    assert_eq!(row.tokens.map(|tokens| tokens.prompt), Some(1_005));
}

#[test]
fn a_failed_span_is_an_error() {
    let attributes = json!([text("gen_ai.provider.name", "openai"), text("error.type", "timeout")]);
    let row = only(take_span(&json!({"attributes": attributes, "status": {"code": 2}})));
    assert_eq!((row.status, row.level, row.error_code.as_deref()), (500, LogLevel::Error, Some("timeout")));
    let attributes =
        json!([text("gen_ai.provider.name", "openai"), number("http.response.status_code", 429)]);
    let row = only(take_span(&json!({"attributes": attributes, "status": {"code": 2}})));
    assert_eq!((row.status, row.error_code.as_deref()), (429, Some("error")));
}

#[test]
fn invalid_spans_are_rejected_with_a_reason() {
    let attributes = json!([text("gen_ai.provider.name", "openai")]);
    for (wrong, reason) in [
        (json!({"traceId": "00"}), "trace id"),
        (json!({"traceId": "00000000000000000000000000000000"}), "trace id"),
        (json!({"spanId": ""}), "span id"),
        (json!({"startTimeUnixNano": "0"}), "before"),
        (json!({"startTimeUnixNano": "1700000000000000000"}), "before"),
        (json!({"startTimeUnixNano": "1894699990000000000"}), "future"),
    ] {
        let mut span = json!({"attributes": attributes});
        span.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let arrived = take_span(&span);
        assert_eq!((arrived.rows.len(), arrived.rejected), (0, 1), "{wrong}");
        assert!(arrived.reason.is_some_and(|found| found.contains(reason)), "{:?}", arrived.reason);
    }
}

#[test]
fn an_exported_span_is_ingested_as_the_row_it_was() {
    let attributes = json!([
        text("gen_ai.operation.name", "chat"),
        text("gen_ai.provider.name", "openai"),
        text("gen_ai.request.model", "gpt-4o"),
        number("gen_ai.usage.input_tokens", 10),
        number("gen_ai.usage.output_tokens", 5),
        text("gen_ai.input.messages", r#"[{"role":"user","parts":[{"type":"text","content":"x"}]}]"#),
    ]);
    let first = only(take(&attributes));
    let mut batch = Batch::default();
    for span in &row_spans(&first, true) {
        batch.add(span);
    }
    let (head, rest) = batch.finish(first.org_id, "1");
    let request = ExportTraceServiceRequest::decode(&[head, rest].concat()[..]).unwrap();
    let prices = PriceTable::builtin().unwrap();
    let sender = IngestContext {
        org: first.org_id,
        key_id: None,
        app_id: None,
        team_id: None,
        user: None,
        body_limit: Some(1_000),
        now: NOW,
        oldest: Timestamp(0),
        prices: &prices,
    };
    let second = only(ingest_spans(&request, &sender));
    assert_eq!((second.id, &second.request_id), (first.id, &first.request_id), "so it is stored once");
    assert_eq!(
        (second.tokens, second.cost_usd, second.request),
        (first.tokens, first.cost_usd, first.request)
    );
}

proptest! {
    #[test]
    fn any_span_is_ingested_or_rejected(
        start in prop_oneof![any::<u64>(), Just(0), Just(1_794_699_990_000_000_000)],
        end in prop_oneof![any::<u64>(), Just(0), Just(1_794_699_991_500_000_000)],
        trace in prop_oneof!["[0-9a-f]{32}", "[0-9a-f]{0,40}", Just("0".repeat(32))],
        tokens in prop_oneof![any::<i64>(), 0..9_i64],
        message in "(\\[|\\]|\\{|\\}|\"|:|,|role|parts|é){0,20}",
    ) {
        let attributes = json!([
            text("gen_ai.operation.name", "chat"),
            number("gen_ai.usage.input_tokens", tokens),
            number("gen_ai.usage.output_tokens", tokens),
            text("gen_ai.input.messages", &message),
        ]);
        let span = json!({
            "traceId": trace, "startTimeUnixNano": start.to_string(), "endTimeUnixNano": end.to_string(),
            "attributes": attributes,
        });
        let taken = take_span_at(&span, &PriceTable::default());
        prop_assert!(taken.is_none_or(|taken| taken.rows.iter().all(|row| row.latency_ms >= 0)));
    }
}
