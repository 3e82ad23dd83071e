//! Log rows on their way to destinations: all of those that are owed, whatever the destinations do.

use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use gateway_core::logs::{LogRow, Source};
use gateway_core::otlp::proto::{Any, ExportTraceServiceRequest, Span};
use gateway_store::logs::write_batch;
use prost::Message as _;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::receiver::{PATIENCE, is_signed_by};
use crate::support::rows::{row, with};
use crate::support::{Account, Backend, Proxied, TestApp, fresh_config};
use crate::upstream::{Reply, Request, Signal, Upstream};

async fn receiver(reply: Reply) -> Upstream {
    let upstream = Upstream::start().await;
    upstream.always(reply);
    upstream
}

fn otlp(upstream: &Upstream) -> Value {
    json!({"name": "collector", "kind": "otlp", "endpoint": upstream.url()})
}

fn webhook(upstream: &Upstream) -> Value {
    json!({"name": "hook", "kind": "webhook", "endpoint": upstream.url(), "secret": "abc"})
}

/// The spans in a request, which is packed.
fn spans(request: &Request) -> Vec<Span> {
    assert_eq!(request.header("content-encoding"), Some("gzip"));
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
    let mut plain = Vec::new();
    GzDecoder::new(&request.body[..]).read_to_end(&mut plain).unwrap();
    let message = ExportTraceServiceRequest::decode(&plain[..]).unwrap();
    message.resource_spans.into_iter().flat_map(|r| r.scope_spans).flat_map(|s| s.spans).collect()
}

fn attribute(span: &Span, name: &str) -> Option<Any> {
    span.attributes.iter().find(|pair| pair.key == name)?.value.clone()?.value
}

fn log_id(span: &Span) -> Option<i64> {
    match attribute(span, "gateway.log_id")? {
        Any::Int(id) => Some(id),
        _ => None,
    }
}

/// The log ids that a webhook destination was sent, over all requests.
fn traces(requests: &[Request]) -> Vec<i64> {
    let rows = |request: &Request| request.json()["data"]["traces"].as_array().unwrap().clone();
    requests.iter().flat_map(rows).map(|row| row["id"].as_i64().unwrap()).collect()
}

/// So many rows, one a millisecond, without bodies.
fn many(of: &Account, app: &TestApp, count: usize) -> Vec<LogRow> {
    let now = app.app.clock.now();
    (0..count)
        .map(|number| {
            with(row(of, now.plus(i64::try_from(number).unwrap())), |row| {
                (row.request, row.response) = (Vec::new(), Vec::new());
            })
        })
        .collect()
}

async fn arrives_as_a_span(backend: Backend) {
    let proxied = Proxied::start_with(backend, &[]).await;
    proxied.app.make_enterprise(&proxied.ada).await;
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
    let request = upstream.wait_for_requests(1, PATIENCE).await.remove(0);
    assert_eq!((request.target(), request.header("x-api-key")), ("/v1/traces", Some("k")));
    let spans = spans(&request);
    assert_eq!(spans.len(), 1);
    let span = &spans[0];
    assert_eq!(log_id(span), Some(crate::support::log_id(&answered)));
    assert_eq!((span.name.as_str(), hex::encode(&span.trace_id).as_str()), ("chat gpt-4o", trace));
    assert_eq!(hex::encode(&span.parent_span_id), "b7ad6b7169203331");
    assert_eq!(attribute(span, "gen_ai.usage.input_tokens"), Some(Any::Int(11)));
    assert_eq!(attribute(span, "user.id"), Some(Any::String("ada".into())));
    let Some(Any::String(said)) = attribute(span, "gen_ai.output.messages") else { panic!("{span:?}") };
    assert!(said.contains("general greeting"));
    let status = proxied.app.export_status(&proxied.ada, &id, "delivered", |s| s["delivered"] == 1).await;
    assert_eq!((&status["lag"], &status["last_error"]), (&json!(0), &Value::Null));
    crate::support::check::time(&status["last_success_at"]);
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
    let one = row(&ada, app.app.clock.now());
    app.write(std::slice::from_ref(&one)).await;
    let request = upstream.wait_for_requests(1, PATIENCE).await.remove(0);
    assert!(is_signed_by(&request, "abc"));
    let batch = request.json();
    assert_eq!(crate::support::check::fields(&batch), ["data", "id", "org_id", "timestamp", "type"]);
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
    let now = app.app.clock.now();
    let rows: Vec<LogRow> = [Source::Proxy, Source::Api, Source::Otel]
        .into_iter()
        .map(|source| with(row(&ada, now), |row| row.source = source))
        .collect();
    let foreign = row(&app.enterprise("evil").await, now);
    app.write(&[rows.clone(), vec![foreign]].concat()).await;
    usual.wait_for_requests(1, PATIENCE).await;
    otel.wait_for_requests(1, PATIENCE).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(traces(&usual.requests()), [rows[0].id, rows[1].id]);
    assert_eq!(traces(&otel.requests()).len(), 1);
});

