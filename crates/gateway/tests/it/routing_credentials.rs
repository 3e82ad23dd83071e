//! The caller's credentials are sent only to the provider that the caller named, wherever the request carries them.

use http::Method;
use serde_json::json;

use crate::support::ProxyFixture;
use crate::support::fallback_chain::{FallbackChain, good};
use crate::upstream::{Reply, Upstream};

const GEMINI: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hello"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2},"modelVersion":"g"}"#;
const QUESTION: &str = r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}"#;

/// `gemini` fails, and `mine`, a provider of the same kind at another address, serves.
async fn gemini_chain() -> (ProxyFixture, Upstream) {
    let (proxy, mine) = (ProxyFixture::start().await, Upstream::start().await);
    proxy.provider("mine", "gemini", json!({"base_url": mine.url(), "api_key": "AIza-stored"})).await;
    proxy.upstream.set_default_reply(Reply::json(503, "{}"));
    mine.set_default_reply(Reply::json(200, GEMINI));
    (proxy, mine)
}

#[tokio::test]
async fn credentials_in_the_query_are_not_sent_to_a_fallback() {
    let (proxy, mine) = gemini_chain().await;
    let path = "/v1beta/models/g:generateContent";
    for (query, forwarded) in [
        ("?key=AIza-callers", ""),
        ("?alt=json&KEY=AIza-callers", "?alt=json"),
        ("?a=%20b&access_token=callers&c=", "?a=%20b&c="),
        ("?api_key=callers&api-key=callers&apikey=callers&x=1", "?x=1"),
        ("?token=callers&sig=callers&signature=callers&x=1", "?x=1"),
        ("?X-Amz-Security-Token=callers&X-Amz-Signature=callers&X-Amz-Credential=callers", ""),
        ("?%6Bey=callers&pageToken=2&token_limit=3", "?pageToken=2&token_limit=3"),
        ("?subscription-key=callers&client_secret=callers&oauth_token=callers", ""),
    ] {
        let call = proxy.post("gemini", &format!("{path}{query}"), QUESTION);
        call.header("x-gateway-fallback", "mine").send().await.expect(200);
        // The circuit breaker of the failing provider must not open.
        proxy.app.app.services.clock.advance(300_000);
        let (named, fallback) = (proxy.upstream.requests().pop().unwrap(), mine.requests().pop().unwrap());
        assert_eq!(named.target(), format!("{path}{query}"), "the named provider gets all");
        assert_eq!(fallback.target(), format!("{path}{forwarded}"));
        assert_eq!(fallback.header("x-goog-api-key"), Some("AIza-stored"));
        assert!(!String::from_utf8_lossy(&fallback.head).contains("callers"), "{query}");
    }
}

#[tokio::test]
async fn a_key_in_the_query_replaces_the_stored_credential_unless_the_caller_asks_for_that() {
    let proxy = ProxyFixture::start().await;
    proxy.provider("mine", "gemini", json!({"api_key": "AIza-stored"})).await;
    proxy.upstream.set_default_reply(Reply::json(200, GEMINI));
    let ask =
        |query: &str| proxy.post("mine", &format!("/v1beta/models/g:generateContent?{query}"), QUESTION);
    ask("key=AIza-callers").send().await.expect(200);
    let seen = proxy.upstream.requests().pop().unwrap();
    assert_eq!(seen.header("x-goog-api-key"), None, "two credentials would contradict each other");
    assert!(seen.target().ends_with("?key=AIza-callers"), "{}", seen.target());
    ask("key=AIza-callers&alt=json").header("x-gateway-credential", "stored").send().await.expect(200);
    let seen = proxy.upstream.requests().pop().unwrap();
    assert_eq!(seen.header("x-goog-api-key"), Some("AIza-stored"));
    assert!(seen.target().ends_with("?alt=json"), "{}", seen.target());
    // The declared format makes the gateway write the path anew.
    ask("key=AIza-callers").header("x-gateway-format", "gemini").send().await.expect(200);
    let seen = proxy.upstream.requests().pop().unwrap();
    assert_eq!(seen.header("x-goog-api-key"), Some("AIza-callers"));
    // Elsewhere a parameter of this name is not a credential.
    proxy.provider("other", "openai", json!({"api_key": "sk-stored"})).await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    proxy.call(Method::GET, "other", "/v1/files?key=a").send().await.expect(200);
    let seen = proxy.upstream.requests().pop().unwrap();
    assert_eq!((seen.target(), seen.header("authorization")), ("/v1/files?key=a", Some("Bearer sk-stored")));
}

