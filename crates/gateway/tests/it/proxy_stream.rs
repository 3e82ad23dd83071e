//! Streams: every chunk is forwarded on arrival, and a client disconnect stops the provider at once and still logs a
//! row.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Backend, ProxyFixture, RawConnection};
use crate::upstream::{Reply, Signal};

const SECOND: Duration = Duration::from_secs(1);
const CHAT: &str = "/v1/chat/completions";
/// The gateway requests the usage chunk and removes it from the response.
const HIDING: &[u8] =
    br#"{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"How are you?"}]}"#;
/// The gateway neither adds nor removes chunks.
const PLAIN: &[u8] = br#"{"model":"gpt-4o","stream":true,"stream_options":{"include_usage":true}}"#;

impl ProxyFixture {
    async fn ask(&self, provider: &str, path: &str, body: &[u8]) -> RawConnection {
        let mut raw = self.connect().await;
        raw.send(self.raw_post(provider, path, &[], body)).await;
        raw
    }
}

fn delta(text: &str) -> String {
    json!({"id": "c1", "model": "gpt-4o", "choices": [{"index": 0, "delta": {"content": text}}]}).to_string()
}

#[tokio::test]
async fn a_chunk_is_delivered_before_the_provider_sends_the_next() {
    let proxy = ProxyFixture::start().await;
    for body in [HIDING, PLAIN] {
        let (second, end) = (Signal::new(), Signal::new());
        let reply = Reply::sse(&[]).flush().wait_for(&second).event(&delta("one"));
        proxy.upstream.push(reply.wait_for(&end).event(&delta("two")).event("[DONE]"));
        let mut raw = proxy.ask("openai", CHAT, body).await;
        let head = raw.head().await;
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        raw.assert_no_data_for(Duration::from_millis(50)).await;
        second.notify();
        let expected = format!("data: {}\n\n", delta("one"));
        assert_eq!(String::from_utf8(raw.chunks_until("\n\n").await).unwrap(), expected);
        raw.assert_no_data_for(Duration::from_millis(50)).await;
        end.notify();
        let rest = raw.body(&head).await.unwrap();
        assert_eq!(String::from_utf8(rest).unwrap(), format!("data: {}\n\ndata: [DONE]\n\n", delta("two")));
    }
}

#[tokio::test]
async fn a_body_that_is_no_stream_passes_piece_by_piece_too() {
    let proxy = ProxyFixture::start().await;
    let signal = Signal::new();
    let reply = Reply::new(200).header("content-type", "audio/mpeg").chunked().piece([0xff, 0xfb]);
    proxy.upstream.push(reply.wait_for(&signal).piece([0x90]));
    let mut raw = proxy.ask("openai", "/v1/audio/speech", b"{\"model\":\"tts-1\"}").await;
    let head = raw.head().await;
    assert_eq!(raw.chunk().await.unwrap().unwrap(), [0xff, 0xfb]);
    signal.notify();
    assert_eq!(raw.body(&head).await.unwrap(), [0x90]);
}

#[tokio::test]
async fn characters_and_events_may_be_split_anywhere() {
    let proxy = ProxyFixture::start().await;
    let text: String = ["gr\u{fc}\u{df} \u{1F600} \u{65e5}\u{672c}", "zwei"]
        .map(|text| format!("data: {}\r\n\r\n", delta(text)))
        .concat();
    let stream = format!(": ping\n\nevent: x\nid: 7\n{text}data: a\ndata: b\n\nretry: 5\n\ndata: [DONE]\n\n");
    for body in [HIDING, PLAIN] {
        let reply = Reply::new(200).header("content-type", "text/event-stream").chunked();
        proxy.upstream.push(stream.as_bytes().iter().fold(reply, |reply, byte| reply.piece([*byte])));
        let mut raw = proxy.ask("openai", CHAT, body).await;
        let head = raw.head().await;
        assert_eq!(String::from_utf8(raw.body(&head).await.unwrap()).unwrap(), stream);
        let row = proxy.log_row_by_id(head.log_id()).await;
        assert_eq!(
            (&row["status"], &row["error_code"], &row["stream"]),
            (&json!(200), &json!(null), &json!(true))
        );
    }
}

#[tokio::test]
async fn small_pieces_do_not_wait_for_one_another() {
    let proxy = ProxyFixture::start().await;
    let pause = Duration::from_millis(4);
    let reply = (0..80).fold(Reply::sse(&[]).flush(), |reply, _| reply.event("x").delay(pause));
    proxy.upstream.push(reply);
    let mut raw = proxy.ask("openai", CHAT, PLAIN).await;
    raw.head().await;
    let mut gaps = Vec::new();
    let mut last = Instant::now();
    while raw.chunk().await.unwrap().is_some() {
        gaps.push(last.elapsed());
        last = Instant::now();
    }
    gaps.sort();
    // Without TCP_NODELAY a small chunk waits about 40 ms for the acknowledgement of the previous one.
    assert!(gaps.len() > 40, "pieces were gathered: {} came", gaps.len());
    assert!(gaps[gaps.len() * 3 / 4] < Duration::from_millis(25), "{gaps:?}");
}

