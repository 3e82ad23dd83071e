//! Responses whose content type says nothing, when the caller asked for another format: recognized by their content, or
//! a failure of the provider. They never reach the caller in the provider's format.

use serde_json::{Value, json};

use crate::proxy_encoded::whole;
use crate::support::{ProxyFixture, TestRequest};
use crate::upstream::Reply;

const CLAUDE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"hello world"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}"#;
const CLAUDE_STREAM: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-x\",\"content\":[],\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello world\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);
/// None: the response has no content type.
const TYPES: [Option<&str>; 4] =
    [Some("text/plain"), None, Some("application/octet-stream"), Some("text/html; charset=utf-8")];

fn reply(content_type: Option<&str>, body: impl AsRef<[u8]>) -> Reply {
    let reply = Reply::new(200).chunked();
    let reply = content_type.into_iter().fold(reply, |reply, kind| reply.header("content-type", kind));
    reply.piece(body)
}

/// A chat request for Claude.
fn ask(proxy: &ProxyFixture, stream: bool) -> TestRequest {
    let body =
        json!({"model": "claude-x", "messages": [{"role": "user", "content": "hi"}], "stream": stream});
    proxy.post("anthropic", "/v1/chat/completions", body.to_string()).header("x-gateway-format", "openai")
}

fn said(text: &str) -> String {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    events
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(ToOwned::to_owned))
        .collect()
}

#[tokio::test]
async fn a_translated_response_is_recognized_by_its_content() {
    let proxy = ProxyFixture::start().await;
    for content_type in TYPES {
        proxy.upstream.push(reply(content_type, format!("\n {CLAUDE}")));
        let answer = ask(&proxy, false).send().await;
        let body = answer.expect(200);
        assert_eq!(body["choices"][0]["message"]["content"], "hello world", "{content_type:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let row = proxy.log_row(&answer).await;
        assert_eq!((&row["total_tokens"], &row["usage_estimated"]), (&json!(5), &json!(false)));

        proxy.upstream.push(reply(content_type, CLAUDE_STREAM));
        let answer = ask(&proxy, true).send().await;
        assert_eq!(said(&answer.text()), "hello world", "{content_type:?}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        assert_eq!(proxy.log_row(&answer).await["total_tokens"], 5);
    }
}

#[tokio::test]
async fn a_response_that_is_neither_json_nor_a_stream_is_a_failure_of_the_provider() {
    let proxy = ProxyFixture::start().await;
    for content_type in TYPES {
        for body in ["<html>Bad gateway</html>", "OK", "", "{\"id\":", "\u{0}\u{1}\u{2}"] {
            for stream in [false, true] {
                proxy.upstream.push(reply(content_type, body));
                let answer = ask(&proxy, stream).send().await;
                let told = answer.expect_error(502, "provider_error");
                assert!(!told.to_string().contains("<html>"), "{told}");
                let row = proxy.log_row(&answer).await;
                assert_eq!((&row["status"], &row["error_code"]), (&json!(502), &json!("provider_error")));
            }
            proxy.upstream.push(reply(content_type, body));
            let other = ask(&proxy, false).header("x-gateway-fallback", "sandbox/sandbox-small").send().await;
            other.expect(200);
            assert_eq!(other.header("x-gateway-provider"), Some("sandbox"), "{content_type:?} {body}");
        }
    }
}

#[tokio::test]
async fn without_translation_an_unknown_type_passes_untouched() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(reply(Some("text/plain"), "<html>hello</html>"));
    let answer = proxy.chat(&json!({"model": "m", "messages": []})).send().await;
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, "<html>hello</html>"));
    assert_eq!(answer.header("content-type"), Some("text/plain"));
}

/// What the provider declares, and the encoded body and stream.
fn encoded() -> [(&'static str, Vec<u8>, Vec<u8>); 5] {
    let codings =
        [("gzip", "gzip"), ("deflate", "zlib"), ("br", "br"), ("zstd", "zstd"), ("gzip, br", "gzip, br")];
    codings.map(|(declared, coding)| (declared, whole(coding, CLAUDE), whole(coding, CLAUDE_STREAM)))
}

#[tokio::test]
async fn a_translated_response_is_decoded() {
    let proxy = ProxyFixture::start().await;
    for (coding, json_body, stream) in encoded() {
        for content_type in [Some("application/json"), None] {
            proxy.upstream.push(reply(content_type, &json_body).header("content-encoding", coding));
            let answer = ask(&proxy, false).send().await;
            let body = answer.expect(200);
            assert_eq!(body["choices"][0]["message"]["content"], "hello world", "{coding} {content_type:?}");
            assert_eq!(answer.header("content-encoding"), None);
            assert_eq!(proxy.log_row(&answer).await["total_tokens"], 5);
        }
        for content_type in [Some("text/event-stream"), None] {
            proxy.upstream.push(reply(content_type, &stream).header("content-encoding", coding));
            let answer = ask(&proxy, true).send().await;
            assert_eq!(said(&answer.text()), "hello world", "{coding} {content_type:?}: {}", answer.text());
            assert_eq!(answer.header("content-encoding"), None);
            assert_eq!(proxy.log_row(&answer).await["total_tokens"], 5);
            proxy.upstream.push(reply(content_type, &stream).header("content-encoding", coding));
            let answer = ask(&proxy, true).header("x-gateway-stream", "false").send().await;
            assert_eq!(answer.expect(200)["choices"][0]["message"]["content"], "hello world", "{coding}");
        }
    }
}

#[tokio::test]
async fn a_translated_response_that_cannot_be_decoded_is_a_failure() {
    let proxy = ProxyFixture::start().await;
    let [(_, whole, stream), ..] = encoded();
    let cut = &whole[..whole.len() / 2];
    for (coding, body) in [("gzip", CLAUDE.as_bytes()), ("gzip", cut), ("compress", &whole[..])] {
        proxy.upstream.push(reply(Some("application/json"), body).header("content-encoding", coding));
        let answer = ask(&proxy, false).send().await;
        answer.expect_error(502, "provider_error");
        proxy.upstream.push(reply(Some("application/json"), body).header("content-encoding", coding));
        let other = ask(&proxy, false).header("x-gateway-fallback", "sandbox/sandbox-small").send().await;
        assert_eq!(other.header("x-gateway-provider"), Some("sandbox"), "{coding}");
    }
    // The head was sent before the stream turned out to be broken.
    let mut broken = stream.clone();
    let middle = broken.len() / 2;
    broken.truncate(middle);
    broken.extend_from_slice(&[0xff; 64]);
    proxy.upstream.push(reply(Some("text/event-stream"), &broken).header("content-encoding", "gzip"));
    let answer = ask(&proxy, true).send().await;
    assert!(answer.text().contains("provider_error"), "{}", answer.text());
    assert_eq!(proxy.log_row(&answer).await["error_code"], "provider_error");
}
