//! Requests and responses are forwarded unchanged: bytes, methods, paths, framing.

use std::time::Duration;

use http::Method;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;

use crate::support::{ProxyFixture, http_chunk, request, request_head};
use crate::upstream::{Reply, Signal};

const SECOND: Duration = Duration::from_secs(1);

fn every_byte() -> Vec<u8> {
    (0..=255).collect()
}

#[tokio::test]
async fn binary_bodies_pass_both_ways_untouched() {
    let proxy = ProxyFixture::start().await;
    let back: Vec<u8> = every_byte().into_iter().rev().collect();
    proxy.upstream.push(Reply::new(201).header("content-type", "audio/mpeg").body(&back));
    let call = proxy.call(Method::POST, "openai", "/v1/audio/speech").header("content-type", "audio/wav");
    let answer = call.raw(every_byte()).send().await;
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (201, &back[..]));
    assert_eq!(answer.header("content-type"), Some("audio/mpeg"));
    assert_eq!(answer.header("content-length"), Some("256"));
    let seen = &proxy.upstream.requests()[0];
    assert_eq!(seen.body, every_byte());
    assert_eq!(seen.header_all("content-length"), ["256"]);
    assert_eq!(seen.header("content-type"), Some("audio/wav"));
    assert_eq!(seen.header("host"), proxy.upstream.url().strip_prefix("http://"));
}

#[tokio::test]
async fn json_is_not_rewritten() {
    let proxy = ProxyFixture::start().await;
    proxy
        .upstream
        .set_default_reply(Reply::json(200, "{ \"b\" : 1.0e0,\n\t\"a\": \"\\u00e9\", \"a\": 2 }\n"));
    let body = "{ \"messages\" :[{\"content\":\"\\u0041\",\"x\":1e400}] ,\r\n \"model\":\"gpt\\u002d4o\", \"zz\":null }  ";
    let answer = proxy.post("openai", "/v1/chat/completions", body).send().await;
    assert_eq!(answer.text(), "{ \"b\" : 1.0e0,\n\t\"a\": \"\\u00e9\", \"a\": 2 }\n");
    assert_eq!(proxy.upstream.requests()[0].body, body.as_bytes());
    assert_eq!(answer.header("x-gateway-model"), Some("gpt-4o"));
}

#[tokio::test]
async fn every_method_reaches_the_provider() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    for method in ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "POST", "PROPFIND"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        proxy.call(method, "openai", "/v1/files/file-1").send().await.expect(200);
    }
    let seen: Vec<_> = proxy.upstream.requests().iter().map(|seen| seen.method().to_owned()).collect();
    assert_eq!(seen, ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "POST", "PROPFIND"]);
    assert!(proxy.upstream.requests()[0].header("transfer-encoding").is_none(), "a GET has no body");
}

#[tokio::test]
async fn trace_and_connect_are_refused() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    for (method, target) in [("TRACE", "/v1/files"), ("CONNECT", "gateway.test:443")] {
        let mut raw = proxy.connect().await;
        let headers = [("x-gateway-key", proxy.ada.api_key.as_str()), ("x-gateway-provider", "openai")];
        raw.send(request_head(method, target, &headers)).await;
        let head = raw.head().await;
        assert_eq!(head.status, 405, "{method}");
        let body = String::from_utf8(raw.body(&head).await.unwrap()).unwrap();
        assert!(body.contains("method_not_allowed"), "{body}");
    }
    assert_eq!(proxy.upstream.connections(), 0, "an echoing provider would show its credential");
}

