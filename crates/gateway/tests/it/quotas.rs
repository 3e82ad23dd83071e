//! Quotas of plans, the operator's retention, and the number of lines of usage: what one organization may store.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use gateway_core::logs::{LogRow, LogSource};
use gateway_core::quotas::MAX_VERSIONS;
use gateway_core::time::DAY;
use gateway_store::logs::{self, BatchLimits, DayQuota, LineLimits};
use gateway_store::testing::{count, execute};
use http::Method;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{row, with};
use crate::support::skills::fields;
use crate::support::{Account, PASSWORD, TestApp, TestRequest};

const SMALL: [(&str, &str); 1] = [(
    "GATEWAY_QUOTAS",
    "free.keys=3, free.providers=3, free.models=3, free.prompts=3, free.datasets=3, enterprise.webhooks=3, \
     enterprise.exports=3",
)];

/// The quotas of an organization. They are counted once in a second, so a test asks once.
async fn quotas(app: &TestApp, account: &Account) -> Value {
    app.get("/api/v1/auth/entitlements").bearer(&account.token).send().await.expect(200)["quotas"].take()
}

/// Sends ten requests at once. Returns how many were accepted; the others must name the quota.
async fn create_ten(
    app: &TestApp,
    account: &Account,
    (path, quota): (&str, &str),
    body: impl Fn(usize) -> Value,
) -> usize {
    let create = |number: usize| app.post(path, body(number)).bearer(&account.token).send();
    let answers = join_all((0..10).map(create)).await;
    for refused in answers.iter().filter(|answer| answer.status != 201) {
        let problem = refused.expect_error(403, "quota_exceeded");
        assert_eq!((&problem["quota"], &problem["limit"]), (&json!(quota), &json!(3)), "{problem}");
        let message = problem.get("message").or_else(|| problem.get("error")).unwrap().as_str().unwrap();
        for part in [quota, "3", "plan", "delete"] {
            assert!(message.contains(part), "{message}");
        }
    }
    answers.iter().filter(|answer| answer.status == 201).count()
}

on_both!(concurrent_requests_do_not_exceed_a_quota, SMALL, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("other").await);
    let named = |number: usize| json!({"name": format!("n{number}")});
    // The organization was created with a key.
    assert_eq!(create_ten(&app, &ada, ("/api/v1/keys", "keys"), named).await, 2);
    let providers = format!("/api/v1/orgs/{}/providers", ada.org_id);
    let provider = |number: usize| json!({"name": format!("mine-{number}"), "kind": "openai", "base_url": "https://example.com"});
    assert_eq!(create_ten(&app, &ada, (&providers, "providers"), provider).await, 3);
    let prompt = |number: usize| json!({"namespace": "a", "slug": format!("p{number}"), "content": "Hi."});
    assert_eq!(create_ten(&app, &ada, ("/api/v1/prompts", "prompts"), prompt).await, 3);
    assert_eq!(create_ten(&app, &ada, ("/api/v1/datasets", "datasets"), named).await, 3);
    let models = format!("/api/v1/orgs/{}/models", ada.org_id);
    let model = |number: usize| json!({"name": format!("m{number}"), "targets": [{"provider": "openai", "model": "x"}]});
    assert_eq!(create_ten(&app, &ada, (&models, "models"), model).await, 3);
    let quotas = quotas(&app, &ada).await;
    for quota in ["keys", "providers", "models", "prompts", "datasets"] {
        assert_eq!(quotas[quota], json!({"limit": 3, "used": 3}), "{quota}");
    }
    // New versions are no new prompts, and what was deleted makes room.
    let version = json!({"content": "Hello."});
    app.put("/api/v1/prompts/a/p0", version).bearer(&ada.token).send().await;
    let keys = app.get("/api/v1/keys").bearer(&ada.token).send().await.expect(200);
    let id = keys["keys"][0]["id"].as_str().unwrap();
    let rotate = |overlap: u32| {
        let body = json!({"overlap_hours": overlap});
        app.post(&format!("/api/v1/keys/{id}/rotate"), body).bearer(&ada.token).send()
    };
    rotate(1).await.expect_error(403, "quota_exceeded");
    rotate(0).await.expect(201);
    let keys = app.get("/api/v1/keys").bearer(&ada.token).send().await.expect(200);
    let valid = keys["keys"].as_array().unwrap().iter().find(|key| key["expires_at"].is_null()).unwrap();
    let path = format!("/api/v1/keys/{}", valid["id"].as_str().unwrap());
    app.delete(&path).bearer(&ada.token).send().await.expect(200);
    app.post("/api/v1/keys", json!({"name": "again"})).bearer(&ada.token).send().await.expect(201);
    // The quota of one organization is not that of another.
    app.post("/api/v1/datasets", json!({"name": "theirs"})).bearer(&eve.token).send().await.expect(201);
});

