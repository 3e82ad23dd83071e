//! What holds for all formats.

use serde_json::{Value, json};

use super::*;

const REPLY: Reply<'static> =
    Reply { id: "gw-1", model: "m", created: 1_700_000_000, usage_wanted: true, has_responses: false };

#[test]
fn a_chat_stream_passes_through_the_model() {
    let mut stream = StreamTranslator::new(Shape::OpenAi, ClientShape::OpenAiChat, &REPLY);
    let mut out = Vec::new();
    let chunks = [
        json!({"id": "c", "model": "gpt-4o", "created": 1, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]}),
        json!({"id": "c", "model": "gpt-4o", "created": 1, "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": null}]}),
        json!({"id": "c", "model": "gpt-4o", "created": 1, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ];
    for chunk in chunks {
        stream.feed(format!("data: {chunk}\n\n").as_bytes(), &mut out);
    }
    stream.feed(b"data: [DONE]\n\n", &mut out);
    stream.finish(&mut out);
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains(r#""delta":{"content":"Hi"}"#), "{text}");
    assert!(text.ends_with("\"finish_reason\":\"stop\"}],\"usage\":null}\n\ndata: [DONE]\n\n"), "{text}");
}

#[test]
fn a_chat_request_passes_through_the_model() {
    let body = json!({
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0.5,
        "top_k": 3,
        "mirostat": 1,
    });
    let ask = Ask { model: "gpt-4o", stream: false, takes_include_usage: true, has_responses: true };
    let translated =
        request(ClientShape::OpenAiChat, Shape::OpenAi, body.to_string().as_bytes(), &ask).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&translated.body).unwrap(), body);
    assert_eq!((&*translated.path, translated.dropped.len()), ("/v1/chat/completions", 0));
}
