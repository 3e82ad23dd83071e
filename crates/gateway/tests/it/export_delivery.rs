//! Delivery of log rows to export destinations: which rows, and their format.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use gateway::app::App;
use gateway::clock::Clock;
use gateway_core::logs::{Attempt, LogRow, LogSource};
use gateway_core::otlp::proto::Any;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{many, row, with};
use crate::support::receiver::{
    WAIT_TIMEOUT, attribute, is_signed_by, otlp, receiver, span_log_id, spans, traces, webhook,
};
use crate::support::{Backend, ProxyFixture, TestApp, migrated_config};
use crate::upstream::{Reply, Signal, Upstream};

async fn arrives_as_a_span(backend: Backend) {
    let proxied = ProxyFixture::start_with(backend, &[]).await;
    proxied.app.set_enterprise_plan(&proxied.ada).await;
    let upstream = receiver(Reply::new(200)).await;
    let body =
        json!({"name": "c", "kind": "otlp", "endpoint": upstream.url(), "headers": {"X-Api-Key": "k"}});
    let id = proxied.app.export(&proxied.ada, &body).await;
    let answer = r#"{"id": "r-1", "model": "gpt-4o", "choices": [{"finish_reason": "stop", "message":
        {"role": "assistant", "content": "general greeting"}}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}"#;
    proxied.upstream.push(Reply::json(200, answer));
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let chat = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello there"}]});
    let call = proxied.chat(&chat).header("traceparent", &format!("00-{trace}-b7ad6b7169203331-01"));
    let answered = call.header("x-gateway-user", "ada").send().await;
    answered.expect(200);
    let request = upstream.wait_for_requests(1, WAIT_TIMEOUT).await.remove(0);
    assert_eq!((request.target(), request.header("x-api-key")), ("/v1/traces", Some("k")));
    let spans = spans(&request);
    assert_eq!(spans.len(), 1);
    let span = &spans[0];
    assert_eq!(span_log_id(span), Some(crate::support::log_id(&answered)));
    assert_eq!((span.name.as_str(), hex::encode(&span.trace_id).as_str()), ("chat gpt-4o", trace));
    assert_eq!(hex::encode(&span.parent_span_id), "b7ad6b7169203331");
    assert_eq!(attribute(&span.attributes, "gen_ai.usage.input_tokens"), Some(Any::Int(11)));
    assert_eq!(attribute(&span.attributes, "user.id"), Some(Any::String("ada".into())));
    let Some(Any::String(said)) = attribute(&span.attributes, "gen_ai.output.messages") else {
        panic!("{span:?}")
    };
    assert!(said.contains("general greeting"));
    let status = proxied.app.export_status(&proxied.ada, &id, "delivered", |s| s["delivered"] == 1).await;
    assert_eq!((&status["lag"], &status["last_error"]), (&json!(0), &Value::Null));
    crate::support::assertions::time(&status["last_success_at"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxied_request_arrives_as_a_span_from_sqlite() {
    arrives_as_a_span(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxied_request_arrives_as_a_span_from_postgres() {
    arrives_as_a_span(Backend::Postgres).await;
}

on_both!(a_webhook_destination_gets_signed_batches_of_log_rows, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    app.export(&ada, &webhook(&upstream)).await;
    let one = row(&ada, app.app.services.clock.now());
    app.write(std::slice::from_ref(&one)).await;
    let request = upstream.wait_for_requests(1, WAIT_TIMEOUT).await.remove(0);
    assert!(is_signed_by(&request, "abc"));
    let batch = request.json();
    assert_eq!(crate::support::assertions::fields(&batch), ["data", "id", "org_id", "timestamp", "type"]);
    assert_eq!((&batch["type"], &batch["org_id"]), (&json!("trace.batch"), &json!(ada.org_id)));
    assert_eq!(request.header("webhook-id"), batch["id"].as_str());
    let shown = app.get(&format!("/api/v1/logs/{}", one.id)).bearer(&ada.token).send().await.expect(200);
    let mut sent = batch["data"]["traces"][0].clone();
    sent["preview"] = shown["preview"].clone();
    assert_eq!(sent, shown, "a row looks as it does in the log");
});

on_both!(only_the_sources_that_were_chosen_are_sent, |app| async move {
    let ada = app.enterprise("acme").await;
    let (usual, otel) = (receiver(Reply::new(200)).await, receiver(Reply::new(200)).await);
    app.export(&ada, &webhook(&usual)).await;
    let mut second = webhook(&otel);
    (second["name"], second["include_sources"]) = (json!("second"), json!(["otel"]));
    app.export(&ada, &second).await;
    let now = app.app.services.clock.now();
    let rows: Vec<LogRow> = [LogSource::Proxy, LogSource::Api, LogSource::Otel]
        .into_iter()
        .map(|source| with(row(&ada, now), |row| row.source = source))
        .collect();
    let foreign = row(&app.enterprise("evil").await, now);
    app.write(&[rows.clone(), vec![foreign]].concat()).await;
    usual.wait_for_requests(1, WAIT_TIMEOUT).await;
    otel.wait_for_requests(1, WAIT_TIMEOUT).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(traces(&usual.requests()), [rows[0].id, rows[1].id]);
    assert_eq!(traces(&otel.requests()).len(), 1);
});

on_both!(bodies_are_exported_only_when_the_organization_allows_it, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    app.export(&ada, &webhook(&upstream)).await;
    app.export(&ada, &otlp(&upstream)).await;
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    let settings = json!({"settings": {"log_bodies": false}});
    app.put(&org, settings).bearer(&ada.token).send().await.expect(200);
    app.write(&[row(&ada, app.app.services.clock.now())]).await;
    for request in upstream.wait_for_requests(2, WAIT_TIMEOUT).await {
        if request.target() == "/v1/traces" {
            assert_eq!(attribute(&spans(&request)[0].attributes, "gen_ai.input.messages"), None);
        } else {
            let row = request.json()["data"]["traces"][0].clone();
            assert_eq!((&row["request"], &row["response"]), (&Value::Null, &Value::Null));
        }
    }
});

on_both!(rows_of_a_pause_are_never_sent_and_others_always, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    let before = row(&ada, app.app.services.clock.now().plus(-1_000));
    let path = format!("/api/v1/exports/{}", app.export(&ada, &webhook(&upstream)).await);
    let switch = async |enabled: bool| {
        app.put(&path, json!({"enabled": enabled})).bearer(&ada.token).send().await.expect(200);
    };
    let step = || app.app.services.clock.advance(10_000);
    let during = row(&ada, app.app.services.clock.now());
    step();
    switch(false).await;
    step();
    let paused = row(&ada, app.app.services.clock.now());
    step();
    switch(true).await;
    let after = row(&ada, app.app.services.clock.now());
    // All of them are stored only now, as after a database outage.
    app.write(&[before, during.clone(), paused, after.clone()]).await;
    upstream.wait_for_requests(1, WAIT_TIMEOUT).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(traces(&upstream.requests()), [during.id, after.id]);
});

on_both!(what_waits_during_a_pause_is_sent_after_it, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(500)).await;
    let id = app.export(&ada, &webhook(&upstream)).await;
    let one = row(&ada, app.app.services.clock.now());
    app.write(std::slice::from_ref(&one)).await;
    let failing = app.export_status(&ada, &id, "failing", |s| s["failed"] == 1).await;
    assert_eq!((&failing["lag"], &failing["delivered"]), (&json!(1), &json!(0)));
    assert!(failing["last_error"].as_str().unwrap().contains("500"));
    let path = format!("/api/v1/exports/{id}");
    app.put(&path, json!({"enabled": false})).bearer(&ada.token).send().await.expect(200);
    upstream.set_default_reply(Reply::new(200));
    app.app.services.clock.advance(3_600_000);
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(upstream.arrivals().len(), 1, "nothing is sent while it is switched off");
    app.put(&path, json!({"enabled": true})).bearer(&ada.token).send().await.expect(200);
    let status = app.export_status(&ada, &id, "delivered", |s| s["delivered"] == 1).await;
    assert_eq!(
        (&status["lag"], &status["last_error"], &status["failed"]),
        (&json!(0), &Value::Null, &json!(1))
    );
    let ids: HashSet<_> =
        upstream.requests().iter().map(|r| r.header("webhook-id").unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 1, "the same rows are the same batch");
});