on_both!(keys_that_ended_lately_count_too, [("GATEWAY_QUOTAS", "free.keys=2")], |app| async move {
    let ada = app.signup("acme").await;
    let create = || app.post("/api/v1/keys", json!({"name": "short-lived"})).key(&ada.api_key).send();
    // With the first key of the organization these are ten times the quota.
    for _ in 0..19 {
        let id = create().await.expect(201)["key"]["id"].as_str().unwrap().to_owned();
        app.delete(&format!("/api/v1/keys/{id}")).key(&ada.api_key).send().await.expect(200);
    }
    let problem = create().await.expect_error(403, "quota_exceeded");
    assert_eq!((&problem["quota"], &problem["limit"]), (&json!("keys"), &json!(20)), "{problem}");
    let shown = quotas(&app, &ada).await;
    assert_eq!(shown["keys"], json!({"limit": 2, "used": 1}), "ended keys are not shown as used");
    app.app.services.clock.advance(30 * DAY);
    create().await.expect(201);
    create().await.expect_error(403, "quota_exceeded");
});

on_both!(webhooks_and_exports_have_quotas, SMALL, |app| async move {
    let ada = app.enterprise("acme").await;
    let webhook = |number: usize| json!({"url": format!("https://example.com/{number}"), "events": []});
    assert_eq!(create_ten(&app, &ada, ("/api/v1/webhooks", "webhooks"), webhook).await, 3);
    let export = |number: usize| json!({"name": format!("e{number}"), "kind": "otlp", "endpoint": "https://example.com", "enabled": false});
    assert_eq!(create_ten(&app, &ada, ("/api/v1/exports", "exports"), export).await, 3);
    let quotas = quotas(&app, &ada).await;
    assert_eq!(quotas["webhooks"], json!({"limit": 3, "used": 3}));
    assert_eq!(quotas["exports"], json!({"limit": 3, "used": 3}));
    assert_eq!(quotas["keys"], json!({"limit": 100_000, "used": 1}));
});

const JUDGED: [(&str, &str); 1] = [(
    "GATEWAY_QUOTAS",
    "enterprise.teams=3, enterprise.apps=3, enterprise.members=3, enterprise.evals=3, enterprise.eval_runs=3, \
     enterprise.skills=3",
)];

on_both!(teams_applications_evals_runs_and_skills_have_quotas, JUDGED, |app| async move {
    let ada = app.enterprise("acme").await;
    let named = |number: usize| json!({"name": format!("n{number}")});
    let eval =
        |number: usize| json!({"name": format!("e{number}"), "type": "static", "evaluator": "status_ok"});
    for (path, quota) in [("teams", "teams"), ("apps", "apps")] {
        let path = format!("/api/v1/orgs/{}/{path}", ada.org_id);
        assert_eq!(create_ten(&app, &ada, (&path, quota), named).await, 3, "{quota}");
    }
    assert_eq!(create_ten(&app, &ada, ("/api/v1/evals", "evals"), eval).await, 3);
    let skill = |number: usize| fields(&format!("skill-{number}"));
    assert_eq!(create_ten(&app, &ada, ("/api/v1/skills", "skills"), skill).await, 3);
    let id: i64 = chat(&app, &ada, "hello").await.parse().unwrap();
    let evals = app.get("/api/v1/evals").bearer(&ada.token).send().await.expect(200);
    let run = format!("/api/v1/evals/{}/run", evals["evals"][0]["id"]);
    let run = || app.post(&run, json!({"log_ids": [id]})).bearer(&ada.token).send();
    for _ in 0..3 {
        run().await.expect(202);
    }
    assert_eq!(run().await.expect_error(403, "quota_exceeded")["quota"], "eval_runs");
    // Two more join; the fourth member is not invited.
    for _ in 0..2 {
        app.join(&ada, "member").await;
    }
    let members = format!("/api/v1/orgs/{}/members", ada.org_id);
    let invite = app.post(&members, json!({"email": "late@example.com"})).bearer(&ada.token).send().await;
    assert_eq!(invite.expect_error(403, "quota_exceeded")["quota"], "members");
    let quotas = quotas(&app, &ada).await;
    for quota in ["teams", "apps", "members", "evals", "eval_runs", "skills"] {
        assert_eq!(quotas[quota], json!({"limit": 3, "used": 3}), "{quota}");
    }
});