on_both!(bodies_leave_only_when_the_organization_allows_it, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    app.export(&ada, &webhook(&upstream)).await;
    app.export(&ada, &otlp(&upstream)).await;
    let org = format!("/api/v1/orgs/{}", ada.org_id);
    let settings = json!({"settings": {"log_bodies": false}});
    app.put(&org, settings).bearer(&ada.token).send().await.expect(200);
    app.write(&[row(&ada, app.app.clock.now())]).await;
    for request in upstream.wait_for_requests(2, PATIENCE).await {
        if request.target() == "/v1/traces" {
            assert_eq!(attribute(&spans(&request)[0], "gen_ai.input.messages"), None);
        } else {
            let row = request.json()["data"]["traces"][0].clone();
            assert_eq!((&row["request"], &row["response"]), (&Value::Null, &Value::Null));
        }
    }
});

on_both!(rows_of_a_pause_are_never_sent_and_others_always, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    let before = row(&ada, app.app.clock.now().plus(-1_000));
    let path = format!("/api/v1/exports/{}", app.export(&ada, &webhook(&upstream)).await);
    let switch = async |enabled: bool| {
        app.put(&path, json!({"enabled": enabled})).bearer(&ada.token).send().await.expect(200);
    };
    let step = || app.app.clock.advance(10_000);
    let during = row(&ada, app.app.clock.now());
    step();
    switch(false).await;
    step();
    let paused = row(&ada, app.app.clock.now());
    step();
    switch(true).await;
    let after = row(&ada, app.app.clock.now());
    // All of them arrive only now, as after an outage of the database.
    app.write(&[before, during.clone(), paused, after.clone()]).await;
    upstream.wait_for_requests(1, PATIENCE).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(traces(&upstream.requests()), [during.id, after.id]);
});

on_both!(what_waits_during_a_pause_is_sent_after_it, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(500)).await;
    let id = app.export(&ada, &webhook(&upstream)).await;
    let one = row(&ada, app.app.clock.now());
    app.write(std::slice::from_ref(&one)).await;
    let failing = app.export_status(&ada, &id, "failing", |s| s["failed"] == 1).await;
    assert_eq!((&failing["lag"], &failing["delivered"]), (&json!(1), &json!(0)));
    assert!(failing["last_error"].as_str().unwrap().contains("500"));
    let path = format!("/api/v1/exports/{id}");
    app.put(&path, json!({"enabled": false})).bearer(&ada.token).send().await.expect(200);
    upstream.always(Reply::new(200));
    app.app.clock.advance(3_600_000);
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

