//! Usage and cost of a request, extracted from the responses of every wire format.

use gateway_core::llm::eventstream::encode;
use proptest::prelude::*;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::support::ProxyFixture;
use crate::upstream::Reply;

const CHAT: &str = "/v1/chat/completions";

/// Asserts prompt, completion, cached and reasoning tokens, and the cost.
#[track_caller]
fn check(row: &Value, [prompt, completion, cached, reasoning]: [i64; 4], cost: Option<&str>) {
    let names = ["prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "total_tokens"];
    let expected = [prompt, completion, cached, reasoning, prompt + completion].map(|count| json!(count));
    assert_eq!(names.map(|name| row[name].clone()), expected);
    assert_eq!(usd(row), cost.map(|cost| cost.parse().unwrap()));
    assert_eq!(row["usage_estimated"], false);
}

fn usd(row: &Value) -> Option<Decimal> {
    match &row["cost_usd"] {
        Value::Null => None,
        Value::String(text) => text.parse().ok(),
        number => {
            number.to_string().parse().ok().or_else(|| Decimal::from_scientific(&number.to_string()).ok())
        }
    }
}

fn chunk(fields: &Value) -> String {
    let mut chunk = json!({"id": "c1", "object": "chat.completion.chunk", "model": "gpt-4o-2024-08-06"});
    chunk.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    chunk.to_string()
}

fn text(text: &str) -> String {
    chunk(
        &json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}], "usage": null}),
    )
}

fn stop() -> String {
    chunk(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": null}))
}

fn usage() -> Value {
    json!({
        "prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200,
        "prompt_tokens_details": {"cached_tokens": 400}, "completion_tokens_details": {"reasoning_tokens": 50},
    })
}

fn sse(events: &[&str]) -> String {
    events.iter().flat_map(|event| ["data: ", event, "\n\n"]).collect()
}

#[tokio::test]
async fn an_openai_answer_is_priced_by_class() {
    let proxy = ProxyFixture::start().await;
    let body =
        json!({"model": "gpt-4o-2024-08-06", "choices": [{"message": {"content": "hi"}}], "usage": usage()});
    proxy.upstream.push(Reply::json(200, &body.to_string()));
    let row = proxy.log_row(&proxy.chat(&json!({"model": "gpt-4o"})).send().await).await;
    // 600 x 2.50 + 400 x 1.25 + 200 x 10.00, per million.
    check(&row, [1000, 200, 400, 50], Some("0.004"));
    assert_eq!((&row["model"], &row["stream"]), (&json!("gpt-4o"), &json!(false)));
}

#[tokio::test]
async fn spoken_tokens_have_prices_of_their_own() {
    let proxy = ProxyFixture::start().await;
    let usage = json!({
        "prompt_tokens": 300, "completion_tokens": 120, "total_tokens": 420,
        "prompt_tokens_details": {"audio_tokens": 200}, "completion_tokens_details": {"audio_tokens": 100},
    });
    let body = json!({"model": "gpt-4o-audio-preview", "choices": [], "usage": usage});
    proxy.upstream.push(Reply::json(200, &body.to_string()));
    let row = proxy.log_row(&proxy.chat(&json!({"model": "gpt-4o-audio-preview"})).send().await).await;
    // 100 x 2.50 + 200 x 40 + 20 x 10 + 100 x 80.
    check(&row, [300, 120, 0, 0], Some("0.01645"));
}

#[tokio::test]
async fn usage_is_requested_for_a_stream_and_the_extra_chunk_is_removed() {
    let proxy = ProxyFixture::start().await;
    let extra = chunk(&json!({"choices": [], "usage": usage()}));
    let events = [text("H\u{e9}"), stop(), extra.clone(), "[DONE]".to_owned()];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    proxy.upstream.set_default_reply(Reply::sse(&events));
    for (sent, expected) in [
        (
            r#"{"model":"gpt-4o", "stream":true }"#,
            r#"{"model":"gpt-4o", "stream":true ,"stream_options":{"include_usage":true}}"#,
        ),
        (
            r#"{"stream_options":{"include_usage":false,"x":1},"model":"gpt-4o","stream":true}"#,
            r#"{"stream_options":{"include_usage":true,"x":1},"model":"gpt-4o","stream":true}"#,
        ),
    ] {
        let answer = proxy.post("openai", CHAT, sent).send().await;
        assert_eq!(answer.text(), sse(&[events[0], events[1], "[DONE]"]));
        assert_eq!(String::from_utf8_lossy(&proxy.upstream.requests().last().unwrap().body), expected);
        let row = proxy.log_row(&answer).await;
        check(&row, [1000, 200, 400, 50], Some("0.004"));
        let own: Value = serde_json::from_str(sent).unwrap();
        assert_eq!(row["request"], own, "the log shows what the caller sent");
    }
    // A client that requests usage gets it, and the stream is unchanged.
    let sent = r#"{"model":"gpt-4o","stream":true,"stream_options":{"include_usage":true}}"#;
    let answer = proxy.post("openai", CHAT, sent).send().await;
    assert_eq!(answer.text(), sse(&events));
    assert_eq!(proxy.upstream.requests().last().unwrap().body, sent.as_bytes());
    check(&proxy.log_row(&answer).await, [1000, 200, 400, 50], Some("0.004"));
}

#[tokio::test]
async fn usage_in_the_last_content_chunk_is_not_removed() {
    let proxy = ProxyFixture::start().await;
    let last =
        chunk(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage()}));
    let (first, events) = (text("a"), [last.as_str(), "[DONE]"]);
    proxy.upstream.push(Reply::sse(&[&first, events[0], events[1]]));
    let answer = proxy.chat(&json!({"model": "gpt-4o", "stream": true})).send().await;
    assert_eq!(answer.text(), sse(&[&first, events[0], events[1]]));
    check(&proxy.log_row(&answer).await, [1000, 200, 400, 50], Some("0.004"));
}