on_both!(invitations_accepted_at_once_do_not_exceed_the_quota_of_members, JUDGED, |app| async move {
    let ada = app.enterprise("acme").await;
    let members = format!("/api/v1/orgs/{}/members", ada.org_id);
    let invite = async |email: String| {
        let invite = app.post(&members, json!({"email": email})).bearer(&ada.token).send().await.expect(201);
        invite["invite_token"].clone()
    };
    // All ways to accept: by signup, with a session, and by login.
    let mut accepting = Vec::new();
    for number in 0..3 {
        let email = format!("new{number}@example.com");
        let token = invite(email.clone()).await;
        let body = json!({"email": email, "password": PASSWORD, "invite_token": token});
        accepting.push(app.post("/api/v1/signup", body));
    }
    let mut people = Vec::new();
    for slug in ["bob", "eve", "kim"] {
        people.push((app.signup(slug).await, invite(format!("{slug}@example.com")).await));
    }
    for (person, token) in &people[..2] {
        let accept = app.post("/api/v1/auth/accept-invite", json!({"invite_token": token}));
        accepting.push(accept.bearer(&person.token));
    }
    let login = |(person, token): &(Account, Value)| {
        let body = json!({"email": person.email, "password": PASSWORD, "invite_token": token});
        app.post("/api/v1/login", body)
    };
    accepting.push(login(&people[2]));
    let answers = join_all(accepting.into_iter().map(TestRequest::send)).await;
    let refused: Vec<_> = answers.iter().filter(|answer| !answer.status.is_success()).collect();
    assert_eq!(refused.len(), 4, "two of six join");
    for answer in &refused {
        let problem = answer.expect_error(403, "quota_exceeded");
        assert_eq!((&problem["quota"], &problem["limit"]), (&json!("members"), &json!(3)), "{problem}");
    }
    assert_eq!(quotas(&app, &ada).await["members"], json!({"limit": 3, "used": 3}));
    // A refusal does not use up the invitation: with room again, it admits.
    let list = app.get(&members).bearer(&ada.token).send().await.expect(200);
    for member in list["members"].as_array().unwrap().iter().filter(|member| member["role"] == "member") {
        let path = format!("{members}/{}", member["user_id"].as_str().unwrap());
        app.delete(&path).bearer(&ada.token).send().await.expect(200);
    }
    let open = app.get(&format!("/api/v1/orgs/{}/invites", ada.org_id)).bearer(&ada.token).send().await;
    let open = open.expect(200)["invites"].as_array().unwrap().clone();
    assert_eq!(open.len(), 4);
    // At least one of these three was refused, because only two joined.
    let invited = |person: &&(Account, Value)| open.iter().any(|invite| invite["email"] == person.0.email);
    login(people.iter().find(invited).unwrap()).send().await.expect(200);
});

on_both!(a_thing_has_so_many_versions_at_most, |app| async move {
    let ada = app.enterprise("acme").await;
    let send =
        |method: Method, path: &str, body: Value| app.call(method, path).json(body).bearer(&ada.token).send();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let prompt = json!({"namespace": "a", "slug": "p", "content": "Hi."});
    send(Method::POST, "/api/v1/prompts", prompt).await.expect(201);
    let models = format!("/api/v1/orgs/{}/models", ada.org_id);
    let targets = json!([{"provider": "openai", "model": "x"}]);
    send(Method::POST, &models, json!({"name": "m", "targets": targets})).await.expect(201);
    let skill = text(&app.skill(&ada, fields("skill")).await["id"]);
    let dataset = text(&send(Method::POST, "/api/v1/datasets", json!({"name": "d"})).await.expect(201)["id"]);
    let db = &app.app.services.db;
    let set_latest = async |version: i64| {
        for (table, column) in [
            ("prompts", "version"),
            ("models", "version"),
            ("model_versions", "version"),
            ("skills", "version"),
            ("skill_versions", "version"),
            ("datasets", "current_version"),
        ] {
            let changed = execute(db, &format!("UPDATE {table} SET {column} = {version}")).await.unwrap();
            assert_eq!(changed, 1, "{table}");
        }
    };
    let next = [
        (Method::PUT, "/api/v1/prompts/a/p".to_owned(), json!({"content": "Hello."})),
        (Method::PUT, format!("{models}/m"), json!({"targets": targets})),
        (Method::PUT, format!("/api/v1/skills/{skill}"), json!({"body": "# Other"})),
        (Method::POST, format!("/api/v1/datasets/{dataset}/versions"), json!({})),
    ];
    set_latest(MAX_VERSIONS).await;
    for (method, path, body) in &next {
        let problem = send(method.clone(), path, body.clone()).await.expect_error(403, "quota_exceeded");
        assert_eq!(
            (&problem["quota"], &problem["limit"]),
            (&json!("versions"), &json!(MAX_VERSIONS)),
            "{path}"
        );
    }
    set_latest(MAX_VERSIONS - 1).await;
    for (method, path, body) in &next {
        let answer = send(method.clone(), path, body.clone()).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
    }
});

