//! Bodies of log rows: stored in compressed blocks, read row by row, deleted with their rows.

use gateway_core::logs::LogRow;
use gateway_core::time::{DAY, MINUTE, Timestamp};
use gateway_store::db::Dialect;
use gateway_store::{logs, testing};
use serde_json::Value;

use crate::on_both;
use crate::support::log_rows::{at, chat, row, with};
use crate::support::{Account, TestApp};

async fn read(app: &TestApp, account: &Account, id: i64) -> Value {
    app.get(&format!("/api/v1/logs/{id}")).bearer(&account.token).send().await.expect(200)
}

async fn message(app: &TestApp, account: &Account, id: i64) -> String {
    let log = read(app, account, id).await;
    log["request"]["messages"][0]["content"].as_str().unwrap_or_default().to_owned()
}

async fn blocks(app: &TestApp) -> i64 {
    testing::count(&app.app.services.logs, "log_body_blocks").await.unwrap()
}

fn turns(account: &Account, time: Timestamp, count: i64) -> Vec<LogRow> {
    let turn = |n: i64| {
        with(row(account, time.plus(n)), |row| {
            row.request = chat(&format!("turn {n} {}", "of a long conversation ".repeat(20)));
            row.session_id = Some(format!("s-{}", n % 3));
        })
    };
    (0..count).map(turn).collect()
}

on_both!(every_row_has_its_own_bodies, |app| async move {
    let (ada, bob) = (app.signup("acme").await, app.signup("other").await);
    let time = at("2026-11-09T10:00:00Z");
    let mut rows: Vec<LogRow> = turns(&ada, time, 40);
    rows.extend(turns(&bob, time.plus(500), 5));
    let large = "x".repeat(200_000);
    rows.push(with(row(&ada, time.plus(900)), |row| row.request = chat(&large)));
    rows.push(with(row(&ada, time.plus(901)), |row| (row.request, row.response) = (Vec::new(), Vec::new())));
    app.write(&rows).await;
    assert!(blocks(&app).await < 10, "rows share blocks");
    for (n, row) in rows[..40].iter().enumerate() {
        assert!(message(&app, &ada, row.id).await.starts_with(&format!("turn {n} ")));
    }
    assert_eq!(message(&app, &ada, rows[45].id).await, large);
    assert_eq!(read(&app, &ada, rows[46].id).await["request"], Value::Null);
    let foreign = app.get(&format!("/api/v1/logs/{}", rows[0].id)).bearer(&bob.token).send().await;
    foreign.expect_error(404, "not_found");
    let sizes = logs::body_sizes(&app.app.services.logs, &[rows[0].id, rows[46].id]).await.unwrap();
    let size = i64::try_from(rows[0].request.len() + rows[0].response.len()).unwrap();
    assert_eq!(sizes, [(rows[0].id, size)].into());
    let many: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let org = ada.org_id.parse().unwrap();
    let found = logs::find_many(&app.app.services.logs, org, &many, true).await.unwrap();
    assert_eq!(found.len(), 42);
    let are_same = |found: &LogRow| rows.iter().any(|row| row.id == found.id && row.request == found.request);
    assert!(found.iter().all(are_same));
});

on_both!(rows_that_are_stored_already_are_not_stored_again, |app| async move {
    let ada = app.signup("acme").await;
    let rows = turns(&ada, at("2026-11-09T10:00:00Z"), 9);
    assert_eq!(app.write(&rows[..5]).await, 5);
    assert_eq!(app.write(&rows[3..]).await, 4);
    for (n, row) in rows.iter().enumerate() {
        assert!(message(&app, &ada, row.id).await.starts_with(&format!("turn {n} ")));
    }
    assert_eq!(blocks(&app).await, 2);
    // The same row twice in one batch, large enough for a block of its own.
    let text = "x".repeat(20_000);
    let large = with(row(&ada, at("2026-11-09T11:00:00Z")), |row| row.request = chat(&text));
    assert_eq!(app.write(&[large.clone(), large.clone()]).await, 1);
    assert_eq!(message(&app, &ada, large.id).await, text);
});

