//! What the operator opens to organizations: signup, the operator's credentials and the objects behind them, and private
//! addresses.

use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, Backend, GatewayProcess, PASSWORD, ProxyFixture, TestApp, command};
use crate::upstream::{Reply, Upstream};

async fn try_signup(app: &TestApp, slug: &str, invite: Option<&Value>) -> crate::support::TestResponse {
    let mut body = json!({"email": format!("{slug}@example.com"), "password": PASSWORD});
    match invite {
        Some(token) => body["invite_token"] = token.clone(),
        None => body["org_slug"] = json!(slug),
    }
    app.post("/api/v1/signup", body).send().await
}

async fn invite(app: &TestApp, by: &Account, slug: &str) -> Value {
    let body = json!({"email": format!("{slug}@example.com"), "role": "member"});
    let path = format!("/api/v1/orgs/{}/members", by.org_id);
    app.post(&path, body).bearer(&by.token).send().await.expect(201)["invite_token"].clone()
}

on_both!(by_invitation_only_strangers_cannot_sign_up, [("GATEWAY_SIGNUP", "invite")], |app| async move {
    app.post("/api/v1/setup", json!({"org_name": "x"})).send().await.expect_error(403, "signup_closed");
    // The first account can always be created.
    let ada = app.signup("acme").await;
    try_signup(&app, "eve", None).await.expect_error(403, "signup_closed");
    app.post("/api/v1/setup", json!({"org_name": "x"})).send().await.expect_error(403, "signup_closed");
    let token = invite(&app, &ada, "bob").await;
    try_signup(&app, "bob", Some(&token)).await.expect(201);
    assert!(!try_signup(&app, "mallory", Some(&json!("no such token"))).await.status.is_success());
});

on_both!(
    where_signup_is_closed_only_the_first_account_is_created,
    [("GATEWAY_SIGNUP", "closed")],
    |app| async move {
        let ada = app.signup("acme").await;
        let token = invite(&app, &ada, "bob").await;
        for invite in [None, Some(&token)] {
            try_signup(&app, "bob", invite).await.expect_error(403, "signup_closed");
        }
        app.post("/api/v1/setup", json!({"org_name": "x"})).send().await.expect_error(403, "signup_closed");
        app.login(&ada.email, PASSWORD).await.expect(200);
    }
);

/// A gateway whose operator has a credential for several providers, all at one upstream.
async fn with_operators_credentials(backend: Backend, more: &[(&str, &str)]) -> ProxyFixture {
    let mut settings = Vec::new();
    for name in ["OPENAI", "ANTHROPIC", "GEMINI", "COHERE", "MISTRAL", "AZURE_OPENAI"] {
        settings.push((format!("GATEWAY_PROVIDER_{name}_API_KEY"), "sk-operator".to_owned()));
    }
    settings.push(("GATEWAY_PROVIDER_BEDROCK_API_KEY".to_owned(), "AKIA:secret-operator".to_owned()));
    let upstream = Upstream::start().await;
    for name in
        ["OPENAI", "ANTHROPIC", "GEMINI", "COHERE", "MISTRAL", "AZURE_OPENAI", "BEDROCK", "OLLAMA", "VLLM"]
    {
        settings.push((format!("GATEWAY_PROVIDER_{name}_BASE_URL"), upstream.url()));
    }
    settings.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let settings: Vec<(&str, &str)> =
        settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let app = TestApp::start_with(backend, &settings).await;
    let ada = app.signup("acme").await;
    upstream.set_default_reply(Reply::json(200, "{}"));
    ProxyFixture { app, upstream, ada }
}

