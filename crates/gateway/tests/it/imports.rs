//! Imports from other gateways: the plan, its application in one transaction, conflicts, and the command.

use gateway_store::orgs;
use gateway_store::testing::count;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::on_both;
use crate::support::fallback_chain::good;
use crate::support::named_models::{sent, served};
use crate::support::{
    Account, Backend, GatewayProcess, PASSWORD, ProxyFixture, TestApp, TestResponse, command, run,
};

const SECRET: &str = "sk-secret-of-the-source";

fn litellm(base: &str) -> String {
    format!(
        "
model_list:
  - model_name: gpt-4o
    litellm_params: {{model: openai/gpt-4o-2024, api_base: '{base}/serving', api_key: {SECRET}}}
  - model_name: claude
    litellm_params: {{model: anthropic/claude-sonnet-4-5, api_key: os.environ/ANTHROPIC_API_KEY, rpm: 60}}
router_settings:
  fallbacks: [{{claude: [gpt-4o]}}]
"
    )
}

async fn import(app: &TestApp, by: &Account, body: Value) -> TestResponse {
    app.post(&format!("/api/v1/orgs/{}/import", by.org_id), body).bearer(&by.token).send().await
}

async fn names(app: &TestApp, by: &Account, what: &str) -> Vec<String> {
    let list =
        app.get(&format!("/api/v1/orgs/{}/{what}", by.org_id)).bearer(&by.token).send().await.expect(200);
    let mut names: Vec<String> =
        list[what].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn finding<'a>(answer: &'a Value, path: &str) -> &'a Value {
    let findings = answer["findings"].as_array().unwrap();
    findings
        .iter()
        .find(|finding| finding["path"] == path)
        .unwrap_or_else(|| panic!("no {path} in {findings:#?}"))
}

on_both!(a_plan_writes_nothing_and_shows_no_secret, |app| async move {
    let ada = app.signup("acme").await;
    let data = litellm("http://127.0.0.1:9");
    let answer = import(&app, &ada, json!({"source": "litellm", "data": data})).await;
    assert!(!answer.text().contains(SECRET));
    let planned = answer.expect(200);
    assert_eq!(planned["applied"], false);
    assert_eq!(planned["plan"]["models"][1]["name"], "claude");
    assert_eq!(planned["plan"]["providers"][0]["has_api_key"], true);
    assert_eq!(planned["plan"]["providers"][0]["path_prefix"], "");
    assert_eq!(planned["changes"]["created"].as_array().unwrap().len(), 5);
    let key = finding(&planned, "model_list[1].litellm_params.api_key");
    assert_eq!(key["status"], "manual");
    assert_eq!(finding(&planned, "router_settings.fallbacks")["status"], "approximate");
    assert!(names(&app, &ada, "models").await.is_empty());
    assert!(names(&app, &ada, "providers").await.is_empty());
});

on_both!(an_import_is_applied_once, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"source": "litellm", "data": litellm("http://127.0.0.1:9"), "apply": true});
    let first = import(&app, &ada, body.clone()).await.expect(200);
    assert_eq!((&first["applied"], first["changes"]["created"].as_array().unwrap().len()), (&json!(true), 5));
    assert_eq!(names(&app, &ada, "models").await, ["claude", "gpt-4o"]);
    assert_eq!(names(&app, &ada, "providers").await, ["anthropic", "openai"]);
    assert_eq!(names(&app, &ada, "limits").await, ["model-claude"]);
    let second = import(&app, &ada, body).await.expect(200);
    assert_eq!(second["changes"]["unchanged"].as_array().unwrap().len(), 5);
    assert!(second["changes"]["created"].as_array().unwrap().is_empty());
    let path = format!("/api/v1/orgs/{}/models/gpt-4o", ada.org_id);
    assert_eq!(app.get(&path).bearer(&ada.token).send().await.expect(200)["version"], 1);
    let audit = app.get(&format!("/api/v1/orgs/{}/audit", ada.org_id)).bearer(&ada.token).send().await;
    assert!(audit.text().contains("org.import") && !audit.text().contains(SECRET));
});

