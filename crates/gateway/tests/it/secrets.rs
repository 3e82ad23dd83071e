//! Stored secrets stay with the origin that they were stored for, and responses keep to themselves.

use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, Backend, ProxyFixture, TestApp, request, request_head};
use crate::upstream::{Reply, Upstream};

fn provider_path(of: &Account, name: &str) -> String {
    format!("/api/v1/orgs/{}/providers/{name}", of.org_id)
}

async fn change(app: &TestApp, by: &Account, name: &str, body: Value) -> Value {
    app.put(&provider_path(by, name), body).bearer(&by.token).send().await.expect(200)
}

async fn create(app: &TestApp, by: &Account, body: Value) -> Value {
    let path = format!("/api/v1/orgs/{}/providers", by.org_id);
    app.post(&path, body).bearer(&by.token).send().await.expect(201)
}

on_both!(a_change_of_a_providers_origin_drops_its_secrets, |app| async move {
    let ada = app.signup("acme").await;
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    for upstream in [&first, &second] {
        upstream.set_default_reply(Reply::json(200, "{}"));
    }
    let made = create(
        &app,
        &ada,
        json!({
            "name": "house", "kind": "openai", "base_url": first.url(), "api_key": "sk-stored",
            "api_keys": [{"label": "more", "api_key": "sk-more"}], "headers": {"x-team": "stored-header"},
        }),
    );
    assert_eq!(made.await.get("secrets_dropped"), None);
    let call = || async {
        let call = app.get("/v1/models").key(&ada.api_key).header("x-gateway-provider", "house");
        call.send().await.expect(200);
    };
    // Another path of the same origin, or the same URL again, keeps them.
    for base_url in [format!("{}/v2", first.url()), first.url()] {
        let same = change(&app, &ada, "house", json!({"base_url": base_url})).await;
        assert_eq!((&same["has_api_key"], same.get("secrets_dropped")), (&json!(true), None), "{same}");
    }
    call().await;
    assert!(String::from_utf8_lossy(&first.requests()[0].head).contains("stored-header"));
    let moved = change(&app, &ada, "house", json!({"base_url": second.url()})).await;
    assert_eq!(moved["secrets_dropped"], true, "{moved}");
    assert_eq!((&moved["has_api_key"], &moved["has_headers"]), (&json!(false), &json!(false)));
    assert_eq!(moved["credentials"], json!([]));
    call().await;
    let head = String::from_utf8_lossy(&second.requests()[0].head).into_owned();
    assert!(
        !head.contains("sk-stored") && !head.contains("sk-more") && !head.contains("stored-header"),
        "{head}"
    );
    // Moving back does not bring them back, and there is nothing left to drop.
    let back = change(&app, &ada, "house", json!({"base_url": first.url()})).await;
    assert_eq!((&back["has_api_key"], back.get("secrets_dropped")), (&json!(false), None), "{back}");
});

on_both!(secrets_that_come_with_the_new_origin_are_kept_and_the_old_ones_are_not, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({
        "name": "house", "kind": "openai", "base_url": "https://one.example", "api_key": "sk-1",
        "api_keys": [{"label": "a", "api_key": "sk-a"}], "headers": {"x-a": "1"},
    });
    create(&app, &ada, body).await;
    let partly =
        change(&app, &ada, "house", json!({"base_url": "https://two.example", "api_key": "sk-2"})).await;
    assert_eq!(
        (&partly["has_api_key"], &partly["secrets_dropped"]),
        (&json!(true), &json!(true)),
        "{partly}"
    );
    assert_eq!((&partly["has_headers"], &partly["credentials"]), (&json!(false), &json!([])));
    let all = json!({"base_url": "http://two.example", "api_key": "sk-3", "headers": {"x-a": "2"}});
    let all = change(&app, &ada, "house", all).await;
    assert_eq!((all.get("secrets_dropped"), &all["has_headers"]), (None, &json!(true)), "{all}");
    // A label without a key would keep the stored key.
    let keys = json!({"api_keys": [{"label": "a", "api_key": "sk-a"}]});
    change(&app, &ada, "house", keys).await;
    let moved = json!({"base_url": "https://three.example", "api_keys": [{"label": "a"}]});
    let refused = app.put(&provider_path(&ada, "house"), moved).bearer(&ada.token).send().await;
    refused.expect_error(400, "bad_request");
});