on_both!(an_account_owns_so_many_organizations, [("GATEWAY_ORGS_PER_USER", "3")], |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("other").await);
    let create =
        |of: &Account, name: String| app.post("/api/v1/orgs", json!({"name": name})).bearer(&of.token).send();
    let answers = join_all((0..10).map(|number| create(&ada, format!("n{number}")))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 2);
    for refused in answers.iter().filter(|answer| answer.status != 201) {
        let problem = refused.expect_error(403, "quota_exceeded");
        assert_eq!((&problem["quota"], &problem["limit"]), (&json!("orgs"), &json!(3)), "{problem}");
    }
    let entitlements = |call: TestRequest| async move { call.send().await.expect(200)["owned_orgs"].take() };
    let path = "/api/v1/auth/entitlements";
    assert_eq!(entitlements(app.get(path).bearer(&ada.token)).await, json!({"limit": 3, "used": 3}));
    assert_eq!(entitlements(app.get(path).key(&ada.api_key)).await, Value::Null);
    // Organizations of others, of which the account is a member, do not count; neither do deleted ones.
    app.accept(&ada, &eve, "admin").await;
    create(&eve, "hers".into()).await.expect(201);
    let org = answers.iter().find(|answer| answer.status == 201).unwrap().json();
    let switched =
        app.post("/api/v1/auth/switch-org", json!({"org_id": org["id"]})).bearer(&ada.token).send();
    let token = switched.await.expect(200)["token"].as_str().unwrap().to_owned();
    let deleted = app.delete(&format!("/api/v1/orgs/{}", org["id"].as_str().unwrap())).bearer(&token).send();
    assert!(deleted.await.status.is_success());
    create(&ada, "again".into()).await.expect(201);
});

/// A call to the sandbox; it must succeed whatever the quota is.
async fn chat(app: &TestApp, account: &Account, text: &str) -> String {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": text}]});
    let call = app.post("/v1/chat/completions", body).key(&account.api_key);
    let answer = call.header("x-gateway-provider", "sandbox").send().await;
    answer.expect(200);
    answer.header("x-gateway-log-id").unwrap().to_owned()
}

on_both!(
    rows_beyond_the_quota_are_counted_but_not_stored,
    [("GATEWAY_QUOTAS", "free.rows_per_day=4, free.body_bytes_per_day=0")],
    |app| async move {
        let (ada, eve) = (app.signup("acme").await, app.signup("other").await);
        let mut ids = Vec::new();
        for number in 0..7 {
            ids.push(chat(&app, &ada, &format!("number {number}")).await);
            // Each row is stored before the next one, so that each is a batch.
            app.get("/api/v1/logs").bearer(&ada.token).send().await.expect(200);
        }
        let list = app.get("/api/v1/logs").bearer(&ada.token).send().await.expect(200);
        assert_eq!(list["logs"].as_array().unwrap().len(), 4);
        app.get(&format!("/api/v1/logs/{}", ids[0])).bearer(&ada.token).send().await.expect(200);
        app.get(&format!("/api/v1/logs/{}", ids[6]))
            .bearer(&ada.token)
            .send()
            .await
            .expect_error(404, "not_found");
        let summary = app.get("/api/v1/usage/summary").bearer(&ada.token).send().await.expect(200);
        assert_eq!(summary["requests"], 7);
        let metrics = app.get("/api/v1/metrics").bearer(&ada.token).send().await.expect(200);
        assert_eq!(metrics["total_requests"], 7);
        let quotas = quotas(&app, &ada).await;
        assert_eq!(quotas["rows_per_day"], json!({"limit": 4, "used": 4}));
        assert_eq!(quotas["body_bytes_per_day"]["limit"], Value::Null);
        chat(&app, &eve, "hello").await;
        let list = app.get("/api/v1/logs").bearer(&eve.token).send().await.expect(200);
        assert_eq!(list["logs"].as_array().unwrap().len(), 1);
    }
);

