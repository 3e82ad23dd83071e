//! One organization's work does not stop that of another: hostile evals, imports, and what is computed on its behalf.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use gateway_store::db::Dialect;
use gateway_store::{evals, logs, orgs};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::datasets::DatasetFixture;
use crate::support::log_rows::{row, with};
use crate::support::receiver::{receiver, webhook};
use crate::support::skills::{fields, path};
use crate::support::{Account, Backend, ProxyFixture, TestApp};
use crate::upstream::Reply;

/// The largest run. It takes minutes if it is not cancelled.
const HOSTILE_ROWS: usize = 1_000;

/// Computes for long on every row: many states, and a text in which none of them is ever left.
fn hostile_pattern() -> Value {
    json!({"field": "request", "pattern": "a[ab]{500}[^ab]"})
}

/// Each number of the document is compared with every value.
fn hostile_schema() -> Value {
    let values: Vec<String> = (0..1_000).map(|number| format!("name {number}")).collect();
    json!({"schema": {"items": {"anyOf": [{"enum": values}, {"type": "integer"}]}}})
}

fn hostile_request(bytes: usize) -> Vec<u8> {
    let text: String = (0..bytes).map(|at| if (at * at / 7).is_multiple_of(3) { 'b' } else { 'a' }).collect();
    json!({"model": "m", "messages": [{"role": "user", "content": text}]}).to_string().into_bytes()
}

/// Writes rows with a request on which the pattern takes long.
async fn hostile_rows(app: &TestApp, by: &Account, count: usize) {
    let now = app.app.services.clock.now();
    let request = hostile_request(5_000);
    let rows: Vec<_> =
        (0..count).map(|_| with(row(by, now), |row| row.request.clone_from(&request))).collect();
    app.write(&rows).await;
}

async fn start_run(app: &TestApp, by: &Account, eval: &Value) -> Value {
    let path = format!("/api/v1/evals/{}/run", eval["id"]);
    app.post(&path, json!({"limit": HOSTILE_ROWS})).bearer(&by.token).send().await.expect(202)
}

async fn run_status(app: &TestApp, by: &Account, run: &Value) -> Value {
    app.get(&format!("/api/v1/evals/runs/{}", run["id"])).bearer(&by.token).send().await.expect(200)
}

on_both!(a_hostile_run_delays_another_organization_by_its_turns_only, |app| async move {
    let (eve, ada) = (app.signup("evil").await, app.signup("acme").await);
    hostile_rows(&app, &eve, HOSTILE_ROWS).await;
    let eval = app.eval(&eve, "static", "regex", hostile_pattern()).await;
    let hostile = start_run(&app, &eve, &eval).await;
    let now = app.app.services.clock.now();
    let rows: Vec<_> = (0..3).map(|_| row(&ada, now)).collect();
    app.write(&rows).await;
    let ordinary = app.eval(&ada, "static", "contains", json!({"value": "x"})).await;
    let run = app.eval_run(&ada, &ordinary, json!({})).await;
    assert_eq!((&run["status"], &run["completed"]), (&json!("completed"), &json!(3)));
    // The flood was queued first and is larger, but did not have to end first.
    assert_eq!(run_status(&app, &eve, &hostile).await["finished_at"], Value::Null);
    let cancel = format!("/api/v1/evals/runs/{}/cancel", hostile["id"]);
    app.call(http::Method::POST, &cancel).bearer(&eve.token).send().await.expect(200);
    // A cancelled run computes no more: the pool becomes free, although most rows were not judged.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let before = app.app.services.compute.stats().granted;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        if app.app.services.compute.stats().granted == before {
            break;
        }
        assert!(Instant::now() < deadline, "the cancelled run goes on");
    }
    assert!(app.app.services.compute.stats().granted < HOSTILE_ROWS as u64);
});