#[tokio::test]
async fn a_provider_that_refuses_the_question_gets_the_callers_own_body() {
    let proxy = ProxyFixture::start().await;
    let refusal = r#"{"error":{"message":"Unrecognized request argument supplied: stream_options"}}"#;
    proxy.upstream.push(Reply::json(400, refusal));
    let events = [text(&"word ".repeat(100)), stop(), "[DONE]".to_owned()];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    proxy.upstream.push(Reply::sse(&events));
    let sent = json!({"model": "gpt-4o", "stream": true, "messages": [{"role": "user", "content": "x".repeat(400)}]});
    let answer = proxy.chat(&sent).send().await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, sse(&events)));
    let seen = proxy.upstream.requests();
    assert_eq!((seen.len(), &seen[1].body[..]), (2, sent.to_string().as_bytes()));
    let row = proxy.log_row(&answer).await;
    assert_eq!(row["usage_estimated"], true);
    let within = |name: &str, range: std::ops::Range<i64>| range.contains(&row[name].as_i64().unwrap());
    assert!(within("prompt_tokens", 50..250) && within("completion_tokens", 60..250), "{row}");
    assert!(usd(&row).is_some_and(|cost| cost > Decimal::ZERO));
    // The gateway does not request it again.
    proxy.upstream.push(Reply::sse(&events));
    proxy.chat(&sent).send().await;
    assert_eq!(proxy.upstream.requests().len(), 3);
    // The refusal may be due to the caller's API version: it is nothing to other organizations, and is tried again.
    let asks = || proxy.upstream.requests().last().unwrap().json()["stream_options"]["include_usage"] == true;
    assert!(!asks());
    let bob = proxy.app.signup("other").await;
    proxy.upstream.set_default_reply(Reply::sse(&events));
    let call = proxy.app.call(http::Method::POST, "/v1/chat/completions").key(&bob.api_key);
    call.header("x-gateway-provider", "openai").json(sent.clone()).send().await;
    assert!(asks(), "another organization is metered exactly");
    proxy.app.app.services.clock.advance(3_600_000);
    proxy.chat(&sent).send().await;
    assert!(asks(), "the provider may have been updated");
}