on_both!(every_row_arrives_at_a_destination_that_fails_half_the_time, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = Upstream::start().await;
    let id = app.export(&ada, &otlp(&upstream)).await;
    let rows = many(&ada, &app, 20_000);
    let expected: HashSet<i64> = rows.iter().map(|row| row.id).collect();
    for number in 0..300 {
        let reply = match number % 4 {
            0 => Reply::new(503),
            1 => Reply::refuse().then_reset(),
            _ => Reply::new(200),
        };
        upstream.push(reply);
    }
    upstream.always(Reply::new(200));
    let writing = async {
        // Not in order, as requests end.
        let (late, early): (Vec<_>, Vec<_>) = rows.iter().cloned().partition(|row| row.id % 3 == 0);
        for batch in early.chunks(1_000).chain(late.chunks(1_000)) {
            write_batch(&app.app.logs, batch).await.unwrap();
        }
    };
    let ticking = async {
        loop {
            // Back-off takes its time; the clock is made to take less.
            tokio::time::sleep(Duration::from_millis(50)).await;
            app.app.clock.advance(2_000);
        }
    };
    let watching = async {
        writing.await;
        app.export_status(&ada, &id, "done", |s| s["delivered"] == 20_000 && s["lag"] == 0).await
    };
    let status = tokio::select! {
        status = watching => status,
        () = ticking => unreachable!("it ticks for ever"),
    };
    assert!(status["failed"].as_i64().unwrap() > 10, "{status}");
    let mut arrived: BTreeMap<i64, usize> = BTreeMap::new();
    let mut largest = 0;
    for request in upstream.requests() {
        let found = spans(&request);
        largest = largest.max(found.len());
        for span in &found {
            *arrived.entry(log_id(span).unwrap()).or_default() += 1;
        }
    }
    let missing: Vec<_> = expected.iter().filter(|id| !arrived.contains_key(id)).collect();
    assert!(missing.is_empty(), "{} rows never came", missing.len());
    assert_eq!(arrived.len(), expected.len(), "and no others did");
    assert_eq!(largest, 512);
});

on_both!(deleting_an_export_stops_what_it_is_delivering, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::silence().then_hang()).await;
    let id = app.export(&ada, &otlp(&upstream)).await;
    app.write(&many(&ada, &app, 3)).await;
    upstream.wait_for_requests(1, PATIENCE).await;
    app.delete(&format!("/api/v1/exports/{id}")).bearer(&ada.token).send().await.expect(200);
    upstream.wait_for_aborts(1, Duration::from_secs(2)).await;
    app.write(&many(&ada, &app, 3)).await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(upstream.arrivals().len(), 1);
});

on_both!(a_change_takes_effect_at_once, |app| async move {
    let ada = app.enterprise("acme").await;
    let (hanging, better) = (receiver(Reply::silence().then_hang()).await, receiver(Reply::new(200)).await);
    let id = app.export(&ada, &otlp(&hanging)).await;
    app.write(&many(&ada, &app, 2)).await;
    hanging.wait_for_requests(1, PATIENCE).await;
    let path = format!("/api/v1/exports/{id}");
    app.put(&path, json!({"endpoint": better.url()})).bearer(&ada.token).send().await.expect(200);
    let request = better.wait_for_requests(1, Duration::from_secs(5)).await.remove(0);
    assert_eq!(spans(&request).len(), 2);
});

on_both!(a_dead_destination_holds_up_nobody_else, |app| async move {
    let ada = app.enterprise("acme").await;
    let (dead, alive) = (receiver(Reply::silence().then_hang()).await, receiver(Reply::new(200)).await);
    app.export(&ada, &otlp(&dead)).await;
    let good = app.export(&ada, &webhook(&alive)).await;
    app.write(&many(&ada, &app, 2_000)).await;
    app.export_status(&ada, &good, "delivered", |s| s["delivered"] == 2_000).await;
    let sent = traces(&alive.requests());
    assert_eq!(sent.iter().collect::<HashSet<_>>().len(), 2_000);
    assert_eq!(dead.arrivals().len(), 1, "one batch at a time");
});

