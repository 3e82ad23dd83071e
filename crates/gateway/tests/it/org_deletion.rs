//! Deleting an organization removes all its rows from both databases, also rows that arrive later.

use std::time::{Duration, Instant};

use gateway_core::logs::LogRow;
use gateway_core::time::{DAY, Timestamp};
use gateway_store::testing::traces_of;
use gateway_store::{Db, Lease, org_purges, orgs};
use http::Method;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{row, with};
use crate::support::{Account, Backend, TestApp};

const SETTINGS: [(&str, &str); 1] = [("GATEWAY_DEFAULT_PLAN", "enterprise")];

async fn chat(app: &TestApp, account: &Account, text: &str) {
    let body = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": text}]});
    let call = app.post("/v1/chat/completions", body).key(&account.api_key);
    call.header("x-gateway-provider", "sandbox").header("x-gateway-user", "kim").send().await.expect(200);
}

/// Rows of the last 30 days, each with a user and a session of its own.
fn old_rows(account: &Account, now: Timestamp, count: i64) -> Vec<LogRow> {
    let old = |number: i64| {
        with(row(account, now.plus(-30 * DAY + number * (30 * DAY / count))), |row| {
            row.user = Some(format!("user-{number}"));
            row.session_id = Some(format!("session-{number}"));
        })
    };
    (0..count).map(old).collect()
}

/// Waits until neither database has anything of the organization.
async fn wait_until_gone(app: &TestApp, account: &Account) {
    let org = account.org_id.parse().unwrap();
    let services = &app.app.services;
    let began = Instant::now();
    loop {
        let state = traces_of(&services.db, org).await.unwrap();
        let logs = traces_of(&services.logs, org).await.unwrap();
        if state.is_empty() && logs.is_empty() {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "left: {state:?}, {logs:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

on_both!(nothing_of_a_deleted_organization_is_left, SETTINGS, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let org = ada.org_id.parse().unwrap();
    let services = &app.app.services;
    let create = async |path: &str, body: Value| {
        app.post(path, body).bearer(&ada.token).send().await.expect(201);
    };
    let nowhere = "http://127.0.0.1:9/";
    create("/api/v1/exports", json!({"name": "e", "kind": "webhook", "endpoint": nowhere})).await;
    create("/api/v1/webhooks", json!({"url": nowhere})).await;
    create(
        &format!("/api/v1/orgs/{}/budgets", ada.org_id),
        json!({"scope": "org", "hard_limit_usd": 100, "period": "monthly"}),
    )
    .await;
    create(&format!("/api/v1/orgs/{}/views", ada.org_id), json!({"name": "v", "page": "logs"})).await;
    let eval = json!({"name": "live", "type": "static", "evaluator": "contains", "config": {"value": "a"},
        "sample_rate": 1.0});
    create("/api/v1/evals", eval).await;
    for account in [&ada, &eve] {
        chat(&app, account, "hello").await;
        for batch in old_rows(account, services.clock.now(), 1_200).chunks(400) {
            app.write(batch).await;
        }
    }
    let listed = app.get("/api/v1/logs?limit=1").bearer(&eve.token).send().await.expect(200);
    let before = traces_of(&services.logs, org).await.unwrap();
    for table in ["log_rows", "log_sessions", "usage_dims", "exports"] {
        assert!(before.iter().any(|found| found == table), "{table} is not in {before:?}");
    }

    let path = format!("/api/v1/orgs/{}", ada.org_id);
    app.delete(&path).bearer(&ada.token).send().await.expect(200);
    // A request that was in progress ends behind the deletion.
    app.app.proxy.spool.append(0, row(&ada, services.clock.now()));
    wait_until_gone(&app, &ada).await;
    app.app.proxy.spool.append(0, row(&ada, services.clock.now()));
    app.app.current_logs(org).await;
    assert_eq!(traces_of(&services.logs, org).await.unwrap(), Vec::<String>::new());

    let usage = app.get("/api/v1/metrics").bearer(&eve.token).send().await.expect(200);
    assert_eq!(usage["total_requests"], 1_201);
    let found = app.get("/api/v1/logs?limit=1").bearer(&eve.token).send().await.expect(200);
    assert_eq!(found, listed);
});

async fn a_purge_goes_on(backend: Backend) {
    let app = TestApp::start_with(backend, &SETTINGS).await;
    let ada = app.signup("acme").await;
    let (org, now) = (ada.org_id.parse().unwrap(), app.app.services.clock.now());
    app.write(&old_rows(&ada, now, 50)).await;
    let (config, data) = app.stop().await;
    // A node deleted the organization, claimed its purge, and died.
    let db = Db::open(config.database_url.expose_secret()).await.unwrap();
    let mut tx = db.begin().await.unwrap();
    assert!(orgs::delete(&mut tx, org).await.unwrap());
    org_purges::enqueue(&mut tx, org, now).await.unwrap();
    tx.commit().await.unwrap();
    let lease = Lease { owner: "a dead node", now, until: now.after(Duration::from_secs(1)) };
    assert_eq!(org_purges::claim(&db, &lease).await.unwrap(), Some(org));
    assert_eq!(org_purges::claim(&db, &Lease { owner: "another", ..lease }).await.unwrap(), None);
    db.close().await;

    let app = TestApp::start(config, data).await;
    wait_until_gone(&app, &ada).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_goes_on_after_a_restart_on_sqlite() {
    a_purge_goes_on(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_goes_on_after_a_restart_on_postgres() {
    a_purge_goes_on(Backend::Postgres).await;
}

// More rows than one transaction deletes.
on_both!(what_has_many_rows_is_deleted_in_parts, SETTINGS, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let lines = "{\"input\":\"a case\",\"expected\":\"a\"}\n".repeat(2_500);
    let mut datasets = Vec::new();
    for account in [&ada, &ada, &eve] {
        let created =
            app.post("/api/v1/datasets", json!({"name": "cases"})).bearer(&account.token).send().await;
        let id = created.expect(201)["id"].as_str().unwrap().to_owned();
        let import = app.call(Method::POST, &format!("/api/v1/datasets/{id}/import")).raw(lines.clone());
        import.header("content-type", "application/x-ndjson").bearer(&account.token).send().await.expect(200);
        datasets.push(id);
    }
    let delete = async |path: String, token: &str| app.delete(&path).bearer(token).send().await;
    delete(format!("/api/v1/datasets/{}", datasets[0]), &ada.token).await.expect(200);
    delete(format!("/api/v1/datasets/{}", datasets[0]), &ada.token).await.expect(404);
    delete(format!("/api/v1/datasets/{}", datasets[2]), &ada.token).await.expect(404);
    delete(format!("/api/v1/orgs/{}", ada.org_id), &ada.token).await.expect(200);
    wait_until_gone(&app, &ada).await;
    let others =
        app.get(&format!("/api/v1/datasets/{}", datasets[2])).bearer(&eve.token).send().await.expect(200);
    assert_eq!(others["case_count"], 2_500);
});
