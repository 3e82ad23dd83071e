//! The live log stream: rows that arrive while connected, and replay of earlier rows.

use std::sync::Arc;
use std::time::Duration;

use gateway::log::tail::{StoredRow, TailEvent};
use gateway_core::logs::LogRow;
use serde_json::Value;

use crate::on_both;
use crate::support::client::Events;
use crate::support::log_rows::{row, with};
use crate::support::{Account, TestApp};

/// Stores rows and notifies subscribers, as the writer does.
async fn arrive(app: &TestApp, rows: &[LogRow]) {
    app.write(rows).await;
    for row in rows {
        let _ = app.app.proxy.tail.send(StoredRow::of(row));
    }
}

async fn follow(app: &TestApp, account: &Account, query: &str, last: Option<i64>) -> Events {
    let mut call = app.get(&format!("/api/v1/logs/stream?{query}")).bearer(&account.token);
    if let Some(last) = last {
        call = call.header("last-event-id", &last.to_string());
    }
    call.open().await
}

async fn next_id(events: &mut Events) -> i64 {
    let event = tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("no event came");
    let event = event.expect("the stream ended");
    assert_eq!(event.name, "log");
    let data: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!(data["id"].to_string(), event.id);
    assert_eq!(data["preview"], "hello there");
    assert!(data.get("request").is_none());
    data["id"].as_i64().unwrap()
}

on_both!(rows_are_seen_as_they_come, |app| async move {
    let (ada, eve) = (app.signup("acme").await, app.signup("evil").await);
    let now = app.app.services.clock.now();
    arrive(&app, &[row(&ada, now.plus(-5000))]).await;
    let mut all = follow(&app, &ada, "", None).await;
    let mut errors = follow(&app, &ada, "status=5xx", None).await;
    let mut found = follow(&app, &ada, "q=HELLO", None).await;
    let later = now.plus(1000);
    let failed = with(row(&ada, later.plus(2)), |row| row.status = 503);
    let rows = [row(&ada, later), row(&eve, later.plus(1)), failed];
    arrive(&app, &rows).await;
    assert_eq!(next_id(&mut all).await, rows[0].id);
    assert_eq!(next_id(&mut all).await, rows[2].id);
    assert_eq!(next_id(&mut errors).await, rows[2].id);
    assert_eq!(next_id(&mut found).await, rows[0].id);
});

on_both!(a_row_with_large_bodies_comes_once_and_in_time, |app| async move {
    let ada = app.signup("acme").await;
    let now = app.app.services.clock.now();
    let mut events = follow(&app, &ada, "", None).await;
    let large = with(row(&ada, now), |row| row.response = vec![b' '; 200 << 10]);
    app.app.proxy.spool.append(0, large.clone());
    assert_eq!(next_id(&mut events).await, large.id);
    let small = row(&ada, now.plus(1));
    app.app.proxy.spool.append(0, small.clone());
    assert_eq!(next_id(&mut events).await, small.id);
});

on_both!(a_client_resumes_behind_what_it_saw_last, |app| async move {
    let ada = app.signup("acme").await;
    let now = app.app.services.clock.now();
    let rows: Vec<LogRow> = (0..450).map(|n| row(&ada, now.plus(-60_000 + n))).collect();
    arrive(&app, &rows).await;
    let mut events = follow(&app, &ada, "", Some(rows[9].id)).await;
    for expected in &rows[10..] {
        assert_eq!(next_id(&mut events).await, expected.id);
    }
    let fresh = row(&ada, now.plus(1000));
    arrive(&app, std::slice::from_ref(&fresh)).await;
    assert_eq!(next_id(&mut events).await, fresh.id);
    let mut after = follow(&app, &ada, &format!("after_id={}", rows[447].id), None).await;
    assert_eq!(next_id(&mut after).await, rows[448].id);
});