#[tokio::test]
async fn the_content_length_is_dropped_when_a_chunk_is_removed() {
    let proxy = ProxyFixture::start().await;
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#;
    let events = format!("data: {}\n\ndata: {usage}\n\ndata: [DONE]\n\n", delta("hi"));
    proxy.upstream.push(Reply::new(200).header("content-type", "text/event-stream").body(&events));
    let mut raw = proxy.ask("openai", CHAT, HIDING).await;
    let head = raw.head().await;
    let text = String::from_utf8(raw.body(&head).await.expect("a whole body")).unwrap();
    assert_eq!(text, format!("data: {}\n\ndata: [DONE]\n\n", delta("hi")));
    assert_eq!(proxy.log_row_by_id(head.log_id()).await["total_tokens"], 11);
}

#[tokio::test]
async fn a_connection_serves_the_next_request_after_a_stream() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::sse(&[&delta("a"), "[DONE]"]));
    let mut raw = proxy.connect().await;
    for _ in 0..3 {
        raw.send(proxy.raw_post("openai", CHAT, &[], HIDING)).await;
        let head = raw.head().await;
        assert!(raw.body(&head).await.unwrap().ends_with(b"data: [DONE]\n\n"));
    }
    assert_eq!(proxy.upstream.connections(), 1);
}

#[tokio::test]
async fn many_streams_at_once_do_not_mix() {
    let proxy = ProxyFixture::start().await;
    let signal = Signal::new();
    proxy.upstream.set_default_reply(Reply::sse(&[]).flush().wait_for(&signal).event("[DONE]"));
    let mut streams = Vec::new();
    for number in 0..40 {
        proxy.upstream.push(Reply::sse(&[&delta(&format!("<{number}>"))]).wait_for(&signal).event("[DONE]"));
        let mut raw = proxy.ask("openai", CHAT, HIDING).await;
        let head = raw.head().await;
        streams.push((number, raw, head));
    }
    assert_eq!(proxy.upstream.open_connections(), 40);
    signal.notify();
    let mut ids = Vec::new();
    for (number, mut raw, head) in streams {
        let text = String::from_utf8(raw.body(&head).await.unwrap()).unwrap();
        assert_eq!(text, format!("data: {}\n\ndata: [DONE]\n\n", delta(&format!("<{number}>"))));
        ids.push(head.log_id());
    }
    ids.dedup();
    assert_eq!(ids.len(), 40);
}

#[tokio::test]
async fn hanging_up_before_the_head_stops_the_provider() {
    let proxy = ProxyFixture::start().await;
    for body in [HIDING, b"{\"model\":\"gpt-4o\"}".as_slice()] {
        proxy.upstream.push(Reply::no_response());
        let before = proxy.upstream.aborts().len();
        let raw = proxy.ask("openai", CHAT, body).await;
        proxy.upstream.wait_for_requests(before + 1, SECOND).await;
        let hung_up = Instant::now();
        drop(raw);
        let aborts = proxy.upstream.wait_for_aborts(before + 1, SECOND).await;
        assert!(aborts[before].at.duration_since(hung_up) < SECOND);
    }
    let rows = proxy.wait_for_rows(2).await;
    for row in rows {
        assert_eq!((&row["status"], &row["error_code"]), (&json!(499), &json!("client_closed")));
        assert_eq!((&row["level"], &row["model"]), (&json!("warn"), &json!("gpt-4o")));
        assert_eq!((&row["prompt_tokens"], &row["ttft_ms"]), (&json!(null), &json!(null)));
        assert_eq!(row["attempts"][0]["status"], json!(null));
    }
}

