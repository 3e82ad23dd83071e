//! Streams that must not pass for answers: broken off, failed inside, or not understood.

use super::{
    native::{ANTHROPIC, COHERE, GEMINI, converse, converse_frames},
    openai::{CHAT, RESPONSES},
    *,
};
use crate::llm::eventstream;

#[test]
fn a_stream_that_breaks_off_is_incomplete() {
    for (format, bytes) in [
        (Format::Chat, sse(&CHAT[..3])),
        (Format::Chat, Vec::new()),
        (Format::Completions, sse(&["[DONE]"])),
        (Format::Responses, typed(&RESPONSES[..8])),
        (Format::Anthropic, typed(&ANTHROPIC[..18])),
        (Format::Gemini, sse(&GEMINI[..3])),
        (Format::Gemini, sse(&[])),
        (Format::Cohere, typed(&COHERE[..12])),
    ] {
        assert_eq!(fails(format, &bytes), FoldError::Incomplete, "{format:?}");
    }
    let whole = converse();
    assert_eq!(fails(Format::Converse, &whole[..whole.len() - 1]), FoldError::Incomplete);
    let without_metadata = converse_frames(&[("messageStart", "{}"), ("messageStop", "{}")]);
    assert_eq!(fails(Format::Converse, &without_metadata), FoldError::Incomplete);
}

#[test]
fn an_error_inside_a_stream_is_told() {
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let failed = r#"{"type":"response.failed","sequence_number":1,"response":{"id":"r","status":"failed","error":{"code":"server_error","message":"Overloaded"}}}"#;
    for (format, bytes) in [
        (Format::Chat, sse(&[CHAT[0], r#"{"error":{"message":"Overloaded","code":"x"}}"#, "[DONE]"])),
        (Format::Chat, named(&[("error", r#"{"message":"Overloaded"}"#)])),
        (Format::Responses, typed(&[RESPONSES[0], failed])),
        (Format::Responses, typed(&[RESPONSES[0], r#"{"type":"error","code":"x","message":"Overloaded"}"#])),
        (Format::Anthropic, typed(&[ANTHROPIC[0], overloaded])),
        (Format::Gemini, sse(&[GEMINI[0], r#"{"error":{"code":503,"message":"Overloaded"}}"#])),
        (
            Format::Cohere,
            typed(&[
                COHERE[0],
                r#"{"type":"message-end","delta":{"error":"Overloaded","finish_reason":"ERROR"}}"#,
            ]),
        ),
    ] {
        assert_eq!(fails(format, &bytes), FoldError::InBand("Overloaded".into()), "{format:?}");
    }
    let headers = [(":exception-type", "throttlingException"), (":message-type", "exception")];
    let exception = eventstream::encode(&headers, br#"{"message":"Slow down"}"#).unwrap();
    assert_eq!(
        fails(Format::Converse, &exception),
        FoldError::InBand("throttlingException: Slow down".into())
    );
}

#[test]
fn a_choice_that_ended_in_error_is_an_error() {
    let event = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"error"}]}"#;
    assert_eq!(
        fails(Format::Chat, &sse(&[event, "[DONE]"])),
        FoldError::InBand("finish_reason error".into())
    );
}

#[test]
fn what_is_no_stream_is_not_understood() {
    for format in Format::ALL {
        let error = fold(format, Kind::Sse, b"data: <html>\n\n").unwrap_err();
        assert!(matches!(error, FoldError::NotUnderstood(_)), "{format:?}");
        assert!(fold(format, Kind::Opaque, b"{}").is_err());
        assert!(replay(format, b"[]", true).is_err());
        assert!(replay(format, b"{}", true).is_err());
        let failed = replay(format, br#"{"error":{"message":"no"}}"#, true);
        assert_eq!(failed, Err(FoldError::InBand("no".into())));
    }
    assert!(matches!(fold(Format::Chat, Kind::Json, b"{}"), Err(FoldError::NotUnderstood(_))));
    let mut broken = converse();
    broken[20] ^= 1;
    assert_eq!(fails(Format::Converse, &broken), FoldError::NotUnderstood("a frame is broken"));
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
    assert_eq!(fails(Format::Chat, &sse(&events)), FoldError::TooLarge);
    assert!(fold(Format::Chat, Kind::Sse, &sse(&events[..1024])).is_ok());
}

#[test]
fn an_answer_past_the_limit_is_given_up_and_stays_so() {
    let bytes = sse(&CHAT);
    let mut folder = Folder::new(Format::Chat, Kind::Sse, bytes.len() - 1);
    assert_eq!(folder.feed(&bytes[..10]), Ok(()));
    assert_eq!(folder.feed(&bytes[10..]), Err(FoldError::TooLarge));
    assert_eq!(folder.feed(b""), Err(FoldError::TooLarge));
    assert_eq!(folder.finish(), Err(FoldError::TooLarge));
    let mut folder = Folder::new(Format::Chat, Kind::Sse, bytes.len());
    folder.feed(&bytes).unwrap();
    assert!(folder.finish().is_ok());
}
