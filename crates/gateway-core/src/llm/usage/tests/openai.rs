//! Streams of OpenAI and compatible providers.

use super::*;

pub(super) const FIRST: &str = r#"{"id":"c1","object":"chat.completion.chunk","model":"gpt-4o-2024-08-06","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#;
pub(super) const TEXT: &str = r#"{"id":"c1","model":"gpt-4o-2024-08-06","choices":[{"index":0,"delta":{"content":"H\u00e9 \"usage\":{}"},"finish_reason":null}],"usage":null}"#;
pub(super) const STOP: &str =
    r#"{"id":"c1","model":"gpt-4o-2024-08-06","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
pub(super) const STOP_WITH_USAGE: &str = r#"{"id":"c1","model":"gpt-4o-2024-08-06","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27}}"#;
pub(super) const USAGE: &str = r#"{"id":"c1","model":"gpt-4o-2024-08-06","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}"#;
pub(super) const EARLY_USAGE: &str = r#"{"id":"c1","model":"gpt-4o-2024-08-06","choices":[{"index":0,"delta":{"content":""}}],"usage":{"prompt_tokens":20,"completion_tokens":1,"total_tokens":21}}"#;
pub(super) const GROQ_USAGE: &str = r#"{"id":"c1","model":"gpt-4o-2024-08-06","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"req","usage":{"queue_time":0.1,"prompt_tokens":20,"completion_tokens":7,"total_tokens":27}}}"#;
pub(super) const AZURE: &str = r#"{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0}]}"#;
pub(super) const DONE: &str = "[DONE]";

#[test]
fn openai_streams_report_usage_wherever_it_comes() {
    let table: [(&str, &[&str]); 8] = [
        ("last", &[FIRST, TEXT, STOP, USAGE, DONE]),
        ("with choices", &[FIRST, TEXT, STOP_WITH_USAGE, DONE]),
        ("twice", &[FIRST, TEXT, STOP_WITH_USAGE, USAGE, DONE]),
        ("before the reason", &[FIRST, TEXT, USAGE, STOP, DONE]),
        ("cumulative", &[EARLY_USAGE, TEXT, STOP_WITH_USAGE, DONE]),
        ("in x_groq", &[FIRST, TEXT, GROQ_USAGE, DONE]),
        ("after Azure's filter chunk", &[AZURE, FIRST, TEXT, STOP, USAGE, DONE]),
        ("without an end mark", &[FIRST, TEXT, STOP, USAGE]),
    ];
    for (name, events) in table {
        let metered = sse(ProviderFormat::OpenAi, events);
        assert_eq!(classes(&metered), Usage::from_totals(20, 7), "{name}");
        assert_eq!(metered.model.as_deref(), Some("gpt-4o-2024-08-06"), "{name}");
        assert_eq!(metered.response_id.as_deref(), Some("c1"), "{name}");
        assert_eq!(metered.finish_reason.as_deref(), Some("stop"), "{name}");
        assert_eq!(
            (metered.output_chars, metered.saw_end, metered.in_band_error),
            (13, true, None),
            "{name}"
        );
    }
}

#[test]
fn a_stream_without_usage_has_none_rather_than_zero() {
    let metered = sse(ProviderFormat::OpenAi, &[FIRST, TEXT, STOP, DONE]);
    assert_eq!((metered.usage.clone(), metered.saw_end), (None, true));
    assert_eq!(metered.finalize_usage(|| 11), (Usage::from_totals(11, 4), true));
}

#[test]
fn a_stream_that_breaks_off_is_not_at_its_end() {
    let metered = sse(ProviderFormat::OpenAi, &[FIRST, TEXT]);
    assert_eq!((metered.usage, metered.saw_end, metered.finish_reason), (None, false, None));
}

#[test]
fn perplexity_repeats_the_message_and_only_deltas_are_counted() {
    let event = r#"{"id":"p","model":"sonar","choices":[{"finish_reason":null,"message":{"role":"assistant","content":"Hello wor"},"delta":{"role":"assistant","content":"wor"}}],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}}"#;
    let metered = sse(ProviderFormat::OpenAi, &[event, event]);
    assert_eq!((metered.output_chars, classes(&metered)), (6, Usage::from_totals(2, 3)));
}