/// The paths of objects that providers keep, each with the methods that it has.
const OBJECTS: [(&str, &str, &[&str]); 58] = [
    ("openai", "/v1/files", &["GET", "POST"]),
    ("openai", "/v1/files/file-1", &["GET", "DELETE"]),
    ("openai", "/v1/files/file-1/content", &["GET"]),
    ("openai", "/v1/uploads", &["POST"]),
    ("openai", "/v1/uploads/u-1/parts", &["POST"]),
    ("openai", "/v1/uploads/u-1/complete", &["POST"]),
    ("openai", "/v1/batches", &["GET", "POST"]),
    ("openai", "/v1/batches/b-1", &["GET"]),
    ("openai", "/v1/batches/b-1/cancel", &["POST"]),
    ("openai", "/v1/responses", &["GET"]),
    ("openai", "/v1/responses/resp_1", &["GET", "DELETE"]),
    ("openai", "/v1/responses/resp_1/cancel", &["POST"]),
    ("openai", "/v1/responses/resp_1/input_items", &["GET"]),
    ("openai", "/v1/conversations", &["POST"]),
    ("openai", "/v1/conversations/c-1/items", &["GET", "POST"]),
    ("openai", "/v1/chat/completions", &["GET"]),
    ("openai", "/v1/chat/completions/c-1", &["GET", "POST", "DELETE"]),
    ("openai", "/v1/chat/completions/c-1/messages", &["GET"]),
    ("openai", "/v1/assistants", &["GET", "POST"]),
    ("openai", "/v1/assistants/a-1", &["GET", "POST", "DELETE"]),
    ("openai", "/v1/threads", &["POST"]),
    ("openai", "/v1/threads/t-1/messages", &["GET", "POST"]),
    ("openai", "/v1/threads/t-1/runs/r-1/steps", &["GET"]),
    ("openai", "/v1/vector_stores", &["GET", "POST"]),
    ("openai", "/v1/vector_stores/vs-1/search", &["POST"]),
    ("openai", "/v1/fine_tuning/jobs", &["GET", "POST"]),
    ("openai", "/v1/fine_tuning/jobs/j-1/events", &["GET"]),
    ("openai", "/v1/containers", &["GET", "POST"]),
    ("openai", "/v1/containers/c-1/files/f-1/content", &["GET"]),
    ("openai", "/v1/evals", &["GET", "POST"]),
    ("openai", "/v1/skills", &["GET", "POST"]),
    ("openai", "/v1/videos", &["GET", "POST"]),
    ("openai", "/v1/videos/v-1/content", &["GET"]),
    ("openai", "/v1/models/ft:gpt-4o:acme", &["DELETE"]),
    ("azure-openai", "/openai/files?api-version=2024-10-21", &["GET", "POST"]),
    ("azure-openai", "/openai/v1/batches", &["GET", "POST"]),
    ("azure-openai", "/openai/assistants/a-1", &["GET"]),
    ("anthropic", "/v1/files", &["GET", "POST"]),
    ("anthropic", "/v1/files/f-1/content", &["GET"]),
    ("anthropic", "/v1/messages/batches", &["GET", "POST"]),
    ("anthropic", "/v1/messages/batches/mb-1", &["GET", "DELETE"]),
    ("anthropic", "/v1/messages/batches/mb-1/results", &["GET"]),
    ("anthropic", "/v1/messages/batches/mb-1/cancel", &["POST"]),
    ("anthropic", "/v1/skills", &["GET", "POST"]),
    ("gemini", "/upload/v1beta/files", &["POST"]),
    ("gemini", "/v1beta/files", &["GET"]),
    ("gemini", "/v1beta/files/f-1", &["GET", "DELETE"]),
    ("gemini", "/v1beta/cachedContents", &["GET", "POST"]),
    ("gemini", "/v1beta/cachedContents/c-1", &["GET", "PATCH", "DELETE"]),
    ("gemini", "/v1beta/batches/b-1", &["GET"]),
    ("gemini", "/v1beta/batches/b-1:cancel", &["POST"]),
    ("gemini", "/v1beta/models/gemini-2.5-pro:batchGenerateContent", &["POST"]),
    ("gemini", "/v1beta/tunedModels", &["GET", "POST"]),
    ("cohere", "/v1/datasets", &["GET", "POST"]),
    ("mistral", "/v1/batch/jobs", &["GET", "POST"]),
    ("ollama", "/api/pull", &["POST"]),
    ("ollama", "/api/delete", &["DELETE"]),
    ("vllm", "/v1/load_lora_adapter", &["POST"]),
];