on_both!(hostile_evals_of_live_traffic_stop_neither_management_nor_the_evals_of_others, |app| async move {
    let (eve, ada) = (app.signup("evil").await, app.signup("acme").await);
    let live = async |by: &Account, evaluator: &str, config: Value| {
        let body = json!({"name": "live", "type": "static", "evaluator": evaluator, "config": config, "sample_rate": 1.0});
        app.post("/api/v1/evals", body).bearer(&by.token).send().await.expect(201)
    };
    live(&eve, "regex", hostile_pattern()).await;
    live(&eve, "json_schema", hostile_schema()).await;
    let own = live(&ada, "contains", json!({"value": "x"})).await;
    let (now, request) = (app.app.services.clock.now(), hostile_request(20_000));
    let numbers = format!("[{}1]", "1,".repeat(10_000));
    let response = json!({"choices": [{"message": {"role": "assistant", "content": numbers}}]}).to_string();
    for _ in 0..40 {
        let hostile = with(row(&eve, now), |row| {
            row.request.clone_from(&request);
            row.response = response.clone().into_bytes();
        });
        app.app.proxy.spool.append(0, hostile);
    }
    app.app.current_logs(eve.org_id.parse().unwrap()).await;
    let mine = row(&ada, now);
    app.app.proxy.spool.append(0, mine.clone());
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let path = format!("/api/v1/evals/{}/results", own["id"]);
        let results = app.get(&path).bearer(&ada.token).send().await.expect(200);
        app.get("/api/v1/auth/entitlements").bearer(&ada.token).send().await.expect(200);
        if results.as_array().unwrap().iter().any(|result| result["log_id"] == mine.id) {
            break;
        }
        assert!(Instant::now() < deadline, "the row of another organization is not judged");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The metrics tell how much was waiting.
    assert!(app.app.services.compute.stats().granted > 0);
});

on_both!(texts_that_are_too_long_for_a_pattern_or_schema_are_errors_with_a_reason, |app| async move {
    let eve = app.signup("evil").await;
    let long = "x".repeat(200_000);
    let now = app.app.services.clock.now();
    let body = json!({"choices": [{"message": {"role": "assistant", "content": format!("\"{long}\"")}}]});
    app.write(&[with(row(&eve, now), |row| row.response = body.to_string().into_bytes())]).await;
    let names: Vec<String> = (0..2_000).map(|number| format!("name {number}")).collect();
    for (evaluator, config) in [
        ("regex", json!({"pattern": "a[ab]{500}[^ab]"})),
        ("json_schema", json!({"schema": {"enum": names}})),
        ("contains", json!({"values": (0..20).map(|n| format!("v{n}")).collect::<Vec<_>>()})),
    ] {
        let eval = app.eval(&eve, "static", evaluator, config).await;
        let run = app.eval_run(&eve, &eval, json!({})).await;
        if evaluator == "contains" {
            assert_eq!(run["completed"], 1, "{evaluator}");
            continue;
        }
        assert_eq!((&run["status"], &run["errors"]), (&json!("failed"), &json!(1)), "{evaluator}");
        let results = app.run_results(&eve, &run).await;
        let error = results["errors"][0]["error"].as_str().unwrap();
        assert!(error.contains("is evaluated on at most"), "{error}");
    }
    // A pattern that compiles to more than the limit is refused, and says what to do.
    let body = json!({"name": "x", "type": "static", "evaluator": "regex", "config": {"pattern": "a[ab]{50000}[^ab]"}});
    let refused = app.post("/api/v1/evals", body).bearer(&eve.token).send().await;
    let error = refused.expect_error(422, "validation_error");
    assert!(error["message"].as_str().unwrap().contains("1 MiB"), "{error}");
});

on_both!(a_stored_eval_beyond_the_limits_fails_its_runs_with_the_reason, |app| async move {
    let ada = app.signup("acme").await;
    app.write(&[row(&ada, app.app.services.clock.now())]).await;
    let eval = app.eval(&ada, "static", "regex", json!({"pattern": "x"})).await;
    // As an earlier version stored it, with larger limits.
    let (org, id) = (ada.org_id.parse().unwrap(), eval["id"].as_i64().unwrap());
    let mut tx = app.app.services.db.begin().await.unwrap();
    let stored = evals::find_for_update(&mut tx, org, id).await.unwrap().unwrap();
    let config = json!({"pattern": "a[ab]{50000}b"});
    evals::update(&mut tx, &evals::Eval { config, sample_rate: 1.0, ..stored }).await.unwrap();
    tx.commit().await.unwrap();
    let run = app.post(&format!("/api/v1/evals/{id}/run"), json!({})).bearer(&ada.token).send().await;
    let error = run.expect_error(422, "validation_error");
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("config.pattern: the compiled pattern is larger than 1 MiB"), "{message}");
});