on_both!(
    bodies_beyond_the_quota_are_not_stored,
    [("GATEWAY_QUOTAS", "free.body_bytes_per_day=6000")],
    |app| async move {
        let ada = app.signup("acme").await;
        let mut stored = Vec::new();
        for number in 0..6 {
            let id = chat(&app, &ada, &format!("{number} {}", "x".repeat(1_500))).await;
            let row = app.get(&format!("/api/v1/logs/{id}")).bearer(&ada.token).send().await.expect(200);
            assert_eq!(row["request_stored"] == "off", row["request"].is_null(), "{row}");
            stored.push(row["request_stored"] == "full");
        }
        assert!(stored[0] && !stored[5], "{stored:?}");
        let used = quotas(&app, &ada).await["body_bytes_per_day"].take();
        assert_eq!(used["limit"], 6_000);
        assert!(used["used"].as_u64().unwrap() <= 6_000, "{used}");
        let list = app.get("/api/v1/logs").bearer(&ada.token).send().await.expect(200);
        assert_eq!(list["logs"].as_array().unwrap().len(), 6);
        let found = app.get("/api/v1/logs?q=5").bearer(&ada.token).send().await.expect(200);
        assert_eq!(found["logs"].as_array().unwrap().len(), 0, "a body that is not stored is not searched");
    }
);

on_both!(a_batch_that_is_written_twice_counts_once, |app| async move {
    let ada = app.signup("acme").await;
    let (store, now) = (&app.app.services.logs, app.app.services.clock.now());
    let org = ada.org_id.parse().unwrap();
    let rows: Vec<LogRow> = (0..5).map(|number| row(&ada, now.plus(-number))).collect();
    let quota = DayQuota { rows: Some(2), body_bytes: None };
    let limits = BatchLimits { quotas: [(org, quota)].into(), ..BatchLimits::default() };
    let written = logs::write_batch_within(store, &rows, &limits).await.unwrap();
    assert_eq!((written.new.len(), written.counted.len()), (5, 3));
    assert_eq!(logs::write_batch_within(store, &rows, &limits).await.unwrap().new, [0_i64; 0]);
    // A higher quota changes nothing for rows that were counted.
    assert_eq!(logs::write_batch(store, &rows).await.unwrap(), [0_i64; 0]);
    let summary = app.get("/api/v1/usage/summary").bearer(&ada.token).send().await.expect(200);
    assert_eq!((&summary["requests"], &summary["cost_usd"]), (&json!(5), &json!(0.005)));
    assert_eq!(count(store, "log_rows").await.unwrap(), 2);
    let mut snapshot = logs::SpendSnapshot::open(store).await.unwrap();
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    assert_eq!(snapshot.contained_rows(&ids).await.unwrap().len(), 5, "budgets know all of them");
});