on_both!(other_content_under_a_name_is_a_conflict, |app| async move {
    let ada = app.signup("acme").await;
    let body = |base: &str, on_conflict: Option<&str>| {
        let mut body = json!({"source": "litellm", "data": litellm(base), "apply": true});
        if let Some(on_conflict) = on_conflict {
            body["on_conflict"] = json!(on_conflict);
        }
        body
    };
    import(&app, &ada, body("http://127.0.0.1:9", None)).await.expect(200);
    let path = format!("/api/v1/orgs/{}/models/claude", ada.org_id);
    let other = json!({"targets": [{"provider": "openai", "model": "x"}]});
    app.put(&path, other).bearer(&ada.token).send().await.expect(200);

    let refused = import(&app, &ada, body("http://127.0.0.1:10", None)).await.expect_error(409, "conflict");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("provider openai") && message.contains("model claude"), "{message}");
    let skipped = import(&app, &ada, body("http://127.0.0.1:10", Some("skip"))).await.expect(200);
    assert_eq!(skipped["changes"]["skipped"].as_array().unwrap().len(), 2);
    assert_eq!(app.get(&path).bearer(&ada.token).send().await.expect(200)["version"], 2);
    let replaced = import(&app, &ada, body("http://127.0.0.1:10", Some("replace"))).await.expect(200);
    assert_eq!(replaced["changes"]["replaced"].as_array().unwrap().len(), 2);
    let model = app.get(&path).bearer(&ada.token).send().await.expect(200);
    assert_eq!((&model["version"], &model["targets"][0]["provider"]), (&json!(3), &json!("anthropic")));
});

on_both!(imports_are_for_admins_and_malformed_ones_are_refused, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.join(&ada, "member").await;
    let body = json!({"source": "litellm", "data": "model_list: []"});
    import(&app, &bob, body).await.expect_error(403, "forbidden");
    let wrong = json!({"source": "litellm", "data": "a: [b"});
    let error = import(&app, &ada, wrong).await.expect_error(400, "bad_request");
    assert!(error["message"].as_str().unwrap().contains("YAML"));
    import(&app, &ada, json!({"source": "nginx", "data": ""})).await.expect_error(400, "bad_request");
    let more = json!({"source": "litellm", "data": "model_list: []", "comment": "ours"});
    assert_eq!(import(&app, &ada, more).await.expect(200)["applied"], false, "unknown fields are ignored");
});

on_both!(an_import_has_a_bounded_number_of_things, |app| async move {
    let ada = app.enterprise("acme").await;
    let keys = |count: usize| {
        let keys: Vec<Value> = (0..count).map(|number| json!({"token": format!("{number:064x}")})).collect();
        json!({"source": "litellm-keys", "data": json!({"keys": keys}).to_string()})
    };
    let started = app.app.services.compute.stats().granted;
    let error = import(&app, &ada, keys(2_001)).await.expect_error(400, "bad_request");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("data: ") && message.contains("has 2001") && message.contains("divide"),
        "{message}"
    );
    assert!(
        app.app.services.compute.stats().granted > started,
        "a large body is parsed by the threads for computation"
    );
    let planned = import(&app, &ada, keys(2_000)).await.expect(200);
    assert_eq!(planned["changes"]["created"].as_array().unwrap().len(), 2_000);
});

on_both!(a_plan_waits_for_no_change_and_writes_nothing, |app| async move {
    let (ada, db) = (app.enterprise("acme").await, &app.app.services.db);
    let org = ada.org_id.parse().unwrap();
    let key = |number: usize| {
        let token = format!("{number:064x}");
        json!({"token": token, "max_budget": 5, "budget_duration": "30d", "rpm_limit": 60})
    };
    let rows = json!({
        "keys": (0..50).map(key).collect::<Vec<_>>(),
        "customers": [{"user_id": "ann", "litellm_budget_table": {"max_budget": 2.5, "budget_duration": "1d"}}],
    });
    let body = |apply: bool| json!({"source": "litellm-keys", "data": rows.to_string(), "apply": apply});
    let tables = ["api_keys", "foreign_keys", "budgets", "limits", "user_budgets", "events", "deliveries"];
    let rows_of = async || {
        let mut counts = Vec::new();
        for table in tables {
            counts.push(count(db, table).await.unwrap());
        }
        counts
    };
    let before = rows_of().await;
    // Another change holds SQLite's only writer, and the organization.
    let mut other = db.begin().await.unwrap();
    assert!(orgs::lock_for_update(&mut other, org).await.unwrap());
    let planned = import(&app, &ada, body(false)).await.expect(200);
    other.commit().await.unwrap();
    assert_eq!(planned["applied"], false);
    assert_eq!(
        planned["changes"]["created"].as_array().unwrap().len(),
        101,
        "keys, limits and a budget of a user"
    );
    assert_eq!(rows_of().await, before);
    let applied = import(&app, &ada, body(true)).await.expect(200);
    for part in ["plan", "findings", "changes"] {
        assert_eq!(applied[part], planned[part], "the plan says what the import does: {part}");
    }
    // What is there is found by the next plan.
    let again = import(&app, &ada, body(false)).await.expect(200);
    assert_eq!(again["changes"]["created"], json!([]), "{again}");
    assert_eq!(again["changes"]["unchanged"], planned["changes"]["created"]);
});

