//! The memory budget: what one organization holds never keeps others from being served, and everything is released.

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::on_both;
use crate::support::assertions::fields;
use crate::support::{
    Account, Backend, ProxyFixture, RawConnection, TestApp, http_chunk, request, request_head,
};
use crate::upstream::Reply;

const MIB: usize = 1 << 20;
const SMALL_BUDGET: (&str, &str) = ("GATEWAY_MEMORY_BYTES", "16777216");
/// All areas of the API are open.
const ENTERPRISE: (&str, &str) = ("GATEWAY_DEFAULT_PLAN", "enterprise");
/// What an organization alone may hold of it.
const SHARE: usize = 8 * MIB;
const CHAT: &str = "/v1/chat/completions";

fn chat(length: usize) -> String {
    format!(
        r#"{{"model":"sandbox-small","messages":[{{"role":"user","content":"{}"}}]}}"#,
        "a".repeat(length)
    )
}

fn used(app: &TestApp) -> usize {
    usize::try_from(app.app.services.memory.used()).unwrap()
}

/// Waits until the memory in use fulfils a condition.
async fn until_used(app: &TestApp, condition: impl Fn(usize) -> bool) {
    for _ in 0..500 {
        if condition(used(app)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("still {} bytes are in use", used(app));
}

async fn until_all_released(app: &TestApp) {
    until_used(app, |bytes| bytes == 0).await;
}

fn proxied<'a>(account: &'a Account, headers: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let ours = [("x-gateway-key", account.api_key.as_str()), ("x-gateway-provider", "sandbox")];
    ours.into_iter().chain(headers.iter().copied()).collect()
}

on_both!(one_organization_cannot_use_up_the_memory, [SMALL_BUDGET, ENTERPRISE], |app| async move {
    let (evil, ada) = (app.signup("evil").await, app.signup("acme").await);
    let cases = vec![json!({"input": "x".repeat(250_000)}); 8];
    let dataset = app.dataset(&evil, &cases).await;
    let cases = || app.get(&format!("/api/v1/datasets/{dataset}/cases")).key(&evil.api_key).send();
    cases().await.expect(200);
    // A body that may be sent again is kept while the sandbox waits.
    let held = [("x-gateway-retry", "1"), ("x-sandbox-delay-ms", "60000")];
    let whole = request("POST", CHAT, &proxied(&evil, &held), chat(MIB).as_bytes());
    let mut tasks = Vec::new();
    for _ in 0..40 {
        let (address, whole) = (app.address, whole.clone());
        tasks.push(tokio::spawn(async move {
            let mut connection = RawConnection::connect(address).await;
            connection.try_send(&whole).await;
            tokio::select! {
                head = connection.try_head() => head.map(|head| (head.status, head.header("retry-after").map(str::to_owned))),
                () = tokio::time::sleep(Duration::from_secs(20)) => None,
            }
        }));
    }
    until_used(&app, |bytes| bytes > SHARE / 2).await;
    let calls = async {
        for _ in 0..5 {
            assert!(used(&app) <= 2 * SHARE, "{} bytes are in use", used(&app));
            let answer =
                app.call(Method::POST, CHAT).key(&ada.api_key).header("x-gateway-provider", "sandbox");
            let answer = answer.header("x-gateway-retry", "1").raw(chat(MIB)).send().await;
            answer.expect(200);
            app.get("/api/v1/keys").key(&ada.api_key).send().await.expect(200);
        }
    };
    calls.await;
    let mut refused = 0;
    while refused < 20 {
        let index = tasks.iter().position(tokio::task::JoinHandle::is_finished);
        let Some(index) = index else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        // A refused body is not read, so the connection may break while it is sent.
        if let Ok(Some((status, retry_after))) = tasks.swap_remove(index).await {
            assert_eq!((status, retry_after.as_deref()), (503, Some("1")));
        }
        refused += 1;
    }
    assert!(used(&app) > SHARE / 2, "the accepted ones are still held");
    assert!(app.app.services.memory.refusals() > 0);
    // Large responses of the management API count too; small ones are always sent.
    cases().await.expect_error(503, "overloaded");
    app.get("/api/v1/datasets").key(&evil.api_key).send().await.expect(200);
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    until_all_released(&app).await;
    let answer = app.call(Method::POST, CHAT).key(&evil.api_key).header("x-gateway-provider", "sandbox");
    answer.raw(chat(MIB)).send().await.expect(200);
});

on_both!(a_large_page_needs_room_before_its_rows_are_read, [SMALL_BUDGET, ENTERPRISE], |app| async move {
    let ada = app.signup("acme").await;
    let cases = vec![json!({"input": "x".repeat(250_000)}); 8];
    let dataset = format!("/api/v1/datasets/{}", app.dataset(&ada, &cases).await);
    let page = |limit: u32| app.get(&format!("{dataset}/cases?limit={limit}")).key(&ada.api_key).send();
    page(8).await.expect(200);
    // There is room for the text of all cases, but not for the cases as well.
    let held = app.app.services.memory.account(ada.org_id.parse().unwrap()).reserve(SHARE / 2).unwrap();
    page(8).await.expect_error(503, "overloaded");
    page(3).await.expect(200);
    // An export reads fewer at a time.
    let export = app.get(&format!("{dataset}/export")).key(&ada.api_key).send().await.expect(200);
    assert_eq!(export["cases"].as_array().unwrap().len(), 8);
    let sample = app.post(&format!("{dataset}/sample"), json!({"size": 8})).key(&ada.api_key).send().await;
    assert_eq!(sample.expect(200)["cases"].as_array().unwrap().len(), 8);
    drop(held);
    page(8).await.expect(200);
    until_all_released(&app).await;
});

on_both!(the_response_of_the_sandbox_is_reserved, [SMALL_BUDGET], |app| async move {
    let ada = app.signup("acme").await;
    let embed = |inputs: usize| {
        let call = app.call(Method::POST, "/v1/embeddings").key(&ada.api_key);
        let body = json!({"model": "sandbox-embed", "input": vec!["a"; inputs]}).to_string();
        call.header("x-gateway-provider", "sandbox").raw(body)
    };
    embed(2_048).send().await.expect(503);
    embed(100).send().await.expect(200);
    until_all_released(&app).await;
});

on_both!(
    a_body_that_cannot_be_held_is_refused_before_it_is_sent,
    [SMALL_BUDGET, ENTERPRISE],
    |app| async move {
        let ada = app.signup("acme").await;
        let length = (SHARE + 1).to_string();
        let key = ("x-gateway-key", ada.api_key.as_str());
        for (path, headers, expected) in [
            (CHAT, proxied(&ada, &[]), vec!["code", "error", "error_code", "message"]),
            ("/api/v1/keys", vec![key], vec!["code", "message"]),
            ("/api/v1/skills", vec![key], vec!["error", "error_code"]),
        ] {
            let headers: Vec<_> = headers.into_iter().chain([("content-length", length.as_str())]).collect();
            let mut connection = RawConnection::connect(app.address).await;
            connection.send(request_head("POST", path, &headers)).await;
            if path == CHAT {
                // Whether a body is held depends on its model.
                connection.send(r#"{"model":"sandbox-small","stream":false,"#).await;
            }
            let head = connection.head().await;
            assert_eq!((head.status, head.header("retry-after")), (503, Some("1")), "{path}");
            let body: serde_json::Value =
                serde_json::from_slice(&connection.body(&head).await.unwrap()).unwrap();
            let code = body.get("code").or(body.get("error_code"));
            assert_eq!(code, Some(&json!("overloaded")), "{body}");
            assert!(expected.iter().all(|name| body.get(*name).is_some()), "{path}: {body}");
        }
        until_all_released(&app).await;
    }
);

on_both!(small_chunks_take_about_their_length, [SMALL_BUDGET], |app| async move {
    let ada = app.signup("acme").await;
    let length = 50_000;
    for path in [CHAT, "/api/v1/keys"] {
        let headers = proxied(&ada, &[("transfer-encoding", "chunked")]);
        let mut connection = RawConnection::connect(app.address).await;
        connection.send(request_head("POST", path, &headers)).await;
        connection.send(http_chunk(b"{").repeat(1)).await;
        connection.send(http_chunk(b" ").repeat(length)).await;
        until_used(&app, |bytes| bytes >= length).await;
        assert!(used(&app) <= 3 * length, "{} bytes for {length}", used(&app));
        drop(connection);
        until_all_released(&app).await;
    }
});

on_both!(a_body_is_not_kept_while_the_sandbox_waits, [SMALL_BUDGET], |app| async move {
    let ada = app.signup("acme").await;
    let whole =
        request("POST", CHAT, &proxied(&ada, &[("x-sandbox-delay-ms", "60000")]), chat(2 * MIB).as_bytes());
    let mut waiting = Vec::new();
    // Together they are far beyond the share; only the copies for the log are kept.
    for number in 1..=10 {
        let mut connection = RawConnection::connect(app.address).await;
        connection.send(&whole).await;
        until_used(&app, |bytes| bytes >= number * 256 * 1024 && bytes < number * 320 * 1024).await;
        waiting.push(connection);
    }
    drop(waiting);
    until_all_released(&app).await;
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_cannot_be_held_is_not_converted() {
    let fixture = ProxyFixture::start_with(Backend::Sqlite, &[SMALL_BUDGET]).await;
    let text = "a".repeat(SHARE);
    let body = json!({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]});
    fixture.upstream.push(Reply::json(200, &body.to_string()));
    let question = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]});
    let call =
        fixture.post("openai", "/v1/messages", question.to_string()).header("x-gateway-format", "anthropic");
    let answer = call.send().await;
    answer.expect_error(503, "overloaded");
    assert_eq!(answer.header("retry-after"), Some("1"));
    // A response that is only forwarded is not held.
    fixture.upstream.push(Reply::json(200, &body.to_string()));
    let call = fixture.chat(&json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}));
    assert!(
        call.send().await.expect(200)["choices"][0]["message"]["content"].as_str().unwrap().len() == SHARE
    );
    until_all_released(&fixture.app).await;
}