on_both!(a_built_in_provider_moves_away_from_its_own_address, |app| async move {
    let ada = app.signup("acme").await;
    create(&app, &ada, json!({"name": "openai", "api_key": "sk-1"})).await;
    let same = change(&app, &ada, "openai", json!({"base_url": "https://api.openai.com/v2"})).await;
    assert_eq!((&same["has_api_key"], same.get("secrets_dropped")), (&json!(true), None), "{same}");
    let same = change(&app, &ada, "openai", json!({"base_url": null})).await;
    assert_eq!((&same["has_api_key"], same.get("secrets_dropped")), (&json!(true), None), "{same}");
    let moved =
        change(&app, &ada, "openai", json!({"base_url": "https://api.openai.com.evil.example"})).await;
    assert_eq!((&moved["has_api_key"], &moved["secrets_dropped"]), (&json!(false), &json!(true)), "{moved}");
    // Without an address the secret has been sent nowhere, so any address is a new one.
    create(&app, &ada, json!({"name": "azure-openai", "api_key": "sk-1"})).await;
    let moved = change(&app, &ada, "azure-openai", json!({"base_url": "https://evil.example"})).await;
    assert_eq!(moved["secrets_dropped"], true, "{moved}");
});

on_both!(a_change_of_an_exports_origin_drops_its_secrets, |app| async move {
    let ada = app.enterprise("acme").await;
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    for upstream in [&first, &second] {
        upstream.set_default_reply(Reply::json(200, "{}"));
    }
    let body = json!({
        "name": "hook", "kind": "webhook", "endpoint": first.url(), "secret": "stored-secret",
        "headers": {"Authorization": "Bearer stored-token"}, "enabled": false,
    });
    let id = app.export(&ada, &body).await;
    let path = format!("/api/v1/exports/{id}");
    let put = |body: Value| app.put(&path, body).bearer(&ada.token).send();
    let test = || app.post(&format!("{path}/test"), json!({})).bearer(&ada.token).send();
    let same = put(json!({"endpoint": format!("{}/other", first.url())})).await.expect(200);
    assert_eq!((&same["has_secret"], same.get("secrets_dropped")), (&json!(true), None), "{same}");
    test().await.expect(200);
    assert_eq!(first.requests()[0].header("authorization"), Some("Bearer stored-token"));
    let moved = put(json!({"endpoint": second.url()})).await.expect(200);
    assert_eq!((&moved["has_secret"], &moved["secrets_dropped"]), (&json!(false), &json!(true)), "{moved}");
    test().await.expect(200);
    let seen = &second.requests()[0];
    assert_eq!((seen.header("authorization"), seen.header("webhook-signature")), (None, None));
    let again =
        json!({"endpoint": first.url(), "secret": "new", "headers": {"Authorization": "Bearer new-token"}});
    let again = put(again).await.expect(200);
    assert_eq!((&again["has_secret"], again.get("secrets_dropped")), (&json!(true), None), "{again}");
});

/// The organization's key for openai, sealed with another master key than the one that the gateway starts with.
async fn with_another_master_key(backend: Backend) -> ProxyFixture {
    let settings = [("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator")];
    let ProxyFixture { app, upstream, ada } = ProxyFixture::start_with(backend, &settings).await;
    upstream.set_default_reply(Reply::json(200, "{}"));
    create(&app, &ada, json!({"name": "openai", "api_key": "sk-stored"})).await;
    create(&app, &ada, json!({"name": "cohere", "headers": {"x-team": "stored"}})).await;
    let (mut config, data) = app.stop().await;
    config.master_key = "ab".repeat(32).into();
    ProxyFixture { app: TestApp::start(config, data).await, upstream, ada }
}