on_both!(attempts_are_spans_below_the_call, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    app.export(&ada, &otlp(&upstream)).await;
    let one = with(row(&ada, app.app.services.clock.now()), |row| {
        let second = Attempt { provider: "groq".into(), start_ms: 60, ..row.attempts[0].clone() };
        row.attempts[0].status = Some(503);
        row.attempts.push(second);
    });
    app.write(std::slice::from_ref(&one)).await;
    let request = upstream.wait_for_requests(1, WAIT_TIMEOUT).await.remove(0);
    let [call, first, second] = &spans(&request)[..] else { panic!("three spans") };
    assert_eq!(span_log_id(call), Some(one.id));
    for (attempt, provider, number) in [(first, "openai", 1), (second, "groq", 2)] {
        assert_eq!((&attempt.parent_span_id, &attempt.trace_id), (&call.span_id, &call.trace_id));
        assert_eq!(attempt.name, format!("attempt {provider}"));
        assert_eq!(attribute(&attempt.attributes, "gateway.attempt"), Some(Any::Int(number)));
    }
    assert_eq!(attribute(&first.attributes, "error.type"), Some(Any::String("503".into())));
});

on_both!(credentials_are_redacted_when_a_destination_echoes_them, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::json(
        401,
        r#"{"got": "Bearer t0p-s3cret", "token": "t0p-s3cret", "key": "k3y-t00"}"#,
    ))
    .await;
    let mut body = otlp(&upstream);
    body["headers"] = json!({"Authorization": "Bearer t0p-s3cret", "X-Key": "k3y-t00"});
    let id = app.export(&ada, &body).await;
    app.write(&[row(&ada, app.app.services.clock.now())]).await;
    let status = app.export_status(&ada, &id, "failing", |s| s["failed"].as_i64() > Some(0)).await;
    let error = status["last_error"].as_str().unwrap();
    assert!(error.contains("401") && error.contains("token"), "{error}");
    assert!(!error.contains("s3cret") && !error.contains("k3y"), "{error}");
});

