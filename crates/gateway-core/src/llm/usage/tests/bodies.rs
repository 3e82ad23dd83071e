//! Responses in one JSON body or in a sequence of objects.

use super::*;

#[test]
fn plain_bodies_are_read_in_every_format() {
    let table = [
        (
            ProviderFormat::OpenAi,
            r#"{"id":"c","model":"m","choices":[{"message":{"content":"Hello","tool_calls":[{"function":{"arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}"#,
            (9, 3, 7, "stop"),
        ),
        (
            ProviderFormat::OpenAi,
            r#"{"id":"c","model":"m","status":"completed","error":null,"incomplete_details":null,"output":[{"type":"message","content":[{"type":"output_text","text":"Hello"}]}],"usage":{"input_tokens":9,"output_tokens":3,"total_tokens":12}}"#,
            (9, 3, 5, "completed"),
        ),
        (
            ProviderFormat::Anthropic,
            r#"{"id":"c","model":"m","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":3}}"#,
            (9, 3, 5, "end_turn"),
        ),
        (
            ProviderFormat::Bedrock,
            r#"{"id":"c","model":"m","output":{"message":{"content":[{"text":"Hello"}]}},"stopReason":"end_turn","usage":{"inputTokens":9,"outputTokens":3,"totalTokens":12}}"#,
            (9, 3, 5, "end_turn"),
        ),
        (
            ProviderFormat::Bedrock,
            r#"{"id":"c","model":"m","generation":"Hello","prompt_token_count":9,"generation_token_count":3,"stop_reason":"stop"}"#,
            (9, 3, 5, "stop"),
        ),
        (
            ProviderFormat::Bedrock,
            r#"{"id":"c","model":"m","inputTextTokenCount":9,"results":[{"tokenCount":3,"outputText":"Hello","completionReason":"FINISH"}]}"#,
            (9, 3, 5, "FINISH"),
        ),
        (
            ProviderFormat::Cohere,
            r#"{"id":"c","model":"m","message":{"content":[{"type":"text","text":"Hello"}]},"finish_reason":"COMPLETE","usage":{"billed_units":{"input_tokens":9,"output_tokens":3}}}"#,
            (9, 3, 5, "COMPLETE"),
        ),
    ];
    for (format, body, (input, output, chars, reason)) in table {
        let metered = json(format, body);
        assert_eq!(classes(&metered), Usage::from_totals(input, output), "{body}");
        assert_eq!((metered.output_chars, metered.saw_end), (chars, true), "{body}");
        assert_eq!(metered.finish_reason.as_deref(), Some(reason), "{body}");
        assert_eq!(
            (metered.model.as_deref(), metered.response_id.as_deref()),
            (Some("m"), Some("c")),
            "{body}"
        );
        assert_eq!(metered.in_band_error, None, "{body}");
    }
}

#[test]
fn the_tokens_of_all_results_of_titan_are_added() {
    for (results, output) in [
        (r#"[{"tokenCount":3},{"outputText":"x"},{"tokenCount":4}]"#, 7),
        (r#"[{"tokenCount":3},{"tokenCount":null},{"tokenCount":18446744073709551615}]"#, u64::MAX),
        ("[]", 0),
        (r#"[{"tokenCount":3},5]"#, 0),
        (r#"{"tokenCount":3}"#, 0),
    ] {
        let body = format!(r#"{{"inputTextTokenCount":9,"results":{results}}}"#);
        assert_eq!(classes(&json(ProviderFormat::Bedrock, &body)), Usage::from_totals(9, output), "{body}");
    }
}

#[test]
fn embeddings_of_many_megabytes_are_read_in_little_memory() {
    let mut meter = Meter::new(ProviderFormat::OpenAi, BodyFraming::Json);
    meter.feed(br#"{"object":"list","data":["#);
    for _ in 0..300 {
        meter.feed(format!(r#"{{"embedding":[{}0],"usage":1}},"#, "0.0123456789,".repeat(1000)).as_bytes());
    }
    meter.feed(br#"0],"model":"text-embedding-3-small","usage":{"prompt_tokens":8,"total_tokens":8}}"#);
    let metered = meter.finish();
    assert_eq!(classes(&metered), Usage::from_totals(8, 0));
    assert_eq!((metered.model.as_deref(), metered.saw_end), (Some("text-embedding-3-small"), true));
}

#[test]
fn rows_of_objects_end_when_they_say_so() {
    let rows = "{\"model\":\"llama3\",\"message\":{\"content\":\"Hi\"},\"done\":false}\n{\"model\":\"llama3\",\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":26,\"eval_count\":2}\n";
    let metered = json(ProviderFormat::OpenAi, rows);
    assert_eq!(
        (classes(&metered), metered.saw_end, metered.output_chars),
        (Usage::from_totals(26, 2), true, 2)
    );
    assert!(!json(ProviderFormat::OpenAi, rows.lines().next().unwrap()).saw_end);
}

#[test]
fn an_error_body_is_an_error_and_no_usage() {
    for (body, expected) in [
        (
            r#"{"error":{"message":"No","type":"invalid_request_error","code":null}}"#,
            "invalid_request_error: No",
        ),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}"#,
            "overloaded_error: Busy",
        ),
        (r#"{"error":"plain"}"#, "plain"),
    ] {
        let metered = json(ProviderFormat::OpenAi, body);
        assert_eq!((metered.in_band_error.as_deref(), metered.usage), (Some(expected), None));
    }
}

#[test]
fn an_opaque_body_says_nothing() {
    assert_eq!(
        meter(ProviderFormat::OpenAi, BodyFraming::Opaque, &[USAGE.as_bytes()]),
        MeterReading::default()
    );
}

#[test]
fn content_types_declare_the_framing() {
    for (content_type, framing) in [
        ("application/json; charset=utf-8", BodyFraming::Json),
        ("text/event-stream;charset=UTF-8", BodyFraming::Sse),
        ("application/vnd.amazon.eventstream", BodyFraming::EventStream),
        ("application/problem+json", BodyFraming::Json),
        ("audio/mpeg", BodyFraming::Opaque),
        ("", BodyFraming::Opaque),
    ] {
        assert_eq!(BodyFraming::from_content_type(content_type), framing, "{content_type}");
    }
}
