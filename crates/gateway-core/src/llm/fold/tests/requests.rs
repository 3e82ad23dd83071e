//! Asking for a stream, or for none.

use super::*;

fn set(format: Format, body: &str, stream: bool) -> Option<String> {
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
        for format in
            [Format::Chat, Format::Completions, Format::Responses, Format::Anthropic, Format::Cohere]
        {
            assert_eq!(set(format, body, stream).as_deref(), expected, "{body}");
        }
        assert_eq!(set(Format::Gemini, body, stream), None);
        assert_eq!(set(Format::Converse, body, stream), None);
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
fn formats_follow_shape_and_operation() {
    for (shape, operation, format) in [
        (Shape::OpenAi, Operation::Chat, Some(Format::Chat)),
        (Shape::OpenAi, Operation::Responses, Some(Format::Responses)),
        (Shape::OpenAi, Operation::Completions, Some(Format::Completions)),
        (Shape::Cohere, Operation::Chat, Some(Format::Cohere)),
        (Shape::Anthropic, Operation::Messages, Some(Format::Anthropic)),
        (Shape::Gemini, Operation::GenerateContent, Some(Format::Gemini)),
        (Shape::Bedrock, Operation::Converse, Some(Format::Converse)),
        (Shape::OpenAi, Operation::Embeddings, None),
    ] {
        assert_eq!(Format::of(shape, operation), format);
    }
}