on_both!(a_block_is_deleted_with_its_last_row, |app| async move {
    let (ada, long) = (app.signup("acme").await, app.signup("long").await);
    let time = at("2026-11-09T10:00:00Z");
    let org = ada.org_id.parse().unwrap();
    let kept = [(long.org_id.parse().unwrap(), 90)];
    let [old, new] = [time, time.plus(5 * MINUTE)].map(|time| row(&ada, time));
    app.write(&[old.clone(), new.clone(), row(&long, time)]).await;
    assert_eq!(blocks(&app).await, 2);
    let logs_db = &app.app.services.logs;
    logs::sweep(logs_db, time.plus(30 * DAY + 2 * MINUTE), 30, &kept).await.unwrap();
    app.get(&format!("/api/v1/logs/{}", old.id))
        .bearer(&ada.token)
        .send()
        .await
        .expect_error(404, "not_found");
    assert_eq!(message(&app, &ada, new.id).await, "hello there", "the block has a row that is kept");
    logs::sweep(logs_db, time.plus(30 * DAY + 6 * MINUTE), 30, &kept).await.unwrap();
    assert_eq!(blocks(&app).await, 1, "only that of the other organization is left");
    let traces = testing::traces_of(logs_db, org).await.unwrap();
    assert!(!traces.iter().any(|table| table == "log_body_blocks"), "{traces:?}");
});

on_both!(bodies_of_earlier_versions_are_read, |app| async move {
    let ada = app.signup("acme").await;
    let rows = turns(&ada, at("2026-11-09T10:00:00Z"), 2);
    app.write(&rows).await;
    let logs_db = &app.app.services.logs;
    let hex = rows[0].request.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let blob = |hex: &str| match logs_db.dialect() {
        Dialect::Sqlite => format!("X'{hex}'"),
        Dialect::Postgres => format!("'\\x{hex}'"),
    };
    let id = rows[0].id;
    let insert = format!(
        "INSERT INTO log_bodies (id, request, response) VALUES ({id}, {}, {})",
        blob(&hex),
        blob("7b7d")
    );
    testing::execute(logs_db, &insert).await.unwrap();
    let forget = format!("UPDATE log_rows SET body_block = NULL, body_bytes = NULL WHERE id = {id}");
    testing::execute(logs_db, &forget).await.unwrap();
    assert!(message(&app, &ada, id).await.starts_with("turn 0 "));
    let sizes = logs::body_sizes(logs_db, &[id, rows[1].id]).await.unwrap();
    assert_eq!((sizes.len(), sizes[&id]), (2, i64::try_from(rows[0].request.len()).unwrap() + 2));
});

on_both!(a_torn_block_costs_nothing_but_its_bodies, |app| async move {
    let ada = app.signup("acme").await;
    let rows = turns(&ada, at("2026-11-09T10:00:00Z"), 2);
    let other = row(&ada, at("2026-11-09T11:00:00Z"));
    app.write(&[rows.clone(), vec![other.clone()]].concat()).await;
    let tear = format!("UPDATE log_body_blocks SET bodies = SUBSTR(bodies, 1, 9) WHERE id = {}", rows[0].id);
    assert_eq!(testing::execute(&app.app.services.logs, &tear).await.unwrap(), 1);
    for row in &rows {
        let log = read(&app, &ada, row.id).await;
        assert_eq!((&log["id"], &log["request"]), (&row.id.into(), &Value::Null));
    }
    assert_eq!(message(&app, &ada, other.id).await, "hello there");
    let list = app.get("/api/v1/logs").bearer(&ada.token).send().await.expect(200);
    assert_eq!(list["logs"].as_array().unwrap().len(), 3);
});
