//! Streams that must not be aggregated: truncated, failed or unsupported.

use super::{
    native::{ANTHROPIC, COHERE, GEMINI, converse, converse_frames},
    openai::{CHAT, RESPONSES},
    *,
};
use crate::llm::eventstream;

#[test]
fn a_stream_that_breaks_off_is_incomplete() {
    for (format, bytes) in [
        (WireFormat::OpenAiChat, sse(&CHAT[..3])),
        (WireFormat::OpenAiChat, Vec::new()),
        (WireFormat::OpenAiCompletions, sse(&["[DONE]"])),
        (WireFormat::OpenAiResponses, typed(&RESPONSES[..8])),
        (WireFormat::Anthropic, typed(&ANTHROPIC[..18])),
        (WireFormat::Gemini, sse(&GEMINI[..3])),
        (WireFormat::Gemini, sse(&[])),
        (WireFormat::Cohere, typed(&COHERE[..12])),
    ] {
        assert_eq!(fails(format, &bytes), AggregateError::Incomplete, "{format:?}");
    }
    let whole = converse();
    assert_eq!(fails(WireFormat::Bedrock, &whole[..whole.len() - 1]), AggregateError::Incomplete);
    let without_metadata = converse_frames(&[("messageStart", "{}"), ("messageStop", "{}")]);
    assert_eq!(fails(WireFormat::Bedrock, &without_metadata), AggregateError::Incomplete);
}

#[test]
fn an_error_inside_a_stream_is_returned() {
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let failed = r#"{"type":"response.failed","sequence_number":1,"response":{"id":"r","status":"failed","error":{"code":"server_error","message":"Overloaded"}}}"#;
    for (format, bytes) in [
        (
            WireFormat::OpenAiChat,
            sse(&[CHAT[0], r#"{"error":{"message":"Overloaded","code":"x"}}"#, "[DONE]"]),
        ),
        (WireFormat::OpenAiChat, named(&[("error", r#"{"message":"Overloaded"}"#)])),
        (WireFormat::OpenAiResponses, typed(&[RESPONSES[0], failed])),
        (
            WireFormat::OpenAiResponses,
            typed(&[RESPONSES[0], r#"{"type":"error","code":"x","message":"Overloaded"}"#]),
        ),
        (WireFormat::Anthropic, typed(&[ANTHROPIC[0], overloaded])),
        (WireFormat::Gemini, sse(&[GEMINI[0], r#"{"error":{"code":503,"message":"Overloaded"}}"#])),
        (
            WireFormat::Cohere,
            typed(&[
                COHERE[0],
                r#"{"type":"message-end","delta":{"error":"Overloaded","finish_reason":"ERROR"}}"#,
            ]),
        ),
    ] {
        assert_eq!(fails(format, &bytes), AggregateError::InBand("Overloaded".into()), "{format:?}");
    }
    let headers = [(":exception-type", "throttlingException"), (":message-type", "exception")];
    let exception = eventstream::encode(&headers, br#"{"message":"Slow down"}"#).unwrap();
    assert_eq!(
        fails(WireFormat::Bedrock, &exception),
        AggregateError::InBand("throttlingException: Slow down".into())
    );
}

#[test]
fn a_choice_that_ended_in_error_is_an_error() {
    let event = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"error"}]}"#;
    assert_eq!(
        fails(WireFormat::OpenAiChat, &sse(&[event, "[DONE]"])),
        AggregateError::InBand("finish_reason error".into())
    );
}

#[test]
fn a_body_that_is_not_a_stream_is_unsupported() {
    for format in WireFormat::ALL {
        let error = aggregate_stream(format, BodyFraming::Sse, b"data: <html>\n\n").unwrap_err();
        assert!(matches!(error, AggregateError::UnsupportedResponse(_)), "{format:?}");
        assert!(aggregate_stream(format, BodyFraming::Opaque, b"{}").is_err());
        assert!(synthesize_stream(format, b"[]", true).is_err());
        assert!(synthesize_stream(format, b"{}", true).is_err());
        let failed = synthesize_stream(format, br#"{"error":{"message":"no"}}"#, true);
        assert_eq!(failed, Err(AggregateError::InBand("no".into())));
    }
    assert!(matches!(
        aggregate_stream(WireFormat::OpenAiChat, BodyFraming::Json, b"{}"),
        Err(AggregateError::UnsupportedResponse(_))
    ));
    let mut broken = converse();
    broken[20] ^= 1;
    assert_eq!(
        fails(WireFormat::Bedrock, &broken),
        AggregateError::UnsupportedResponse("invalid event stream frame")
    );
}

#[test]
fn a_flood_of_items_is_given_up() {
    let chunks: Vec<String> = (0..2000)
        .map(|at| {
            format!(
                r#"{{"choices":[{{"index":{},"delta":{{"content":"a"}},"finish_reason":"stop"}}]}}"#,
                5000 - at
            )
        })
        .collect();
    let events: Vec<&str> = chunks.iter().map(String::as_str).collect();
    assert_eq!(fails(WireFormat::OpenAiChat, &sse(&events)), AggregateError::TooLarge);
    assert!(aggregate_stream(WireFormat::OpenAiChat, BodyFraming::Sse, &sse(&events[..1024])).is_ok());
}

#[test]
fn a_response_over_the_limit_fails_for_good() {
    let bytes = sse(&CHAT);
    let mut aggregator = StreamAggregator::new(WireFormat::OpenAiChat, BodyFraming::Sse, bytes.len() - 1);
    assert_eq!(aggregator.feed(&bytes[..10]), Ok(()));
    assert_eq!(aggregator.feed(&bytes[10..]), Err(AggregateError::TooLarge));
    assert_eq!(aggregator.feed(b""), Err(AggregateError::TooLarge));
    assert_eq!(aggregator.finish(), Err(AggregateError::TooLarge));
    let mut aggregator = StreamAggregator::new(WireFormat::OpenAiChat, BodyFraming::Sse, bytes.len());
    aggregator.feed(&bytes).unwrap();
    assert!(aggregator.finish().is_ok());
}
