//! Tests of encoding rows as spans.

use prost::Message as _;
use serde_json::{Map, json};

use super::*;
use crate::llm::ProviderFormat;
use crate::logs::{BodyStorage, Tokens};
use crate::otlp::batch::Batch;
use crate::otlp::proto::{Any, ExportTraceServiceRequest};

fn row() -> LogRow {
    LogRow {
        request_id: "req-1".into(),
        provider: "gemini".into(),
        provider_format: Some(ProviderFormat::OpenAi),
        model: Some("gpt-4o".into()),
        path: "/v1/chat/completions".into(),
        stream: true,
        latency_ms: 250,
        ttft_ms: Some(40),
        tokens: Some(Tokens { prompt: 10, completion: 5, cached: 3, reasoning: 2, ..Tokens::default() }),
        cost_usd: Some("0.001".parse().unwrap()),
        attempts: vec![attempt("openai", Some(200), None)],
        user: Some("ada".into()),
        session_id: Some("s-1".into()),
        metadata: Map::from_iter([("env".to_owned(), json!("prod")), ("n".to_owned(), json!(4))]),
        request_stored: BodyStorage::Full,
        response_stored: BodyStorage::Full,
        request: json!({"model": "gpt-4o", "temperature": 0.5, "max_tokens": 99, "messages": [
            {"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]})
        .to_string()
        .into_bytes(),
        response: json!({"id": "r-1", "model": "gpt-4o-2024", "choices": [
            {"finish_reason": "length", "message": {"role": "assistant", "content": "hi"}}]})
        .to_string()
        .into_bytes(),
        ..LogRow::new(
            7_000_000_000,
            "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap(),
            Timestamp(1_794_700_000_000),
            LogSource::Proxy,
        )
    }
}

fn attempt(provider: &str, status: Option<u16>, error: Option<&str>) -> Attempt {
    Attempt {
        provider: provider.into(),
        model: Some("m".into()),
        status,
        start_ms: 5,
        ttft_ms: None,
        latency_ms: 20,
        error: error.map(ToOwned::to_owned),
    }
}

fn value(span: &Span, name: &str) -> Option<Any> {
    let pair = span.attributes.iter().find(|pair| pair.key == name)?;
    pair.value.clone()?.value
}

fn text(span: &Span, name: &str) -> Option<String> {
    match value(span, name)? {
        Any::String(text) => Some(text),
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn a_row_becomes_a_span_with_the_attributes_of_the_conventions() {
    let spans = row_spans(&row(), false);
    assert_eq!(spans.len(), 1, "a single attempt needs no span of its own");
    let span = &spans[0];
    assert_eq!((span.name.as_str(), span.kind), ("chat gpt-4o", KIND_CLIENT));
    assert_eq!(span.start_time_unix_nano, 1_794_700_000_000_000_000);
    assert_eq!(span.end_time_unix_nano - span.start_time_unix_nano, 250_000_000);
    assert_eq!(span.status, None);
    for (name, expected) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "gcp.gemini"),
        ("gen_ai.request.model", "gpt-4o"),
        ("gen_ai.conversation.id", "s-1"),
        ("user.id", "ada"),
        ("gateway.metadata.env", "prod"),
        ("gateway.metadata.n", "4"),
        ("gateway.source", "proxy"),
    ] {
        assert_eq!(text(span, name).as_deref(), Some(expected), "{name}");
    }
    for (name, expected) in [
        ("gen_ai.usage.input_tokens", 10),
        ("gen_ai.usage.output_tokens", 5),
        ("gen_ai.usage.cache_read.input_tokens", 3),
        ("gen_ai.usage.reasoning.output_tokens", 2),
        ("http.response.status_code", 200),
        ("gateway.log_id", 7_000_000_000),
    ] {
        assert_eq!(value(span, name), Some(Any::Int(expected)), "{name}");
    }
    assert_eq!(value(span, "gen_ai.response.time_to_first_chunk"), Some(Any::Double(0.04)));
    assert_eq!(value(span, "gateway.cost_usd"), Some(Any::Double(0.001)));
    assert_eq!(
        value(span, "gen_ai.usage.cache_creation.input_tokens"),
        None,
        "unused token classes are omitted"
    );
    for content in ["gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.request.temperature"] {
        assert_eq!(value(span, content), None, "{content} only when it is allowed");
    }
}

#[test]
fn content_is_included_when_it_is_allowed() {
    let span = &row_spans(&row(), true)[0];
    let messages: Value = serde_json::from_str(&text(span, "gen_ai.input.messages").unwrap()).unwrap();
    assert_eq!(
        messages,
        json!([
            {"role": "system", "parts": [{"type": "text", "content": "be brief"}]},
            {"role": "user", "parts": [{"type": "text", "content": "hello"}]},
        ])
    );
    let answer: Value = serde_json::from_str(&text(span, "gen_ai.output.messages").unwrap()).unwrap();
    assert_eq!(
        answer,
        json!([{"role": "assistant", "parts": [{"type": "text", "content": "hi"}], "finish_reason": "length"}])
    );
    assert_eq!(value(span, "gen_ai.request.temperature"), Some(Any::Double(0.5)));
    assert_eq!(value(span, "gen_ai.request.max_tokens"), Some(Any::Int(99)));
    assert_eq!(text(span, "gen_ai.response.id").as_deref(), Some("r-1"));
    assert_eq!(text(span, "gen_ai.response.model").as_deref(), Some("gpt-4o-2024"));
}

#[test]
fn several_attempts_are_spans_below_the_call() {
    let failed = attempt("openai", Some(503), Some("overloaded"));
    let silent = attempt("groq", None, Some("cannot connect"));
    let row = LogRow { attempts: vec![failed, silent, attempt("anthropic", Some(200), None)], ..row() };
    let spans = row_spans(&row, false);
    assert_eq!(spans.len(), 4);
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["chat gpt-4o", "attempt openai", "attempt groq", "attempt anthropic"]);
    for span in &spans[1..] {
        assert_eq!((&span.parent_span_id, &span.trace_id), (&spans[0].span_id, &spans[0].trace_id));
        assert_eq!(value(span, "gen_ai.usage.input_tokens"), None, "usage is counted once");
    }
    assert_eq!(spans[1].status.as_ref().map(|status| status.message.as_str()), Some("overloaded"));
    assert_eq!(text(&spans[2], "error.type").as_deref(), Some("no_answer"));
    assert_eq!(spans[3].status, None);
    let mut ids: Vec<_> = spans.iter().map(|span| span.span_id.clone()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[test]
fn a_traced_caller_is_the_parent_and_ids_stay_the_same() {
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let traced = LogRow { traceparent: Some(format!("00-{trace}-b7ad6b7169203331-01")), ..row() };
    let span = &row_spans(&traced, false)[0];
    assert_eq!(hex::encode(&span.trace_id), trace);
    assert_eq!(hex::encode(&span.parent_span_id), "b7ad6b7169203331");
    assert_eq!(*span, row_spans(&traced, false)[0], "a row that is sent twice is the same span");
    let alone = &row_spans(&row(), false)[0];
    assert!(alone.parent_span_id.is_empty() && alone.trace_id.len() == 16 && alone.span_id.len() == 8);
}

#[test]
fn a_span_that_came_in_keeps_its_place() {
    let (trace, id) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let row = LogRow {
        source: LogSource::Otel,
        request_id: format!("{trace}-{id}"),
        path: "text_completion".into(),
        traceparent: Some(format!("00-{trace}-00f067aa0ba902b7-01")),
        ..row()
    };
    let span = &row_spans(&row, false)[0];
    assert_eq!((hex::encode(&span.trace_id), hex::encode(&span.span_id)), (trace.into(), id.into()));
    assert_eq!(hex::encode(&span.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(text(span, "gen_ai.operation.name").as_deref(), Some("text_completion"));
}

#[test]
fn a_failed_row_has_an_error_status_and_type() {
    let mut row = row();
    (row.status, row.error_code) = (502, Some("provider_error".into()));
    row.attempts = vec![attempt("openai", Some(500), Some("it broke"))];
    let span = &row_spans(&row, false)[0];
    assert_eq!(text(span, "error.type").as_deref(), Some("provider_error"));
    let status = span.status.as_ref().unwrap();
    assert_eq!((status.code, status.message.as_str()), (STATUS_ERROR, "it broke"));
    (row.status, row.error_code) = (429, None);
    assert_eq!(text(&row_spans(&row, false)[0], "error.type").as_deref(), Some("429"));
    (row.path, row.model) = ("/v1/files".into(), None);
    assert_eq!(row_spans(&row, false)[0].name, "POST /v1/files");
}

#[test]
fn a_verdict_is_an_event_below_the_call() {
    let row = row();
    let result = EvaluationResult {
        id: "v-1".into(),
        name: "ragas".into(),
        score: 0.75,
        passed: false,
        explanation: None,
        at: Timestamp(1_794_700_001_000),
    };
    let result = result.with_explanation(&"too short ".repeat(1_000));
    let span = evaluation_span(&row, &result, true);
    let call = &row_spans(&row, false)[0];
    assert_eq!((&span.parent_span_id, &span.trace_id), (&call.span_id, &call.trace_id));
    assert_eq!((span.events.len(), span.events[0].name.as_str()), (1, "gen_ai.evaluation.result"));
    let holder = |span: &Span| Span { attributes: span.events[0].attributes.clone(), ..Span::default() };
    let evaluation = holder(&span);
    assert_eq!(text(&evaluation, "gen_ai.evaluation.name").as_deref(), Some("ragas"));
    assert_eq!(value(&evaluation, "gen_ai.evaluation.score.value"), Some(Any::Double(0.75)));
    assert_eq!(text(&evaluation, "gen_ai.evaluation.score.label").as_deref(), Some("failed"));
    assert_eq!(value(&evaluation, "gateway.log_id"), Some(Any::Int(row.id)));
    let why = text(&evaluation, "gen_ai.evaluation.explanation").unwrap();
    assert!(why.starts_with("too short") && why.len() == 2_000);
    let without = holder(&evaluation_span(&row, &result, false));
    assert_eq!(text(&without, "gen_ai.evaluation.explanation"), None, "it may quote what was said");
    let other = EvaluationResult { id: "v-2".into(), ..result.clone() };
    assert_ne!(evaluation_span(&row, &other, true).span_id, span.span_id);
    assert_eq!(evaluation_span(&row, &result, true), span, "a verdict that is sent twice is the same span");
    assert_eq!(result.with_explanation(" ").explanation, None);
}

#[test]
fn a_request_names_the_gateway_and_the_conventions_around_its_spans() {
    let two = [row_spans(&row(), true), row_spans(&LogRow { id: 8_000_000_000, ..row() }, false)].concat();
    let mut batch = Batch::default();
    for span in &two {
        batch.add(span);
    }
    let (head, rest) = batch.finish(row().org_id, "1.2.3");
    let request = ExportTraceServiceRequest::decode(&[head, rest].concat()[..]).unwrap();
    assert_eq!(request.resource_spans.len(), 1);
    let resource = &request.resource_spans[0];
    let attributes = resource.resource.as_ref().unwrap().attributes.clone();
    let holder = Span { attributes, ..Span::default() };
    assert_eq!(text(&holder, "service.name").as_deref(), Some("gateway"));
    assert_eq!(text(&holder, "service.version").as_deref(), Some("1.2.3"));
    assert_eq!(text(&holder, "gateway.org_id"), Some(row().org_id.to_string()));
    assert_eq!(resource.schema_url, "https://opentelemetry.io/schemas/1.41.0");
    let [scope] = &resource.scope_spans[..] else { panic!("one scope") };
    assert_eq!(scope.schema_url, resource.schema_url);
    let named = scope.scope.as_ref().map(|scope| (scope.name.as_str(), scope.version.as_str()));
    assert_eq!(named, Some(("gateway", "1.2.3")));
    assert_eq!(scope.spans, two);
}
