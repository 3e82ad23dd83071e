//! Compressed responses: forwarded unchanged, and decoded for metering, log, cache and fallback.

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use serde_json::{Value, json};

use crate::support::fallback_chain::{ERROR, FallbackChain, GOOD, attempted_providers, good, good_stream};
use crate::support::{ProxyFixture, TestRequest};
use crate::upstream::Reply;

const ANSWER: &str = r#"{"id":"x","object":"chat.completion","model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"hello world"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":200,"total_tokens":1200}}"#;
const EVENTS: [&str; 5] = [
    r#"{"id":"x","object":"chat.completion.chunk","model":"gpt-4o","choices":[{"index":0,"delta":{"role":"assistant","content":"hello"},"finish_reason":null}]}"#,
    r#"{"id":"x","object":"chat.completion.chunk","model":"gpt-4o","choices":[{"index":0,"delta":{"content":" world"},"finish_reason":null}]}"#,
    r#"{"id":"x","object":"chat.completion.chunk","model":"gpt-4o","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    r#"{"id":"x","object":"chat.completion.chunk","model":"gpt-4o","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":200,"total_tokens":1200}}"#,
    "[DONE]",
];
/// What the provider declares, and how it encodes.
const CODINGS: [(&str, &str); 7] = [
    ("gzip", "gzip"),
    ("x-gzip", "gzip"),
    ("deflate", "zlib"),
    ("deflate", "deflate"),
    ("br", "br"),
    ("zstd", "zstd"),
    ("gzip, br", "gzip, br"),
];

/// Encodes pieces so that each can be decoded when it has arrived.
fn encode(coding: &str, pieces: &[Vec<u8>]) -> Vec<Vec<u8>> {
    if let Some((first, second)) = coding.split_once(", ") {
        return encode(second, &encode(first, pieces));
    }
    fn flushed<W: std::io::Write>(
        mut encoder: W,
        pieces: &[Vec<u8>],
        sent: impl Fn(&W) -> Vec<u8>,
    ) -> (W, Vec<Vec<u8>>) {
        let mut length = 0;
        let encoded = pieces
            .iter()
            .map(|piece| {
                encoder.write_all(piece).unwrap();
                encoder.flush().unwrap();
                let all = sent(&encoder);
                let piece = all[length..].to_vec();
                length = all.len();
                piece
            })
            .collect();
        (encoder, encoded)
    }
    let (all, mut encoded) = match coding {
        "gzip" => {
            let (encoder, encoded) =
                flushed(GzEncoder::new(Vec::new(), Compression::default()), pieces, |it| {
                    it.get_ref().clone()
                });
            (encoder.finish().unwrap(), encoded)
        }
        "zlib" => {
            let (encoder, encoded) =
                flushed(ZlibEncoder::new(Vec::new(), Compression::default()), pieces, |it| {
                    it.get_ref().clone()
                });
            (encoder.finish().unwrap(), encoded)
        }
        "deflate" => {
            let encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            let (encoder, encoded) = flushed(encoder, pieces, |it| it.get_ref().clone());
            (encoder.finish().unwrap(), encoded)
        }
        "br" => {
            let encoder = brotli::CompressorWriter::new(Vec::new(), 4_096, 4, 22);
            let (encoder, encoded) = flushed(encoder, pieces, |it| it.get_ref().clone());
            (encoder.into_inner(), encoded)
        }
        "zstd" => {
            let encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
            let (encoder, encoded) = flushed(encoder, pieces, |it| it.get_ref().clone());
            (encoder.finish().unwrap(), encoded)
        }
        other => panic!("no coding {other}"),
    };
    let sent: usize = encoded.iter().map(Vec::len).sum();
    encoded.push(all[sent..].to_vec());
    encoded
}

pub(crate) fn whole(coding: &str, text: &str) -> Vec<u8> {
    encode(coding, &[text.as_bytes().to_vec()]).concat()
}

fn packed(status: u16, declared: &str, body: &[u8]) -> Reply {
    Reply::new(status)
        .header("content-type", "application/json")
        .header("content-encoding", declared)
        .body(body)
}

fn ask(proxy: &ProxyFixture, stream: bool) -> TestRequest {
    proxy.chat(&json!({"model": "gpt-4o", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}))
}