on_both!(many_users_and_models_of_a_day_are_counted_together, |app| async move {
    let ada = app.signup("acme").await;
    let (store, now) = (&app.app.services.logs, app.app.services.clock.now());
    let noon = now.plus(-2 * DAY - now.0.rem_euclid(DAY) + DAY / 2);
    let limits = BatchLimits {
        lines: LineLimits { by_user: 20, by_model: 30, spenders: 20 },
        ..BatchLimits::default()
    };
    let many = |from: i64, to: i64| -> Vec<LogRow> {
        let one = |number: i64| {
            with(row(&ada, noon.plus(number)), |row| {
                row.user = Some(format!("user-{number}"));
                row.model = Some(format!("model-{number}"));
                row.key_id = Some(uuid::Uuid::from_u128(7).into());
            })
        };
        (from..to).map(one).collect()
    };
    for batch in [many(0, 3), many(3, 50), many(50, 90), vec![with(row(&ada, noon), |row| row.user = None)]] {
        logs::write_batch_within(store, &batch, &limits).await.unwrap();
    }
    // A model that the day knows keeps its line. Spans of others have any provider.
    let known = with(many(0, 1).remove(0), |row| row.id += 500);
    let foreign = with(row(&ada, noon), |row| {
        (row.id, row.source, row.provider) = (row.id + 900, LogSource::Otel, "theirs".into());
    });
    logs::write_batch_within(store, &[known, foreign], &limits).await.unwrap();

    assert!(count(store, "usage_days").await.unwrap() < 80, "lines of all dimensions are limited");
    let range = format!("from={}&to={}", noon.plus(-DAY / 2), noon.plus(DAY / 2));
    let breakdown = async |by: &str| {
        let path = format!("/api/v1/usage/breakdown?by={by}&{range}");
        let rows = app.get(&path).bearer(&ada.token).send().await.expect(200)["rows"].take();
        let rows = rows.as_array().unwrap().clone();
        assert_eq!(rows.iter().map(|row| row["requests"].as_i64().unwrap()).sum::<i64>(), 93, "{by}");
        rows
    };
    let requests = |rows: &[Value], key: &str| {
        rows.iter().find(|row| row["key"] == key).map_or(0, |row| row["requests"].as_i64().unwrap())
    };
    let users = breakdown("user").await;
    assert_eq!(requests(&users, "user-0"), 2);
    assert!(users.len() < 25 && requests(&users, "other") > 70, "{users:#?}");
    let models = breakdown("model").await;
    assert_eq!(requests(&models, "model-0"), 2);
    assert!(models.len() < 35 && requests(&models, "other") > 50, "{models:#?}");
    let providers = breakdown("provider").await;
    assert_eq!((requests(&providers, "openai"), requests(&providers, "other")), (92, 1));
    assert_eq!(breakdown("key").await.len(), 2);
    // Rows keep what they had.
    let path = "/api/v1/logs?model=model-89";
    let list = app.get(path).bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["logs"][0]["user"], "user-89");
    // The next day starts anew.
    let next = with(row(&ada, noon.plus(DAY)), |row| row.model = Some("model-89".into()));
    logs::write_batch_within(store, &[next], &limits).await.unwrap();
    let path = "/api/v1/usage/breakdown?by=model";
    let rows = app.get(path).bearer(&ada.token).send().await.expect(200)["rows"].take();
    assert_eq!(requests(rows.as_array().unwrap(), "model-89"), 1);
});

on_both!(
    no_retention_is_longer_than_the_operators,
    [("GATEWAY_LOG_RETENTION_DAYS", "30")],
    |app| async move {
        let ada = app.signup("acme").await;
        let path = format!("/api/v1/orgs/{}", ada.org_id);
        let set = |days: u32| {
            let body = json!({"settings": {"log_retention_days": days}});
            app.put(&path, body).bearer(&ada.token).send()
        };
        let problem = set(31).await.expect_error(400, "bad_request");
        let message = problem["message"].as_str().unwrap();
        assert!(message.contains("settings.log_retention_days") && message.contains("30"), "{message}");
        set(30).await.expect(200);
        // A longer one may be stored by an earlier version.
        let longer = r#"UPDATE orgs SET settings = '{"log_bodies":true,"log_retention_days":36500}'"#;
        execute(&app.app.services.db, longer).await.unwrap();
        let now = app.app.services.clock.now();
        let old: Vec<LogRow> = (0..3).map(|number| row(&ada, now.plus(-(40 + number) * DAY))).collect();
        app.write(&old).await;
        app.write(&[row(&ada, now.plus(-20 * DAY))]).await;

        let (config, data) = app.stop().await;
        let app = TestApp::start(config, data).await;
        let store = &app.app.services.logs;
        let deadline = Instant::now() + Duration::from_secs(30);
        while count(store, "log_rows").await.unwrap() > 1 {
            assert!(Instant::now() < deadline, "rows past the operator's retention are removed");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let nanoseconds = |days: i64| ((now.0 - days * DAY) * 1_000_000).to_string();
        let span = |days: i64| {
            json!({
                "traceId": format!("{:032x}", days + 1_000), "spanId": format!("{:016x}", days + 1_000), "name": "chat m",
                "startTimeUnixNano": nanoseconds(days), "endTimeUnixNano": nanoseconds(days),
                "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}],
            })
        };
        let spans = [span(40), span(2), span(-2), span(35)];
        let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]});
        let answer = app.post("/api/v1/otel/v1/traces", body).key(&ada.api_key).send().await.expect(200);
        assert_eq!(answer["partialSuccess"]["rejectedSpans"], "3", "{answer}");
        assert!(answer["partialSuccess"]["errorMessage"].as_str().unwrap().contains("retention"), "{answer}");
    }
);
