//! Export destinations that fail, hang, disappear or change during delivery, and process restarts: every row is
//! delivered, and other destinations are not delayed.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::time::DAY;
use gateway_store::logs::write_batch;
use serde_json::json;

use crate::on_both;
use crate::support::log_rows::{many, row};
use crate::support::receiver::{WAIT_TIMEOUT, otlp, receiver, span_log_id, spans, traces, webhook};
use crate::support::{Backend, TestApp, migrated_config};
use crate::upstream::{Reply, Signal, Upstream};

const MANY: usize = 25_000;
/// The replies that are planned: more than all rows need.
const REPLIES: usize = 1_000;
/// More than the longest backoff of an export.
const MAX_BACKOFF_MS: i64 = 10 * 60_000;
const MAX_WAIT: Duration = Duration::from_secs(300);

on_both!(every_row_arrives_at_a_destination_that_fails_again_and_again, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = Upstream::start().await;
    let id = app.export(&ada, &otlp(&upstream)).await;
    let rows = many(&ada, &app, MANY);
    let expected: HashSet<i64> = rows.iter().map(|row| row.id).collect();
    // Half of the responses fail, two in a row.
    for number in 0..REPLIES {
        upstream.push(match (number % 4 < 2, number % 2) {
            (true, 0) => Reply::new(503),
            (true, _) => Reply::reset().then_reset(),
            (false, _) => Reply::new(200),
        });
    }
    let writing = async {
        // Out of order, as requests finish.
        let (late, early): (Vec<_>, Vec<_>) = rows.iter().cloned().partition(|row| row.id % 3 == 0);
        for batch in early.chunks(1_000).chain(late.chunks(1_000)) {
            write_batch(&app.app.services.logs, batch).await.unwrap();
        }
    };
    let watching = async {
        let (began, mut failed) = (Instant::now(), 0);
        loop {
            // The session would expire while the clock advances; the key does not.
            let path = format!("/api/v1/exports/{id}");
            let status = app.get(&path).key(&ada.api_key).send().await.expect(200)["status"].clone();
            if status["delivered"] == MANY && status["lag"] == 0 {
                return status;
            }
            assert!(began.elapsed() < MAX_WAIT, "not all rows arrived: {status}");
            // A failed delivery waits for its backoff. The clock stands still otherwise, because leases expire by it.
            if status["failed"].as_i64().unwrap() > failed {
                failed = status["failed"].as_i64().unwrap();
                app.app.services.clock.advance(MAX_BACKOFF_MS);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ((), status) = tokio::join!(writing, watching);
    assert!(status["failed"].as_i64().unwrap() > 20, "{status}");
    assert_eq!(status["dropped"], 0);
    let mut arrived: BTreeMap<i64, usize> = BTreeMap::new();
    let mut largest = 0;
    for request in upstream.requests() {
        let found = spans(&request);
        largest = largest.max(found.len());
        for span in &found {
            *arrived.entry(span_log_id(span).unwrap()).or_default() += 1;
        }
    }
    let missing: Vec<_> = expected.iter().filter(|id| !arrived.contains_key(id)).collect();
    assert!(missing.is_empty(), "{} rows never came", missing.len());
    assert_eq!(arrived.len(), expected.len(), "and no others did");
    assert_eq!(largest, 512);
});

on_both!(deleting_an_export_stops_what_it_is_delivering, |app| async move {
    let ada = app.enterprise("acme").await;
    let upstream = receiver(Reply::no_response().then_stall()).await;
    let id = app.export(&ada, &otlp(&upstream)).await;
    app.write(&many(&ada, &app, 3)).await;
    upstream.wait_for_requests(1, WAIT_TIMEOUT).await;
    app.delete(&format!("/api/v1/exports/{id}")).bearer(&ada.token).send().await.expect(200);
    upstream.wait_for_aborts(1, Duration::from_secs(2)).await;
    app.write(&many(&ada, &app, 3)).await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(upstream.arrivals().len(), 1);
});

on_both!(a_change_takes_effect_at_once, |app| async move {
    let ada = app.enterprise("acme").await;
    let (hanging, better) =
        (receiver(Reply::no_response().then_stall()).await, receiver(Reply::new(200)).await);
    let id = app.export(&ada, &otlp(&hanging)).await;
    app.write(&many(&ada, &app, 2)).await;
    hanging.wait_for_requests(1, WAIT_TIMEOUT).await;
    let path = format!("/api/v1/exports/{id}");
    app.put(&path, json!({"endpoint": better.url()})).bearer(&ada.token).send().await.expect(200);
    let request = better.wait_for_requests(1, Duration::from_secs(5)).await.remove(0);
    assert_eq!(spans(&request).len(), 2);
});

on_both!(a_dead_destination_delays_no_other_destination, |app| async move {
    let ada = app.enterprise("acme").await;
    let (dead, alive) = (receiver(Reply::no_response().then_stall()).await, receiver(Reply::new(200)).await);
    app.export(&ada, &otlp(&dead)).await;
    let good = app.export(&ada, &webhook(&alive)).await;
    app.write(&many(&ada, &app, 2_000)).await;
    app.export_status(&ada, &good, "delivered", |s| s["delivered"] == 2_000).await;
    let sent = traces(&alive.requests());
    assert_eq!(sent.iter().collect::<HashSet<_>>().len(), 2_000);
    assert_eq!(dead.arrivals().len(), 1, "one batch at a time");
});

on_both!(dead_destinations_of_one_organization_cannot_use_all_slots, |app| async move {
    let (eve, ada) = (app.enterprise("evil").await, app.enterprise("acme").await);
    let (dead, alive) = (receiver(Reply::no_response().then_stall()).await, receiver(Reply::new(200)).await);
    for number in 0..100 {
        let mut body = webhook(&dead);
        body["name"] = json!(format!("hook {number}"));
        app.export(&eve, &body).await;
    }
    let refused = app.post("/api/v1/exports", webhook(&dead)).bearer(&eve.token).send().await;
    refused.expect_error(403, "quota_exceeded");
    app.write(&[row(&eve, app.app.services.clock.now())]).await;
    dead.wait_for_requests(8, WAIT_TIMEOUT).await;
    let id = app.export(&ada, &webhook(&alive)).await;
    app.write(&[row(&ada, app.app.services.clock.now())]).await;
    app.export_status(&ada, &id, "delivered", |s| s["delivered"] == 1).await;
    assert_eq!(dead.arrivals().len(), 8, "so many of one organization at once, and no more");
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
    upstream.set_default_reply(Reply::new(413));
    app.write(&many(&ada, &app, 1)).await;
    let status = app.export_status(&ada, &id, "dropped", |s| s["dropped"] == 1).await;
    assert_eq!(status["lag"], 0, "one that can never fit makes way");
});

on_both!(rows_wait_for_a_destination_no_longer_than_they_are_kept, |app| async move {
    let (ada, eve) = (app.enterprise("acme").await, app.enterprise("evil").await);
    for (by, days) in [(&ada, 20), (&eve, 7)] {
        let path = format!("/api/v1/orgs/{}", by.org_id);
        let settings = json!({"settings": {"log_retention_days": days}});
        app.put(&path, settings).bearer(&by.token).send().await.expect(200);
    }
    let gone = receiver(Reply::new(503)).await;
    let mut exports = Vec::new();
    for (by, rows) in [(&ada, 3), (&eve, 4)] {
        let id = app.export(by, &webhook(&gone)).await;
        app.write(&many(by, &app, rows)).await;
        app.export_status(by, &id, "failing", |s| s["lag"] == rows && s["failed"].as_i64() > Some(0)).await;
        // A destination that is tried would drop the rows by itself.
        let path = format!("/api/v1/exports/{id}");
        app.put(&path, json!({"enabled": false})).bearer(&by.token).send().await.expect(200);
        exports.push(id);
    }
    app.app.services.clock.advance(10 * DAY);
    let status = app.export_status(&eve, &exports[1], "swept", |s| s["lag"] == 0).await;
    assert_eq!(status["dropped"], 4);
    assert!(status["last_error"].as_str().unwrap().contains("longer than"), "{status}");
    let status = app.export_status(&ada, &exports[0], "kept", |s| s["lag"] == 3).await;
    assert_eq!(status["dropped"], 0, "its rows are kept for longer");
    app.app.services.clock.advance(30 * DAY);
    let status = app.export_status(&ada, &exports[0], "swept", |s| s["lag"] == 0).await;
    assert_eq!(status["dropped"], 3);
});

async fn goes_on_after_a_restart(backend: Backend) {
    let data = Arc::new(tempfile::tempdir().unwrap());
    let app = TestApp::start(migrated_config(backend, &data, &[]).await, data).await;
    let ada = app.enterprise("acme").await;
    let signal = Signal::new();
    let upstream = receiver(Reply::new(200)).await;
    upstream.push(Reply::new(200));
    upstream.push(Reply::new(200).wait_before_head(&signal));
    let id = app.export(&ada, &webhook(&upstream)).await;
    let rows = many(&ada, &app, 2_000);
    app.write(&rows).await;
    upstream.wait_for_requests(2, WAIT_TIMEOUT).await;
    let (config, data) = app.stop().await;
    let app = TestApp::start(config, data).await;
    // On PostgreSQL another node may hold the lease, which has to expire first.
    app.app.services.clock.advance(60_000);
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
    let config = migrated_config(Backend::Postgres, &data, &[]).await;
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