on_both!(many_changes_of_one_organization_delay_another_by_one_of_them, |app| async move {
    const FLOOD: usize = 60;
    let (eve, ada) = (app.signup("evil").await, app.signup("acme").await);
    // Each change of the flood waits for this transaction: on SQLite to begin, on PostgreSQL for the lock.
    let mut tx = app.app.services.db.begin().await.unwrap();
    assert!(orgs::lock_for_update(&mut tx, eve.org_id.parse().unwrap()).await.unwrap());
    let ended = Arc::new(AtomicUsize::new(0));
    let flood: Vec<_> = (0..FLOOD)
        .map(|number| {
            let create = app.post("/api/v1/keys", json!({"name": format!("k{number}")})).bearer(&eve.token);
            let ended = Arc::clone(&ended);
            tokio::spawn(async move {
                create.send().await;
                ended.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mine = tokio::spawn(app.post("/api/v1/keys", json!({"name": "mine"})).bearer(&ada.token).send());
    let before = match app.app.services.db.dialect() {
        Dialect::Postgres => {
            mine.await.unwrap().expect(201);
            let before = ended.load(Ordering::SeqCst);
            tx.commit().await.unwrap();
            before
        }
        Dialect::Sqlite => {
            tokio::time::sleep(Duration::from_millis(500)).await;
            tx.commit().await.unwrap();
            mine.await.unwrap().expect(201);
            ended.load(Ordering::SeqCst)
        }
    };
    assert!(before < FLOOD / 2, "{before} changes of the flood came first");
    for change in flood {
        change.await.unwrap();
    }
});

on_both!(a_slow_receiver_of_one_organization_does_not_delay_the_deliveries_of_another, |app| async move {
    let (eve, ada) = (app.enterprise("evil").await, app.enterprise("acme").await);
    let slow = receiver(Reply::new(204).delay_head(Duration::from_secs(60))).await;
    let fast = receiver(Reply::new(204)).await;
    for _ in 0..20 {
        app.create_webhook(&eve, &slow.url(), &["key.create"]).await;
    }
    let hook = app.create_webhook(&ada, &fast.url(), &["key.create"]).await;
    // Several hundred deliveries of one organization are due before the one of the other.
    for number in 0..20 {
        app.create_key(&eve.token, json!({"name": format!("k{number}")})).await;
    }
    let started = Instant::now();
    app.create_key(&ada.token, json!({"name": "mine"})).await;
    app.delivery(&ada, &hook, "delivered", |delivery| delivery["status"] == "delivered").await;
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
});

on_both!(slow_destinations_of_one_organization_do_not_delay_the_export_of_another, |app| async move {
    let (eve, ada) = (app.enterprise("evil").await, app.enterprise("acme").await);
    let slow = receiver(Reply::new(200).delay_head(Duration::from_secs(60))).await;
    let fast = receiver(Reply::new(200)).await;
    for number in 0..20 {
        let mut export = webhook(&slow);
        export["name"] = json!(format!("slow {number}"));
        app.export(&eve, &export).await;
    }
    let mine = app.export(&ada, &webhook(&fast)).await;
    let now = app.app.services.clock.now();
    let rows: Vec<_> = (0..200).map(|_| row(&eve, now)).chain([row(&ada, now)]).collect();
    app.write(&rows).await;
    app.export_status(&ada, &mine, "delivered", |status| status["delivered"] == 1).await;
    assert!(fast.requests().len() == 1);
});

on_both!(an_import_is_visible_at_once_and_lets_other_writers_through, |app| async move {
    let (eve, ada) = (app.signup("evil").await, app.signup("acme").await);
    let dataset = DatasetFixture::create(&app, &eve).await;
    dataset.add(&["first"]).await;
    dataset.freeze().await;
    let csv: String = std::iter::once("input\n".to_owned())
        .chain((0..30_000).map(|number| format!("question {number}\n")))
        .collect();
    let importing = dataset.import("text/csv", csv.clone());
    let watching = async {
        // While rows are stored: none of them is visible, and a key can be made and revoked.
        let mut slowest = Duration::ZERO;
        for number in 0..5 {
            let seen = dataset.get("").await.expect(200)["case_count"].as_i64().unwrap();
            assert!(seen == 1 || seen == 30_001, "{seen}");
            let key = app.create_key(&ada.token, json!({"name": format!("k{number}")})).await;
            let started = Instant::now();
            app.delete(&key.path()).bearer(&ada.token).send().await.expect(200);
            slowest = slowest.max(started.elapsed());
        }
        slowest
    };
    let (imported, slowest) = tokio::join!(importing, watching);
    assert_eq!(imported.expect(200)["imported"], 30_000);
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    assert_eq!(dataset.get("").await.expect(200)["case_count"], 30_001);
    assert_eq!(dataset.get("/cases?limit=1").await.expect(200)["cases"][0]["input"], "question 29999");
    let old = dataset.get("/cases?version=1").await.expect(200);
    assert_eq!(old["cases"].as_array().unwrap().len(), 1, "a frozen version does not change");
});

on_both!(reading_does_not_wait_for_the_backlog_of_another_organization, |app| async move {
    const ROWS: usize = 150;
    let (eve, ada) = (app.signup("evil").await, app.signup("acme").await);
    let now = app.app.services.clock.now();
    let large = |_| with(row(&eve, now), |row| row.request = vec![b'a'; 500 << 10]);
    let backlog: Vec<_> = (0..ROWS).map(large).collect();
    let ids: Vec<i64> = backlog.iter().map(|row| row.id).collect();
    let spool = &app.app.proxy.spool;
    for row in backlog {
        spool.append(0, row);
    }
    let own = row(&ada, now);
    spool.append(0, own.clone());
    let path = format!("/api/v1/logs/{}", own.id);
    app.get(&path).key(&ada.api_key).send().await.expect(200);
    let stored = logs::body_sizes(&app.app.services.logs, &ids).await.unwrap().len();
    assert!(stored < ROWS, "all rows of the backlog were stored before");
    // Each row is counted once, also those that were stored before their turn.
    let requests = async |by: &Account| {
        let summary = app.get("/api/v1/usage/summary").key(&by.api_key).send().await.expect(200);
        summary["requests"].as_u64().unwrap()
    };
    let began = Instant::now();
    while requests(&eve).await < ROWS as u64 {
        assert!(began.elapsed() < Duration::from_secs(60), "the backlog is not stored");
    }
    assert_eq!((requests(&eve).await, requests(&ada).await), (ROWS as u64, 1));
});

on_both!(authentication_does_not_wait_for_connections_of_others, |app| async move {
    let db = &app.app.services.db;
    // Everything that requests and jobs may use: of SQLite the writer, of PostgreSQL every connection.
    let mut held = Vec::new();
    while let Ok(Ok(tx)) = tokio::time::timeout(Duration::from_secs(1), db.begin()).await {
        held.push(tx);
    }
    assert!(!held.is_empty());
    let unknown = app.get("/api/v1/keys").key(&format!("sk-gateway-{:064x}", 7)).send().await;
    unknown.expect_error(401, "unauthorized");
});

on_both!(queries_of_one_organization_wait_for_its_own_only, |app| async move {
    let (eve, ada) = (app.signup("evil").await, app.signup("acme").await);
    let queries = &app.app.shares.queries;
    let org = eve.org_id.parse().unwrap();
    let held = (queries.acquire(org, None).await.unwrap(), queries.acquire(org, None).await.unwrap());
    let paths = ["/api/v1/logs?q=x", "/api/v1/sessions", "/api/v1/usage/summary", "/api/v1/usage/timeseries"];
    let refused = paths.map(|path| app.get(path).bearer(&eve.token).send());
    let others = paths.map(|path| app.get(path).bearer(&ada.token).send());
    let (refused, others) = tokio::join!(join_all(refused), join_all(others));
    for answer in &refused {
        answer.expect_error(503, "overloaded");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    for answer in &others {
        answer.expect(200);
    }
    // Management goes on, and so do queries when there is room again.
    app.get("/api/v1/keys").bearer(&eve.token).send().await.expect(200);
    drop(held);
    app.get(paths[0]).bearer(&eve.token).send().await.expect(200);
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_judge_of_one_organization_does_not_delay_that_of_another() {
    for backend in Backend::BOTH {
        let settings = [
            ("GATEWAY_DEFAULT_PLAN", "enterprise"),
            ("GATEWAY_JUDGE_PROVIDER", "openai"),
            ("GATEWAY_JUDGE_MODEL", "judge-1"),
            ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator"),
            ("GATEWAY_EVAL_QUEUE", "4"),
        ];
        let gateway = ProxyFixture::start_with(backend, &settings).await;
        let (app, eve) = (&gateway.app, &gateway.ada);
        gateway.upstream.set_default_reply(Reply::new(200).delay_head(Duration::from_secs(60)));
        for number in 0..12 {
            app.skill(eve, fields(&format!("slow-{number}"))).await;
        }
        let ada = app.signup("bobs").await;
        app.change_rubric(&ada, json!({"judge_provider": "builtin", "judge_model": "rubric-v1"})).await;
        let skill = app.skill(&ada, fields("mine")).await;
        app.wait_for_verdicts(&ada, &skill, 1).await;
        let again =
            app.post(&format!("{}/evaluate", path(&skill)), json!({})).bearer(&ada.token).send().await;
        assert_eq!(again.expect(202)["queued"], true);
        app.wait_for_verdicts(&ada, &skill, 2).await;
    }
}
