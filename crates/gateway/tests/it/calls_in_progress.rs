//! Calls in progress: slow calls of one organization leave room for others, and every call gives its place back.

use std::sync::Arc;
use std::time::Duration;

use gateway::calls_in_progress::CallInProgress;
use http::Method;
use serde_json::json;

use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::on_both;
use crate::support::{Account, Backend, ProxyFixture, RawConnection, TestApp, request};
use crate::upstream::Reply;

/// Of these, an organization alone has fourteen.
const CALLS: (&str, &str) = ("GATEWAY_MAX_CALLS", "20");
const SHARE: u64 = 14;
const CHAT: &str = "/v1/chat/completions";
const BODY: &str = r#"{"model":"sandbox-small","messages":[{"role":"user","content":"hi"}]}"#;

fn running(app: &TestApp) -> u64 {
    app.app.services.calls.running()
}

async fn until_running(app: &TestApp, count: u64) {
    for _ in 0..500 {
        if running(app) == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} calls are in progress instead of {count}", running(app));
}

/// A call that the sandbox answers after a minute.
async fn slow_call(app: &TestApp, account: &Account) -> RawConnection {
    let headers = [
        ("x-gateway-key", account.api_key.as_str()),
        ("x-gateway-provider", "sandbox"),
        ("x-sandbox-delay-ms", "60000"),
    ];
    let mut connection = RawConnection::connect(app.address).await;
    connection.send(request("POST", CHAT, &headers, BODY.as_bytes())).await;
    connection
}

/// All calls that the organization may have.
fn take_share(app: &TestApp, account: &Account) -> Vec<CallInProgress> {
    let calls = app.app.services.calls.of(account.org_id.parse().unwrap());
    std::iter::from_fn(|| calls.begin().ok()).collect()
}

on_both!(slow_calls_of_one_organization_leave_room_for_others, [CALLS], |app| async move {
    let (evil, ada) = (app.signup("evil").await, app.signup("acme").await);
    let mut slow = Vec::new();
    for number in 1..=SHARE {
        slow.push(slow_call(&app, &evil).await);
        until_running(&app, number).await;
    }
    for _ in 0..3 {
        let mut refused = slow_call(&app, &evil).await;
        let head = refused.head().await;
        assert_eq!((head.status, head.header("retry-after")), (503, Some("1")));
        let body: serde_json::Value = serde_json::from_slice(&refused.body(&head).await.unwrap()).unwrap();
        assert_eq!(body["code"], "overloaded", "{body}");
    }
    assert_eq!(app.app.services.calls.refusals(), 3);
    for _ in 0..5 {
        let answer = app.call(Method::POST, CHAT).key(&ada.api_key).header("x-gateway-provider", "sandbox");
        answer.raw(BODY).send().await.expect(200);
        app.get("/api/v1/keys").key(&evil.api_key).send().await.expect(200);
    }
    // Every caller hangs up.
    drop(slow);
    until_running(&app, 0).await;
    let answer = app.call(Method::POST, CHAT).key(&evil.api_key).header("x-gateway-provider", "sandbox");
    answer.raw(BODY).send().await.expect(200);
});

on_both!(
    an_account_with_many_organizations_leaves_calls_to_others,
    [("GATEWAY_MAX_CALLS", "640")],
    |app| async move {
        let (evil, ada) = (app.signup("evil").await, app.signup("acme").await);
        let mut orgs = vec![evil.org_id.clone()];
        for number in 0..20 {
            let new = json!({"name": format!("more {number}")});
            let made = app.post("/api/v1/orgs", new).bearer(&evil.token).send().await.expect(201);
            let org = made["id"].as_str().unwrap().to_owned();
            let switch = app.post("/api/v1/auth/switch-org", json!({"org_id": org})).bearer(&evil.token);
            let switched = switch.send().await.expect(200);
            let token = switched["token"].as_str().unwrap();
            app.get("/api/v1/keys").bearer(token).send().await.expect(200);
            orgs.push(org);
        }
        for account in [&evil, &ada] {
            app.get("/api/v1/keys").key(&account.api_key).send().await.expect(200);
        }
        let begin_all = |org: &String| {
            let calls = app.app.services.calls.of(org.parse().unwrap());
            std::iter::from_fn(move || calls.begin().ok())
        };
        let held: Vec<CallInProgress> = orgs.iter().flat_map(begin_all).collect();
        let others: Vec<CallInProgress> = begin_all(&ada.org_id).collect();
        assert!((448..500).contains(&held.len()) && others.len() >= 45, "{} {}", held.len(), others.len());
        let call = app.call(Method::POST, CHAT).key(&ada.api_key).header("x-gateway-provider", "sandbox");
        drop(others);
        call.raw(BODY).send().await.expect(200);
    }
);

