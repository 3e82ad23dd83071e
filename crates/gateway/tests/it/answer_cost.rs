//! The cost in the answer, for callers that ask for it.

use serde_json::{Value, json};

use crate::support::{ProxyFixture, TestRequest};
use crate::upstream::Reply;

const USAGE: &str = r#"{"prompt_tokens":1000,"completion_tokens":200,"total_tokens":1200,"prompt_tokens_details":{"cached_tokens":400}}"#;
const COST: &str = "x-gateway-cost-usd";

fn chat(proxy: &ProxyFixture, stream: bool) -> TestRequest {
    let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "stream": stream});
    proxy.chat(&body).header("x-gateway-cost", "true")
}

fn plain(model: &str) -> Reply {
    let body = format!(
        r#"{{"model":"{model}","choices":[{{"index":0,"message":{{"role":"assistant","content":"hi"}},"finish_reason":"stop"}}],"usage":{USAGE}}}"#
    );
    Reply::json(200, &body)
}

fn stream() -> Reply {
    let text = r#"{"model":"gpt-4o","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}],"usage":null}"#;
    let stop = r#"{"model":"gpt-4o","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#;
    let usage = format!(r#"{{"model":"gpt-4o","choices":[],"usage":{USAGE}}}"#);
    Reply::sse(&[text, stop, &usage, "[DONE]"])
}

/// The events of a stream.
fn events(text: &str) -> Vec<&str> {
    text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect()
}

#[tokio::test]
async fn a_plain_answer_has_its_cost_in_a_header() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(plain("gpt-4o"));
    let answer = chat(&proxy, false).send().await;
    assert_eq!(answer.header(COST), Some("0.004"));
    assert_eq!(answer.expect(200)["usage"], serde_json::from_str::<Value>(USAGE).unwrap());
    let row = proxy.log_row(&answer).await;
    assert_eq!(row["cost_usd"], 0.004);
    // Nobody asked; there is no price; the call failed.
    proxy.upstream.push(plain("gpt-4o"));
    let unasked = proxy.chat(&json!({"model": "gpt-4o", "messages": []})).send().await;
    proxy.upstream.push(plain("no-price"));
    let unpriced = proxy.chat(&json!({"model": "no-price"})).header("x-gateway-cost", "true").send().await;
    proxy.upstream.push(Reply::json(400, "{}"));
    let failed = chat(&proxy, false).send().await;
    for answer in [unasked, unpriced, failed] {
        assert_eq!(answer.header(COST), None, "{}", answer.text());
    }
    let wrong = proxy.chat(&json!({"model": "gpt-4o"})).header("x-gateway-cost", "yes").send().await;
    wrong.expect_error(400, "bad_request");
}

#[tokio::test]
async fn an_answer_from_the_cache_costs_nothing() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(plain("gpt-4o"));
    let ask = |stream| chat(&proxy, stream).header("x-gateway-cache", "true").send();
    assert_eq!(ask(false).await.header(COST), Some("0.004"));
    let hit = ask(false).await;
    assert_eq!((hit.header("x-gateway-cache"), hit.header(COST)), (Some("HIT"), Some("0")));
    let streamed = ask(true).await.text();
    let usage: Value = serde_json::from_str(events(&streamed)[events(&streamed).len() - 2]).unwrap();
    assert_eq!(usage["usage"]["cost"], 0, "{streamed}");
}

#[tokio::test]
async fn a_stream_of_openai_has_the_cost_in_its_usage() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(stream());
    let answer = chat(&proxy, true).send().await;
    let text = answer.text();
    let events = events(&text);
    assert_eq!((events.len(), events.last()), (4, Some(&"[DONE]")), "{text}");
    let usage: Value = serde_json::from_str(events[2]).unwrap();
    assert_eq!((&usage["usage"]["cost"], &usage["usage"]["total_tokens"]), (&json!(0.004), &json!(1200)));
    assert_eq!(proxy.log_row(&answer).await["cost_usd"], 0.004);
    // Without the header the extra chunk stays with the gateway.
    let unasked = proxy.chat(&json!({"model": "gpt-4o", "messages": [], "stream": true})).send().await;
    assert!(!unasked.text().contains("\"usage\":{"), "{}", unasked.text());
}

#[tokio::test]
async fn a_translated_stream_has_the_cost_in_its_usage() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(claude_stream());
    let body = json!({"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "hi"}], "stream": true});
    let request = proxy.post("anthropic", "/v1/chat/completions", body.to_string());
    let answer = request.header("x-gateway-format", "openai").header("x-gateway-cost", "true").send().await;
    let text = answer.text();
    let usage: Vec<Value> =
        events(&text).iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    let usage = usage.iter().find(|event| event["usage"].is_object()).unwrap();
    // 1,000 x 3 + 100 x 15, per million.
    assert_eq!(usage["usage"]["cost"], 0.0045, "{text}");
}

fn claude_stream() -> Reply {
    let start = json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
        "usage": {"input_tokens": 1000, "output_tokens": 1},
    }});
    let events = [
        start,
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 100}}),
        json!({"type": "message_stop"}),
    ];
    let reply = Reply::new(200).header("content-type", "text/event-stream").chunked();
    events.iter().fold(reply, |reply, event| {
        reply.piece(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
    })
}

#[tokio::test]
async fn other_streams_have_the_cost_in_a_trailer_where_the_caller_takes_trailers() {
    let proxy = ProxyFixture::start().await;
    let body =
        json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [], "stream": true}).to_string();
    for (te, has_trailer) in [(Some("trailers"), true), (Some("gzip"), false), (None, false)] {
        proxy.upstream.push(claude_stream());
        let mut headers = vec![("x-gateway-cost", "true"), ("connection", "close")];
        headers.extend(te.map(|te| ("te", te)));
        let mut connection = proxy.connect().await;
        connection.send(proxy.raw_post("anthropic", "/v1/messages", &headers, body.as_bytes())).await;
        let text = String::from_utf8(connection.until_closed().await).unwrap().to_ascii_lowercase();
        assert!(text.contains("message_stop") && !text.contains("\"cost\""), "{text}");
        let trailer = "\r\n0\r\nx-gateway-cost-usd: 0.0045\r\n\r\n";
        assert_eq!(text.ends_with(trailer), has_trailer, "{te:?}: {text}");
        assert_eq!(text.contains("\r\ntrailer: x-gateway-cost-usd\r\n"), has_trailer, "{te:?}: {text}");
    }
}