#[tokio::test]
async fn anthropics_cache_classes_are_priced_apart() {
    let proxy = ProxyFixture::start().await;
    let start = r#"{"type":"message_start","message":{"id":"msg_1","model":"claude-sonnet-4-5-20250929","usage":{"input_tokens":10,"cache_creation_input_tokens":300,"cache_read_input_tokens":2000,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200},"output_tokens":1}}}"#;
    let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":89}}"#;
    let stream = [
        ("message_start", start),
        ("content_block_delta", delta),
        ("message_delta", end),
        ("message_stop", r#"{"type":"message_stop"}"#),
    ];
    let bytes: String =
        stream.iter().flat_map(|(name, data)| ["event: ", name, "\ndata: ", data, "\n\n"]).collect();
    let reply = Reply::new(200).header("content-type", "text/event-stream; charset=utf-8").chunked();
    proxy.upstream.push(bytes.as_bytes().chunks(7).fold(reply, Reply::piece));
    let sent = r#"{"model":"claude-sonnet-4-5","stream":true,"metadata":{"user_id":"u-9"}}"#;
    let answer = proxy.post("anthropic", "/v1/messages", sent).send().await;
    assert_eq!(answer.text(), bytes);
    assert_eq!(proxy.upstream.requests()[0].body, sent.as_bytes(), "nothing is added for this provider");
    let row = proxy.log_row(&answer).await;
    // 10 x 3 + 2000 x 0.30 + 100 x 3.75 + 200 x 6 + 89 x 15.
    check(&row, [2310, 89, 2000, 0], Some("0.00354"));
    assert_eq!(row["user"], "u-9");
}

#[tokio::test]
async fn geminis_thoughts_are_output_and_counted_once() {
    let proxy = ProxyFixture::start().await;
    let event = |usage: &str, reason: &str| {
        format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":"Hel"}}]}}{reason}}}],"usageMetadata":{usage},"modelVersion":"gemini-2.5-flash"}}"#
        )
    };
    let first = event(r#"{"promptTokenCount":100,"totalTokenCount":140,"thoughtsTokenCount":40}"#, "");
    let last = event(
        r#"{"promptTokenCount":100,"candidatesTokenCount":25,"totalTokenCount":165,"thoughtsTokenCount":40,"cachedContentTokenCount":60}"#,
        r#","finishReason":"STOP""#,
    );
    proxy.upstream.push(Reply::sse(&[&first, &last]));
    let path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse";
    let answer = proxy.post("gemini", path, "{\"contents\":[]}").send().await;
    assert_eq!(answer.text(), sse(&[&first, &last]));
    let row = proxy.log_row(&answer).await;
    // 40 x 0.30 + 60 x 0.03 + 25 x 2.50 + 40 x 2.50.
    check(&row, [100, 65, 60, 40], Some("0.0001763"));
    assert_eq!((&row["model"], &row["stream"]), (&json!("gemini-2.5-flash"), &json!(true)));
    assert_eq!(row["path"], "/v1beta/models/gemini-2.5-flash:streamGenerateContent");
    // The same without a stream.
    proxy.upstream.push(Reply::json(200, &last));
    let answer = proxy.post("gemini", "/v1beta/models/gemini-2.5-flash:generateContent", "{}").send().await;
    check(&proxy.log_row(&answer).await, [100, 65, 60, 40], Some("0.0001763"));
}

#[tokio::test]
async fn bedrocks_binary_streams_are_read_too() {
    let proxy = ProxyFixture::start().await;
    let frame = |name, payload: &str| {
        encode(&[(":event-type", name), (":message-type", "event")], payload.as_bytes()).unwrap()
    };
    let bytes = [
        frame("messageStart", r#"{"role":"assistant"}"#),
        frame("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"Hello"}}"#),
        frame("messageStop", r#"{"stopReason":"end_turn"}"#),
        frame("metadata", r#"{"usage":{"inputTokens":12,"outputTokens":30,"totalTokens":572,"cacheReadInputTokens":500,"cacheWriteInputTokens":30,"cacheDetails":[{"inputTokens":20,"ttl":"1h"},{"inputTokens":10,"ttl":"5m"}]}}"#),
    ]
    .concat();
    let reply = Reply::new(200).header("content-type", "application/vnd.amazon.eventstream").chunked();
    proxy.upstream.push(bytes.chunks(11).fold(reply, Reply::piece));
    let path = "/model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream";
    let answer = proxy.post("bedrock", path, "{\"messages\":[]}").send().await;
    assert_eq!(answer.body, bytes);
    let row = proxy.log_row(&answer).await;
    // 12 x 3 + 500 x 0.30 + 10 x 3.75 + 20 x 6 + 30 x 15.
    check(&row, [542, 30, 500, 0], Some("0.0007935"));
    assert_eq!(row["model"], "anthropic.claude-sonnet-4-5-20250929-v1:0");
    assert_eq!(row["stream"], true);
}

#[tokio::test]
async fn cohere_is_charged_for_what_it_bills() {
    let proxy = ProxyFixture::start().await;
    let usage = r#"{"billed_units":{"input_tokens":5.0,"output_tokens":32.0},"tokens":{"input_tokens":71.0,"output_tokens":32.0}}"#;
    let end = format!(r#"{{"type":"message-end","delta":{{"finish_reason":"COMPLETE","usage":{usage}}}}}"#);
    proxy.upstream.push(Reply::sse(&[r#"{"type":"message-start","id":"co1"}"#, &end]));
    let sent = r#"{"model":"command-a-03-2025","stream":true,"messages":[]}"#;
    let answer = proxy.post("cohere", "/v2/chat", sent).send().await;
    // 5 x 2.50 + 32 x 10.
    check(&proxy.log_row(&answer).await, [5, 32, 0, 0], Some("0.0003325"));
}

#[tokio::test]
async fn a_model_without_a_price_costs_null_not_nothing() {
    let proxy = ProxyFixture::start().await;
    let body =
        r#"{"model":"home-made","usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}"#;
    proxy.upstream.push(Reply::json(200, body));
    let row = proxy.log_row(&proxy.chat(&json!({"model": "home-made"})).send().await).await;
    check(&row, [10, 5, 0, 0], None);
}

#[tokio::test]
async fn what_is_no_model_call_has_no_usage() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, r#"{"object":"list","data":[]}"#));
    let answer = proxy.call(http::Method::GET, "openai", "/v1/models").send().await;
    let row = proxy.log_row(&answer).await;
    assert_eq!(
        (&row["prompt_tokens"], usd(&row), &row["usage_estimated"]),
        (&Value::Null, None, &json!(false))
    );
}

#[tokio::test]
async fn five_megabytes_of_embeddings_are_metered_on_their_way() {
    let proxy = ProxyFixture::start().await;
    let vectors = "[0.0123456789,-0.987654321],".repeat(200_000);
    let body = format!(
        r#"{{"object":"list","data":[{vectors}[]],"model":"text-embedding-3-small","usage":{{"prompt_tokens":8000,"total_tokens":8000}}}}"#
    );
    proxy.upstream.push(Reply::json(200, &body));
    let sent = r#"{"model":"text-embedding-3-small","input":"x"}"#;
    let answer = proxy.post("openai", "/v1/embeddings", sent).send().await;
    assert!(body.len() > 5_000_000 && answer.body == body.as_bytes());
    let row = proxy.log_row(&answer).await;
    check(&row, [8000, 0, 0, 0], Some("0.00016"));
    assert_eq!(row["response_stored"], "truncated");
}

/// Any chunking of a stream gives the same bytes and the same log row.
#[test]
fn any_rechunking_of_a_stream_gives_the_same_bytes_and_usage() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let proxy = runtime.block_on(ProxyFixture::start());
    let extra = chunk(&json!({"choices": [], "usage": usage()}));
    let (first, second, end) = (text("gr\u{fc}\u{df}e \u{1F600}"), text("\"usage\":{}"), stop());
    let stream = sse(&[&first, &second, &end, &extra, "[DONE]"]).replacen("\n\n", "\r\n\r\n", 2);
    let expected = stream.replace(&format!("data: {extra}\n\n"), "");
    assert_ne!(stream, expected);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(48));
    let cuts = proptest::collection::vec(0..stream.len(), 0..40);
    let result = runner.run(&cuts, |mut cuts| {
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let reply = Reply::new(200).header("content-type", "text/event-stream").chunked();
        let pieces = cuts.windows(2).map(|pair| &stream.as_bytes()[pair[0]..pair[1]]);
        proxy.upstream.push(pieces.filter(|piece| !piece.is_empty()).fold(reply, Reply::piece));
        runtime.block_on(async {
            let answer = proxy.chat(&json!({"model": "gpt-4o", "stream": true})).send().await;
            prop_assert_eq!(answer.text(), expected.as_str());
            check(&proxy.log_row(&answer).await, [1000, 200, 400, 50], Some("0.004"));
            Ok(())
        })
    });
    result.unwrap();
}