on_both!(
    a_plan_is_refused_as_the_import_is,
    [("GATEWAY_QUOTAS", "free.keys=5, free.models=1")],
    |app| async move {
        let ada = app.signup("acme").await;
        let body = |data: &Value, apply: bool| json!({"source": "litellm-keys", "data": data.to_string(), "apply": apply});
        let keys = |valid: usize| {
            let row = |number: usize| json!({"token": format!("{number:064x}"), "blocked": number >= valid});
            json!({"keys": (0..20).map(row).collect::<Vec<_>>()})
        };
        for apply in [false, true] {
            let refused = import(&app, &ada, body(&keys(20), apply)).await;
            assert_eq!(refused.expect_error(403, "quota_exceeded")["quota"], "keys");
            let models = json!({"source": "litellm", "data": litellm("http://127.0.0.1:9"), "apply": apply});
            let refused = import(&app, &ada, models).await;
            assert_eq!(refused.expect_error(403, "quota_exceeded")["quota"], "models");
        }
        // Blocked keys are not counted.
        let planned = import(&app, &ada, body(&keys(2), false)).await.expect(200);
        let applied = import(&app, &ada, body(&keys(2), true)).await.expect(200);
        assert_eq!(applied["changes"], planned["changes"]);
    }
);

on_both!(limits_are_imported_with_their_keys_and_models, |app| async move {
    let ada = app.signup("acme").await;
    let rows = |rpm: u64| {
        json!({
            "keys": [
                {"token": "a".repeat(64), "key_alias": "one", "team_id": "t"},
                {"token": "b".repeat(64), "key_alias": "two", "team_id": "t"},
            ],
            "teams": [{"team_id": "t", "team_alias": "Search", "rpm_limit": rpm}],
        })
    };
    let body = |rpm: u64, on_conflict: &str| json!({"source": "litellm-keys", "data": rows(rpm).to_string(), "apply": true, "on_conflict": on_conflict});
    let done = import(&app, &ada, body(60, "fail")).await.expect(200);
    assert_eq!(done["changes"]["created"].as_array().unwrap().len(), 3, "two keys and a limit");
    let list = format!("/api/v1/orgs/{}/limits", ada.org_id);
    let limit = app.get(&list).bearer(&ada.token).send().await.expect(200)["limits"][0].clone();
    assert_eq!((&limit["name"], &limit["requests"]), (&json!("team-search"), &json!(60)));
    let error = import(&app, &ada, body(90, "fail")).await.expect_error(409, "conflict");
    assert!(error["message"].as_str().unwrap().contains("limit team-search"), "{error}");
    let skipped = import(&app, &ada, body(90, "skip")).await.expect(200);
    assert_eq!(skipped["changes"]["skipped"], json!([{"kind": "limit", "name": "team-search"}]));
    import(&app, &ada, body(90, "replace")).await.expect(200);
    let after = app.get(&list).bearer(&ada.token).send().await.expect(200)["limits"][0].clone();
    assert_eq!((&after["id"], &after["requests"]), (&limit["id"], &json!(90)));
});

on_both!(customers_become_budgets_of_users, |app| async move {
    let ada = app.signup("acme").await;
    let data = json!({
        "keys": [{"token": "a".repeat(64)}],
        "customers": [{"user_id": "ann", "litellm_budget_table": {"max_budget": 2.5, "budget_duration": "1d"}}],
    });
    let body = json!({"source": "litellm-keys", "data": data.to_string(), "apply": true});
    import(&app, &ada, body.clone()).await.expect(200);
    let path = format!("/api/v1/orgs/{}/budgets", ada.org_id);
    let budget = app.get(&path).bearer(&ada.token).send().await.expect(200)["budgets"][0].clone();
    assert_eq!((&budget["scope"], &budget["scope_id"]), (&json!("user"), &json!("ann")));
    assert_eq!((&budget["period"], &budget["hard_limit_usd"]), (&json!("daily"), &json!(2.5)));
    let again = import(&app, &ada, body).await.expect(200);
    assert_eq!(again["changes"]["created"], json!([]));
});