#[tokio::test]
async fn paths_and_queries_are_sent_as_they_came() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    proxy.provider("deep", "openai", json!({"base_url": format!("{}/a/b/", proxy.upstream.url())})).await;
    for (provider, target, expected) in [
        ("openai", "/v1/x%2Fy%20z/%7Eu?q=%20b&c=&q=1+2&%C3%A9", "/v1/x%2Fy%20z/%7Eu?q=%20b&c=&q=1+2&%C3%A9"),
        ("openai", "/v1//double///slash/", "/v1//double///slash/"),
        ("openai", "/v1/a/..b/./c;d=1?", "/v1/a/..b/./c;d=1?"),
        ("openai", "/v1/files?purpose=a/b:c@d", "/v1/files?purpose=a/b:c@d"),
        ("deep", "/v1/files?x=1", "/a/b/v1/files?x=1"),
    ] {
        let mut raw = proxy.connect().await;
        let headers = [("x-gateway-key", proxy.ada.api_key.as_str()), ("x-gateway-provider", provider)];
        raw.send(request("GET", target, &headers, b"")).await;
        assert_eq!(raw.head().await.status, 200, "{target}");
        assert_eq!(proxy.upstream.requests().last().unwrap().target(), expected);
    }
}

#[tokio::test]
async fn a_length_beside_chunks_is_not_forwarded() {
    let proxy = ProxyFixture::start().await;
    for cost in ["false", "true"] {
        let reply = Reply::new(200).header("content-type", "application/json").header("content-length", "2");
        proxy.upstream.push(reply.chunked().body("{}HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
        let call = proxy.chat(&json!({"model": "m"})).header("x-gateway-cost", cost);
        let answer = call.send().await;
        assert_eq!(answer.text(), "{}HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "{cost}");
        assert_ne!(answer.header("content-length"), Some("2"), "{cost}");
    }
}

#[tokio::test]
async fn chunked_requests_arrive_whole() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    let mut raw = proxy.connect().await;
    raw.send(proxy.raw_head("openai", "/v1/files", &[("transfer-encoding", "chunked")])).await;
    let pieces: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 1 + usize::from(n) * 997]).collect();
    for piece in &pieces {
        raw.send(http_chunk(piece)).await;
    }
    raw.send(b"0\r\n\r\n").await;
    assert_eq!(raw.head().await.status, 200);
    let seen = &proxy.upstream.requests()[0];
    assert_eq!(seen.body, pieces.concat());
    // Never both: two lengths allow request smuggling.
    assert_eq!(seen.header_all("transfer-encoding").len() + seen.header_all("content-length").len(), 1);
}

#[tokio::test]
async fn five_megabytes_pass_both_ways() {
    let proxy = ProxyFixture::start().await;
    let image = "iVBORw0KGgo+".repeat(5 << 20 >> 3);
    let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": image}]}).to_string();
    proxy.upstream.push(Reply::new(200).header("content-type", "application/json").chunked().body(&body));
    let answer = proxy.post("openai", "/v1/chat/completions", body.clone()).send().await;
    assert!(answer.body == body.as_bytes(), "{} bytes came back", answer.body.len());
    assert!(proxy.upstream.requests()[0].body == body.as_bytes());
}

#[tokio::test]
async fn repeated_headers_stay_repeated_both_ways() {
    let proxy = ProxyFixture::start().await;
    let reply = Reply::json(200, "{}").header("Link", "a=1").header("Link", "b=2");
    proxy.upstream.push(reply.header("X-Odd", "caf\u{e9}"));
    let call = proxy.call(Method::GET, "openai", "/v1/files").header("openai-beta", "one");
    let answer = call.header("openai-beta", "two").header("user-agent", "tests/1").send().await;
    let links: Vec<_> = answer.headers.get_all("link").iter().collect();
    assert_eq!(links, ["a=1", "b=2"]);
    assert_eq!(answer["x-odd"].as_bytes(), "caf\u{e9}".as_bytes());
    let seen = &proxy.upstream.requests()[0];
    assert_eq!(seen.header_all("openai-beta"), ["one", "two"]);
    assert_eq!(seen.header("user-agent"), Some("tests/1"));
}

