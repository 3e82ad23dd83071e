//! Which requests are forwarded: unclaimed paths, known providers, valid control headers, allowed addresses, rate
//! limits.

use http::Method;
use serde_json::json;

use crate::support::{Backend, ProxyFixture, TestApp};
use crate::upstream::Reply;

#[tokio::test]
async fn a_control_header_that_makes_no_sense_is_refused_by_name() {
    let proxy = ProxyFixture::start().await;
    let (long, big) = ("x".repeat(257), format!("{{\"a\":\"{}\"}}", "x".repeat(17 << 10)));
    for (name, value) in [
        ("x-gateway-timeout", "0"),
        ("x-gateway-timeout", "-5"),
        ("x-gateway-timeout", "1.5"),
        ("x-gateway-timeout", "soon"),
        ("x-gateway-timeout", ""),
        ("x-gateway-log", "off"),
        ("x-gateway-log", "FULL"),
        ("x-gateway-credential", "mine"),
        ("x-gateway-session", ""),
        ("x-gateway-session", &long),
        ("x-gateway-user", ""),
        ("x-gateway-user", &long),
        ("x-gateway-metadata", "{"),
        ("x-gateway-metadata", "[1]"),
        ("x-gateway-metadata", "\"text\""),
        ("x-gateway-metadata", "{\"a\":\"\\u0000\"}"),
        ("x-gateway-metadata", &big),
    ] {
        let answer = proxy.chat(&json!({"model": "gpt-4o"})).header(name, value).send().await;
        let body = answer.expect_error(400, "bad_request");
        assert_eq!((&body["error_code"], &body["error"]), (&body["code"], &body["message"]));
        let message = body["message"].as_str().unwrap();
        assert!(message.starts_with(name), "{name}: {value} gave: {message}");
    }
    assert_eq!(proxy.upstream.connections(), 0);
}

#[tokio::test]
async fn a_time_limit_above_the_servers_is_cut_to_it() {
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_PROXY_TIMEOUT_MS", "200")]).await;
    proxy.upstream.set_default_reply(Reply::no_response());
    let call = proxy.chat(&json!({"model": "gpt-4o"})).header("x-gateway-timeout", "3600000");
    call.send().await.expect_error(504, "provider_timeout");
}

#[tokio::test]
async fn an_unknown_provider_or_one_without_an_address_is_refused() {
    let proxy = ProxyFixture::start().await;
    for (name, hint) in
        [("nobody", "openai"), ("OpenAI", "openai"), ("", "openai"), ("azure-openai", "AZURE_OPENAI")]
    {
        let answer = proxy.call(Method::POST, name, "/v1/chat/completions").send().await;
        let message = answer.expect_error(400, "bad_request")["message"].as_str().unwrap().to_owned();
        assert!(message.contains("x-gateway-provider") && message.contains(hint), "{name}: {message}");
    }
}

#[tokio::test]
async fn a_provider_of_one_organization_is_unknown_to_another() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    proxy.provider("private", "openai", json!({"api_key": "secret"})).await;
    proxy.call(Method::GET, "private", "/v1/files").send().await.expect(200);
    let bob = proxy.app.signup("bobs").await;
    let call = proxy.app.get("/v1/files").key(&bob.api_key).header("x-gateway-provider", "private");
    let told = call.send().await.expect_error(400, "bad_request");
    assert_eq!(proxy.upstream.requests().len(), 1);
    assert!(!told["message"].as_str().unwrap().split("must be one of").nth(1).unwrap().contains("private"));
}

#[tokio::test]
async fn an_unclaimed_path_needs_a_provider() {
    let proxy = ProxyFixture::start().await;
    let ask = |path: &str| proxy.app.get(path).key(&proxy.ada.api_key);
    for path in ["/api/v1/nothing", "/api/nothing/at/all", "/api", "/api/"] {
        ask(path).send().await.expect_error(404, "not_found");
    }
    for path in ["/v1/chat/completions", "/nothing", "/apis", "/v1"] {
        let body = ask(path).send().await.expect_error(400, "bad_request");
        assert!(body["message"].as_str().unwrap().contains("X-Gateway-Provider"), "{body}");
    }
    // An unauthenticated caller gets the same error on every path.
    for path in ["/api/v1/nothing", "/v1/chat/completions"] {
        proxy.app.get(path).send().await.expect_error(401, "unauthorized");
        let proxied = proxy.app.get(path).header("x-gateway-provider", "openai").send().await;
        let body = proxied.expect_error(401, "unauthorized");
        assert_eq!((&body["error_code"], &body["error"]), (&body["code"], &body["message"]));
    }
    assert_eq!(proxy.upstream.connections(), 0);
}

