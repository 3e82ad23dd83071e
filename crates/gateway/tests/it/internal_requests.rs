//! Internal model calls of the gateway itself.

use gateway::auth::{self, Identity};
use gateway::internal_call::{Endpoint, InternalRequest, ModelResponse, check_allowed, log_id_of};
use gateway_core::logs::LogSource;
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};

use crate::support::{Backend, ProxyFixture};
use crate::upstream::Reply;

fn internal_request(provider: &str, body: &Value) -> InternalRequest {
    InternalRequest {
        provider: provider.into(),
        endpoint: Endpoint::Chat,
        body: body.to_string(),
        source: LogSource::Api,
        prompt: None,
        metadata: Map::from_iter([("why".to_owned(), json!("tést"))]),
        timeout: None,
        is_counted: false,
    }
}

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hello"}]})
}

async fn the_org(gateway: &ProxyFixture) -> Identity {
    let org = gateway.ada.org_id.parse().unwrap();
    gateway.app.app.proxy.access.org_identity(org).await.unwrap().unwrap()
}

fn text(answer: &ModelResponse) -> Value {
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    body["choices"][0]["message"]["content"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_internal_request_logs_a_row_of_source_api_with_usage_and_cost() {
    for backend in Backend::BOTH {
        let gateway = ProxyFixture::start_with(backend, &[]).await;
        let org = the_org(&gateway).await;
        let answer = gateway
            .app
            .app
            .models
            .call_model(&org, internal_request("sandbox", &chat("sandbox-small")))
            .await
            .unwrap();
        assert_eq!((answer.status.as_u16(), text(&answer)), (200, json!("The sandbox read: hello")));
        assert_eq!(answer.summary.tokens.map(|tokens| tokens.total()), Some(8));
        let row = gateway.log_row_by_id(answer.log_id).await;
        assert_eq!(
            (&row["source"], &row["provider"], &row["status"]),
            (&json!("api"), &json!("sandbox"), &json!(200))
        );
        assert_eq!((&row["key_id"], &row["user"]), (&Value::Null, &Value::Null));
        assert_eq!((&row["total_tokens"], &row["metadata"]), (&json!(8), &json!({"why": "tést"})));
        assert!(row["latency_ms"].as_i64() == Some(answer.summary.latency_ms));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stored_credential_is_sent_and_the_price_is_known() {
    let gateway =
        ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-theirs")]).await;
    let said = json!({"model": "gpt-4o", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}});
    gateway.upstream.push(Reply::json(200, &said.to_string()));
    let org = the_org(&gateway).await;
    let answer =
        gateway.app.app.models.call_model(&org, internal_request("openai", &chat("gpt-4o"))).await.unwrap();
    assert_eq!(answer.summary.model.as_deref(), Some("gpt-4o"));
    assert_eq!(answer.summary.cost_usd, Some("0.0035".parse().unwrap()));
    let sent = &gateway.upstream.requests()[0];
    assert_eq!(sent.line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(sent.header("authorization"), Some("Bearer sk-theirs"));
    assert!(sent.header("x-gateway-metadata").is_none());

    // A refusal by the provider is a response; a failure is a problem that names its log row.
    gateway.upstream.push(Reply::json(429, "{\"error\": {}}"));
    assert_eq!(
        gateway
            .app
            .app
            .models
            .call_model(&org, internal_request("openai", &chat("gpt-4o")))
            .await
            .unwrap()
            .status,
        429
    );
    gateway.upstream.push(Reply::json(500, "{}"));
    let problem = gateway
        .app
        .app
        .models
        .call_model(&org, internal_request("openai", &chat("gpt-4o")))
        .await
        .unwrap_err();
    assert_eq!((problem.status.as_u16(), problem.code), (502, "provider_error"));
    let row = gateway.log_row_by_id(log_id_of(&problem).unwrap()).await;
    assert_eq!((&row["source"], &row["status"]), (&json!("api"), &json!(502)));
}

const CLAUDE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}"#;
const GEMINI: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"totalTokenCount":5},"modelVersion":"m"}"#;
const BEDROCK: &str = r#"{"output":{"message":{"role":"assistant","content":[{"text":"hi"}]}},"stopReason":"end_turn","usage":{"inputTokens":3,"outputTokens":2,"totalTokens":5},"metrics":{"latencyMs":1}}"#;
const COHERE: &str = r#"{"id":"c","finish_reason":"COMPLETE","message":{"role":"assistant","content":[{"type":"text","text":"hi"}]},"usage":{"billed_units":{"input_tokens":3,"output_tokens":2},"tokens":{"input_tokens":3,"output_tokens":2}}}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_of_any_format_gets_its_own_wire_format() {
    let gateway =
        ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_PROVIDER_ANTHROPIC_API_KEY", "sk-theirs")])
            .await;
    let org = the_org(&gateway).await;
    for (provider, reply, path) in [
        ("anthropic", CLAUDE, "/v1/messages"),
        ("gemini", GEMINI, "/v1beta/models/m:generateContent"),
        ("bedrock", BEDROCK, "/model/m/converse"),
        ("cohere", COHERE, "/v2/chat"),
    ] {
        assert!(check_allowed(&org, provider, "m").is_ok());
        gateway.upstream.push(Reply::json(200, reply));
        let answer =
            gateway.app.app.models.call_model(&org, internal_request(provider, &chat("m"))).await.unwrap();
        assert_eq!((answer.status.as_u16(), text(&answer)), (200, json!("hi")), "{provider}");
        assert_eq!(answer.summary.tokens.map(|tokens| tokens.total()), Some(5), "{provider}");
        assert_eq!(gateway.upstream.requests().pop().unwrap().target(), path);
        let row = gateway.log_row_by_id(answer.log_id).await;
        assert_eq!((&row["source"], &row["provider"]), (&json!("api"), &json!(provider)));
    }
    assert_eq!(gateway.upstream.requests()[0].header("x-api-key"), Some("sk-theirs"));

    gateway.upstream.push(Reply::sse(&[GEMINI]));
    let streaming =
        gateway.app.app.models.stream_model(&org, internal_request("gemini", &chat("m"))).await.unwrap();
    assert!(streaming.is_stream);
    let body = streaming.body.collect().await.unwrap().to_bytes();
    let events = String::from_utf8(body.to_vec()).unwrap();
    assert!(events.contains(r#""content":"hi""#) && events.ends_with("data: [DONE]\n\n"), "{events}");
    assert_eq!(streaming.summary.await.unwrap().tokens.map(|tokens| tokens.total()), Some(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_arrives_in_chunks_and_reports_its_usage_at_the_end() {
    let gateway = ProxyFixture::start().await;
    let org = the_org(&gateway).await;
    let streaming =
        gateway.app.app.models.stream_model(&org, internal_request("sandbox", &chat("m"))).await.unwrap();
    assert!(streaming.is_stream);
    let body = streaming.body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(text.ends_with("data: [DONE]\n\n") && !text.contains("prompt_tokens"), "{text}");
    assert_eq!(streaming.summary.await.unwrap().tokens.map(|tokens| tokens.total()), Some(8));
    assert_eq!(gateway.log_row_by_id(streaming.log_id).await["stream"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scopes_and_limits_are_those_of_the_proxy() {
    let gateway = ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_RATE_LIMIT_FREE", "3")]).await;
    let app = &gateway.app.app;
    let org = the_org(&gateway).await;
    let refused = async |question: InternalRequest| {
        let problem =
            app.models.call_model(&org, InternalRequest { is_counted: true, ..question }).await.unwrap_err();
        (problem.status.as_u16(), problem.code, problem.message.into_owned())
    };
    let unknown = refused(internal_request("nowhere", &chat("m"))).await;
    assert!(unknown.0 == 400 && unknown.2.starts_with("provider: unknown provider 'nowhere'"), "{unknown:?}");
    let nowhere = refused(internal_request("vertex", &chat("m"))).await;
    assert!(nowhere.0 == 400 && nowhere.2.starts_with("provider: vertex cannot be called"), "{nowhere:?}");
    assert_eq!(check_allowed(&org, "vertex", "m").unwrap_err().status, 400);
    let twice =
        refused(InternalRequest { endpoint: Endpoint::Embeddings, ..internal_request("groq", &chat("m")) })
            .await;
    assert!(twice.0 == 400 && twice.2.starts_with("provider: "), "{twice:?}");
    assert!(gateway.upstream.arrivals().is_empty());

    let key = gateway.key(&["provider:sandbox", "model:sandbox-small"]).await;
    let headers =
        http::HeaderMap::from_iter([(http::HeaderName::from_static(auth::KEY_HEADER), key.parse().unwrap())]);
    let scoped =
        app.proxy.access.authenticate(&headers, std::net::Ipv4Addr::LOCALHOST.into()).await.ok().unwrap();
    assert!(check_allowed(&scoped, "sandbox", "sandbox-small").is_ok());
    assert_eq!(check_allowed(&scoped, "sandbox", "sandbox-large").unwrap_err().code, "scope_denied");
    let denied = app.models.call_model(
        &scoped,
        InternalRequest { is_counted: true, ..internal_request("sandbox", &chat("sandbox-large")) },
    );
    assert_eq!(denied.await.unwrap_err().code, "scope_denied");

    for _ in 0..3 {
        app.models.call_model(&org, internal_request("sandbox", &chat("m"))).await.unwrap();
    }
    let limited = app.models.call_model(&org, internal_request("sandbox", &chat("m"))).await.unwrap_err();
    assert_eq!((limited.status.as_u16(), limited.code), (429, "rate_limited"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_during_a_call_is_logged_as_an_internal_error() {
    let gateway = ProxyFixture::start().await;
    let org = the_org(&gateway).await;
    let call = gateway.app.app.models.stream_model(&org, internal_request("sandbox", &chat("m")));
    let streamed = call.await.unwrap();
    let (log_id, body) = (streamed.log_id, streamed.body);
    let panicked = std::thread::spawn(move || {
        let _body = body;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    let row = gateway.log_row_by_id(log_id).await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!(500), &json!("internal")));
    assert_eq!(row["level"], "error");
}