on_both!(large_bodies_make_small_batches, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    let id = app.export(&ada, &webhook(&upstream)).await;
    let rows: Vec<LogRow> = many(&ada, &app, 60)
        .into_iter()
        .map(|row| with(row, |row| row.response = vec![b'x'; 200 << 10]))
        .collect();
    app.write(&rows).await;
    app.export_status(&ada, &id, "delivered", |s| s["delivered"] == 60).await;
    let requests = upstream.requests();
    assert!(requests.len() >= 3 && requests.iter().all(|r| r.body.len() < 6 << 20));
    assert_eq!(traces(&requests).len(), 60);
});

on_both!(a_plan_that_includes_no_exports_ends_them, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    app.export(&ada, &webhook(&upstream)).await;
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    app.put(&org, json!({"plan": "free"})).bearer(&ada.token).send().await.expect(200);
    app.write(&many(&ada, &app, 2)).await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert!(upstream.arrivals().is_empty());
});

on_both!(an_organization_takes_its_exports_with_it, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::no_response().then_stall()).await;
    app.export(&ada, &webhook(&upstream)).await;
    app.write(&many(&ada, &app, 2)).await;
    upstream.wait_for_requests(1, WAIT_TIMEOUT).await;
    app.delete(&format!("/api/v1/orgs/{}", ada.org_id)).bearer(&ada.token).send().await.expect(200);
    upstream.wait_for_aborts(1, Duration::from_secs(3)).await;
});

on_both!(exports_and_webhooks_use_different_connections_to_one_host, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    app.export(&ada, &webhook(&upstream)).await;
    app.write(&[row(&ada, app.app.services.clock.now())]).await;
    let export = upstream.wait_for_requests(1, WAIT_TIMEOUT).await.remove(0);
    app.create_webhook(&ada, &format!("{}/hook", upstream.url()), &["key.create"]).await;
    app.create_key(&ada.token, json!({"name": "k"})).await;
    let hook = upstream.wait_for_requests(2, WAIT_TIMEOUT).await.remove(1);
    assert_eq!(hook.target(), "/hook");
    assert_ne!(hook.connection, export.connection, "the threads of exports have low priority");
    assert_eq!(upstream.open_connections(), 2, "the connection of the export was still open");
});

/// Both nodes send the rows, because the second takes the first for dead. Only one may count them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_lease_does_not_count_what_it_delivered() {
    let data = Arc::new(tempfile::tempdir().unwrap());
    let config = migrated_config(Backend::Postgres, &data, &[]).await;
    let slow = TestApp::start(config.clone(), data).await;
    let ada = slow.enterprise("acme").await;
    let (upstream, signal) = (Upstream::start().await, Signal::new());
    upstream.push(Reply::new(200).wait_before_head(&signal));
    upstream.set_default_reply(Reply::new(200));
    let id = slow.export(&ada, &webhook(&upstream)).await;
    slow.write(&many(&ada, &slow, 7)).await;
    upstream.wait_for_requests(1, WAIT_TIMEOUT).await;
    // A node whose clock is a minute ahead: the lease of the first has expired there.
    let (other_data, mut other) = (tempfile::tempdir().unwrap(), config);
    other.data_dir = other_data.path().to_owned();
    let clock = Clock::default();
    clock.advance(60_000);
    let second = App::start(other, clock).await.unwrap();
    slow.export_status(&ada, &id, "delivered", |status| status["delivered"] == 7).await;
    signal.notify();
    // Waits for the batch in progress.
    slow.stop().await;
    let found =
        gateway_store::exports::find(&second.services.logs, ada.org_id.parse().unwrap(), id.parse().unwrap());
    let (_, status) = found.await.unwrap().unwrap();
    assert_eq!((status.delivered, status.dropped, status.failed, status.lag), (7, 0, 0, 0));
    second.services.tasks.begin_stop();
    second.finish_stop(Duration::from_secs(5)).await;
}