#[tokio::test]
async fn providers_live_below_api_too_but_our_own_routes_stay_ours() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, r#"{"upstream":true}"#));
    for path in ["/api/chat", "/api/v1/chat/completions", "/api/generate", "/api/v1"] {
        let answer = proxy.call(Method::POST, "openai", path).raw("{\"model\":\"m\"}").send().await;
        assert_eq!(answer.expect(200)["upstream"], true, "{path}");
    }
    let seen: Vec<String> = proxy.upstream.requests().iter().map(|seen| seen.target().to_owned()).collect();
    assert_eq!(seen, ["/api/chat", "/api/v1/chat/completions", "/api/generate", "/api/v1"]);
    let keys = proxy.call(Method::GET, "openai", "/api/v1/keys").send().await.expect(200);
    assert!(keys["keys"].is_array());
    proxy.call(Method::PATCH, "openai", "/api/keys").send().await.expect_error(405, "method_not_allowed");
    proxy.call(Method::GET, "openai", "/healthz").send().await.expect(200);
    assert_eq!(proxy.upstream.requests().len(), 4);
}

#[tokio::test]
async fn a_tenants_address_inside_the_house_is_not_connected_to() {
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_EGRESS_PRIVATE", "deny")]).await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    let port = proxy.upstream.url().rsplit(':').next().unwrap().to_owned();
    for (index, host) in
        ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0"]
            .into_iter()
            .enumerate()
    {
        let name = format!("inside-{index}");
        proxy.provider(&name, "openai", json!({"base_url": format!("http://{host}:{port}")})).await;
        let answer = proxy.call(Method::GET, &name, "/v1/files").send().await;
        let body = answer.expect_error(502, "provider_error");
        assert!(body["message"].as_str().unwrap().contains("not allowed"), "{host}: {body}");
    }
    assert_eq!(proxy.upstream.connections(), 0);
    // The address policy does not apply to addresses configured by the operator.
    proxy.call(Method::GET, "openai", "/v1/files").send().await.expect(200);
}

#[tokio::test]
async fn a_redirect_is_passed_on_and_not_followed() {
    let proxy = ProxyFixture::start().await;
    let away = format!("{}/elsewhere", proxy.upstream.url());
    proxy.upstream.push(Reply::new(307).header("location", &away).body(""));
    let answer = proxy.chat(&json!({"model": "gpt-4o"})).send().await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (307, Some(&*away)));
    assert_eq!(proxy.upstream.requests().len(), 1);
}

#[tokio::test]
async fn proxied_requests_count_against_the_keys_limit() {
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &[("GATEWAY_RATE_LIMIT_FREE", "3")]).await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    let body = json!({"model": "gpt-4o"});
    let mut answers = Vec::new();
    for _ in 0..8 {
        answers.push(proxy.chat(&body).send().await);
    }
    // The rate limit window may change once during the test.
    let passed = answers.iter().filter(|answer| answer.status == 200).count();
    assert!((3..=6).contains(&passed), "{passed} passed");
    assert_eq!(proxy.upstream.requests().len(), passed);
    let refused = answers.iter().find(|answer| answer.status == 429).unwrap();
    let told = refused.expect_error(429, "rate_limited");
    assert_eq!((&told["error_code"], &told["error"]), (&told["code"], &told["message"]));
    assert!(
        refused.header("retry-after").is_some_and(|wait| wait.parse::<u64>().is_ok_and(|wait| wait <= 60))
    );
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_provider_is_out_of_reach_where_private_addresses_are() {
    let app = TestApp::start_with(Backend::Sqlite, &[("GATEWAY_EGRESS_PRIVATE", "deny")]).await;
    let ada = app.signup("acme").await;
    for provider in ["ollama", "vllm", "lmstudio"] {
        let call = app.post("/v1/chat/completions", json!({"model": "x", "messages": []}));
        let answer = call.key(&ada.api_key).header("x-gateway-provider", provider).send().await;
        let body = answer.expect_error(502, "provider_error");
        assert!(body["message"].as_str().unwrap().contains("private or local"), "{body}");
    }
}
