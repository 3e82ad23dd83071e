//! Hard budgets hold also for session tokens, for keys that members make or move, and for calls without a price.

use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::{Account, Backend, ProxyFixture, TestApp, TestRequest, TestResponse};
use crate::upstream::Reply;

/// 10 + 100 tokens of gpt-4o cost 0.001025 USD.
const ANSWER: &str = r#"{"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"x"}}],"usage":{"prompt_tokens":10,"completion_tokens":100,"total_tokens":110}}"#;
const COST: f64 = 0.001_025;
/// An operation without a usage report.
const IMAGES: &str = "/v1/images/generations";

fn below(of: &Account, what: &str) -> String {
    format!("/api/v1/orgs/{}/{what}", of.org_id)
}

async fn make(app: &TestApp, by: &Account, what: &str, body: Value) -> Value {
    app.post(&below(by, what), body).bearer(&by.token).send().await.expect(201)
}

async fn spent(app: &TestApp, by: &Account, budget: &Value) -> f64 {
    let path = format!("{}/{}", below(by, "budgets"), budget["id"].as_str().unwrap());
    app.get(&path).bearer(&by.token).send().await.expect(200)["spent_usd"].as_f64().unwrap()
}

fn is_near(usd: f64, expected: f64) -> bool {
    (usd - expected).abs() < 1e-9
}

fn chat(proxy: &ProxyFixture, model: &str) -> TestRequest {
    let body = json!({"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]});
    let call = proxy.app.call(Method::POST, "/v1/chat/completions").json(body);
    call.header("x-gateway-provider", "openai")
}

async fn started(backend: Backend) -> ProxyFixture {
    let proxy = ProxyFixture::start_with(backend, &[]).await;
    proxy.upstream.set_default_reply(Reply::json(200, ANSWER));
    proxy
}

/// Runs a test with an upstream on both databases.
macro_rules! with_upstream {
    ($name:ident, |$proxy:ident| $body:expr) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            for backend in Backend::BOTH {
                let $proxy = started(backend).await;
                $body.await;
            }
        }
    };
}

async fn member_key(app: &TestApp, header: (&str, &str), body: Value) -> (String, String) {
    let made = app.post("/api/v1/keys", body).header(header.0, header.1).send().await.expect(201);
    (made["key"]["id"].as_str().unwrap().to_owned(), made["raw_key"].as_str().unwrap().to_owned())
}

fn assert_exhausted(answer: &TestResponse) {
    answer.expect_error(403, "budget_exceeded");
}

with_upstream!(a_team_budget_binds_the_members_of_the_team, |proxy| async {
    let (app, ada) = (&proxy.app, &proxy.ada);
    let (bob, carol) = (app.join(ada, "member").await, app.join(ada, "member").await);
    make(app, ada, "teams", json!({"name": "first", "member_ids": [bob.user_id]})).await;
    let team = make(app, ada, "teams", json!({"name": "core", "member_ids": [bob.user_id]})).await;
    let bearer = format!("Bearer {}", bob.token);
    let (_, before) = member_key(app, ("authorization", &bearer), json!({"name": "before"})).await;
    chat(&proxy, "gpt-4o").key(&before).send().await.expect(200);
    chat(&proxy, "gpt-4o").bearer(&bob.token).send().await.expect(200);
    let budget = json!({"scope": "team", "scope_id": team["id"], "period": "daily", "hard_limit_usd": COST});
    let budget = make(app, ada, "budgets", budget).await;
    // The team with a budget is the one that counts.
    let answer = chat(&proxy, "gpt-4o").bearer(&bob.token).send().await;
    answer.expect(200);
    assert_eq!(proxy.log_row(&answer).await["team_id"], team["id"]);
    assert!(is_near(spent(app, ada, &budget).await, COST));
    assert_exhausted(&chat(&proxy, "gpt-4o").bearer(&bob.token).send().await);
    // Neither keys of the member nor a new one, nor one that such a key makes, nor an application without a budget.
    let (_, after) = member_key(app, ("authorization", &bearer), json!({"name": "after"})).await;
    let (_, child) = member_key(app, ("x-gateway-key", &after), json!({"name": "child"})).await;
    let bot = make(app, ada, "apps", json!({"name": "bot"})).await;
    let in_app = json!({"name": "bot", "app_id": bot["id"]});
    let (_, of_app) = member_key(app, ("authorization", &bearer), in_app).await;
    for key in [&before, &after, &child, &of_app] {
        assert_exhausted(&chat(&proxy, "gpt-4o").key(key).send().await);
    }
    let try_it =
        json!({"provider": "openai", "model": "gpt-4o", "messages": [{"role": "user", "content": "x"}]});
    let tried = app.post("/api/v1/playground/run", try_it).bearer(&bob.token).send().await;
    assert!(tried.text().contains("budget_exceeded"), "{}", tried.text());
    // Others are not bound, and neither is who has left the team.
    chat(&proxy, "gpt-4o").bearer(&carol.token).send().await.expect(200);
    chat(&proxy, "gpt-4o").bearer(&ada.token).send().await.expect(200);
    chat(&proxy, "gpt-4o").key(&ada.api_key).send().await.expect(200);
    let path = below(ada, &format!("teams/{}", team["id"].as_str().unwrap()));
    let change = json!({"member_ids": [carol.user_id]});
    app.put(&path, change).bearer(&ada.token).send().await.expect(200);
    chat(&proxy, "gpt-4o").bearer(&bob.token).send().await.expect(200);
    chat(&proxy, "gpt-4o").key(&child).send().await.expect(200);
    assert_exhausted(&chat(&proxy, "gpt-4o").bearer(&carol.token).send().await);
});