on_both!(a_client_that_fell_behind_misses_nothing, |app| async move {
    let ada = app.signup("acme").await;
    let now = app.app.services.clock.now();
    let mut events = follow(&app, &ada, "", None).await;
    // More rows than the tail buffer holds, before the client reads any.
    let rows: Vec<LogRow> = (0..3_000).map(|n| row(&ada, now.plus(1000 + n))).collect();
    for batch in rows.chunks(500) {
        app.write(batch).await;
    }
    for row in &rows {
        let _ = app.app.proxy.tail.send(StoredRow::of(row));
    }
    let mut seen: Vec<i64> = Vec::new();
    while seen.len() < rows.len() {
        seen.push(next_id(&mut events).await);
    }
    seen.sort_unstable();
    let expected: Vec<i64> = rows.iter().map(|row| row.id).collect();
    assert_eq!(seen, expected);
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_other_nodes_are_seen_too() {
    let app = TestApp::start_with(crate::support::Backend::Postgres, &[]).await;
    let ada = app.signup("acme").await;
    let mut events = follow(&app, &ada, "", None).await;
    let log = row(&ada, app.app.services.clock.now().plus(10));
    app.write(std::slice::from_ref(&log)).await;
    assert_eq!(next_id(&mut events).await, log.id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_request_of_another_node_is_seen_too() {
    let app = TestApp::start_with(crate::support::Backend::Postgres, &[]).await;
    let ada = app.signup("acme").await;
    let mut config = app.app.services.config.clone();
    let data = Arc::new(tempfile::tempdir().unwrap());
    config.data_dir = data.path().to_owned();
    let other = TestApp::start(config, data).await;
    let mut events = follow(&app, &ada, "", None).await;
    let mut filtered = follow(&app, &ada, "status=5xx", None).await;
    // The id is the start of the request, long before the stream was opened.
    let now = app.app.services.clock.now();
    let log = row(&ada, now.plus(-3_600_000));
    let failed = with(row(&ada, now.plus(-1_800_000)), |row| row.status = 503);
    other.app.proxy.spool.append(0, log.clone());
    assert_eq!(next_id(&mut events).await, log.id);
    other.app.proxy.spool.append(0, failed.clone());
    assert_eq!(next_id(&mut events).await, failed.id);
    assert_eq!(next_id(&mut filtered).await, failed.id);
    // Each row comes once, also when this node stores it.
    let own = row(&ada, now);
    app.app.proxy.spool.append(0, own.clone());
    let last = row(&ada, now.plus(1));
    assert_eq!(next_id(&mut events).await, own.id);
    other.app.proxy.spool.append(0, last.clone());
    assert_eq!(next_id(&mut events).await, last.id);
}

on_both!(the_stream_ends_when_the_service_stops, |app| async move {
    let ada = app.signup("acme").await;
    let mut events = follow(&app, &ada, "", None).await;
    app.app.services.tasks.begin_stop();
    let end = tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("it did not end");
    assert!(end.is_none());
});

on_both!(a_bad_resume_point_is_refused, |app| async move {
    let ada = app.signup("acme").await;
    let answer = app.get("/api/v1/logs/stream").bearer(&ada.token).header("last-event-id", "x").send().await;
    answer.expect_error(400, "bad_request");
    app.get("/api/v1/logs/stream?level=loud")
        .bearer(&ada.token)
        .send()
        .await
        .expect_error(400, "bad_request");
    app.get("/api/v1/logs/stream").send().await.expect_error(401, "unauthorized");
});

on_both!(a_stream_ends_with_the_credential_that_opened_it, |app| async move {
    let ada = app.signup("acme").await;
    let mut events = follow(&app, &ada, "", None).await;
    app.call(http::Method::POST, "/api/v1/auth/logout").bearer(&ada.token).send().await.expect(200);
    let ended = tokio::time::timeout(Duration::from_secs(10), events.next()).await;
    assert!(ended.expect("the stream goes on").is_none());
});

on_both!(an_organization_has_only_so_many_streams, |app| async move {
    let (eve, ada) = (app.signup("evil").await, app.signup("acme").await);
    let mut open = Vec::new();
    for _ in 0..20 {
        open.push(follow(&app, &eve, "", None).await);
    }
    let refused = app.get("/api/v1/logs/stream").bearer(&eve.token).send().await;
    refused.expect_error(429, "too_many_streams");
    assert!(refused.header("retry-after").is_some());
    // Others are not affected, and every stream gets the rows.
    let mut other = follow(&app, &ada, "", None).await;
    let now = app.app.services.clock.now();
    let (theirs, own) = (row(&eve, now), row(&ada, now.plus(1)));
    arrive(&app, &[theirs.clone(), own.clone()]).await;
    for events in &mut open {
        assert_eq!(next_id(events).await, theirs.id);
    }
    assert_eq!(next_id(&mut other).await, own.id);
    // A stream that ended makes room.
    drop(open.pop());
    for attempt in 0.. {
        let answer = app.get("/api/v1/logs/stream").bearer(&eve.token).send().await;
        if answer.status == 200 {
            break;
        }
        assert!(attempt < 100, "the closed stream still counts");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
});

on_both!(what_waits_for_a_stream_is_counted_and_bounded, |app| async move {
    let ada = app.signup("acme").await;
    let org = ada.org_id.parse().unwrap();
    let used = || usize::try_from(app.app.services.memory.used()).unwrap();
    let subscribing = app.app.shares.log_tails.subscribe(&app.app.services, &app.app.proxy.tail, org);
    let mut waiting = subscribing.await.unwrap();
    let now = app.app.services.clock.now();
    let rows: Vec<LogRow> = (0..600)
        .map(|number| with(row(&ada, now.plus(number)), |row| row.request = vec![b'x'; 10 << 10]))
        .collect();
    // They are stored, so a stream that is told of no row finds it there.
    arrive(&app, &rows).await;
    let mut most = 0;
    // Long enough for a poll of the store, whose rows would wait as well.
    for _ in 0..100 {
        most = most.max(used());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!((3 << 20..5 << 20).contains(&most), "{most} bytes wait");
    let all = async {
        let mut found = 0;
        while found < rows.len() {
            match waiting.events.recv().await.unwrap() {
                TailEvent::Live(_) => found += 1,
                TailEvent::Stored(entries) => found += entries.len(),
                // The rest is read from the store.
                TailEvent::Missed => return,
                TailEvent::Polled(_) | TailEvent::Incomplete(_) => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("no row is lost");
    drop(waiting);
    for _ in 0..500 {
        if used() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} bytes are still in use", used());
});
