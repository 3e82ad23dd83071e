//! The search index of log rows over HTTP: it finds the same rows before and after its runs are merged, without rows that
//! were deleted, and while runs are merged.

use std::sync::Arc;

use gateway_core::logs::LogRow;
use gateway_core::time::{DAY, MINUTE};
use gateway_store::{Db, logs, testing};

use crate::on_both;
use crate::support::log_rows::{at, chat, row, with};
use crate::support::{Account, TestApp};

async fn search(app: &TestApp, account: &Account, query: &str) -> Vec<i64> {
    let answer = app.get(&format!("/api/v1/logs?{query}")).bearer(&account.token).send().await.expect(200);
    answer["logs"].as_array().unwrap().iter().map(|log| log["id"].as_i64().unwrap()).collect()
}

/// All pages of a search.
async fn search_all(app: &TestApp, account: &Account, query: &str) -> Vec<i64> {
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let after = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let path = format!("/api/v1/logs?{query}{after}");
        let answer = app.get(&path).bearer(&account.token).send().await.expect(200);
        found.extend(answer["logs"].as_array().unwrap().iter().map(|log| log["id"].as_i64().unwrap()));
        cursor = answer["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return found;
        }
    }
}

/// A row every minute; the words of each tell its number and its parity.
fn numbered(account: &Account, count: i64) -> Vec<LogRow> {
    let time = at("2026-11-09T10:00:00Z");
    let text = |n: i64| format!("number{n} {} in{}", if n % 2 == 0 { "even" } else { "odd" }, account.slug);
    (0..count)
        .map(|n| {
            with(row(account, time.plus(n * MINUTE)), |row| {
                row.request = chat(&text(n));
                row.status = if n % 7 == 0 { 500 } else { 200 };
            })
        })
        .collect()
}

async fn merge(logs: &Db) {
    while logs::merge_runs(logs).await.unwrap() {}
}

async fn count(app: &TestApp, table: &str) -> i64 {
    testing::count(&app.app.services.logs, table).await.unwrap()
}

on_both!(merged_runs_find_what_their_parts_found, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("other").await);
    let (rows, others) = (numbered(&ada, 330), numbered(&bob, 40));
    for batch in rows.chunks(10) {
        app.write(batch).await;
    }
    for batch in others.chunks(10) {
        app.write(batch).await;
    }
    let newest_first = |wanted: &dyn Fn(i64) -> bool| -> Vec<i64> {
        let mut ids: Vec<i64> =
            (0_i64..).zip(&rows).filter(|(n, _)| wanted(*n)).map(|(_, row)| row.id).collect();
        ids.reverse();
        ids
    };
    for is_merged in [false, true] {
        // The gateway may have merged some before.
        if is_merged {
            merge(&app.app.services.logs).await;
            // 16 batches of ten rows each make one run; five batches are left.
            assert_eq!(count(&app, "log_word_runs").await, 2 + 5);
        }
        let logs = |query: &'static str| search_all(&app, &ada, query);
        assert_eq!(search(&app, &ada, "q=number123").await, [rows[123].id]);
        assert_eq!(logs("q=even&limit=50").await, newest_first(&|n| n % 2 == 0));
        assert_eq!(logs("q=even+inacme&limit=7").await, newest_first(&|n| n % 2 == 0));
        assert_eq!(logs("q=odd&status=500&limit=9").await, newest_first(&|n| n % 14 == 7));
        assert_eq!(search(&app, &ada, "q=even+odd").await, Vec::<i64>::new());
        assert_eq!(search(&app, &ada, "q=inother").await, Vec::<i64>::new());
        let (from, to) = (30, 60);
        let range = format!("q=odd&from={}&to={}&limit=100", time_of(&rows[from]), time_of(&rows[to]));
        let within = |n: i64| n % 2 == 1 && (30..60).contains(&n);
        assert_eq!(search_all(&app, &ada, &range).await, newest_first(&within));
        assert_eq!(search_all(&app, &bob, "q=even&limit=50").await.len(), 20);
    }
});

fn time_of(row: &LogRow) -> String {
    row.created_at.to_string()
}

on_both!(deleted_rows_leave_the_index, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("other").await);
    let now = at("2026-11-09T12:00:00Z");
    let rows = |account: &Account| -> Vec<LogRow> {
        (0..160_i64).map(|n| row(account, now.plus(-DAY - n * 1_000))).collect()
    };
    let both = [rows(&ada), rows(&bob)].concat();
    for batch in both.chunks(32) {
        app.write(batch).await;
    }
    let logs = &app.app.services.logs;
    merge(logs).await;
    // Rows of one organization go sooner.
    let kept = [(ada.org_id.parse().unwrap(), 1)];
    while logs::sweep(logs, now.plus(30), 30, &kept).await.unwrap() > 0 {}
    assert_eq!(search(&app, &ada, "q=hello").await, Vec::<i64>::new());
    assert_eq!(search_all(&app, &bob, "q=hello&limit=100").await.len(), 160);
    merge(logs).await;
    assert_eq!(count(&app, "log_word_runs WHERE deleted * 2 >= row_count").await, 0);
    assert_eq!(search_all(&app, &bob, "q=hello&limit=100").await.len(), 160);
    // All rows go: nothing is left of the index.
    while logs::sweep(logs, now.plus(40 * DAY), 30, &[]).await.unwrap() > 0 {}
    assert_eq!(count(&app, "log_word_runs").await, 0);
    assert_eq!(count(&app, "log_word_parts").await, 0);
});

on_both!(a_row_that_comes_again_is_found_once, |app| async move {
    let ada = app.signup("acme").await;
    let (now, day) = (at("2026-11-09T12:00:00Z"), DAY);
    let old = row(&ada, now.plus(-3 * day));
    let young: Vec<LogRow> = (0..3).map(|n| row(&ada, now.plus(-n * 1_000))).collect();
    app.write(&[vec![old.clone()], young.clone()].concat()).await;
    let logs = &app.app.services.logs;
    let kept = [(ada.org_id.parse().unwrap(), 2)];
    while logs::sweep(logs, now, 30, &kept).await.unwrap() > 0 {}
    assert_eq!(search_all(&app, &ada, "q=hello").await.len(), 3);
    app.write(std::slice::from_ref(&old)).await;
    assert_eq!(search_all(&app, &ada, "q=hello&limit=1").await.len(), 4);
});

on_both!(a_search_finds_everything_while_runs_are_merged, |app| async move {
    let ada = app.signup("acme").await;
    let app = Arc::new(app);
    let rows = numbered(&ada, 160);
    app.write(&rows).await;
    let more = numbered_later(&ada);
    let writer = {
        let app = Arc::clone(&app);
        tokio::spawn(async move {
            for batch in more.chunks(2) {
                app.write(batch).await;
                // Two nodes may merge at the same time.
                let logs = &app.app.services.logs;
                let (one, other) = tokio::join!(logs::merge_runs(logs), logs::merge_runs(logs));
                one.unwrap();
                other.unwrap();
            }
        })
    };
    while !writer.is_finished() {
        assert_eq!(search_all(&app, &ada, "q=even+inacme&limit=50").await.len(), 80);
    }
    writer.await.unwrap();
    merge(&app.app.services.logs).await;
    assert_eq!(search_all(&app, &ada, "q=later&limit=100").await.len(), 100);
});

fn numbered_later(account: &Account) -> Vec<LogRow> {
    let time = at("2026-11-10T10:00:00Z");
    (0..100).map(|n| with(row(account, time.plus(n)), |row| row.request = chat("later"))).collect()
}