#[track_caller]
fn check_metered(row: &Value, declared: &str) {
    let counts = [&row["prompt_tokens"], &row["completion_tokens"], &row["usage_estimated"]];
    assert_eq!(counts, [&json!(1000), &json!(200), &json!(false)], "{declared}");
    assert_eq!((&row["error_code"], &row["response_stored"]), (&Value::Null, &json!("full")), "{declared}");
    assert!(row["cost_usd"].as_f64().is_some_and(|cost| cost > 0.0), "{declared}");
}

#[tokio::test]
async fn a_compressed_body_is_metered_and_forwarded_unchanged() {
    let proxy = ProxyFixture::start().await;
    for (declared, coding) in CODINGS {
        let body = whole(coding, ANSWER);
        proxy.upstream.push(packed(200, declared, &body));
        let answer = ask(&proxy, false).send().await;
        assert_eq!((answer.header("content-encoding"), &answer.body[..]), (Some(declared), &body[..]));
        let row = proxy.log_row(&answer).await;
        check_metered(&row, declared);
        assert_eq!(row["response"], serde_json::from_str::<Value>(ANSWER).unwrap(), "{declared}");
    }
}

#[tokio::test]
async fn a_compressed_stream_is_metered_and_forwarded_unchanged() {
    let proxy = ProxyFixture::start().await;
    let pieces: Vec<Vec<u8>> = EVENTS.map(|event| format!("data: {event}\n\n").into_bytes()).into();
    for (declared, coding) in CODINGS {
        let encoded = encode(coding, &pieces);
        let reply =
            Reply::new(200).header("content-type", "text/event-stream").header("content-encoding", declared);
        proxy.upstream.push(encoded.iter().fold(reply.chunked(), Reply::piece));
        let answer = ask(&proxy, true).send().await;
        assert_eq!(
            (answer.header("content-encoding"), &answer.body[..]),
            (Some(declared), &encoded.concat()[..])
        );
        let row = proxy.log_row(&answer).await;
        check_metered(&row, declared);
        assert_eq!(row["stream"], true);
        assert!(row["response"].to_string().contains("hello"), "{declared}: {}", row["response"]);
    }
}

#[tokio::test]
async fn a_bomb_is_not_decoded_and_its_tokens_are_estimated() {
    let proxy = ProxyFixture::start().await;
    let spaces = " ".repeat(8 << 20);
    for coding in ["gzip", "br", "zstd", "gzip, br"] {
        let bomb = whole(coding, &format!("{spaces}{ANSWER}"));
        assert!(bomb.len() < 20_000);
        proxy.upstream.push(packed(200, coding, &bomb));
        let answer = ask(&proxy, false).send().await;
        assert_eq!(&answer.body[..], &bomb[..]);
        let row = proxy.log_row(&answer).await;
        assert_eq!((&row["status"], &row["usage_estimated"]), (&json!(200), &json!(true)), "{coding}");
        assert!(row["prompt_tokens"].as_i64().is_some_and(|tokens| tokens > 0 && tokens < 1000));
        assert_eq!(row["response_stored"], "truncated");
    }
}

/// An answer that grows by more than ordinary ones: the same word again and again.
fn long_answer(words: usize) -> String {
    ANSWER.replace("hello world", &"hello ".repeat(words))
}

fn ask_as_anthropic(proxy: &ProxyFixture, stream: bool) -> TestRequest {
    let question = json!({"model": "gpt-4o", "stream": stream, "max_tokens": 50,
        "messages": [{"role": "user", "content": "hi"}]});
    proxy.post("openai", "/v1/messages", question.to_string()).header("x-gateway-format", "anthropic")
}

#[tokio::test]
async fn an_answer_that_grows_by_much_is_read_to_its_end_as_computation() {
    let proxy = ProxyFixture::start().await;
    let started = || proxy.app.app.services.compute.stats().granted;
    for coding in ["gzip", "br", "zstd"] {
        let before = started();
        proxy.upstream.push(packed(200, coding, &whole(coding, ANSWER)));
        assert_eq!(ask(&proxy, false).send().await.status, 200);
        assert_eq!(started(), before, "{coding}: an ordinary answer is read by the thread of its request");

        let body = whole(coding, &long_answer(150_000));
        assert!(body.len() < 20_000);
        proxy.upstream.push(packed(200, coding, &body));
        let answer = ask(&proxy, false).send().await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &body[..]), "{coding}");
        // All but a quarter of a megabyte.
        assert!(started() >= before + 8, "{coding}: {} parts", started() - before);
        let row = proxy.log_row(&answer).await;
        let counts = [&row["prompt_tokens"], &row["completion_tokens"], &row["usage_estimated"]];
        assert_eq!(counts, [&json!(1000), &json!(200), &json!(false)], "{coding}");
        assert_eq!(row["response_stored"], "truncated");
    }
}