on_both!(keys_are_imported_by_their_hash, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let hash = hex::encode(Sha256::digest("sk-1234-from-litellm"));
    let rows = json!([
        {"token": hash, "key_alias": "ci", "key_name": "sk-...tell", "models": ["gpt-4o"], "max_budget": 5, "budget_duration": "30d",
         "spend": 4},
        {"token": "0".repeat(64), "key_alias": "blocked", "blocked": true, "rpm_limit": 3},
    ]);
    let body = json!({"source": "litellm-keys", "data": rows.to_string(), "apply": true});
    let done = import(&app, &ada, body.clone()).await.expect(200);
    assert_eq!(done["plan"]["budgets"][0]["period"], "monthly");
    assert_eq!(finding(&done, "keys[*].rpm_limit")["status"], "approximate");
    let list = app.get("/api/v1/keys").bearer(&ada.token).send().await.expect(200);
    let of = |name: &str| {
        let keys = list["keys"].as_array().unwrap();
        keys.iter().find(|key| key["name"] == name).unwrap_or_else(|| panic!("no key {name}")).clone()
    };
    assert_eq!(
        (&of("ci")["scopes"], &of("ci")["key_prefix"]),
        (&json!(["model:gpt-4o"]), &json!("sk-...tell"))
    );
    assert!(of("ci")["revoked_at"].is_null() && !of("blocked")["revoked_at"].is_null());
    let budgets = app.get(&format!("/api/v1/orgs/{}/budgets", ada.org_id)).bearer(&ada.token).send().await;
    let budget = &budgets.expect(200)["budgets"][0];
    assert_eq!((&budget["hard_limit_usd"], &budget["spent_usd"]), (&json!(5.0), &json!(4.0)));
    assert_eq!(budget["opening_usd"], 4.0, "spent at the other gateway");
    assert_eq!(done["plan"]["limits"][0]["definition"]["requests"], 3);
    let limits = app.get(&format!("/api/v1/orgs/{}/limits", ada.org_id)).bearer(&ada.token).send().await;
    let limit = &limits.expect(200)["limits"][0];
    assert_eq!(
        (&limit["name"], &limit["scope"], &limit["requests"]),
        (&json!("key-blocked"), &json!("key"), &json!(3))
    );
    assert_eq!(limit["scope_id"], of("blocked")["id"]);
    let again = import(&app, &ada, body.clone()).await.expect(200);
    assert_eq!(again["changes"]["created"], json!([]), "the same content changes nothing");
    // On native paths the key of another gateway is no key.
    app.get("/api/v1/keys").key("sk-1234-from-litellm").send().await.expect_error(401, "unauthorized");
    // A hash belongs to one organization.
    let theirs = import(&app, &eve, body).await.expect(200);
    assert!(theirs["changes"]["created"].as_array().unwrap().is_empty());
    assert_eq!(finding(&theirs, "keys.ci")["status"], "manual");
});

