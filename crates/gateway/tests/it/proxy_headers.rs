//! Header rules: headers sent to the provider, the credential it receives, and headers returned to the client.

use std::collections::BTreeSet;

use gateway_core::llm::sigv4::{self, Credentials, Scope};
use gateway_core::time::{Timestamp, jiff_timestamp};
use http::Method;
use serde_json::json;

use crate::support::{Backend, ProxyFixture, log_id};
use crate::upstream::{Reply, Request};

const CREDENTIALS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];

async fn start() -> ProxyFixture {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    proxy
}

impl ProxyFixture {
    /// Sends a GET with these headers and returns the request that the provider received.
    async fn seen(&self, provider: &str, headers: &[(&str, &str)]) -> Request {
        let call = self.call(Method::GET, provider, "/v1/models");
        let call = headers.iter().fold(call, |call, (name, value)| call.header(name, value));
        assert_eq!(call.send().await.status.as_u16(), 200);
        self.upstream.requests().pop().unwrap()
    }
}

fn credentials(seen: &Request) -> Vec<(&str, &str)> {
    let is_one = |name: &str| CREDENTIALS.iter().any(|credential| name.eq_ignore_ascii_case(credential));
    seen.headers.iter().filter(|(name, _)| is_one(name)).map(|(name, value)| (&**name, &**value)).collect()
}

#[tokio::test]
async fn a_control_header_or_key_that_is_given_twice_is_refused() {
    let proxy = start().await;
    for (name, value) in [
        ("x-gateway-provider", "anthropic"),
        ("X-Gateway-Provider", "openai"),
        ("x-gateway-retry", "1"),
        ("x-gateway-user", "u"),
    ] {
        let call = proxy.call(Method::GET, "openai", "/v1/models").header(name, value).header(name, value);
        let told = call.send().await.expect_error(400, "bad_request");
        assert!(told["message"].as_str().unwrap().starts_with(&name.to_ascii_lowercase()), "{told}");
    }
    let other = proxy.key(&["*"]).await;
    for key in [other.as_str(), &proxy.ada.api_key, "sk-gateway-unknown"] {
        let call = proxy.call(Method::GET, "openai", "/v1/models").header("x-gateway-key", key);
        call.send().await.expect_error(401, "unauthorized");
        let call = proxy.app.get("/api/v1/keys").key(&proxy.ada.api_key).header("x-gateway-key", key);
        call.send().await.expect_error(401, "unauthorized");
        let call = proxy.app.get("/sdk/v1/models").bearer(&proxy.ada.api_key).bearer(key);
        assert_eq!(call.send().await.expect(401)["error"]["code"], "unauthorized");
    }
    // The same key in two places is what some clients send; two different ones are not.
    let in_two_places = |key: &str| {
        proxy.app.get("/sdk/v1/models").bearer(&proxy.ada.api_key).header("x-api-key", key).send()
    };
    in_two_places(&proxy.ada.api_key).await.expect(200);
    in_two_places(&other).await.expect(401);
    let call = proxy.app.get("/api/v1/keys").bearer(&proxy.ada.token).bearer(&proxy.ada.token);
    call.send().await.expect_error(401, "unauthorized");
    assert!(proxy.upstream.arrivals().is_empty());
}