/// Headers that the caller meant for the provider that it named.
const VENDOR: [(&str, &str); 16] = [
    ("authorization", "Bearer callers"),
    ("x-api-key", "callers"),
    ("api-key", "callers"),
    ("x-goog-api-key", "callers"),
    ("x-amz-security-token", "callers"),
    ("x-amz-date", "callers"),
    ("x-goog-user-project", "callers"),
    ("x-goog-iam-authorization-token", "callers"),
    ("openai-organization", "callers"),
    ("openai-project", "callers"),
    ("ocp-apim-subscription-key", "callers"),
    ("x-auth-token", "callers"),
    ("x-access-token", "callers"),
    ("anthropic-auth-token", "callers"),
    ("helicone-auth", "callers"),
    ("x-some-vendor", "callers"),
];

/// Headers that describe the request itself.
const NEUTRAL: [(&str, &str); 12] = [
    ("accept", "application/json"),
    ("accept-language", "de"),
    ("content-type", "application/json"),
    ("user-agent", "tests/1"),
    ("anthropic-version", "2023-06-01"),
    ("anthropic-beta", "tools"),
    ("openai-beta", "assistants=v2"),
    ("idempotency-key", "once"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("tracestate", "a=b"),
    ("x-amzn-bedrock-guardrailidentifier", "g"),
    ("x-client-request-id", "r"),
];

#[tokio::test]
async fn headers_for_the_named_provider_are_not_sent_to_a_fallback() {
    let chain = FallbackChain::start().await;
    chain.proxy.upstream.push(Reply::json(500, "{}"));
    chain.second.push(good());
    let body = json!({"model": "m", "messages": []}).to_string();
    let call = chain.proxy.call(Method::POST, "openai", "/v1/chat/completions").raw(body);
    let call = VENDOR.iter().chain(&NEUTRAL).fold(call, |call, (name, value)| call.header(name, value));
    call.header("x-gateway-fallback", "second").send().await.expect(200);
    let (named, fallback) = (&chain.proxy.upstream.requests()[0], &chain.second.requests()[0]);
    for (name, value) in VENDOR.iter().chain(&NEUTRAL) {
        assert_eq!(named.header(name), Some(*value), "{name} to the named provider");
    }
    for (name, value) in NEUTRAL {
        assert_eq!(fallback.header(name), Some(value), "{name} to the fallback");
    }
    assert_eq!(fallback.header("authorization"), Some("Bearer sk-second"));
    assert!(!String::from_utf8_lossy(&fallback.head).contains("callers"), "{fallback:?}");
}

#[tokio::test]
async fn a_provider_that_auto_chose_gets_only_headers_that_describe_the_request() {
    let proxy = ProxyFixture::start().await;
    proxy.provider("mine", "openai", json!({"api_key": "sk-stored", "models": ["my-model"]})).await;
    proxy.upstream.set_default_reply(good());
    for (model, forwards) in [("my-model", false), ("mine/my-model", true)] {
        let body = json!({"model": model, "messages": []}).to_string();
        let call = proxy.post("auto", "/v1/chat/completions?token=callers", body);
        let call = call.header("openai-organization", "org-callers").header("openai-beta", "b");
        call.send().await.expect(200);
        let seen = proxy.upstream.requests().pop().unwrap();
        assert_eq!(seen.header("openai-beta"), Some("b"), "{model}");
        assert_eq!(seen.header("openai-organization"), forwards.then_some("org-callers"), "{model}");
    }
}

#[tokio::test]
async fn a_callers_credential_is_not_replaced_by_a_stored_one_of_the_same_provider() {
    let proxy = ProxyFixture::start().await;
    let keys = json!({"api_keys": [
        {"label": "a", "api_key": "AIza-a"}, {"label": "b", "api_key": "AIza-b"},
    ]});
    proxy.provider("mine", "gemini", keys).await;
    proxy.upstream.set_default_reply(Reply::json(429, "{}"));
    let call = proxy.post("mine", "/v1beta/models/g:generateContent?key=AIza-callers", QUESTION);
    let answer = call.send().await;
    answer.expect(429);
    assert_eq!(answer.header("x-gateway-attempts"), Some("1"));
    assert_eq!(proxy.upstream.requests()[0].header("x-goog-api-key"), None);
}