#[tokio::test]
async fn a_compressed_answer_passes_as_it_is() {
    let proxy = ProxyFixture::start().await;
    let packed = [b"\x1f\x8b\x08\0\0\0\0\0".as_slice(), &every_byte()].concat();
    let reply = Reply::new(200).header("content-type", "application/json").header("content-encoding", "gzip");
    proxy.upstream.push(reply.body(&packed));
    let answer = proxy.chat(&json!({"model": "gpt-4o"})).header("accept-encoding", "gzip, br").send().await;
    assert_eq!((answer.header("content-encoding"), &answer.body[..]), (Some("gzip"), &packed[..]));
    // Answers are requested without an encoding; a provider may compress them all the same.
    assert_eq!(proxy.upstream.requests()[0].header_all("accept-encoding"), ["identity"]);
}

#[tokio::test]
async fn answers_without_a_body_stay_without() {
    let proxy = ProxyFixture::start().await;
    for status in [204, 304] {
        proxy.upstream.push(Reply::new(status).header("etag", "\"x\""));
        let answer = proxy.call(Method::GET, "openai", "/v1/files").send().await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (status, 0));
        assert_eq!(answer.header("etag"), Some("\"x\""));
        assert_eq!(answer.header("transfer-encoding"), None);
        assert_eq!(proxy.log_row(&answer).await["status"], status);
    }
    proxy.upstream.push(Reply::new(200).body(""));
    let answer = proxy.call(Method::DELETE, "openai", "/v1/files/1").send().await;
    assert_eq!((answer.header("content-length"), answer.body.len()), (Some("0"), 0));
}

#[tokio::test]
async fn a_head_request_keeps_the_length_that_was_announced() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::new(200).with_content_length(1234).header("content-type", "text/plain"));
    let mut raw = proxy.connect().await;
    let headers = [("x-gateway-key", proxy.ada.api_key.as_str()), ("x-gateway-provider", "openai")];
    raw.send(request("HEAD", "/v1/files", &headers, b"")).await;
    let head = raw.head().await;
    assert_eq!((head.status, head.header("content-length")), (200, Some("1234")));
    raw.assert_no_data_for(Duration::from_millis(50)).await;
    assert_eq!(proxy.log_row_by_id(head.log_id()).await["method"], "HEAD");
}

#[tokio::test]
async fn a_caller_that_waits_for_100_continue_gets_it() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(200, "{}"));
    let mut raw = proxy.connect().await;
    let headers = [("expect", "100-continue"), ("content-length", "17")];
    raw.send(proxy.raw_head("openai", "/v1/embeddings", &headers)).await;
    assert_eq!(raw.head().await.status, 100);
    raw.send(b"{\"model\":\"gpt-x\"}").await;
    assert_eq!(raw.head().await.status, 200);
    let seen = &proxy.upstream.requests()[0];
    assert_eq!((seen.body.len(), seen.header("expect")), (17, None));
}