#[tokio::test]
async fn gateway_headers_and_hop_by_hop_headers_are_not_forwarded() {
    let proxy = start().await;
    let headers = [
        ("Connection", "keep-alive, X-Listed"),
        ("Connection", "x-also-listed"),
        ("X-Listed", "1"),
        ("X-Also-Listed", "1"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Trailer", "x-sum"),
        ("Upgrade", "h2c"),
        ("Proxy-Authorization", "Basic cHJveHk="),
        ("Proxy-Connection", "keep-alive"),
        ("Cookie", "session=secret"),
        ("Forwarded", "for=192.0.2.1"),
        ("X-Forwarded-For", "192.0.2.1"),
        ("X-Real-IP", "192.0.2.1"),
        ("X-Gateway-Session", "s1"),
        ("X-Gateway-User", "u1"),
        ("X-Gateway-Metadata", "{\"a\":1}"),
        ("X-Gateway-Log", "full"),
        ("X-Gateway-Timeout", "5000"),
        ("X-Gateway-Of-Tomorrow", "1"),
        ("x-gAtEwAy-kEy-2", "1"),
        ("X-Sandbox-Status", "500"),
        ("Accept", "text/event-stream"),
        ("Content-Type", "application/json"),
        ("OpenAI-Organization", "org-1"),
        ("X-Stainless-Lang", "python"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ];
    let mut raw = proxy.connect().await;
    raw.send(proxy.raw_post("openai", "/v1/chat/completions", &headers, b"{\"model\":\"gpt-4o\"}")).await;
    assert_eq!(raw.head().await.status, 200);
    let seen = &proxy.upstream.requests()[0];
    let names: BTreeSet<String> = seen.header_names().iter().map(|name| name.to_ascii_lowercase()).collect();
    let expected = [
        "accept",
        "accept-encoding",
        "content-length",
        "content-type",
        "host",
        "openai-organization",
        "traceparent",
        "x-stainless-lang",
    ];
    assert_eq!(names, expected.map(str::to_owned).into());
    assert!(!String::from_utf8_lossy(&seen.head).contains(&proxy.ada.api_key));
}

#[tokio::test]
async fn a_session_token_is_never_forwarded() {
    let proxy = start().await;
    proxy.provider("ours", "openai", json!({"api_key": "stored-1"})).await;
    let token = proxy.ada.token.clone();
    // It authenticates, and the provider receives the stored credential.
    let call = proxy.app.get("/v1/files").bearer(&token).header("x-gateway-provider", "ours");
    call.send().await.expect(200);
    // Together with a key it is an ordinary token, in every header and notation.
    let forms = ["Bearer {}", "bearer {}", "BEARER   {}", "Bearer\t{}", "{}", "Token {}"];
    for name in CREDENTIALS {
        for form in forms {
            proxy.seen("ours", &[(name, &form.replace("{}", &token))]).await;
        }
    }
    let all = proxy.upstream.requests();
    assert_eq!(all.len(), 1 + CREDENTIALS.len() * forms.len());
    for seen in all {
        let head = String::from_utf8_lossy(&seen.head).into_owned();
        assert!(!head.contains(&token) && !head.contains("eyJ"), "{head}");
        assert_eq!(credentials(&seen), [("authorization", "Bearer stored-1")]);
    }
    // A foreign token is a credential like any other; Google's look similar.
    let foreign = "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
    assert_eq!(
        credentials(&proxy.seen("ours", &[("authorization", foreign)]).await),
        [("authorization", foreign)]
    );
}

#[tokio::test]
async fn a_gateway_key_is_never_forwarded_and_is_not_a_credential() {
    let proxy = start().await;
    proxy.provider("ours", "openai", json!({"api_key": "stored-1"})).await;
    let (own, made_up) = (proxy.ada.api_key.clone(), format!("sk-gateway-{}", "0".repeat(64)));
    for key in [&*own, &*made_up, "sk-gateway-x"] {
        for name in CREDENTIALS {
            for value in
                [key.to_owned(), format!("Bearer {key}"), format!("bearer  {key}"), format!("Bearer\t{key}")]
            {
                let seen = proxy.seen("ours", &[(name, &value)]).await;
                assert_eq!(credentials(&seen), [("authorization", "Bearer stored-1")], "{name}: {value}");
            }
        }
    }
    // It does not authenticate either.
    let call = proxy.app.get("/v1/files").header("x-gateway-provider", "ours");
    call.header("authorization", &format!("Bearer {own}")).send().await.expect_error(401, "unauthorized");
}

#[tokio::test]
async fn the_callers_own_credential_takes_precedence_over_the_stored_one() {
    let proxy = start().await;
    proxy.provider("ours", "anthropic", json!({"api_key": "stored-1"})).await;
    for (name, value) in [
        ("authorization", "Bearer sk-mine"),
        ("authorization", "Basic dXNlcjpwYXNz"),
        ("x-api-key", "sk-ant-mine"),
        ("api-key", "mine"),
        ("x-goog-api-key", "AIzaMine"),
    ] {
        assert_eq!(credentials(&proxy.seen("ours", &[(name, value)]).await), [(name, value)]);
        let asked = proxy.seen("ours", &[(name, value), ("x-gateway-credential", "stored")]).await;
        assert_eq!(credentials(&asked), [("x-api-key", "stored-1")]);
    }
    // It applied to that provider and that request only.
    assert_eq!(credentials(&proxy.seen("openai", &[]).await), []);
}

#[tokio::test]
async fn each_kind_of_provider_is_shown_its_credential_in_its_own_way() {
    let proxy = start().await;
    for (kind, name, value) in [
        ("openai", "authorization", "Bearer secret-1"),
        ("anthropic", "x-api-key", "secret-1"),
        ("gemini", "x-goog-api-key", "secret-1"),
        ("azure-openai", "api-key", "secret-1"),
        ("vertex", "authorization", "Bearer secret-1"),
        ("bedrock", "authorization", "Bearer secret-1"),
        ("mistral", "authorization", "Bearer secret-1"),
        ("ollama", "authorization", "Bearer secret-1"),
    ] {
        let own = format!("my-{kind}");
        let fields = json!({"api_key": "secret-1", "headers": {"X-Team": "blue", "User-Agent": "fixed"}});
        proxy.provider(&own, kind, fields).await;
        let seen = proxy.seen(&own, &[("user-agent", "callers"), ("x-team", "red")]).await;
        assert_eq!(credentials(&seen), [(name, value)], "{kind}");
        assert_eq!((seen.header_all("x-team"), seen.header_all("user-agent")), (vec!["blue"], vec!["fixed"]));
        let version = (kind == "anthropic").then_some("2023-06-01");
        assert_eq!(seen.header("anthropic-version"), version, "{kind}");
    }
    let seen = proxy.seen("my-anthropic", &[("anthropic-version", "2099-01-01")]).await;
    assert_eq!(seen.header_all("anthropic-version"), ["2099-01-01"]);
}

#[tokio::test]
async fn a_credential_in_stored_headers_gives_way_to_the_callers() {
    let proxy = start().await;
    proxy.provider("own", "openai", json!({"headers": {"Authorization": "Bearer stored-1"}})).await;
    assert_eq!(credentials(&proxy.seen("own", &[]).await), [("authorization", "Bearer stored-1")]);
    let seen = proxy.seen("own", &[("authorization", "Bearer mine")]).await;
    assert_eq!(credentials(&seen), [("authorization", "Bearer mine")]);
}

#[tokio::test]
async fn stored_headers_cannot_change_how_a_request_is_framed() {
    let proxy = start().await;
    let path = format!("/api/v1/orgs/{}/providers", proxy.ada.org_id);
    for name in
        ["Content-Length", "transfer-encoding", "Connection", "Upgrade", "TE", "Host", "X-Gateway-Key"]
    {
        let body = json!({"name": "odd", "kind": "openai", "base_url": proxy.upstream.url(), "headers": {name: "5"}});
        let answer = proxy.app.post(&path, body).bearer(&proxy.ada.token).send().await;
        let told = answer.expect_error(400, "bad_request");
        assert!(told["message"].as_str().unwrap().starts_with("headers"), "{told}");
    }
}

#[tokio::test]
async fn bedrock_requests_are_signed_over_what_is_sent() {
    let proxy = start().await;
    let pair = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY:session/token==";
    proxy.provider("aws", "bedrock", json!({"api_key": pair})).await;
    let path = "/model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse?b=2&a=%20x";
    let body = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"gr\u{fc}\u{df}\"}]}]}";
    let call =
        proxy.post("aws", path, body).header("authorization", &format!("Bearer {}", proxy.ada.api_key));
    call.header("x-amz-date", "20000101T000000Z").send().await.expect(200);
    let seen = &proxy.upstream.requests()[0];
    assert_eq!((seen.target(), &seen.body[..]), (path, body.as_bytes()));
    assert_eq!(seen.header("x-amz-security-token"), Some("session/token=="));

    let date = seen.header("x-amz-date").unwrap();
    assert_eq!(seen.header_all("x-amz-date").len(), 1);
    let (day, time) = date.split_once('T').unwrap();
    let rfc =
        format!("{}-{}-{}T{}:{}:{}Z", &day[..4], &day[4..6], &day[6..], &time[..2], &time[2..4], &time[4..6]);
    let at: Timestamp = rfc.parse().unwrap();
    let (path, query) = path.split_once('?').unwrap();
    let request = sigv4::Request {
        method: "POST",
        path,
        query,
        headers: &[("host", seen.header("host").unwrap()), ("content-type", "application/json")],
        body_sha256: &sigv4::hex_sha256(&seen.body),
    };
    let scope = Scope { region: "us-east-1", service: "bedrock" };
    let keys = Credentials::parse(pair).unwrap();
    let signed = sigv4::sign(&request, &keys, scope, jiff_timestamp(at));
    let expected = &signed.iter().find(|(name, _)| *name == "authorization").unwrap().1;
    assert_eq!(credentials(seen), [("authorization", &**expected)]);
}

#[tokio::test]
async fn the_operators_credential_goes_only_to_the_operators_address() {
    let operator = [("GATEWAY_PROVIDER_OPENAI_API_KEY", "operators-1")];
    let proxy = ProxyFixture::start_with(Backend::Sqlite, &operator).await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    assert_eq!(credentials(&proxy.seen("openai", &[]).await), [("authorization", "Bearer operators-1")]);
    // A custom provider, with its own base URL or the operator's.
    proxy.provider("elsewhere", "openai", json!({})).await;
    proxy.provider("alias", "openai", json!({"base_url": null})).await;
    assert_eq!(credentials(&proxy.seen("elsewhere", &[]).await), []);
    assert_eq!(credentials(&proxy.seen("alias", &[]).await), []);
    // The organization overrides the built-in provider with its own base URL, so the operator's credential is not
    // sent.
    proxy.provider("openai", "openai", json!({})).await;
    assert_eq!(credentials(&proxy.seen("openai", &[]).await), []);
    let path = format!("/api/v1/orgs/{}/providers/openai", proxy.ada.org_id);
    let put = |fields| proxy.app.put(&path, fields).bearer(&proxy.ada.token).send();
    put(json!({"base_url": null})).await.expect(200);
    assert_eq!(credentials(&proxy.seen("openai", &[]).await), [("authorization", "Bearer operators-1")]);
    put(json!({"api_key": "own-1"})).await.expect(200);
    assert_eq!(credentials(&proxy.seen("openai", &[]).await), [("authorization", "Bearer own-1")]);
}

#[tokio::test]
async fn every_response_names_its_provider_and_attempts() {
    let proxy = start().await;
    let sent = json!({"model": "gpt-4o"});
    let answer = proxy.chat(&sent).header("x-request-id", "mine-1").send().await;
    assert_eq!(answer.header("x-gateway-request-id"), Some("mine-1"));
    assert_eq!(answer.header("x-request-id"), Some("mine-1"));
    assert_eq!(answer.header("x-gateway-provider"), Some("openai"));
    assert_eq!(answer.header("x-gateway-model"), Some("gpt-4o"));
    assert_eq!(answer.header("x-gateway-attempts"), Some("1"));
    assert_eq!(answer.header("x-gateway-upstream-status"), Some("200"));
    assert_eq!(answer.header("x-ratelimit-limit"), Some("1000"));
    let number = |name: &str| answer.header(name).unwrap().parse::<i64>().unwrap();
    assert!((0..1000).contains(&number("x-ratelimit-remaining")));
    assert!(number("x-ratelimit-reset") > 1_700_000_000);
    let timing = answer.header("server-timing").unwrap();
    let (gateway, upstream) = timing.split_once(", ").unwrap();
    for (text, name) in [(gateway, "gateway;dur="), (upstream, "upstream;dur=")] {
        let duration: f64 = text.strip_prefix(name).expect(timing).parse().unwrap();
        assert!((0.0..5_000.0).contains(&duration), "{timing}");
    }
    let row = proxy.log_row(&answer).await;
    assert_eq!((&row["id"], &row["request_id"]), (&json!(log_id(&answer)), &json!("mine-1")));
    // Without a request id from the client the gateway generates one.
    let answer = proxy.chat(&sent).send().await;
    assert_eq!(answer.header("x-gateway-request-id"), answer.header("x-request-id"));
    assert!(answer.header("x-gateway-request-id").is_some_and(|id| id.len() == 36));
}

#[tokio::test]
async fn where_a_provider_uses_our_names_both_are_passed_on() {
    let proxy = ProxyFixture::start().await;
    let reply = Reply::json(200, "{}").header("X-Request-Id", "req_theirs").header("X-RateLimit-Limit", "7");
    let reply = reply.header("X-RateLimit-Limit-Requests", "60").header("x-ratelimit-reset", "soon");
    let reply = reply.header("Server-Timing", "db;dur=1").header("server-timing", "llm;dur=2");
    let reply = reply.header("X-Gateway-Log-Id", "theirs").header("x-gateway-other", "theirs");
    proxy
        .upstream
        .push(reply.header("Connection", "X-Hop").header("X-Hop", "1").header("Keep-Alive", "timeout=5"));
    let answer = proxy.chat(&json!({"model": "gpt-4o"})).send().await;
    assert_eq!(answer.header("x-request-id"), Some("req_theirs"));
    assert_ne!(answer.header("x-gateway-request-id"), Some("req_theirs"));
    assert_eq!(answer.header("x-ratelimit-limit"), Some("1000"));
    assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("60"));
    assert_eq!(answer.header("x-upstream-x-ratelimit-limit"), Some("7"));
    assert_eq!(answer.header("x-upstream-x-ratelimit-reset"), Some("soon"));
    let all = |name: &str| answer.headers.get_all(name).iter().cloned().collect::<Vec<_>>();
    assert_eq!(all("x-upstream-server-timing"), ["db;dur=1", "llm;dur=2"]);
    assert_eq!(all("server-timing").len(), 1);
    assert_eq!(answer.header("x-upstream-x-gateway-log-id"), Some("theirs"));
    assert!(log_id(&answer) > 0);
    assert_eq!(answer.header("x-gateway-other"), None, "what bears our name is ours");
    assert_eq!(answer.header("x-upstream-x-gateway-other"), Some("theirs"));
    assert_eq!((answer.header("x-hop"), answer.header("keep-alive")), (None, None));
}

#[tokio::test]
async fn every_error_of_a_proxied_request_carries_its_request_id() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[]).await;
        let limited = proxy.key(&["provider:anthropic"]).await;
        let body = json!({"model": "gpt-4o", "messages": []}).to_string();
        let by = |key: &str, provider: &str| {
            let call = proxy.app.call(Method::POST, "/v1/chat/completions").key(key);
            call.header("x-gateway-provider", provider).raw(body.clone())
        };
        for (call, status) in [
            (by(&proxy.ada.api_key, "nobody"), 400),
            (by(&limited, "openai"), 403),
            (by("sk-gateway-of-nobody", "openai"), 401),
        ] {
            let answer = call.header("x-request-id", "mine-1").send().await;
            assert_eq!(answer.status, status, "{}", answer.text());
            assert_eq!(answer.header("x-gateway-request-id"), Some("mine-1"), "{status}");
        }
    }
}