on_both!(only_admins_move_a_key_out_of_an_application_with_a_budget, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "member").await;
    let team = make(&app, &ada, "teams", json!({"name": "core"})).await;
    let plain = make(&app, &ada, "apps", json!({"name": "plain"})).await;
    let limited = make(&app, &ada, "apps", json!({"name": "limited"})).await;
    let of_team = make(&app, &ada, "apps", json!({"name": "team's", "team_id": team["id"]})).await;
    for (scope, id) in [("app", &limited["id"]), ("team", &team["id"])] {
        let body = json!({"scope": scope, "scope_id": id, "period": "daily", "hard_limit_usd": 1});
        make(&app, &ada, "budgets", body).await;
    }
    let bearer = format!("Bearer {}", bob.token);
    let body = json!({"name": "bobs", "app_id": plain["id"]});
    let (id, _) = member_key(&app, ("authorization", &bearer), body).await;
    let path = format!("/api/v1/keys/{id}");
    let put = |by: &Account, to: &Value| app.put(&path, json!({"app_id": to})).bearer(&by.token).send();
    for into in [&limited["id"], &of_team["id"]] {
        put(&bob, into).await.expect(200);
        for to in [&Value::Null, &plain["id"]] {
            put(&bob, to).await.expect_error(403, "forbidden");
        }
        put(&bob, into).await.expect(200);
        app.put(&path, json!({"name": "renamed"})).bearer(&bob.token).send().await.expect(200);
        put(&ada, &plain["id"]).await.expect(200);
    }
    put(&bob, &Value::Null).await.expect(200);
});

on_both!(a_budget_says_what_happens_to_calls_without_a_price, |app| async move {
    let ada = app.signup("acme").await;
    let body = |fields: Value| {
        let mut body = json!({"scope": "org", "period": "daily", "hard_limit_usd": 1});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    let shown = |budget: &Value| (budget["unpriced"].clone(), budget["unpriced_flat_usd"].clone());
    let made = make(&app, &ada, "budgets", body(json!({}))).await;
    assert_eq!(shown(&made), (json!("allow"), Value::Null));
    let made =
        make(&app, &ada, "budgets", body(json!({"unpriced": "flat", "unpriced_flat_usd": 0.25}))).await;
    assert_eq!(shown(&made), (json!("flat"), json!(0.25)));
    let path = format!("{}/{}", below(&ada, "budgets"), made["id"].as_str().unwrap());
    let change = |fields: Value| app.put(&path, fields).bearer(&ada.token).send();
    assert_eq!(shown(&change(json!({"hard_limit_usd": 2})).await.expect(200)), (json!("flat"), json!(0.25)));
    assert_eq!(
        shown(&change(json!({"unpriced_flat_usd": 0.5})).await.expect(200)),
        (json!("flat"), json!(0.5))
    );
    assert_eq!(
        shown(&change(json!({"unpriced": "refuse"})).await.expect(200)),
        (json!("refuse"), Value::Null)
    );
    change(json!({"unpriced": "flat"})).await.expect_error(400, "bad_request");
    change(json!({"unpriced_flat_usd": 1})).await.expect_error(400, "bad_request");
    for wrong in [
        json!({"unpriced": "deny"}),
        json!({"unpriced": "flat"}),
        json!({"unpriced": "flat", "unpriced_flat_usd": 0}),
        json!({"unpriced": "flat", "unpriced_flat_usd": -1}),
        json!({"unpriced": "flat", "unpriced_flat_usd": 1_000_001}),
        json!({"unpriced_flat_usd": 1}),
    ] {
        let answer = app.post(&below(&ada, "budgets"), body(wrong.clone())).bearer(&ada.token).send().await;
        let error = answer.expect_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains("unpriced"), "{wrong}: {error}");
    }
});