#[tokio::test]
async fn an_imported_model_is_called_as_the_source_calls_it() {
    let proxy = ProxyFixture::start().await;
    proxy.upstream.set_default_reply(good());
    let data = litellm(&proxy.upstream.url());
    let body = json!({"source": "litellm", "data": data, "apply": true});
    import(&proxy.app, &proxy.ada, body).await.expect(200);
    let answer = proxy.by_name("gpt-4o").send().await;
    answer.expect(200);
    assert_eq!(served(&answer), ("openai", "gpt-4o-2024"));
    assert_eq!(sent(&proxy.upstream)["model"], "gpt-4o-2024");
    let request = proxy.upstream.requests().pop().unwrap();
    assert_eq!(request.target(), "/serving/chat/completions", "no /v1, as LiteLLM calls it");
    assert_eq!(request.header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
}

#[tokio::test]
async fn what_a_key_has_spent_before_counts() {
    for backend in Backend::BOTH {
        let proxy = ProxyFixture::start_with(backend, &[("GATEWAY_COMPAT", "litellm")]).await;
        proxy.upstream.set_default_reply(good());
        proxy.save("smart", json!({"targets": [{"provider": "openai", "model": "gpt-4o"}]})).await;
        let row = |key: &str, spend: f64| {
            json!({"token": hex::encode(Sha256::digest(key)), "key_alias": key, "spend": spend, "max_budget": 5,
                   "budget_duration": "1mo"})
        };
        let rows = json!([row("sk-rich", 1.0), row("sk-broke", 5.5)]);
        let body = json!({"source": "litellm-keys", "data": rows.to_string(), "apply": true});
        import(&proxy.app, &proxy.ada, body).await.expect(200);
        let chat = |key: &str| {
            let call = proxy
                .app
                .post("/compat/litellm/v1/chat/completions", json!({"model": "smart", "messages": []}));
            call.bearer(key)
        };
        let rich = chat("sk-rich").send().await;
        rich.expect(200);
        let remaining: f64 = rich.header("x-gateway-budget-remaining").unwrap().parse().unwrap();
        assert!(remaining <= 4.0 && remaining > 3.9, "{remaining}");
        chat("sk-broke").send().await.expect_error(403, "budget_exceeded");
    }
}

on_both!(settings_of_the_source_are_those_of_the_organization, |app| async move {
    let ada = app.signup("acme").await;
    let data = "litellm_settings: {turn_off_message_logging: true}";
    let body = json!({"source": "litellm", "data": data, "apply": true});
    let log_bodies = || async {
        let path = format!("/api/v1/orgs/{}", ada.org_id);
        app.get(&path).bearer(&ada.token).send().await.expect(200)["settings"]["log_bodies"].clone()
    };
    assert_eq!(log_bodies().await, true);
    let done = import(&app, &ada, body.clone()).await.expect(200);
    assert_eq!(done["plan"]["settings"], json!({"log_bodies": false}));
    assert_eq!(done["changes"]["created"], json!([{"kind": "setting", "name": "log_bodies"}]));
    assert_eq!(log_bodies().await, false);
    let again = import(&app, &ada, body).await.expect(200);
    assert_eq!(again["changes"]["unchanged"].as_array().unwrap().len(), 1);
});

#[tokio::test]
async fn the_command_reads_the_environment() {
    let here = tempfile::tempdir().unwrap();
    let server = GatewayProcess::start(&mut command(here.path(), &["serve"]));
    let account = json!({"email": "a@example.com", "password": PASSWORD, "org_slug": "acme"});
    server.post("/api/v1/signup", &account).send().await.expect(201);
    server.signal("TERM");
    assert_eq!(server.wait().0, Some(0));
    std::fs::write(here.path().join("litellm.yaml"), litellm("http://127.0.0.1:9")).unwrap();
    std::fs::write(here.path().join("env"), "# keys\nexport ANTHROPIC_API_KEY='sk-ant-of-the-file'\n")
        .unwrap();
    let gateway = |arguments: &[&str]| run(&mut command(here.path(), arguments));
    let plan = gateway(&["import", "litellm", "litellm.yaml", "--org", "acme"]);
    assert_eq!(plan.code, Some(0), "{plan:?}");
    assert!(plan.stdout.contains("ANTHROPIC_API_KEY") && plan.stdout.contains("nothing was written"));
    let arguments =
        ["import", "litellm", "litellm.yaml", "--org", "acme", "--env-file", "env", "--apply", "--json"];
    let applied = gateway(&arguments);
    assert_eq!(applied.code, Some(0), "{applied:?}");
    assert!(!applied.stdout.contains("sk-ant-of-the-file"));
    let applied: Value = serde_json::from_str(&applied.stdout).unwrap();
    assert_eq!(applied["changes"]["created"].as_array().unwrap().len(), 5);
    let again: Value = serde_json::from_str(&gateway(&arguments).stdout).unwrap();
    assert_eq!(again["changes"]["unchanged"].as_array().unwrap().len(), 5);
    assert_eq!(gateway(&["import", "litellm", "litellm.yaml", "--org", "nobody"]).code, Some(1));
    let retired = gateway(&["keys", "retire-foreign", "--org", "acme"]);
    assert!(retired.stdout.contains("0 imported keys"), "{retired:?}");
}

#[tokio::test]
async fn what_exceeds_a_quota_is_not_imported_at_all() {
    let app = TestApp::start_with(Backend::Sqlite, &[("GATEWAY_QUOTAS", "free.models=1")]).await;
    let ada = app.signup("acme").await;
    let body = json!({"source": "litellm", "data": litellm("http://127.0.0.1:9"), "apply": true});
    assert_eq!(import(&app, &ada, body).await.status, 403);
    assert!(names(&app, &ada, "models").await.is_empty() && names(&app, &ada, "providers").await.is_empty());
}