#[tokio::test]
async fn what_nobody_reads_is_not_decoded() {
    let proxy = ProxyFixture::start().await;
    let started = || proxy.app.app.services.compute.stats().granted;
    // Of what is neither JSON nor a stream only the copy for the log is read: a quarter of a megabyte.
    let body = whole("gzip", &"\u{0}".repeat(900_000));
    let reply = Reply::new(200).header("content-type", "audio/mpeg").header("content-encoding", "gzip");
    proxy.upstream.push(reply.body(&body));
    let answer = ask(&proxy, false).send().await;
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &body[..]));
    assert_eq!(proxy.log_row(&answer).await["response_stored"], "truncated");
    assert!(started() <= 2, "{} parts", started());
}

#[tokio::test]
async fn an_answer_that_grows_by_much_is_translated_whole() {
    let proxy = ProxyFixture::start().await;
    let started = || proxy.app.app.services.compute.stats().granted;
    for coding in ["gzip", "br", "zstd"] {
        proxy.upstream.push(packed(200, coding, &whole(coding, &long_answer(150_000))));
        let answer = ask_as_anthropic(&proxy, false).send().await.expect(200);
        assert_eq!(answer["content"][0]["text"].as_str().map(str::len), Some(900_000), "{coding}");
        assert_eq!(answer["usage"]["input_tokens"], 1000);

        let mut events = format!("data: {}\n\n", EVENTS[0]);
        events.push_str(&format!("data: {}\n\n", EVENTS[1].replace(" world", "word ")).repeat(5_000));
        EVENTS[2..].iter().for_each(|event| events.extend(["data: ", event, "\n\n"]));
        let before = started();
        let reply =
            Reply::new(200).header("content-type", "text/event-stream").header("content-encoding", coding);
        proxy.upstream.push(reply.chunked().body(whole(coding, &events)));
        let answer = ask_as_anthropic(&proxy, true).send().await;
        assert_eq!((answer.status.as_u16(), answer.header("content-encoding")), (200, None));
        assert_eq!(answer.text().matches("word ").count(), 5_000, "{coding}");
        assert!(answer.text().contains("message_stop"), "{coding}");
        assert!(started() > before + 4, "{coding}: {} parts", started() - before);
        let row = proxy.log_row(&answer).await;
        assert_eq!(
            (&row["prompt_tokens"], &row["usage_estimated"]),
            (&json!(1000), &json!(false)),
            "{coding}"
        );
    }
}

#[tokio::test]
async fn a_start_that_becomes_nothing_is_not_read_without_end() {
    let proxy = ProxyFixture::start().await;
    // Frames of zstd that a decoder skips.
    let skipped =
        [&0x184d_2a50_u32.to_le_bytes()[..], &50_000_u32.to_le_bytes(), "x".repeat(50_000).as_bytes()]
            .concat();
    for (frames, status) in [(1, 200), (4, 502)] {
        let body = [skipped.repeat(frames), whole("zstd", ANSWER)].concat();
        let reply = Reply::new(200).header("content-encoding", "zstd");
        proxy.upstream.push(reply.header("content-type", "application/octet-stream").body(body));
        let answer = ask_as_anthropic(&proxy, false).header("x-gateway-retry", "0").send().await;
        assert_eq!(answer.status.as_u16(), status, "{frames}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_body_that_is_not_encoded_as_declared_is_forwarded_unchanged() {
    let proxy = ProxyFixture::start().await;
    let truncated = &whole("gzip", ANSWER)[..60];
    for (declared, body) in
        [("gzip", ANSWER.as_bytes()), ("br", b"\xff\xff\xff"), ("zstd", b"{}"), ("gzip", truncated)]
    {
        proxy.upstream.push(packed(200, declared, body));
        let answer = ask(&proxy, false).send().await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, body));
        let row = proxy.log_row(&answer).await;
        assert_eq!((&row["status"], &row["usage_estimated"]), (&json!(200), &json!(true)), "{declared}");
    }
    // An unknown encoding cannot be read at all.
    proxy.upstream.push(packed(200, "compress", ANSWER.as_bytes()));
    let answer = ask(&proxy, false).send().await;
    assert_eq!((answer.header("content-encoding"), &*answer.text()), (Some("compress"), ANSWER));
    assert_eq!(proxy.log_row(&answer).await["usage_estimated"], true);
}

