//! Calls of a conversation stay at one account, so that they find its prompt cache.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::fallback_chain::good;
use crate::support::{ProxyFixture, TestRequest};

async fn start(affinity: &str) -> ProxyFixture {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(good());
    let keys: Vec<Value> =
        ["a", "b", "c", "d"].iter().map(|key| json!({"label": key, "api_key": key})).collect();
    proxy.provider("pool", "openai", json!({"api_keys": keys})).await;
    let path = format!("/api/v1/orgs/{}", proxy.ada.org_id);
    let body = json!({"settings": {"affinity": affinity}});
    proxy.app.put(&path, body).bearer(&proxy.ada.token).send().await.expect(200);
    proxy
}

/// A call of a conversation that began with this text, after this many turns.
fn call(proxy: &ProxyFixture, first: &str, turns: usize) -> TestRequest {
    let mut messages =
        vec![json!({"role": "system", "content": "s"}), json!({"role": "user", "content": first})];
    messages.extend((0..turns).map(|turn| json!({"role": "user", "content": format!("turn {turn}")})));
    let body = json!({"model": "m", "messages": messages});
    proxy.post("pool", "/v1/chat/completions", body.to_string())
}

/// The accounts that the calls used.
async fn accounts(proxy: &ProxyFixture, calls: Vec<TestRequest>) -> BTreeSet<String> {
    let before = proxy.upstream.requests().len();
    for call in calls {
        call.send().await.expect(200);
    }
    let requests = proxy.upstream.requests();
    requests[before..].iter().map(|request| request.header("authorization").unwrap().to_owned()).collect()
}

#[tokio::test]
async fn agents_name_their_sessions_in_their_own_ways() {
    let proxy = start("auto").await;
    for header in ["x-claude-code-session-id", "x-codex-turn-state"] {
        let calls = (0..8).map(|at| call(&proxy, &format!("text {at}"), 0).header(header, "one")).collect();
        assert_eq!(accounts(&proxy, calls).await.len(), 1, "{header}");
        let calls = (0..40).map(|at| call(&proxy, "text", 0).header(header, &at.to_string())).collect();
        assert!(accounts(&proxy, calls).await.len() > 1, "{header}");
    }
    let with_key = |at: usize, key: &str| {
        let messages = json!([{"role": "user", "content": format!("text {at}")}]);
        let body = json!({"model": "m", "prompt_cache_key": key, "messages": messages});
        proxy.post("pool", "/v1/chat/completions", body.to_string())
    };
    assert_eq!(accounts(&proxy, (0..8).map(|at| with_key(at, "one")).collect()).await.len(), 1);
    assert!(accounts(&proxy, (0..40).map(|at| with_key(0, &at.to_string())).collect()).await.len() > 1);
    // The session of the gateway comes first.
    let calls = (0..8).map(|at| {
        let call = call(&proxy, "text", 0).header("x-gateway-session", "one");
        call.header("x-claude-code-session-id", &at.to_string())
    });
    assert_eq!(accounts(&proxy, calls.collect()).await.len(), 1);
}

#[tokio::test]
async fn a_conversation_is_recognized_by_how_it_begins() {
    let proxy = start("auto").await;
    let calls = (0..8).map(|turns| call(&proxy, "the same beginning", turns)).collect();
    assert_eq!(accounts(&proxy, calls).await.len(), 1);
    let calls = (0..40).map(|at| call(&proxy, &format!("beginning {at}"), 0)).collect();
    assert!(accounts(&proxy, calls).await.len() > 1);
}

#[tokio::test]
async fn without_the_setting_only_the_header_counts() {
    let proxy = start("header").await;
    let calls = (0..40).map(|_| call(&proxy, "text", 0).header("x-claude-code-session-id", "one")).collect();
    assert!(accounts(&proxy, calls).await.len() > 1);
    let calls = (0..8).map(|_| call(&proxy, "text", 0).header("x-gateway-session", "one")).collect();
    assert_eq!(accounts(&proxy, calls).await.len(), 1);
}
