//! A row can be read from the moment its response has ended: by its id, in lists, searches, sessions and sums.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gateway_core::logs::LogRow;
use serde_json::{Value, json};

use crate::on_both;
use crate::support::log_rows::{many, row, with};
use crate::support::{Account, TestApp, log_id};

/// Sends a request that is answered by the sandbox. Returns its log id.
async fn chat(app: &TestApp, account: &Account, text: &str, session: &str) -> i64 {
    let body = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": text}]});
    let call = app.post("/v1/chat/completions", body).key(&account.api_key);
    let call = call.header("x-gateway-provider", "sandbox").header("x-gateway-user", session);
    let answer = call.header("x-gateway-session", session).send().await;
    answer.expect(200);
    log_id(&answer)
}

async fn get(app: &TestApp, account: &Account, path: &str) -> Value {
    app.get(path).bearer(&account.token).send().await.expect(200)
}

fn ids(list: &Value, rows: &str) -> BTreeSet<i64> {
    list[rows].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

on_both!(a_row_is_in_every_view_when_its_response_has_ended, |app| async move {
    let ada = app.signup("acme").await;
    for number in 1..=8 {
        let word = format!("pelican{number}");
        let session = format!("talk-{number}");
        // Each view is the first read behind a request of its own.
        let fresh = || chat(&app, &ada, &word, &session);
        let id = fresh().await;
        assert_eq!(get(&app, &ada, &format!("/api/v1/logs/{id}")).await["id"], id);
        let id = fresh().await;
        assert_eq!(get(&app, &ada, "/api/v1/logs?limit=1").await["logs"][0]["id"], id);
        let id = fresh().await;
        let filtered = format!("/api/v1/logs?session_id={session}&status=2xx&model=sandbox-small");
        assert!(ids(&get(&app, &ada, &filtered).await, "logs").contains(&id));
        let id = fresh().await;
        assert!(ids(&get(&app, &ada, &format!("/api/v1/logs?q={word}")).await, "logs").contains(&id));
        let id = fresh().await;
        let detail = get(&app, &ada, &format!("/api/v1/sessions/{session}")).await;
        assert!(ids(&detail, "requests").contains(&id));
        fresh().await;
        assert_eq!(get(&app, &ada, "/api/v1/sessions?limit=1").await["sessions"][0]["requests"], 6);
        fresh().await;
        assert_eq!(get(&app, &ada, &format!("/api/v1/users/{session}/summary")).await["requests"], 7);
        fresh().await;
        assert_eq!(get(&app, &ada, "/api/v1/usage/summary").await["requests"], 9 * (number - 1) + 8);
        fresh().await;
        assert_eq!(get(&app, &ada, "/api/v1/metrics").await["total_requests"], 9 * number);
    }
});

on_both!(a_resumed_stream_replays_the_row_of_the_last_response, |app| async move {
    let ada = app.signup("acme").await;
    let first = chat(&app, &ada, "first", "s").await;
    let second = chat(&app, &ada, "second", "s").await;
    let path = format!("/api/v1/logs/stream?after_id={first}");
    let mut events = app.get(&path).bearer(&ada.token).open().await;
    let event = tokio::time::timeout(Duration::from_secs(10), events.next()).await.expect("no event");
    assert_eq!(event.expect("the stream ended").id, second.to_string());
});

on_both!(rows_of_a_large_batch_are_found_by_a_search_at_once, |app| async move {
    let ada = app.signup("acme").await;
    let now = app.app.services.clock.now();
    let rows: Vec<LogRow> = many(&ada, &app, 300)
        .into_iter()
        .map(|log| with(log, |log| log.request = row(&ada, now).request))
        .collect();
    // Larger than what is indexed together with the rows.
    app.write(&rows).await;
    let mut found = BTreeSet::new();
    let mut path = "/api/v1/logs?q=hello&limit=200".to_owned();
    loop {
        let page = get(&app, &ada, &path).await;
        found.extend(ids(&page, "logs"));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/api/v1/logs?q=hello&limit=200&cursor={cursor}");
    }
    assert_eq!(found, rows.iter().map(|row| row.id).collect());
});

on_both!(readers_in_a_loop_see_every_row_and_do_not_delay_each_other, |app| async move {
    let ada = app.signup("acme").await;
    let eve = app.signup("evil").await;
    let began = Instant::now();
    let poll = async |account: &Account, session: &str| {
        for number in 1..=20 {
            let id = chat(&app, account, "again", session).await;
            let seen = get(&app, account, &format!("/api/v1/logs?session_id={session}")).await;
            assert_eq!((ids(&seen, "logs").last(), ids(&seen, "logs").len()), (Some(&id), number));
        }
    };
    tokio::join!(poll(&ada, "one"), poll(&ada, "two"), poll(&eve, "one"));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
});