/// Paths of the same table that only answer.
const ANSWERS: [(&str, &str, &str); 19] = [
    ("openai", "POST", "/v1/embeddings"),
    ("openai", "POST", "/v1/images/generations"),
    ("openai", "POST", "/v1/images/edits"),
    ("openai", "POST", "/v1/audio/transcriptions"),
    ("openai", "POST", "/v1/audio/speech"),
    ("openai", "POST", "/v1/rerank"),
    ("openai", "POST", "/v1/moderations"),
    ("openai", "POST", "/v1/responses"),
    ("openai", "POST", "/v1/responses/input_tokens"),
    ("openai", "POST", "/v1/chat/completions"),
    ("openai", "GET", "/v1/models?limit=1000"),
    ("openai", "HEAD", "/unclaimed"),
    ("anthropic", "POST", "/v1/messages/count_tokens"),
    ("anthropic", "POST", "/v1/messages"),
    ("gemini", "POST", "/v1beta/models/gemini-2.5-pro:countTokens"),
    ("gemini", "POST", "/v1beta/models/gemini-2.5-pro:batchEmbedContents"),
    ("cohere", "POST", "/v2/embed"),
    ("ollama", "GET", "/api/tags"),
    ("vllm", "POST", "/v1/chat/completions"),
];

const MODEL: &str = r#"{"model":"m","messages":[],"input":"x"}"#;