on_both!(a_batch_that_is_too_large_is_sent_in_pieces, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200)).await;
    upstream.push(Reply::new(413));
    upstream.push(Reply::new(413));
    let id = app.export(&ada, &webhook(&upstream)).await;
    app.write(&many(&ada, &app, 100)).await;
    let status = app.export_status(&ada, &id, "delivered", |s| s["delivered"] == 100).await;
    assert_eq!((&status["failed"], &status["dropped"]), (&json!(2), &json!(0)));
    let sizes: Vec<usize> =
        upstream.requests().iter().map(|r| traces(std::slice::from_ref(r)).len()).collect();
    assert_eq!(sizes[..3], [100, 50, 25]);
    assert_eq!(traces(&upstream.requests()[2..]).len(), 100, "each once");
    upstream.always(Reply::new(413));
    app.write(&many(&ada, &app, 1)).await;
    let status = app.export_status(&ada, &id, "dropped", |s| s["dropped"] == 1).await;
    assert_eq!(status["lag"], 0, "one that can never fit makes way");
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
    let upstream = receiver(Reply::silence().then_hang()).await;
    app.export(&ada, &webhook(&upstream)).await;
    app.write(&many(&ada, &app, 2)).await;
    upstream.wait_for_requests(1, PATIENCE).await;
    app.delete(&format!("/api/v1/orgs/{}", ada.org_id)).bearer(&ada.token).send().await.expect(200);
    upstream.wait_for_aborts(1, Duration::from_secs(3)).await;
});

async fn goes_on_after_a_restart(backend: Backend) {
    let data = Arc::new(tempfile::tempdir().unwrap());
    let app = TestApp::start(fresh_config(backend, &data, &[]).await, data).await;
    let ada = app.enterprise("acme").await;
    let signal = Signal::new();
    let upstream = receiver(Reply::new(200)).await;
    upstream.push(Reply::new(200));
    upstream.push(Reply::new(200).hold_head(&signal));
    let id = app.export(&ada, &webhook(&upstream)).await;
    let rows = many(&ada, &app, 2_000);
    app.write(&rows).await;
    upstream.wait_for_requests(2, PATIENCE).await;
    let (config, data) = app.stop().await;
    let app = TestApp::start(config, data).await;
    // On PostgreSQL another node could hold it; its lease has to end first.
    app.app.clock.advance(60_000);
    app.export_status(&ada, &id, "delivered", |s| s["lag"] == 0 && s["delivered"] == 2_000).await;
    let sent: HashSet<i64> = traces(&upstream.requests()).into_iter().collect();
    assert_eq!(sent, rows.iter().map(|row| row.id).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_in_the_middle_loses_nothing_on_sqlite() {
    goes_on_after_a_restart(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_in_the_middle_loses_nothing_on_postgres() {
    goes_on_after_a_restart(Backend::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_nodes_deliver_a_row_once() {
    let (data, other_data) = (Arc::new(tempfile::tempdir().unwrap()), Arc::new(tempfile::tempdir().unwrap()));
    let config = fresh_config(Backend::Postgres, &data, &[]).await;
    let mut other_config = config.clone();
    other_config.data_dir = other_data.path().to_owned();
    let app = TestApp::start(config, data).await;
    let other = TestApp::start(other_config, other_data).await;
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::new(200).delay_head(Duration::from_millis(20))).await;
    let id = app.export(&ada, &webhook(&upstream)).await;
    let rows = many(&ada, &app, 3_000);
    for (number, batch) in rows.chunks(500).enumerate() {
        if number % 2 == 0 {
            app.write(batch).await
        } else {
            other.write(batch).await
        };
    }
    app.export_status(&ada, &id, "delivered", |s| s["lag"] == 0 && s["delivered"] == 3_000).await;
    let mut sent = traces(&upstream.requests());
    sent.sort_unstable();
    assert_eq!(sent, rows.iter().map(|row| row.id).collect::<Vec<_>>());
}
