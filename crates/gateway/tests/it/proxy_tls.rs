//! Providers that speak TLS: the connection pool, hosts without HTTP/1.1, and certificates.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::tls::{Behind, TlsHost};
use crate::support::{GatewayProcess, PASSWORD, RawConnection, TestRequest, command, request};
use crate::upstream::{Reply, Upstream};

const LIMIT: Duration = Duration::from_secs(20);
const ANSWER: &str = r#"{"id":"x","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;

/// A gateway with one worker whose provider is a host with TLS.
struct Fixture {
    process: GatewayProcess,
    key: String,
    _data: tempfile::TempDir,
}

impl Fixture {
    /// `trusted`: the certificate of the only root that the gateway trusts.
    async fn start(host: &TlsHost, trusted: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut command = command(data.path(), &["serve"]);
        command.env("GATEWAY_PROVIDER_OPENAI_BASE_URL", host.url());
        command.env("SSL_CERT_FILE", trusted).env("GATEWAY_WORKERS", "1");
        let process = tokio::task::block_in_place(|| GatewayProcess::start(&mut command));
        let body = json!({"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme"});
        let account = process.post("/api/v1/signup", &body).send().await.expect(201);
        let key = account["api_key"].as_str().unwrap().to_owned();
        Self { process, key, _data: data }
    }

    fn chat(&self, body: &Value) -> TestRequest {
        let request = self.process.post("/v1/chat/completions", body).bearer("sk-provider");
        request.header("x-gateway-key", &self.key).header("x-gateway-provider", "openai")
    }
}

fn address(upstream: &Upstream) -> SocketAddr {
    upstream.url().strip_prefix("http://").unwrap().parse().unwrap()
}

fn body() -> Value {
    json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_over_tls_share_connections_by_http1() {
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::json(200, ANSWER));
    let host = TlsHost::start(&["h2", "http/1.1"], Behind::Forward(address(&upstream))).await;
    let fixture = Fixture::start(&host, &host.certificate()).await;
    for _ in 0..5 {
        assert_eq!(fixture.chat(&body()).send().await.expect(200)["id"], "x");
    }
    assert_eq!(host.protocols(), ["http/1.1"], "one connection for calls after each other");
    let requests = upstream.requests();
    let name = host.url().replace("https://", "");
    assert!(requests.iter().all(|request| request.header("host") == Some(&name)));

    // Calls beside each other have connections of their own, and a stream arrives whole.
    upstream.set_default_reply(Reply::sse(&["{\"a\":1}", "[DONE]"]).delay_head(Duration::from_millis(300)));
    let streamed = json!({"model": "gpt-4o", "messages": [], "stream": true});
    let calls = futures_util::future::join_all((0..3).map(|_| fixture.chat(&streamed).send())).await;
    for call in calls {
        assert!(call.text().ends_with("data: [DONE]\n\n"), "{}", call.text());
    }
    assert_eq!(host.protocols().len(), 3, "the idle connection is used, and two are new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_host_closed_is_replaced() {
    let upstream = Upstream::start().await;
    let host = TlsHost::start(&["http/1.1"], Behind::Forward(address(&upstream))).await;
    let fixture = Fixture::start(&host, &host.certificate()).await;
    for call in 1..=3 {
        upstream.push(Reply::json(200, ANSWER).then_close());
        fixture.chat(&body()).send().await.expect(200);
        assert_eq!(host.protocols().len(), call);
    }
    // An answer that breaks off is not taken for a whole one.
    upstream.push(Reply::json(200, ANSWER).with_content_length(500).then_truncate());
    let broken = fixture.chat(&body()).try_send().await;
    assert!(broken.is_none_or(|answer| answer.status.as_u16() == 502));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_ends_the_call_at_the_provider() {
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::sse(&["{\"a\":1}"]).flush().then_stall());
    let host = TlsHost::start(&["http/1.1"], Behind::Forward(address(&upstream))).await;
    let fixture = Fixture::start(&host, &host.certificate()).await;
    let text = json!({"model": "gpt-4o", "messages": [], "stream": true}).to_string();
    let headers = [
        ("x-gateway-key", &*fixture.key),
        ("x-gateway-provider", "openai"),
        ("authorization", "Bearer sk-provider"),
        ("content-type", "application/json"),
    ];
    let mut caller = RawConnection::connect(fixture.process.address).await;
    caller.send(request("POST", "/v1/chat/completions", &headers, text.as_bytes())).await;
    upstream.wait_for_requests(1, LIMIT).await;
    drop(caller);
    upstream
        .wait_until(LIMIT, "the connection to the provider is closed", || upstream.open_connections() == 0)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_speaks_only_http2_is_called_by_http2() {
    let host = TlsHost::start(&["h2"], Behind::Http2(ANSWER)).await;
    let fixture = Fixture::start(&host, &host.certificate()).await;
    for _ in 0..3 {
        assert_eq!(fixture.chat(&body()).send().await.expect(200)["id"], "x");
    }
    assert_eq!(host.protocols(), ["h2"], "the version is remembered, and the connection is shared");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_certificate_is_not_trusted_gets_no_request() {
    let upstream = Upstream::start().await;
    let host = TlsHost::start(&["http/1.1"], Behind::Forward(address(&upstream))).await;
    let other = TlsHost::start(&["http/1.1"], Behind::Forward(address(&upstream))).await;
    let fixture = Fixture::start(&host, &other.certificate()).await;
    let told = fixture.chat(&body()).send().await.expect_error(502, "provider_error");
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("cannot connect") && message.contains("certificate"), "{message}");
    assert_eq!(upstream.arrivals().len(), 0);
}