#[tokio::test]
async fn a_body_is_sent_on_while_the_caller_is_still_sending_it() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(200, "{}"));
    let start = br#"{"model":"gpt-4o","stream":false,"input":""#;
    let length = (start.len() + 200_002).to_string();
    let mut raw = proxy.connect().await;
    raw.send(proxy.raw_head("openai", "/v1/embeddings", &[("content-length", &length)])).await;
    raw.send(start).await;
    let arrived = |bytes: usize| {
        let upstream = &proxy.upstream;
        move || upstream.arrivals().first().is_some_and(|seen| seen.body.len() >= bytes)
    };
    proxy.upstream.wait_until(SECOND, "first bytes", arrived(start.len())).await;
    raw.send(vec![b'a'; 100_000]).await;
    proxy.upstream.wait_until(SECOND, "more bytes", arrived(start.len() + 100_000)).await;
    assert!(!proxy.upstream.arrivals()[0].complete);
    raw.send(vec![b'b'; 100_000]).await;
    raw.send(b"\"}").await;
    assert_eq!(raw.head().await.status, 200);
    assert_eq!(proxy.upstream.requests()[0].header("content-length"), Some(&*length));
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_passed_on_at_once() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.push(Reply::json(422, r#"{"error":"no such model"}"#).early());
    let mut raw = proxy.connect().await;
    raw.send(proxy.raw_head("openai", "/v1/embeddings", &[("content-length", "100000")])).await;
    raw.send(br#"{"model":"gpt-x","stream":false,"input":""#).await;
    let head = raw.head().await;
    assert_eq!(head.status, 422);
    assert_eq!(raw.body(&head).await.unwrap(), br#"{"error":"no such model"}"#);
    assert_eq!(proxy.log_row_by_id(head.log_id()).await["status"], 422);
}

#[tokio::test]
async fn connections_to_the_provider_are_kept_and_a_dead_one_is_replaced() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    let mut raw = proxy.connect().await;
    let bytes = proxy.raw_post("openai", "/v1/embeddings", &[], b"{\"model\":\"m\"}");
    for _ in 0..5 {
        raw.send(&bytes).await;
        let head = raw.head().await;
        assert_eq!((head.status, raw.body(&head).await.unwrap()), (200, b"{}".to_vec()));
    }
    assert_eq!(proxy.upstream.connections(), 1);
    proxy.upstream.push(Reply::json(200, "{}").then_close());
    for _ in 0..3 {
        raw.send(&bytes).await;
        let head = raw.head().await;
        assert_eq!((head.status, raw.body(&head).await.unwrap()), (200, b"{}".to_vec()));
    }
    assert_eq!((proxy.upstream.connections(), proxy.upstream.requests().len()), (2, 8));
}

#[tokio::test]
async fn callers_may_speak_http2() {
    let proxy = ProxyFixture::start().await;
    let signal = Signal::new();
    proxy.upstream.push(Reply::sse(&["one"]).wait_for(&signal).event("[DONE]"));
    let stream = tokio::net::TcpStream::connect(proxy.app.address).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let body = json!({"model": "gpt-4o", "stream": true, "stream_options": {"include_usage": true}});
    let request = http::Request::post("http://gateway.test/v1/chat/completions")
        .header("x-gateway-key", &proxy.ada.api_key)
        .header("x-gateway-provider", "openai")
        .body(Full::new(bytes::Bytes::from(body.to_string())))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "data: one\n\n");
    signal.notify();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "data: [DONE]\n\n");
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_and_recorded_as_that() {
    let limit = [("GATEWAY_MAX_BODY_BYTES", "100000")];
    let proxy = ProxyFixture::start_with(crate::support::Backend::Sqlite, &limit).await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    let start = br#"{"model":"gpt-4o","stream":false,"input":""#;
    let mut body = start.to_vec();
    body.resize(150_000, b'a');
    let mut raw = proxy.connect().await;
    raw.send(proxy.raw_head("openai", "/v1/embeddings", &[("content-length", "100001")])).await;
    let head = raw.head().await;
    assert_eq!(head.status, 413, "what is announced as too large need not even be sent");
    assert_eq!(proxy.upstream.connections(), 0);

    // Of unknown length: it is found out on the way.
    let mut raw = proxy.connect().await;
    raw.send(proxy.raw_head("openai", "/v1/embeddings", &[("transfer-encoding", "chunked")])).await;
    raw.send(http_chunk(start)).await;
    proxy.upstream.wait_until(SECOND, "a beginning", || !proxy.upstream.arrivals().is_empty()).await;
    raw.send(http_chunk(&body)).await;
    let head = raw.head().await;
    let told = String::from_utf8(raw.body(&head).await.unwrap()).unwrap();
    assert_eq!((head.status, told.contains("payload_too_large")), (413, true), "{told}");
    let row = proxy.log_row_by_id(head.log_id()).await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(413), &json!("payload_too_large")));
    assert_eq!(proxy.upstream.requests().len(), 0, "no request was completed");
}