#[tokio::test]
async fn a_client_disconnect_in_mid_stream_stops_the_provider_and_keeps_the_usage_so_far() {
    let proxy = ProxyFixture::start().await;
    let start = r#"{"type":"message_start","message":{"model":"claude-sonnet-4-5","usage":{"input_tokens":100,"cache_read_input_tokens":1000,"output_tokens":1}}}"#;
    let text = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x".repeat(400)}});
    proxy.upstream.push(Reply::sse(&[start, &text.to_string()]).then_stall());
    let mut raw =
        proxy.ask("anthropic", "/v1/messages", br#"{"model":"claude-sonnet-4-5","stream":true}"#).await;
    let head = raw.head().await;
    raw.chunks_until("xxxx").await;
    drop(raw);
    proxy.upstream.wait_for_aborts(1, SECOND).await;
    let row = proxy.log_row_by_id(head.log_id()).await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(499), &json!("client_closed")));
    assert_eq!((&row["prompt_tokens"], &row["cached_tokens"]), (&json!(1100), &json!(1000)));
    let completion = row["completion_tokens"].as_i64().unwrap();
    assert!((50..=200).contains(&completion), "the text that was sent is counted: {completion}");
    assert_eq!(row["usage_estimated"], true);
    assert!(row["cost_usd"] != json!(null) && row["attempts"][0]["status"] == 200);

    // Nothing was reported: both sides are estimated.
    proxy.upstream.push(Reply::sse(&[&delta(&"y".repeat(400))]).then_stall());
    let mut raw = proxy.ask("openai", CHAT, HIDING).await;
    let head = raw.head().await;
    raw.chunks_until("yyyy").await;
    drop(raw);
    proxy.upstream.wait_for_aborts(2, SECOND).await;
    let row = proxy.log_row_by_id(head.log_id()).await;
    assert_eq!((&row["error_code"], &row["usage_estimated"]), (&json!("client_closed"), &json!(true)));
    assert!(row["prompt_tokens"].as_i64().unwrap() > 0 && row["completion_tokens"].as_i64().unwrap() >= 50);
}

#[tokio::test]
async fn hanging_up_during_an_answer_that_is_no_stream_stops_the_provider() {
    let proxy = ProxyFixture::start().await;
    let reply = Reply::new(200).header("content-type", "application/json").with_content_length(1000);
    proxy.upstream.push(reply.piece("{\"choices\":[").then_stall());
    let mut raw = proxy.ask("openai", CHAT, b"{\"model\":\"gpt-4o\"}").await;
    let head = raw.head().await;
    assert_eq!(head.status, 200);
    drop(raw);
    proxy.upstream.wait_for_aborts(1, SECOND).await;
    let row = proxy.log_row_by_id(head.log_id()).await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(499), &json!("client_closed")));
}

#[tokio::test]
async fn hanging_up_during_the_upload_stops_the_provider() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(200, "{}"));
    let mut raw = proxy.connect().await;
    raw.send(proxy.raw_head("openai", "/v1/embeddings", &[("content-length", "100000")])).await;
    raw.send(br#"{"model":"gpt-4o","stream":false,"input":""#).await;
    proxy.upstream.wait_until(SECOND, "a beginning", || !proxy.upstream.arrivals().is_empty()).await;
    drop(raw);
    proxy.upstream.wait_for_aborts(1, SECOND).await;
    let row = proxy.only_row().await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(499), &json!("client_closed")));
    // The same when the gateway buffers the body first.
    let mut raw = proxy.connect().await;
    raw.send(proxy.raw_head("openai", CHAT, &[("content-length", "100000")])).await;
    raw.send(br#"{"model":"gpt-4o","stream":true,"input":""#).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(raw);
    let rows = proxy.wait_for_rows(2).await;
    assert_eq!((&rows[1]["status"], &rows[1]["error_code"]), (&json!(499), &json!("client_closed")));
    assert_eq!(proxy.upstream.arrivals().len(), 1);
}

#[tokio::test]
async fn hanging_up_after_the_last_event_is_a_success() {
    let proxy = ProxyFixture::start().await;
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#;
    proxy.upstream.push(Reply::sse(&[&delta("hi"), usage, "[DONE]"]).then_stall());
    let mut raw = proxy.ask("openai", CHAT, HIDING).await;
    let head = raw.head().await;
    raw.chunks_until("[DONE]").await;
    drop(raw);
    proxy.upstream.wait_for_aborts(1, SECOND).await;
    let row = proxy.log_row_by_id(head.log_id()).await;
    assert_eq!(
        (&row["status"], &row["error_code"], &row["level"]),
        (&json!(200), &json!(null), &json!("info"))
    );
    assert_eq!((&row["total_tokens"], &row["usage_estimated"]), (&json!(11), &json!(false)));
}

#[tokio::test]
async fn a_caller_that_stops_reading_ends_the_call() {
    // Of this time the buffers are filled in the first part, which takes longer on a busy machine.
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_PROXY_TIMEOUT_MS", "5000")]).await;
    let mut reply = Reply::new(200).header("content-type", "audio/mpeg").chunked();
    // More than all buffers in between can hold.
    for _ in 0..64 {
        reply = reply.piece(vec![7; 1 << 20]);
    }
    proxy.upstream.push(reply);
    let mut raw = proxy.ask("openai", "/v1/audio/speech", b"{\"model\":\"tts-1\"}").await;
    let id = raw.head().await.log_id();
    let row = proxy.log_row_by_id(id).await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(499), &json!("client_closed")));
    drop(raw);
}
