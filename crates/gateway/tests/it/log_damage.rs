//! Damaged bytes in the spool, and rows that the store rejects: every other row is stored.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gateway::log::spool::Spool;
use gateway_core::logs::LogRow;
use gateway_store::db::Dialect;
use serde_json::{Value, json};

use crate::support::{Backend, ProxyFixture, TestApp, all_log_ids, log_id};
use crate::upstream::Reply;

const LIMIT: Duration = Duration::from_secs(20);

async fn start(backend: Backend) -> ProxyFixture {
    let proxy = ProxyFixture::start_with(backend, &[]).await;
    proxy
        .upstream
        .set_default_reply(Reply::json(200, r#"{"usage":{"prompt_tokens":3,"completion_tokens":2}}"#));
    proxy
}

fn body(text: &str) -> Value {
    json!({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]})
}

/// Waits until exactly these rows are stored.
async fn wait_for_ids(app: &TestApp, key: &str, expected: &[i64]) {
    let began = Instant::now();
    loop {
        let mut stored = all_log_ids(app.address, key).await;
        stored.sort_unstable();
        if stored == expected {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{stored:?} are stored instead of {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    found.sort();
    found
}

async fn health(app: &TestApp) -> Value {
    app.get("/healthz").send().await.expect(200)
}

/// Leaves rows with these ids in the spool of a stopped gateway. Returns their segment.
async fn spool_rows(directory: &Path, template: &LogRow, ids: &[i64]) -> PathBuf {
    let began = Instant::now();
    let spool = loop {
        // Its last task may still have the spool.
        match Spool::open(directory.to_owned(), 1, 1 << 30) {
            Ok(spool) => break spool,
            Err(error) => assert!(began.elapsed() < LIMIT, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    for id in ids {
        spool.append(0, LogRow { id: *id, request_id: format!("request-{id}"), ..template.clone() });
    }
    files(directory, "seg").pop().unwrap()
}

async fn stored_row(proxy: &ProxyFixture, id: i64) -> LogRow {
    proxy.log_row_by_id(id).await;
    let org = proxy.ada.org_id.parse().unwrap();
    gateway_store::logs::find(&proxy.app.app.services.logs, org, id).await.unwrap().unwrap().row
}

async fn a_damaged_record_loses_only_itself(backend: Backend) {
    let proxy = start(backend).await;
    let first = log_id(&proxy.chat(&body("hello")).send().await);
    let template = stored_row(&proxy, first).await;
    let (key, upstream) = (proxy.ada.api_key.clone(), proxy.upstream);
    let (config, data) = proxy.app.stop().await;
    let spool = data.path().join("spool");

    let ids: Vec<i64> = (1..=6).map(|number| first + number).collect();
    let segment = spool_rows(&spool, &template, &ids).await;
    let mut bytes = std::fs::read(&segment).unwrap();
    let length = bytes.len() / ids.len();
    // The second has a flipped bit in its JSON, the fourth a wrong length, and the last is torn.
    bytes[length + length / 2] ^= 1;
    bytes[3 * length + 1] ^= 0xff;
    bytes.truncate(bytes.len() - 10);
    std::fs::write(&segment, bytes).unwrap();

    let app = TestApp::start(config, data).await;
    wait_for_ids(&app, &key, &[first, ids[0], ids[2], ids[4]]).await;
    let began = Instant::now();
    while !files(&spool, "seg").is_empty() {
        assert!(began.elapsed() < LIMIT, "the segment is not removed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let kept: u64 = files(&spool, "bad").iter().map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!((files(&spool, "bad").len(), kept), (3, 3 * length as u64 - 10));
    assert_eq!(app.app.proxy.spool.set_aside.damaged(), 3);
    assert_eq!(health(&app).await["components"]["log_spool"]["status"], "ok");
    drop(upstream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_loses_only_itself_on_sqlite() {
    a_damaged_record_loses_only_itself(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_loses_only_itself_on_postgres() {
    a_damaged_record_loses_only_itself(Backend::Postgres).await;
}

/// Makes the database reject rows of one path, and those that have bodies with a word.
async fn reject(proxy: &ProxyFixture) {
    let logs = &proxy.app.app.services.logs;
    let statements: &[&'static str] = match logs.dialect() {
        Dialect::Sqlite => &[
            "CREATE TRIGGER reject_row BEFORE INSERT ON log_rows WHEN NEW.path = '/v1/rejected' \
             BEGIN SELECT RAISE(ABORT, 'rejected'); END",
            "CREATE TRIGGER reject_body BEFORE INSERT ON log_rows WHEN NEW.body_bytes > 0 AND NEW.preview = 'forbidden' \
             BEGIN SELECT RAISE(ABORT, 'rejected'); END",
        ],
        Dialect::Postgres => &[
            "CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'rejected'; END $$",
            "CREATE TRIGGER reject_row BEFORE INSERT ON log_rows FOR EACH ROW \
             WHEN (NEW.path = '/v1/rejected') EXECUTE FUNCTION reject()",
            "CREATE TRIGGER reject_body BEFORE INSERT ON log_rows FOR EACH ROW \
             WHEN (NEW.body_bytes > 0 AND NEW.preview = 'forbidden') EXECUTE FUNCTION reject()",
        ],
    };
    for statement in statements {
        logs.exec(*statement, Vec::new()).await.unwrap();
    }
}

async fn nothing_waits_behind_a_rejected_row(backend: Backend) {
    let proxy = start(backend).await;
    let mut stored = vec![log_id(&proxy.chat(&body("first")).send().await)];
    proxy.log_row_by_id(stored[0]).await;
    reject(&proxy).await;
    let spool = proxy.app.data.path().join("spool");
    let mut without_bodies = 0;
    for number in 0..12 {
        let answer = match number {
            3 | 7 => proxy.post("openai", "/v1/rejected", body("x").to_string()).send().await,
            5 => proxy.chat(&body("forbidden")).send().await,
            _ => proxy.chat(&body("allowed")).send().await,
        };
        assert_eq!(answer.status.as_u16(), 200);
        match number {
            3 | 7 => {}
            5 => {
                without_bodies = log_id(&answer);
                stored.push(without_bodies);
            }
            _ => stored.push(log_id(&answer)),
        }
    }
    wait_for_ids(&proxy.app, &proxy.ada.api_key, &stored).await;
    let row = proxy.log_row_by_id(without_bodies).await;
    assert_eq!((&row["request_stored"], &row["response_stored"]), (&json!("off"), &json!("off")));
    let usage = proxy.app.get("/api/v1/usage/summary").key(&proxy.ada.api_key).send().await.expect(200);
    assert_eq!(usage["requests"], stored.len());

    let set_aside = &proxy.app.app.proxy.spool.set_aside;
    assert_eq!((set_aside.quarantined(), set_aside.damaged()), (2, 0));
    let quarantine = files(&spool, "quarantine");
    let kept = gateway::log::spool::read_records(&std::fs::read(&quarantine[0]).unwrap());
    assert_eq!((quarantine.len(), kept.rows.len(), kept.rows[0].path.as_str()), (1, 2, "/v1/rejected"));
    let report = health(&proxy.app).await;
    assert_eq!(
        (&report["status"], &report["components"]["log_spool"]["status"]),
        (&json!("ok"), &json!("degraded"))
    );

    // The operator moves the file away.
    std::fs::remove_file(&quarantine[0]).unwrap();
    let began = Instant::now();
    while health(&proxy.app).await["components"]["log_spool"]["status"] != "ok" {
        assert!(began.elapsed() < LIMIT);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_waits_behind_a_rejected_row_on_sqlite() {
    nothing_waits_behind_a_rejected_row(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_waits_behind_a_rejected_row_on_postgres() {
    nothing_waits_behind_a_rejected_row(Backend::Postgres).await;
}

/// A store that rejects every row is broken. No row is set aside for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_wait_while_the_store_rejects_all_of_them() {
    for backend in Backend::BOTH {
        let proxy = start(backend).await;
        let mut ids = vec![log_id(&proxy.chat(&body("first")).send().await)];
        proxy.log_row_by_id(ids[0]).await;
        let logs = &proxy.app.app.services.logs;
        logs.exec("ALTER TABLE log_body_blocks RENAME TO away", Vec::new()).await.unwrap();
        for _ in 0..3 {
            ids.push(log_id(&proxy.chat(&body("hello")).send().await));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert!(proxy.app.app.proxy.spool.backlog() > 0);
        assert_eq!(proxy.app.app.proxy.spool.set_aside.quarantined(), 0);
        logs.exec("ALTER TABLE away RENAME TO log_body_blocks", Vec::new()).await.unwrap();
        wait_for_ids(&proxy.app, &proxy.ada.api_key, &ids).await;
    }
}

/// On PostgreSQL the server itself ends a statement that takes too long, and the connection stays usable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_takes_too_long_is_cancelled_by_the_server() {
    let proxy = start(Backend::Postgres).await;
    let db = &proxy.app.app.services.db;
    let shown: String = db
        .opt("SHOW statement_timeout", Vec::new())
        .await
        .unwrap()
        .unwrap()
        .get("statement_timeout")
        .unwrap();
    assert_eq!(shown, "20s");
    for _ in 0..12 {
        let mut tx = db.begin().await.unwrap();
        tx.exec("SET LOCAL statement_timeout = '20ms'", Vec::new()).await.unwrap();
        let slow = tx.opt("SELECT CAST(pg_sleep(10) AS TEXT) AS slept", Vec::new()).await;
        assert!(matches!(slow, Err(gateway_store::StoreError::Unavailable(_))));
    }
    let running = "SELECT COUNT(*) AS n FROM pg_stat_activity WHERE datname = current_database() \
                   AND query LIKE '%pg_sleep%' AND state = 'active' AND pid <> pg_backend_pid()";
    let count: i64 = db.opt(running, Vec::new()).await.unwrap().unwrap().get("n").unwrap();
    assert_eq!(count, 0);
    assert_eq!(proxy.chat(&body("hello")).send().await.status.as_u16(), 200);
}
