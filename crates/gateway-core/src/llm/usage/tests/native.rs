//! Streams of the providers with their own formats.

use super::*;
use crate::llm::eventstream::encode;

pub(super) const ANTHROPIC: [(&str, &str); 7] = [
    (
        "message_start",
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5-20250929","content":[],"stop_reason":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":300,"cache_read_input_tokens":2000,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200},"output_tokens":1}}}"#,
    ),
    (
        "content_block_start",
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    ),
    ("ping", r#"{"type":"ping"}"#),
    (
        "content_block_delta",
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
    ),
    (
        "content_block_delta",
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello"}}"#,
    ),
    (
        "message_delta",
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":89}}"#,
    ),
    ("message_stop", r#"{"type":"message_stop"}"#),
];

pub(super) fn anthropic_usage() -> Usage {
    let written = Usage { cache_write: 100, cache_write_1h: 200, ..Usage::default() };
    Usage { input: 10, cache_read: 2000, output: 89, ..written }
}

#[test]
fn anthropic_streams_report_input_first_and_output_last() {
    let metered = meter(ProviderFormat::Anthropic, BodyFraming::Sse, &[named_bytes(&ANTHROPIC).as_bytes()]);
    assert_eq!(classes(&metered), anthropic_usage());
    assert_eq!(metered.usage.as_ref().map(Usage::prompt_tokens), Some(2310));
    assert_eq!(metered.usage.and_then(|usage| usage.raw).map(|raw| raw.starts_with("[{\"input")), Some(true));
    assert_eq!(metered.model.as_deref(), Some("claude-sonnet-4-5-20250929"));
    assert_eq!(metered.response_id.as_deref(), Some("msg_1"));
    assert_eq!(metered.finish_reason.as_deref(), Some("end_turn"));
    assert_eq!((metered.output_chars, metered.saw_end), (7, true));
}

#[test]
fn a_caller_that_hangs_up_pays_for_the_input_and_the_text_that_was_sent() {
    let mut meter = Meter::new(ProviderFormat::Anthropic, BodyFraming::Sse);
    meter.feed(named_bytes(&ANTHROPIC[..5]).as_bytes());
    let metered = meter.snapshot();
    assert!(!metered.saw_end);
    assert_eq!(classes(&metered), Usage { output: 1, ..anthropic_usage() });
    let (usage, estimated) = metered.finalize_usage(|| panic!("the input is known"));
    assert_eq!((usage.completion_tokens(), usage.prompt_tokens(), estimated), (2, 2310, true));
}

#[test]
fn a_late_report_of_the_input_counts_and_a_late_zero_does_not() {
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}"#;
    let end = r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":40,"cache_read_input_tokens":8,"output_tokens":5}}"#;
    let usage = Usage { input: 40, cache_read: 8, output: 5, ..Usage::default() };
    assert_eq!(classes(&sse(ProviderFormat::Anthropic, &[start, end])), usage);
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":40,"output_tokens":1}}}"#;
    let end = r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":0,"output_tokens":5}}"#;
    assert_eq!(classes(&sse(ProviderFormat::Anthropic, &[start, end])), Usage::from_totals(40, 5));
}

#[test]
fn anthropics_error_event_is_reported() {
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let stream = named_bytes(&[ANTHROPIC[0], ("error", error)]);
    let metered = meter(ProviderFormat::Anthropic, BodyFraming::Sse, &[stream.as_bytes()]);
    assert_eq!(metered.in_band_error.as_deref(), Some("overloaded_error: Overloaded"));
    assert!(!metered.saw_end);
}

pub(super) const GEMINI: [&str; 3] = [
    r#"{"candidates":[{"content":{"parts":[{"text":"Hel"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":100,"totalTokenCount":140,"thoughtsTokenCount":40},"modelVersion":"gemini-2.5-flash","responseId":"g1"}"#,
    r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"usageMetadata":{"promptTokenCount":1}}}}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":20,"totalTokenCount":160,"thoughtsTokenCount":40},"modelVersion":"gemini-2.5-flash","responseId":"g1"}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":"lo"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":25,"totalTokenCount":165,"thoughtsTokenCount":40,"cachedContentTokenCount":60},"modelVersion":"gemini-2.5-flash","responseId":"g1"}"#,
];