#[tokio::test]
async fn a_compressed_answer_is_cached_as_text() {
    let proxy = ProxyFixture::start().await;
    for (index, coding) in ["gzip", "br"].into_iter().enumerate() {
        let body = whole(coding, ANSWER);
        proxy.upstream.push(packed(200, coding, &body));
        let call = |stream: bool| {
            let messages = json!([{"role": "user", "content": format!("question {index}")}]);
            let body = json!({"model": "gpt-4o", "stream": stream, "messages": messages});
            proxy.chat(&body).header("x-gateway-cache", "true").header("accept-encoding", "gzip, br")
        };
        let miss = call(false).send().await;
        assert_eq!((miss.header("x-gateway-cache"), &miss.body[..]), (Some("MISS"), &body[..]));
        let hit = call(false).send().await;
        assert_eq!((hit.header("x-gateway-cache"), hit.header("content-encoding")), (Some("HIT"), None));
        assert_eq!(hit.text(), ANSWER);
        let stream = call(true).send().await;
        assert_eq!(
            (stream.header("x-gateway-cache"), stream.header("content-encoding")),
            (Some("HIT"), None)
        );
        assert!(stream.text().contains("hello world") && stream.text().contains("data: [DONE]"));
        assert_eq!(proxy.log_row(&hit).await["prompt_tokens"], 1000);
    }
    assert_eq!(proxy.upstream.requests().len(), 2);
}

#[tokio::test]
async fn the_next_target_makes_up_for_a_compressed_failure() {
    let chain = FallbackChain::start().await;
    // An error inside a success, and an error status whose text the log quotes.
    for (status, expected) in [(200, "overloaded inside"), (503, "overloaded inside")] {
        chain.proxy.upstream.push(packed(status, "gzip", &whole("gzip", ERROR)));
        chain.second.push(packed(200, "zstd", &whole("zstd", GOOD)));
        let answer = chain.chat().header("x-gateway-retry", "0").send().await;
        assert_eq!((answer.status.as_u16(), answer.header("content-encoding")), (200, Some("zstd")));
        let row = chain.proxy.log_row(&answer).await;
        let providers: Vec<String> =
            attempted_providers(&row).into_iter().map(|(provider, _)| provider).collect();
        assert_eq!(providers, ["openai", "second"], "{status}");
        assert!(
            row["attempts"][0]["error"].as_str().unwrap().contains(expected),
            "{status}: {}",
            row["attempts"]
        );
        assert_eq!((&row["prompt_tokens"], &row["completion_tokens"]), (&json!(3), &json!(1)));
    }
    chain.proxy.upstream.push(packed(200, "gzip", &whole("gzip", ERROR)));
    chain.second.push(good());
    assert_eq!(chain.chat().header("x-gateway-retry", "0").send().await.text(), GOOD);
}

#[tokio::test]
async fn the_next_target_makes_up_for_an_error_before_very_much_text() {
    let chain = FallbackChain::start().await;
    let events = format!("data: {ERROR}\n\n{}", ": nothing\n\n".repeat(60_000));
    for coding in ["gzip", "br", "zstd"] {
        let reply =
            Reply::new(200).header("content-type", "text/event-stream").header("content-encoding", coding);
        chain.proxy.upstream.push(reply.body(whole(coding, &events)));
        chain.second.push(good_stream());
        let answer = chain.stream().header("x-gateway-retry", "0").send().await;
        assert_eq!((answer.status.as_u16(), answer.header("content-encoding")), (200, None), "{coding}");
        assert!(answer.text().contains("hello"), "{coding}: {}", answer.text());
    }
}

#[tokio::test]
async fn the_playground_reads_a_compressed_answer() {
    let proxy = ProxyFixture::start().await;
    let run =
        json!({"provider": "openai", "model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]});
    for coding in ["gzip", "br", "zstd"] {
        proxy.upstream.push(packed(200, coding, &whole(coding, ANSWER)));
        let call = proxy.app.post("/api/v1/playground/run", run.clone()).bearer(&proxy.ada.token);
        let answer = call.send().await.expect(200);
        assert_eq!(
            (&answer["output"], &answer["usage"]["total_tokens"]),
            (&json!("hello world"), &json!(1200))
        );
    }
}
