//! Requests with and without a stream.

use super::*;
use crate::llm::{ProviderFormat, paths::Operation};

fn set(format: WireFormat, body: &str, stream: bool) -> Option<String> {
    set_stream(format, body.as_bytes(), stream).map(|body| String::from_utf8(body).unwrap())
}

#[test]
fn only_the_flag_changes() {
    for (body, stream, expected) in [
        (r#"{ "stream" : false, "a":1.0}"#, true, Some(r#"{ "stream" : true, "a":1.0}"#)),
        (r#"{"a":[1, 2] }"#, true, Some(r#"{"a":[1, 2] ,"stream":true}"#)),
        ("{}", true, Some(r#"{"stream":true}"#)),
        (r#"{"stream":null}"#, true, Some(r#"{"stream":true}"#)),
        (r#"{"stream":true}"#, true, None),
        (r#"{"stream":true, "x":"é"}"#, false, Some(r#"{"stream":false, "x":"é"}"#)),
        (r#"{"a":1}"#, false, None),
        (r#"{"stream":false}"#, false, None),
        (
            r#"{"stream_options": {"include_usage": true}, "stream": true}"#,
            false,
            Some(r#"{"stream_options": null, "stream": false}"#),
        ),
        (
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            false,
            Some(r#"{"stream":false,"stream_options":null}"#),
        ),
        (r#"{"stream":false,"stream":true}"#, true, None),
        ("[]", true, None),
        (r#"{"stream":"#, true, None),
    ] {
        for format in [
            WireFormat::OpenAiChat,
            WireFormat::OpenAiCompletions,
            WireFormat::OpenAiResponses,
            WireFormat::Anthropic,
            WireFormat::Cohere,
        ] {
            assert_eq!(set(format, body, stream).as_deref(), expected, "{body}");
        }
        assert_eq!(set(WireFormat::Gemini, body, stream), None);
        assert_eq!(set(WireFormat::Bedrock, body, stream), None);
    }
}

#[test]
fn paths_that_decide_on_streaming_are_turned_both_ways() {
    for (plain, streamed) in [
        ("/v1beta/models/g:generateContent", "/v1beta/models/g:streamGenerateContent?alt=sse"),
        ("/v1beta/models/g:generateContent?key=k", "/v1beta/models/g:streamGenerateContent?key=k&alt=sse"),
        (
            "/v1/projects/p/publishers/anthropic/models/c:rawPredict",
            "/v1/projects/p/publishers/anthropic/models/c:streamRawPredict",
        ),
        ("/model/amazon.nova-v1%3A0/converse", "/model/amazon.nova-v1%3A0/converse-stream"),
        ("/model/m/invoke?x=1", "/model/m/invoke-with-response-stream?x=1"),
        ("/model/m/converse/", "/model/m/converse-stream/"),
    ] {
        assert_eq!(stream_path(plain, true).as_deref(), Some(streamed));
        assert_eq!(stream_path(streamed, false).as_deref(), Some(plain));
        assert_eq!(stream_path(plain, false), None);
        assert_eq!(stream_path(streamed, true), None);
    }
}

#[test]
fn geminis_array_is_no_event_stream() {
    let events = Some("/v1beta/models/g:streamGenerateContent?alt=sse");
    assert_eq!(stream_path("/v1beta/models/g:streamGenerateContent", true).as_deref(), events);
    assert_eq!(stream_path("/v1beta/models/g:streamGenerateContent?alt=json", true).as_deref(), events);
    for path in ["/v1/chat/completions", "/v1/messages?beta=true", "/v1beta/models/g:embedContent", "/"] {
        assert_eq!(stream_path(path, true), None);
        assert_eq!(stream_path(path, false), None);
    }
}

#[test]
fn formats_follow_provider_and_operation() {
    for (provider, operation, format) in [
        (ProviderFormat::OpenAi, Operation::Chat, Some(WireFormat::OpenAiChat)),
        (ProviderFormat::OpenAi, Operation::Responses, Some(WireFormat::OpenAiResponses)),
        (ProviderFormat::OpenAi, Operation::Completions, Some(WireFormat::OpenAiCompletions)),
        (ProviderFormat::Cohere, Operation::Chat, Some(WireFormat::Cohere)),
        (ProviderFormat::Anthropic, Operation::Messages, Some(WireFormat::Anthropic)),
        (ProviderFormat::Gemini, Operation::GenerateContent, Some(WireFormat::Gemini)),
        (ProviderFormat::Bedrock, Operation::Converse, Some(WireFormat::Bedrock)),
        (ProviderFormat::OpenAi, Operation::Embeddings, None),
    ] {
        assert_eq!(WireFormat::of_response(provider, operation), format);
    }
}