with_upstream!(calls_without_a_price_are_refused_where_the_budget_says_so, |proxy| async {
    let (app, ada) = (&proxy.app, &proxy.ada);
    let body = json!({"scope": "org", "period": "daily", "hard_limit_usd": 1, "unpriced": "refuse"});
    let budget = make(app, ada, "budgets", body).await;
    let before = proxy.upstream.requests().len();
    let refused = chat(&proxy, "nobody-knows").key(&ada.api_key).send().await;
    let error = refused.expect_error(403, "unpriced");
    assert_eq!(error["budget_id"], budget["id"]);
    let fallback = chat(&proxy, "gpt-4o").header("x-gateway-fallback", "openai/nobody-knows");
    fallback.key(&ada.api_key).send().await.expect_error(403, "unpriced");
    for path in [IMAGES, "/v1/audio/speech", "/v1/anything/else"] {
        let call = proxy.post("openai", path, json!({"model": "gpt-4o"}).to_string());
        call.send().await.expect_error(403, "unpriced");
    }
    assert_eq!(proxy.upstream.requests().len(), before);
    // Reads and deletions are free, and a priced model goes on.
    for (method, path) in
        [(Method::GET, "/v1/models"), (Method::GET, "/v1/anything"), (Method::DELETE, "/v1/anything/1")]
    {
        proxy.call(method, "openai", path).send().await.expect(200);
    }
    chat(&proxy, "gpt-4o").key(&ada.api_key).send().await.expect(200);
});

with_upstream!(calls_without_a_price_count_a_flat_amount_where_the_budget_says_so, |proxy| async {
    let (app, ada) = (&proxy.app, &proxy.ada);
    let answer = r#"{"model":"nobody-knows","usage":{"prompt_tokens":10,"completion_tokens":1}}"#;
    let flat = |limit: f64| {
        json!({"scope": "org", "period": "daily", "hard_limit_usd": limit,
            "unpriced": "flat", "unpriced_flat_usd": 0.25})
    };
    let (small, large) =
        (make(app, ada, "budgets", flat(0.75)).await, make(app, ada, "budgets", flat(9.0)).await);
    let body = json!({"scope": "org", "period": "daily", "hard_limit_usd": 9});
    let allowing = make(app, ada, "budgets", body).await;
    proxy.upstream.set_default_reply(Reply::json(200, answer));
    let unknown = chat(&proxy, "nobody-knows").key(&ada.api_key).send().await;
    unknown.expect(200);
    proxy.log_row(&unknown).await;
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    proxy.post("openai", IMAGES, "{}").send().await.expect(200);
    proxy.call(Method::GET, "openai", "/v1/anything").send().await.expect(200);
    proxy.upstream.set_default_reply(Reply::json(400, "{}"));
    proxy.post("openai", IMAGES, "{}").send().await.expect(400);
    proxy.upstream.set_default_reply(Reply::json(200, ANSWER));
    chat(&proxy, "gpt-4o").key(&ada.api_key).send().await.expect(200);
    for budget in [&small, &large] {
        assert!(is_near(spent(app, ada, budget).await, 0.5 + COST));
    }
    assert!(is_near(spent(app, ada, &allowing).await, COST));
    proxy.upstream.set_default_reply(Reply::json(200, "{}"));
    proxy.post("openai", IMAGES, "{}").send().await.expect(200);
    assert_exhausted(&proxy.post("openai", IMAGES, "{}").send().await);
    assert_exhausted(&chat(&proxy, "gpt-4o").key(&ada.api_key).send().await);
    // The amounts are the same when they are read from the store.
    let path = format!("{}/{}", below(ada, "budgets"), small["id"].as_str().unwrap());
    app.put(&path, json!({"hard_limit_usd": 5})).bearer(&ada.token).send().await.expect(200);
    assert!(is_near(spent(app, ada, &small).await, 0.75 + COST));
    // Another flat amount counts for the calls of the period, too.
    app.put(&path, json!({"unpriced_flat_usd": 0.5})).bearer(&ada.token).send().await.expect(200);
    assert!(is_near(spent(app, ada, &small).await, 1.5 + COST));
});
