//! Verdicts on log rows in OTLP exports: sent after the rows, as events of child spans, for every source.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::logs::LogSource;
use gateway_core::otlp::proto::{Any, Event, Span};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{row, with};
use crate::support::receiver::{WAIT_TIMEOUT, attribute, otlp, receiver, spans, webhook};
use crate::support::{Account, Backend, TestApp, migrated_config};
use crate::upstream::{Reply, Upstream};

const RESULTS: &str = "/api/v1/eval-results";

/// Returns all received spans.
fn arrived(upstream: &Upstream) -> Vec<Span> {
    upstream.requests().iter().flat_map(spans).collect()
}

/// Returns the received verdict events by evaluator and row, with the span that contains each.
fn verdicts(upstream: &Upstream) -> BTreeMap<(String, i64), (Event, Span)> {
    let mut found = BTreeMap::new();
    for span in arrived(upstream) {
        for event in &span.events {
            assert_eq!(event.name, "gen_ai.evaluation.result");
            let Some(Any::String(name)) = attribute(&event.attributes, "gen_ai.evaluation.name") else {
                panic!("{event:?}")
            };
            let Some(Any::Int(row)) = attribute(&event.attributes, "gateway.log_id") else {
                panic!("{event:?}")
            };
            found.insert((name, row), (event.clone(), span.clone()));
        }
    }
    found
}