#[test]
fn an_error_inside_a_stream_is_reported() {
    let events = [FIRST, r#"{"error":{"message":"The server is overloaded","type":"server_error"}}"#];
    let metered = sse(ProviderFormat::OpenAi, &events);
    assert_eq!(metered.in_band_error.as_deref(), Some("server_error: The server is overloaded"));
    let gemini = [r#"{"error":{"code":503,"message":"Try later","status":"UNAVAILABLE"}}"#];
    assert_eq!(sse(ProviderFormat::Gemini, &gemini).in_band_error.as_deref(), Some("UNAVAILABLE: Try later"));
}

pub(super) const RESPONSES: [&str; 6] = [
    r#"{"type":"response.created","response":{"id":"resp_1","model":"gpt-5","status":"in_progress","error":null,"usage":null,"output":[]}}"#,
    r#"{"type":"response.output_text.delta","item_id":"m","delta":"Hi "}"#,
    r#"{"type":"response.output_text.delta","item_id":"m","delta":"you"}"#,
    r#"{"type":"response.output_text.done","item_id":"m","text":"Hi you"}"#,
    r#"{"type":"response.output_item.done","item":{"content":[{"type":"output_text","text":"Hi you"}]}}"#,
    r#"{"type":"response.completed","response":{"id":"resp_1","model":"gpt-5","status":"completed","error":null,"incomplete_details":null,"output":[{"content":[{"text":"Hi you"}]}],"usage":{"input_tokens":75,"input_tokens_details":{"cached_tokens":25},"output_tokens":1186,"output_tokens_details":{"reasoning_tokens":1024},"total_tokens":1261}}}"#,
];

#[test]
fn openai_responses_report_in_their_last_event() {
    let metered = sse(ProviderFormat::OpenAi, &RESPONSES);
    let usage = Usage { input: 50, cache_read: 25, output: 162, reasoning: 1024, ..Usage::default() };
    assert_eq!(classes(&metered), usage);
    assert_eq!(usage.total(), 1261);
    assert_eq!((metered.model.as_deref(), metered.response_id.as_deref()), (Some("gpt-5"), Some("resp_1")));
    assert_eq!((metered.output_chars, metered.saw_end), (6, true));
    assert_eq!(metered.finish_reason.as_deref(), Some("completed"));
}

#[test]
fn a_failed_response_is_an_error_and_an_incomplete_one_says_why() {
    let failed = r#"{"type":"response.failed","response":{"id":"r","model":"m","status":"failed","error":{"code":"server_error","message":"Broke"},"usage":null}}"#;
    let metered = sse(ProviderFormat::OpenAi, &[failed]);
    assert_eq!(metered.in_band_error.as_deref(), Some("server_error: Broke"));
    let cut = r#"{"type":"response.incomplete","response":{"status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"}}}"#;
    assert_eq!(sse(ProviderFormat::OpenAi, &[cut]).finish_reason.as_deref(), Some("max_output_tokens"));
    let loose = r#"{"type":"error","code":"rate_limit","message":"Slow down"}"#;
    assert_eq!(sse(ProviderFormat::OpenAi, &[loose]).in_band_error.as_deref(), Some("rate_limit: Slow down"));
}

#[test]
fn only_the_extra_usage_chunk_is_recognized() {
    let spaced = r#"{"choices": [ ], "usage": {"total_tokens": 1}}"#;
    let null = r#"{"choices":[],"usage":null,"prompt_filter_results":[]}"#;
    let failed = r#"{"choices":[],"usage":{"total_tokens":1},"error":{"message":"x"}}"#;
    for (event, hidden) in [
        (USAGE, true),
        (spaced, true),
        (FIRST, false),
        (STOP_WITH_USAGE, false),
        (AZURE, false),
        (null, false),
        (failed, false),
        (DONE, false),
        (r#"{"usage":{"total_tokens":1}}"#, false),
        ("", false),
    ] {
        assert_eq!(is_usage_chunk(event.as_bytes()), hidden, "{event}");
    }
}

#[test]
fn the_cost_stands_in_the_usage_of_a_stream() {
    let with_cost = |data: &str| {
        let edited = with_cost(data.as_bytes(), || Some("0.25".to_owned()))?;
        Some(String::from_utf8(edited).unwrap())
    };
    for (data, expected) in [
        (
            r#"{"choices":[],"usage":{"total_tokens":3}}"#,
            r#"{"choices":[],"usage":{"total_tokens":3,"cost":0.25}}"#,
        ),
        (r#"{"usage": { } }"#, r#"{"usage": { "cost":0.25} }"#),
        (r#"{"usage":{"cost":9,"x":1}}"#, r#"{"usage":{"cost":0.25,"x":1}}"#),
        (
            r#"{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":1}}}"#,
            r#"{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":1,"cost":0.25}}}"#,
        ),
    ] {
        assert_eq!(with_cost(data).as_deref(), Some(expected), "{data}");
    }
    for data in [
        "[DONE]",
        r#"{"choices":[{"delta":{"content":"\"usage\":{"}}],"usage":null}"#,
        r#"{"type":"response.created","response":{"usage":null}}"#,
        r#"{"other":{"usage":{}}}"#,
        r#"{"usage":{"#,
    ] {
        assert_eq!(with_cost(data), None, "{data}");
    }
    assert_eq!(super::super::with_cost(br#"{"usage":{}}"#, || None), None);
}