on_both!(a_call_is_refused_in_the_format_of_its_client, [CALLS], |app| async move {
    let ada = app.signup("acme").await;
    let held = take_share(&app, &ada);
    let body = json!({"model": "sandbox/sandbox-small", "max_tokens": 5,
        "messages": [{"role": "user", "content": "hi"}]});
    let post = |path: &str| app.post(path, body.clone()).bearer(&ada.api_key).send();
    let refused = post("/sdk/v1/messages").await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, Some("1")));
    let refused = refused.json();
    assert_eq!(
        (&refused["type"], &refused["error"]["type"].is_string()),
        (&json!("error"), &true),
        "{refused}"
    );
    let refused = post("/sdk/v1/chat/completions").await;
    assert_eq!(refused.expect(503)["error"]["code"], "overloaded");
    drop(held);
    post("/sdk/v1/messages").await.expect(200);
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_ends_with_its_response() {
    let fixture = ProxyFixture::start().await;
    let app = &fixture.app;
    fixture.upstream.push(Reply::sse(&["{}"]).flush().then_stall());
    let body = BODY.replace(r#""model""#, r#""stream":true,"model""#);
    let mut connection = fixture.connect().await;
    connection.send(fixture.raw_post("openai", CHAT, &[], body.as_bytes())).await;
    assert_eq!(connection.head().await.status, 200);
    assert_eq!(running(app), 1, "the stream has not ended");
    drop(connection);
    until_running(app, 0).await;
    // Errors, and lists that no provider answers.
    for (method, path, provider, status) in [
        (Method::POST, CHAT, "nobody", 400),
        (Method::POST, "/v1/nothing", "sandbox", 404),
        (Method::GET, "/v1/models", "auto", 200),
    ] {
        let answer = app.call(method, path).key(&fixture.ada.api_key).header("x-gateway-provider", provider);
        assert_eq!(answer.raw(BODY).send().await.status, status, "{path} {provider}");
        until_running(app, 0).await;
    }
}

on_both!(calls_of_the_playground_and_of_mcp_take_of_the_share, [CALLS], |app| async move {
    let ada = app.signup("acme").await;
    let mut held = take_share(&app, &ada);
    assert_eq!(held.len() as u64, SHARE);
    let begin = json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"}});
    let refused = app.legacy("/mcp", "initialize", begin).key(&ada.api_key).send().await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, Some("1")));
    // A run waits for the end of another call.
    let run = json!({"provider": "sandbox", "model": "sandbox-small",
        "messages": [{"role": "user", "content": "hi"}]});
    let app = Arc::new(app);
    let run = tokio::spawn({
        let (app, key) = (Arc::clone(&app), ada.api_key.clone());
        async move { app.post("/api/v1/playground/run", run).key(&key).send().await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!run.is_finished());
    held.pop();
    run.await.unwrap().expect(200);
    drop(held);
    until_running(&app, 0).await;
});

/// hyper asks for data only while the window of a client has room.
#[tokio::test]
async fn a_client_of_http2_that_grants_no_window_does_not_hold_its_call() {
    let settings = [
        ("GATEWAY_PROXY_TIMEOUT_MS", "2000"),
        ("GATEWAY_HEAD_TIMEOUT_MS", "1000"),
        ("GATEWAY_IDLE_TIMEOUT_MS", "1000"),
    ];
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &settings).await;
    proxy.upstream.push(Reply::json(200, &"x".repeat(100_000)));
    let stream = tokio::net::TcpStream::connect(proxy.app.address).await.unwrap();
    let mut client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    client.initial_stream_window_size(0);
    let (mut sender, connection) = client.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://gateway.test{CHAT}"))
        .header("x-gateway-key", &proxy.ada.api_key)
        .header("x-gateway-provider", "openai")
        .body(Full::new(bytes::Bytes::from_static(BODY.as_bytes())))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!((response.status().as_u16(), running(&proxy.app)), (200, 1));
    until_running(&proxy.app, 0).await;
}