/// Waits for `count` of them.
async fn wait_for(upstream: &Upstream, count: usize) -> BTreeMap<(String, i64), (Event, Span)> {
    let began = Instant::now();
    loop {
        let found = verdicts(upstream);
        if found.len() >= count {
            return found;
        }
        assert!(
            began.elapsed() < WAIT_TIMEOUT,
            "only {} of {count} verdicts came: {:?}",
            found.len(),
            found.keys()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn define(app: &TestApp, by: &Account, name: &str, sample_rate: f64) -> Value {
    let body = json!({"name": name, "type": "static", "evaluator": "contains", "config": {"value": "general"},
        "sample_rate": sample_rate});
    app.post("/api/v1/evals", body).bearer(&by.token).send().await.expect(201)
}

async fn judge(app: &TestApp, by: &Account, log_id: i64, details: Value) -> Value {
    let body = json!({"subject_type": "log", "subject_id": log_id, "source": "ragas", "score": 0.25, "details": details});
    app.post(RESULTS, body).key(&by.api_key).send().await.expect(201)
}

on_both!(verdicts_of_all_kinds_arrive_as_events_below_their_rows, |app| async move {
    let ada = app.enterprise("acme").await;
    let (collector, hook) = (receiver(Reply::new(200)).await, receiver(Reply::new(200)).await);
    let export = app.export(&ada, &otlp(&collector)).await;
    app.export(&ada, &webhook(&hook)).await;
    define(&app, &ada, "live", 1.0).await;
    let by_run = define(&app, &ada, "by run", 0.0).await;
    let chat =
        json!({"model": "sandbox-small", "messages": [{"role": "user", "content": "general greeting"}]});
    let call =
        app.post("/v1/chat/completions", chat).key(&ada.api_key).header("x-gateway-provider", "sandbox");
    let id = crate::support::log_id(&call.send().await);
    wait_for(&collector, 1).await;
    let run = app.eval_run(&ada, &by_run, json!({"log_ids": [id]})).await;
    assert_eq!(run["status"], "completed", "{run}");
    judge(&app, &ada, id, json!({"reason": "not grounded"})).await;
    let found = wait_for(&collector, 3).await;
    let names: Vec<&str> = found.keys().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["by run", "live", "ragas"]);
    let all = arrived(&collector);
    let call =
        all.iter().find(|span| attribute(&span.attributes, "gateway.log_id") == Some(Any::Int(id))).unwrap();
    for (event, span) in found.values() {
        assert_eq!((&span.trace_id, &span.parent_span_id), (&call.trace_id, &call.span_id));
        assert!(event.time_unix_nano >= call.start_time_unix_nano);
    }
    let told = |name: &str, what: &str| attribute(&found[&(name.to_owned(), id)].0.attributes, what);
    assert_eq!(told("live", "gen_ai.evaluation.score.label"), Some(Any::String("passed".into())));
    assert_eq!(told("by run", "gen_ai.evaluation.score.value"), Some(Any::Double(1.0)));
    assert_eq!(told("ragas", "gen_ai.evaluation.score.value"), Some(Any::Double(0.25)));
    assert_eq!(told("ragas", "gen_ai.evaluation.score.label"), Some(Any::String("failed".into())));
    assert_eq!(told("ragas", "gen_ai.evaluation.explanation"), Some(Any::String("not grounded".into())));
    app.export_status(&ada, &export, "empty", |s| s["lag"] == 0 && s["delivered"] == 4).await;
    let rows: Vec<Value> =
        hook.requests().iter().flat_map(|r| r.json()["data"]["traces"].as_array().unwrap().clone()).collect();
    assert_eq!((rows.len(), &rows[0]["id"]), (1, &json!(id)), "batches of rows have no place for verdicts");
});

on_both!(a_verdict_on_an_answer_that_a_run_asked_for_follows_its_row, |app| async move {
    let ada = app.enterprise("acme").await;
    let collector = receiver(Reply::new(200)).await;
    app.export(&ada, &otlp(&collector)).await;
    let eval = define(&app, &ada, "of cases", 0.0).await;
    let dataset = app.dataset(&ada, &[json!({"input": "say general"})]).await;
    let body = json!({"eval_id": eval["id"], "target": {"provider": "sandbox", "model": "sandbox-small"}});
    let run = app
        .post(&format!("/api/v1/datasets/{dataset}/eval"), body)
        .bearer(&ada.token)
        .send()
        .await
        .expect(202);
    app.wait_for_run(&ada, &run).await;
    let found = wait_for(&collector, 1).await;
    let (_, row) = found.keys().next().unwrap();
    let is_row = |span: &Span| attribute(&span.attributes, "gateway.log_id") == Some(Any::Int(*row));
    assert!(arrived(&collector).iter().any(is_row), "the answer's own row left as well");
});

on_both!(explanations_are_exported_only_when_the_organization_allows_it, |app| async move {
    let ada = app.enterprise("acme").await;
    let collector = receiver(Reply::new(200)).await;
    app.export(&ada, &otlp(&collector)).await;
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    app.put(&org, json!({"settings": {"log_bodies": false}})).bearer(&ada.token).send().await.expect(200);
    let one = row(&ada, app.app.services.clock.now());
    app.write(std::slice::from_ref(&one)).await;
    judge(&app, &ada, one.id, json!({"reason": "it says: general greeting"})).await;
    let found = wait_for(&collector, 1).await;
    let (event, _) = &found[&("ragas".to_owned(), one.id)];
    assert_eq!(attribute(&event.attributes, "gen_ai.evaluation.explanation"), None);
    assert_eq!(attribute(&event.attributes, "gen_ai.evaluation.score.value"), Some(Any::Double(0.25)));
});

on_both!(verdicts_go_where_their_rows_would_and_only_while_the_export_is_enabled, |app| async move {
    let (ada, eve) = (app.enterprise("acme").await, app.enterprise("evil").await);
    let (usual, spans_only, foreign) =
        (receiver(Reply::new(200)).await, receiver(Reply::new(200)).await, receiver(Reply::new(200)).await);
    let path = format!("/api/v1/exports/{}", app.export(&ada, &otlp(&usual)).await);
    let mut second = otlp(&spans_only);
    (second["name"], second["include_sources"]) = (json!("second"), json!(["otel"]));
    app.export(&ada, &second).await;
    app.export(&eve, &otlp(&foreign)).await;
    // Rows from before the export existed: the time of the verdict counts.
    let old = row(&ada, app.app.services.clock.now().plus(-3_600_000));
    let span = with(row(&ada, app.app.services.clock.now()), |row| row.source = LogSource::Otel);
    app.write(&[old.clone(), span.clone()]).await;
    app.put(&path, json!({"enabled": false})).bearer(&ada.token).send().await.expect(200);
    judge(&app, &ada, old.id, json!({"reason": "during the pause"})).await;
    app.put(&path, json!({"enabled": true})).bearer(&ada.token).send().await.expect(200);
    let after = judge(&app, &ada, old.id, json!({"reason": "after the pause"})).await;
    judge(&app, &ada, span.id, json!({})).await;
    wait_for(&usual, 1).await;
    wait_for(&spans_only, 1).await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    let told = |upstream: &Upstream| {
        let reasons = verdicts(upstream).into_iter().map(|((_, row), (event, _))| {
            (row, attribute(&event.attributes, "gen_ai.evaluation.explanation"))
        });
        reasons.collect::<Vec<_>>()
    };
    assert_eq!(told(&usual), [(old.id, Some(Any::String("after the pause".into())))], "{after}");
    assert_eq!(told(&spans_only), [(span.id, None)]);
    assert!(foreign.arrivals().is_empty(), "another organization's are none of its business");
});

async fn outlive_an_outage_and_a_restart(backend: Backend) {
    let data = Arc::new(tempfile::tempdir().unwrap());
    let app = TestApp::start(migrated_config(backend, &data, &[]).await, data).await;
    let ada = app.enterprise("acme").await;
    let collector = receiver(Reply::new(503)).await;
    let id = app.export(&ada, &otlp(&collector)).await;
    let rows: Vec<_> = (0..300).map(|_| row(&ada, app.app.services.clock.now())).collect();
    app.write(&rows).await;
    let eval = define(&app, &ada, "judge", 0.0).await;
    let run = app.eval_run(&ada, &eval, json!({"limit": 300})).await;
    assert_eq!(run["passed"], 300, "{run}");
    app.export_status(&ada, &id, "behind", |s| s["lag"] == 600 && s["failed"].as_i64() > Some(0)).await;
    let (config, data) = app.stop().await;
    collector.set_default_reply(Reply::new(200));
    let before = collector.requests().len();
    let app = TestApp::start(config, data).await;
    app.app.services.clock.advance(600_000);
    let status = app.export_status(&ada, &id, "delivered", |s| s["lag"] == 0).await;
    assert_eq!((&status["delivered"], &status["dropped"]), (&json!(600), &json!(0)));
    let sent: Vec<Span> = collector.requests()[before..].iter().flat_map(spans).collect();
    let events = sent.iter().filter(|span| !span.events.is_empty()).count();
    assert_eq!((sent.len(), events), (600, 300), "each once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verdicts_outlive_an_outage_of_the_destination_and_a_restart_on_sqlite() {
    outlive_an_outage_and_a_restart(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verdicts_outlive_an_outage_of_the_destination_and_a_restart_on_postgres() {
    outlive_an_outage_and_a_restart(Backend::Postgres).await;
}