#[test]
fn gemini_reports_alike_as_events_as_an_array_and_in_one_body() {
    let usage = Usage { input: 40, cache_read: 60, output: 25, reasoning: 40, ..Usage::default() };
    let array = format!("[{}\n,\r\n{}\n,\n{}\n]", GEMINI[0], GEMINI[1], GEMINI[2]);
    let responses = [
        sse(ProviderFormat::Gemini, &GEMINI),
        json(ProviderFormat::Gemini, &array),
        json(ProviderFormat::Gemini, GEMINI[2]),
    ];
    for (metered, chars) in responses.into_iter().zip([5, 5, 2]) {
        assert_eq!(classes(&metered), usage);
        assert_eq!(metered.model.as_deref(), Some("gemini-2.5-flash"));
        assert_eq!(metered.response_id.as_deref(), Some("g1"));
        assert_eq!(metered.finish_reason.as_deref(), Some("STOP"));
        assert_eq!((metered.output_chars, metered.saw_end), (chars, true));
    }
}

#[test]
fn a_blocked_prompt_is_a_complete_response() {
    let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":9,"totalTokenCount":9}}"#;
    for metered in [sse(ProviderFormat::Gemini, &[blocked]), json(ProviderFormat::Gemini, blocked)] {
        assert_eq!((metered.finish_reason.as_deref(), metered.saw_end), (Some("SAFETY"), true));
        assert_eq!(classes(&metered), Usage::from_totals(9, 0));
    }
}