async fn an_unreadable_credential_refuses_the_call(backend: Backend) {
    let proxy = with_another_master_key(backend).await;
    for provider in ["openai", "cohere"] {
        let call = || proxy.call(Method::GET, provider, "/v1/models");
        for call in [call(), call().header("authorization", "Bearer sk-callers")] {
            let error = call.send().await.expect_error(502, "provider_error");
            assert!(error["message"].as_str().unwrap().contains("cannot be decrypted"), "{error}");
        }
    }
    // Also as a fallback, and for the test of the credential.
    let chat = json!({"model": "m", "messages": []}).to_string();
    let fallback =
        proxy.post("gemini", "/v1/chat/completions", chat).header("x-gateway-fallback", "openai/m");
    assert!(!fallback.send().await.status.is_success());
    let path = format!("{}/test", provider_path(&proxy.ada, "openai"));
    let tested = proxy.app.post(&path, json!({})).bearer(&proxy.ada.token).send().await.expect(200);
    assert_eq!(tested["ok"], false, "{tested}");
    assert!(
        proxy
            .upstream
            .requests()
            .iter()
            .all(|seen| !String::from_utf8_lossy(&seen.head).contains("sk-operator"))
    );
    // Storing it again repairs it.
    change(&proxy.app, &proxy.ada, "openai", json!({"api_key": "sk-again"})).await;
    proxy.call(Method::GET, "openai", "/v1/models").send().await.expect(200);
    assert_eq!(proxy.upstream.requests().pop().unwrap().header("authorization"), Some("Bearer sk-again"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_credential_refuses_the_call_on_sqlite() {
    an_unreadable_credential_refuses_the_call(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_credential_refuses_the_call_on_postgres() {
    an_unreadable_credential_refuses_the_call(Backend::Postgres).await;
}

on_both!(
    the_metadata_services_of_clouds_are_never_reached,
    [("GATEWAY_EGRESS_PRIVATE", "allow")],
    |app| async move {
        let ada = app.signup("acme").await;
        let hosts = [
            "169.254.169.254",
            "169.254.170.2",
            "168.63.129.16",
            "100.100.100.200",
            "[::ffff:169.254.169.254]",
        ];
        for (index, host) in hosts.into_iter().chain(["[fd00:ec2::254]"]).enumerate() {
            let name = format!("cloud-{index}");
            let body = json!({"name": name, "kind": "openai", "base_url": format!("http://{host}")});
            create(&app, &ada, body).await;
            let call = app.get("/latest/meta-data").key(&ada.api_key).header("x-gateway-provider", &name);
            let error = call.send().await.expect_error(502, "provider_error");
            assert!(error["message"].as_str().unwrap().contains("not allowed"), "{host}: {error}");
        }
    }
);

on_both!(responses_below_api_are_not_stored_and_not_sniffed, |app| async move {
    let ada = app.enterprise("acme").await;
    let is_marked = |answer: &crate::support::TestResponse| {
        (answer.header("cache-control"), answer.header("x-content-type-options"))
            == (Some("no-store"), Some("nosniff"))
    };
    for path in
        ["/api/v1/keys", "/api/keys", "/api/v1/nothing", "/api", "/api/v1/skills/x", "/api/v1/logs/stream"]
    {
        for call in [app.get(path), app.get(path).key(&ada.api_key)] {
            let answer = call.send().await;
            assert!(is_marked(&answer), "{path} {}: {:?}", answer.status, answer.headers);
        }
    }
    let wrong = json!({"email": "nobody@example.com", "password": "wrong"});
    assert!(is_marked(&app.post("/api/v1/login", wrong).send().await));
    assert!(is_marked(&app.call(Method::PATCH, "/api/v1/keys").key(&ada.api_key).send().await));
    let skill = json!({"name": "a-skill", "description": "Writes a line.", "raw_source": null, "body": "Write a line."});
    let made = app.post("/api/v1/skills", skill).bearer(&ada.token).send().await;
    assert!(is_marked(&made));
    let none = app.get("/healthz").send().await;
    assert_eq!(none.header("cache-control"), None);
});

#[tokio::test]
async fn headers_that_act_on_the_callers_browser_are_not_passed_on() {
    let proxy = ProxyFixture::start().await;
    let reply = Reply::json(200, "{}").header("Set-Cookie", "a=1").header("set-cookie", "b=2");
    let reply = reply.header("Strict-Transport-Security", "max-age=9").header("Clear-Site-Data", "\"*\"");
    let reply = reply
        .header("Alt-Svc", "h3=\":443\"")
        .header("X-Vendor", "kept")
        .header("Cache-Control", "max-age=1");
    proxy.upstream.set_default_reply(reply.clone());
    let chat = json!({"model": "m", "messages": []});
    for call in [proxy.chat(&chat), proxy.chat(&chat).header("x-gateway-cache", "true"), proxy.chat(&chat)] {
        let answer = call.send().await;
        for name in ["set-cookie", "strict-transport-security", "clear-site-data", "alt-svc"] {
            assert_eq!(answer.header(name), None, "{name}");
        }
        assert_eq!(
            (answer.header("x-vendor"), answer.header("cache-control")),
            (Some("kept"), Some("max-age=1"))
        );
    }
    // An error of the provider is forwarded by the same rules.
    proxy.upstream.set_default_reply(Reply::json(400, "{}").header("Set-Cookie", "a=1"));
    let refused = proxy.chat(&chat).send().await;
    assert_eq!((refused.status.as_u16(), refused.header("set-cookie")), (400, None));
}

#[tokio::test]
async fn trace_and_connect_are_not_forwarded() {
    let proxy = ProxyFixture::start().await;
    proxy.provider("mine", "openai", json!({"api_key": "sk-stored"})).await;
    let headers = [("x-gateway-key", proxy.ada.api_key.as_str()), ("x-gateway-provider", "mine")];
    for (method, target) in [("TRACE", "/v1/models"), ("CONNECT", "gateway.test:443")] {
        let mut raw = proxy.connect().await;
        raw.send(request_head(method, target, &headers)).await;
        let status = raw.head().await.status;
        assert!((400..500).contains(&status), "{method}: {status}");
    }
    assert_eq!(proxy.upstream.connections(), 0);
}

#[tokio::test]
async fn parent_segments_are_refused_on_every_proxied_path() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    proxy.provider("below", "openai", json!({"base_url": format!("{}/tenant", proxy.upstream.url())})).await;
    let headers = |provider: &'static str| {
        [
            ("x-gateway-key".to_owned(), proxy.ada.api_key.clone()),
            ("x-gateway-provider".to_owned(), provider.to_owned()),
        ]
    };
    for provider in ["below", "openai", "gemini", "sandbox", "auto"] {
        for path in [
            "/../admin",
            "/v1/../../admin",
            "/v1/%2e%2e/x",
            "/v1/.%2E/x",
            "/v1/%252e%252e/x",
            "/v1/a%2f..%2fb",
            "/v1/chat/completions/..",
            "/api/../x",
        ] {
            let headers = headers(provider);
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let mut raw = proxy.connect().await;
            raw.send(request("POST", path, &headers, br#"{"model":"m","messages":[]}"#)).await;
            let head = raw.head().await;
            let body: Value = serde_json::from_slice(&raw.body(&head).await.unwrap()).unwrap();
            assert_eq!(
                (head.status, &body["code"]),
                (400, &json!("bad_request")),
                "{provider} {path}: {body}"
            );
        }
    }
    // A model that becomes a part of the path.
    let chat = json!({"model": "..", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let call = proxy.post("bedrock", "/v1/chat/completions", chat).header("x-gateway-format", "openai-chat");
    call.send().await.expect_error(400, "bad_request");
    assert_eq!(proxy.upstream.requests().len(), 0);
    // Dots in names and in the query are ordinary.
    proxy.call(Method::GET, "below", "/v1/a..b/...?path=../x").send().await.expect(200);
    assert_eq!(proxy.upstream.requests()[0].target(), "/tenant/v1/a..b/...?path=../x");
}