async fn objects_of_the_operators_account_are_out_of_reach(backend: Backend) {
    let proxy = with_operators_credentials(backend, &[]).await;
    let eve = proxy.app.signup("evil").await;
    for key in [&proxy.ada.api_key, &eve.api_key] {
        for (provider, path, methods) in OBJECTS {
            for method in methods {
                let method: Method = method.parse().unwrap();
                let call =
                    || proxy.app.call(method.clone(), path).key(key).header("x-gateway-provider", provider);
                let error = call().raw(MODEL).send().await.expect_error(403, "forbidden");
                let message = error["message"].as_str().unwrap();
                assert!(message.contains("store a credential of your own"), "{method} {path}: {message}");
                // Not even if the caller insists on the stored credential.
                let call = call()
                    .header("authorization", "Bearer sk-callers")
                    .header("x-gateway-credential", "stored");
                call.send().await.expect_error(403, "forbidden");
            }
        }
    }
    assert_eq!(proxy.upstream.requests().len(), 0, "no provider was asked");
    for (provider, method, path) in ANSWERS {
        let call = proxy.call(method.parse().unwrap(), provider, path).raw(MODEL);
        assert_eq!(call.send().await.status.as_u16(), 200, "{provider} {method} {path}");
    }
    assert_eq!(proxy.upstream.requests().len(), ANSWERS.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_the_operators_account_are_out_of_reach_on_sqlite() {
    Box::pin(objects_of_the_operators_account_are_out_of_reach(Backend::Sqlite)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_the_operators_account_are_out_of_reach_on_postgres() {
    Box::pin(objects_of_the_operators_account_are_out_of_reach(Backend::Postgres)).await;
}

#[tokio::test]
async fn objects_of_ones_own_account_are_reached_with_ones_own_credential() {
    let proxy = with_operators_credentials(Backend::Sqlite, &[]).await;
    let files = |provider: &str| proxy.call(Method::GET, provider, "/v1/files");
    files("openai").header("authorization", "Bearer sk-callers").send().await.expect(200);
    files("anthropic").header("x-api-key", "sk-callers").send().await.expect(200);
    proxy.provider("mine", "openai", json!({"api_key": "sk-mine"})).await;
    files("mine").send().await.expect(200);
    assert_eq!(proxy.upstream.requests()[2].header("authorization"), Some("Bearer sk-mine"));
    // An entry without a credential inherits the operator's.
    let path = format!("/api/v1/orgs/{}/providers", proxy.ada.org_id);
    let bare = json!({"name": "openai", "headers": {"x-team": "a"}});
    proxy.app.post(&path, bare).bearer(&proxy.ada.token).send().await.expect(201);
    files("openai").send().await.expect_error(403, "forbidden");
    let own = json!({"api_key": "sk-own"});
    proxy.app.put(&format!("{path}/openai"), own).bearer(&proxy.ada.token).send().await.expect(200);
    files("openai").send().await.expect(200);
    // A local server of the operator is shared, whatever credential the SDK sends along.
    let pull = || proxy.call(Method::POST, "ollama", "/api/pull").header("authorization", "Bearer ollama");
    pull().send().await.expect_error(403, "forbidden");
    let alias = json!({"name": "alias", "kind": "ollama", "api_key": "junk"});
    proxy.app.post(&path, alias).bearer(&proxy.ada.token).send().await.expect(201);
    proxy.call(Method::POST, "alias", "/api/pull").send().await.expect_error(403, "forbidden");
    proxy.provider("own-ollama", "ollama", json!({})).await;
    proxy.call(Method::POST, "own-ollama", "/api/pull").send().await.expect(200);
}

#[tokio::test]
async fn an_installation_of_one_organization_may_share_the_objects() {
    let proxy = with_operators_credentials(Backend::Sqlite, &[("GATEWAY_OPERATOR_OBJECTS", "shared")]).await;
    for (provider, path, methods) in OBJECTS {
        let call = proxy.call(methods[0].parse().unwrap(), provider, path).raw(MODEL);
        assert_eq!(call.send().await.status.as_u16(), 200, "{provider} {path}");
    }
}

on_both!(
    the_operators_credentials_are_for_the_listed_organizations_only,
    [
        ("GATEWAY_OPERATOR_CREDENTIALS", "acme, plan:enterprise"),
        ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator"),
    ],
    |app| async move {
        // The base URL of a custom provider is not the operator's, so openai itself is looked at through its configuration.
        let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
        let is_configured = |of: &Account| {
            let call = app.get("/api/v1/playground/providers").bearer(&of.token);
            async move {
                let list = call.send().await.expect(200);
                let openai =
                    list["providers"].as_array().unwrap().iter().find(|one| one["name"] == "openai").cloned();
                openai.unwrap()["configured"].clone()
            }
        };
        assert_eq!((is_configured(&ada).await, is_configured(&eve).await), (json!(true), json!(false)));
        // A change of the plan takes effect at once.
        app.set_enterprise_plan(&eve).await;
        assert_eq!(is_configured(&eve).await, json!(true));
    }
);

#[tokio::test]
async fn without_the_operators_credentials_calls_carry_none() {
    let proxy = with_operators_credentials(Backend::Sqlite, &[("GATEWAY_OPERATOR_CREDENTIALS", "off")]).await;
    for provider in ["openai", "anthropic", "gemini", "bedrock"] {
        proxy.call(Method::GET, provider, "/v1/models").send().await.expect(200);
    }
    // Without the operator's credential there is nothing of other organizations to see.
    proxy.call(Method::GET, "openai", "/v1/files").send().await.expect(200);
    for seen in proxy.upstream.requests() {
        let head = String::from_utf8_lossy(&seen.head).into_owned();
        assert!(!head.contains("operator") && !head.to_ascii_lowercase().contains("aws4"), "{head}");
    }
}

async fn reaches_loopback(app: &TestApp, by: &Account, upstream: &Upstream) -> bool {
    let name = format!("p{}", uuid::Uuid::new_v4().simple());
    let body = json!({"name": name, "kind": "openai", "base_url": upstream.url()});
    let path = format!("/api/v1/orgs/{}/providers", by.org_id);
    app.post(&path, body).bearer(&by.token).send().await.expect(201);
    let call = app.get("/v1/models").key(&by.api_key).header("x-gateway-provider", &name);
    call.send().await.status == 200
}

const AUTO: (&str, &str) = ("GATEWAY_EGRESS_PRIVATE", "auto");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_addresses_are_closed_with_the_second_organization() {
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::json(200, "{}"));
    let app = TestApp::start_with(Backend::Sqlite, &[AUTO]).await;
    let ada = app.signup("acme").await;
    assert!(reaches_loopback(&app, &ada, &upstream).await);
    // A signup that fails creates no organization.
    let taken = json!({"email": "eve@example.com", "password": PASSWORD, "org_slug": "acme"});
    app.post("/api/v1/signup", taken).send().await.expect(409);
    assert!(reaches_loopback(&app, &ada, &upstream).await);
    let eve = app.signup("evil").await;
    assert!(!reaches_loopback(&app, &eve, &upstream).await);
    assert!(!reaches_loopback(&app, &ada, &upstream).await);
    let (config, data) = app.stop().await;
    let app = TestApp::start(config, data).await;
    assert!(!reaches_loopback(&app, &ada, &upstream).await, "also after a restart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_addresses_are_closed_behind_a_proxy_and_with_postgres() {
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::json(200, "{}"));
    let proxied = [AUTO, ("GATEWAY_TRUSTED_PROXIES", "192.0.2.0/24")];
    for (backend, settings) in [(Backend::Sqlite, &proxied[..]), (Backend::Postgres, &[AUTO])] {
        let app = TestApp::start_with(backend, settings).await;
        let ada = app.signup("acme").await;
        assert!(!reaches_loopback(&app, &ada, &upstream).await, "{backend:?}");
    }
    assert_eq!(upstream.connections(), 0);
}

/// The log of a process that served these requests.
async fn log_of(settings: &[(&str, &str)], forwarded: bool) -> String {
    let here = tempfile::tempdir().unwrap();
    let mut serve = command(here.path(), &["serve"]);
    serve.envs(settings.iter().copied());
    let process = GatewayProcess::start(&mut serve);
    for _ in 0..3 {
        let call = process.get("/api/v1/keys").key("sk-gateway-unknown");
        let call = if forwarded { call.header("x-forwarded-for", "198.51.100.1") } else { call };
        call.send().await.expect(401);
    }
    process.signal("TERM");
    process.wait().1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_tells_what_is_open() {
    let log = log_of(&[], false).await;
    let line = log.lines().find(|line| line.contains("open to callers")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["listener"], &line["signup"]), (&json!("loopback"), &json!("open")));
    assert_eq!((&line["egress_private"], &line["operator_credentials"]), (&json!("allow"), &json!("none")));
    assert!(!log.contains("WARN"), "{log}");
    let exposed = [
        ("GATEWAY_LISTEN", "0.0.0.0:0"),
        ("GATEWAY_EGRESS_PRIVATE", "allow"),
        ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator"),
    ];
    let log = log_of(&exposed, false).await;
    for setting in
        ["GATEWAY_LISTEN", "GATEWAY_SIGNUP", "GATEWAY_OPERATOR_CREDENTIALS", "GATEWAY_EGRESS_PRIVATE"]
    {
        let warned = log.lines().any(|line| line.contains("WARN") && line.contains(setting));
        assert!(warned, "no warning names {setting}: {log}");
    }
    assert!(!log.contains("sk-operator"));
    let closed = [
        ("GATEWAY_LISTEN", "0.0.0.0:0"),
        ("GATEWAY_SIGNUP", "invite"),
        ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator"),
    ];
    let log = log_of(&closed, false).await;
    let warnings = log.lines().filter(|line| line.contains("WARN")).count();
    assert_eq!(warnings, 1, "only plain HTTP: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_is_not_trusted_is_named_once() {
    let named = |log: &str| log.lines().filter(|line| line.contains("GATEWAY_TRUSTED_PROXIES")).count();
    assert_eq!(named(&log_of(&[], true).await), 1);
    assert_eq!(named(&log_of(&[("GATEWAY_TRUSTED_PROXIES", "127.0.0.1")], true).await), 0);
    assert_eq!(named(&log_of(&[], false).await), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_proxy_is_recognized_on_a_listener_for_both_versions_of_ip() {
    let settings = [
        ("GATEWAY_LISTEN", "[::]:0"),
        ("GATEWAY_TRUSTED_PROXIES", "127.0.0.0/8"),
        ("GATEWAY_AUTH_ATTEMPTS", "2"),
    ];
    let app = TestApp::start_with(Backend::Sqlite, &settings).await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], app.address.port()));
    let login = |client: &'static str| {
        let call = crate::support::TestRequest::new(address, Method::POST, "/api/v1/login");
        call.header("x-forwarded-for", client).json(json!({"email": "a@example.com", "password": "x"})).send()
    };
    for client in ["198.51.100.1", "::ffff:198.51.100.1"] {
        login(client).await.expect(401);
    }
    login("198.51.100.1").await.expect(429);
    login("198.51.100.2").await.expect(401);
}