pub(super) fn converse() -> Vec<u8> {
    let frame = |name, payload: &str| {
        encode(&[(":event-type", name), (":message-type", "event")], payload.as_bytes()).unwrap()
    };
    [
        frame("messageStart", r#"{"role":"assistant","p":"abc"}"#),
        frame("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"Hello"},"p":"ab"}"#),
        frame("contentBlockDelta", r#"{"contentBlockIndex":1,"delta":{"toolUse":{"input":"{}"}}}"#),
        frame("messageStop", r#"{"stopReason":"tool_use"}"#),
        frame("metadata", r#"{"metrics":{"latencyMs":9},"usage":{"inputTokens":12,"outputTokens":30,"totalTokens":572,"cacheReadInputTokens":500,"cacheWriteInputTokens":30,"cacheDetails":[{"inputTokens":20,"ttl":"1h"},{"inputTokens":10,"ttl":"5m"}]}}"#),
    ]
    .concat()
}

#[test]
fn converse_streams_report_in_their_metadata() {
    let metered = meter(ProviderFormat::Bedrock, BodyFraming::EventStream, &[&converse()]);
    let written = Usage { cache_write: 10, cache_write_1h: 20, ..Usage::default() };
    assert_eq!(classes(&metered), Usage { input: 12, cache_read: 500, output: 30, ..written });
    assert_eq!(metered.usage.map(|usage| usage.total()), Some(572));
    assert_eq!((metered.output_chars, metered.saw_end), (7, true));
    assert_eq!(metered.finish_reason.as_deref(), Some("tool_use"));
}

#[test]
fn an_exception_inside_a_bedrock_stream_is_reported() {
    let headers = [(":exception-type", "throttlingException"), (":message-type", "exception")];
    let frame = encode(&headers, br#"{"message":"Too many requests"}"#).unwrap();
    let metered = meter(ProviderFormat::Bedrock, BodyFraming::EventStream, &[&frame]);
    assert_eq!(metered.in_band_error.as_deref(), Some("throttlingException: Too many requests"));
    assert!(!metered.saw_end);
}

pub(super) fn invoke(events: &[&str]) -> Vec<u8> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let wrap = |event: &&str| {
        let payload = format!(r#"{{"bytes":"{}","p":"abcdef"}}"#, STANDARD.encode(event));
        encode(&[(":event-type", "chunk"), (":message-type", "event")], payload.as_bytes()).unwrap()
    };
    events.iter().flat_map(wrap).collect()
}

#[test]
fn an_anthropic_stream_through_bedrock_is_read_like_its_own() {
    let mut events: Vec<&str> = ANTHROPIC.iter().map(|(_, data)| *data).collect();
    events[6] = r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":10,"outputTokenCount":89,"invocationLatency":5}}"#;
    let metered = meter(ProviderFormat::Bedrock, BodyFraming::EventStream, &[&invoke(&events)]);
    assert_eq!(classes(&metered), anthropic_usage());
    assert_eq!(metered.finish_reason.as_deref(), Some("end_turn"));
    assert_eq!((metered.output_chars, metered.saw_end), (7, true));
}

#[test]
fn other_models_through_bedrock_are_read_off_its_metrics() {
    let events = [
        r#"{"generation":"Hi","prompt_token_count":11,"generation_token_count":1,"stop_reason":null}"#,
        r#"{"generation":"","stop_reason":"stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":11,"outputTokenCount":2}}"#,
    ];
    let metered = meter(ProviderFormat::Bedrock, BodyFraming::EventStream, &[&invoke(&events)]);
    assert_eq!(classes(&metered), Usage::from_totals(11, 2));
    assert_eq!((metered.output_chars, metered.saw_end), (2, true));
    let nova = r#"{"metadata":{"usage":{"inputTokens":3,"outputTokens":4}},"amazon-bedrock-invocationMetrics":{"inputTokenCount":3,"outputTokenCount":4}}"#;
    let metered = meter(ProviderFormat::Bedrock, BodyFraming::EventStream, &[&invoke(&[nova])]);
    assert_eq!(classes(&metered), Usage::from_totals(3, 4));
}

pub(super) const COHERE: [(&str, &str); 4] = [
    (
        "message-start",
        r#"{"id":"co1","type":"message-start","delta":{"message":{"role":"assistant","content":[]}}}"#,
    ),
    (
        "content-delta",
        r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"Hello"}}}}"#,
    ),
    ("content-end", r#"{"type":"content-end","index":0}"#),
    (
        "message-end",
        r#"{"type":"message-end","delta":{"finish_reason":"COMPLETE","usage":{"billed_units":{"input_tokens":5.0,"output_tokens":32.0},"tokens":{"input_tokens":71.0,"output_tokens":32.0},"cached_tokens":0}}}"#,
    ),
];

#[test]
fn cohere_streams_report_in_their_last_event() {
    let metered = meter(ProviderFormat::Cohere, BodyFraming::Sse, &[named_bytes(&COHERE).as_bytes()]);
    assert_eq!(classes(&metered), Usage::from_totals(5, 32));
    assert_eq!((metered.output_chars, metered.saw_end), (5, true));
    assert_eq!(metered.finish_reason.as_deref(), Some("COMPLETE"));
    assert_eq!(metered.response_id.as_deref(), Some("co1"));
}

#[test]
fn a_report_that_comes_twice_counts_once() {
    let usage = Usage { input: 40, cache_read: 60, output: 25, reasoning: 40, ..Usage::default() };
    let twice = [GEMINI[0], GEMINI[2], GEMINI[2]];
    assert_eq!(classes(&sse(ProviderFormat::Gemini, &twice)), usage);
    let mut events = ANTHROPIC.to_vec();
    events.insert(5, ANTHROPIC[5]);
    let metered = meter(ProviderFormat::Anthropic, BodyFraming::Sse, &[named_bytes(&events).as_bytes()]);
    assert_eq!(classes(&metered), anthropic_usage());
    let raw: Vec<Value> = serde_json::from_str(metered.usage.unwrap().raw.as_deref().unwrap()).unwrap();
    assert_eq!(raw.len(), 2, "the first report and the latest");
    let converse = [converse(), converse()].concat();
    let metered = meter(ProviderFormat::Bedrock, BodyFraming::EventStream, &[&converse]);
    assert_eq!(metered.usage.map(|usage| usage.total()), Some(572));
}

#[test]
fn streams_without_a_report_have_no_usage_in_any_format() {
    let gemini = r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}"#;
    let cohere =
        named_bytes(&[COHERE[0], COHERE[1], ("message-end", r#"{"type":"message-end","delta":{}}"#)]);
    let stop = encode(&[(":event-type", "messageStop")], br#"{"stopReason":"end_turn"}"#).unwrap();
    for metered in [
        sse(ProviderFormat::Gemini, &[gemini]),
        meter(
            ProviderFormat::Anthropic,
            BodyFraming::Sse,
            &[named_bytes(&[ANTHROPIC[4], ANTHROPIC[6]]).as_bytes()],
        ),
        meter(ProviderFormat::Cohere, BodyFraming::Sse, &[cohere.as_bytes()]),
        meter(ProviderFormat::Bedrock, BodyFraming::EventStream, &[&stop]),
        meter(
            ProviderFormat::Bedrock,
            BodyFraming::EventStream,
            &[&invoke(&[ANTHROPIC[4].1, ANTHROPIC[6].1])],
        ),
    ] {
        assert_eq!((metered.usage, metered.saw_end), (None, true));
    }
}