on_both!(the_playground_shares_one_conversation, |app| async move {
    let ada = app.signup("acme").await;
    let post = |path: &str, body: String| app.call(Method::POST, path).key(&ada.api_key).raw(body).send();
    let targets: Vec<_> = (0..10).map(|_| json!({"provider": "sandbox", "model": "sandbox-small"})).collect();
    let messages = r#"{"role":"user","content":"x"},"#.repeat(20_000);
    let messages = format!(r#"[{messages}{{"role":"user","content":"last"}}]"#);
    let compare = format!(r#"{{"messages":{messages},"targets":{}}}"#, json!(targets));
    let answer = post("/api/v1/playground/compare", compare).await.expect(200);
    assert_eq!(answer["results"].as_array().unwrap().len(), 10);
    assert_eq!(answer["results"][9]["messages"].as_array().unwrap().len(), 20_001);
    let id = answer["results"][3]["id"].as_str().unwrap();
    let stored =
        app.get(&format!("/api/v1/playground/history/{id}")).key(&ada.api_key).send().await.expect(200);
    assert_eq!(stored["messages"], answer["results"][3]["messages"]);
    for path in ["/api/v1/playground/compare", "/api/v1/playground/run"] {
        let error = post(path, chat(MIB)).await.expect_error(413, "payload_too_large");
        assert_eq!(fields(&error), ["code", "message"]);
    }
    until_all_released(&app).await;
});

on_both!(a_caller_without_credential_sends_little, |app| async move {
    let body =
        |length: usize| format!(r#"{{"email": "a@example.com", "password": "{}"}}"#, "x".repeat(length));
    let post = |path: &str, body: String| app.call(Method::POST, path).raw(body).send();
    for path in ["/api/v1/login", "/api/v1/signup", "/api/v1/setup"] {
        post(path, body(65 << 10)).await.expect_error(413, "payload_too_large");
    }
    post("/api/v1/login", body(1_000)).await.expect_error(401, "unauthorized");
    until_all_released(&app).await;
});
