//! Tests on SQLite: a transaction that fails, for whatever reason, does not affect later ones.

use std::time::Duration;

use crate::row::args;
use crate::{Db, StoreError};

async fn database(directory: &tempfile::TempDir) -> Db {
    let db = Db::open(&format!("sqlite://{}", directory.path().join("state.db").display())).await.unwrap();
    db.exec("CREATE TABLE things (id BIGINT PRIMARY KEY, body BLOB)", Vec::new()).await.unwrap();
    db
}

async fn count(db: &Db) -> i64 {
    let row = db.opt("SELECT COUNT(*) AS n FROM things", Vec::new()).await.unwrap();
    row.unwrap().get("n").unwrap()
}

async fn insert(db: &Db, id: i64, bytes: usize) -> Result<u64, StoreError> {
    db.exec("INSERT INTO things (id, body) VALUES ($1, $2)", args![id, vec![7_u8; bytes]]).await
}

async fn synchronous(db: &Db) -> i64 {
    let mut tx = db.begin().await.unwrap();
    tx.opt("PRAGMA synchronous", Vec::new()).await.unwrap().unwrap().get("synchronous").unwrap()
}

#[tokio::test]
async fn writes_work_again_after_the_disk_was_full() {
    let directory = tempfile::tempdir().unwrap();
    let db = database(&directory).await;
    insert(&db, 1, 10).await.unwrap();
    // SQLite reports SQLITE_FULL at its page limit, as on a full disk, and ends the transaction.
    let mut limited = db.begin().await.unwrap();
    limited.opt("PRAGMA max_page_count = 1", Vec::new()).await.unwrap();
    limited.commit().await.unwrap();
    let error = insert(&db, 2, 100_000).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    // Another connection has no such limit.
    assert_eq!(insert(&db, 3, 100_000).await.unwrap(), 1);
    assert_eq!(count(&db).await, 2);
}

#[tokio::test]
async fn nothing_is_executed_after_a_failed_statement() {
    let directory = tempfile::tempdir().unwrap();
    let db = database(&directory).await;
    let mut tx = db.begin().await.unwrap();
    tx.exec("INSERT INTO things (id) VALUES (1)", Vec::new()).await.unwrap();
    let twice = tx.exec("INSERT INTO things (id) VALUES (1)", Vec::new()).await;
    assert!(matches!(twice, Err(StoreError::Duplicate)), "{twice:?}");
    assert!(tx.exec("INSERT INTO things (id) VALUES (2)", Vec::new()).await.is_err());
    assert!(tx.commit().await.is_err());
    assert_eq!(count(&db).await, 0);
    insert(&db, 3, 1).await.unwrap();
    assert_eq!(count(&db).await, 1);
}

#[tokio::test]
async fn a_transaction_that_is_dropped_or_cancelled_is_rolled_back_before_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let db = database(&directory).await;
    for id in 0..20 {
        let mut tx = db.begin().await.unwrap();
        tx.exec("INSERT INTO things (id) VALUES ($1)", args![id]).await.unwrap();
        if id % 2 == 0 {
            // Gives up on a statement that has not been answered.
            let slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) \
                        SELECT COUNT(*) AS n FROM n";
            let given_up = tokio::time::timeout(Duration::ZERO, tx.opt(slow, Vec::new())).await;
            assert!(given_up.is_err());
            assert!(tx.commit().await.is_err());
        }
    }
    insert(&db, 100, 1).await.unwrap();
    assert_eq!(count(&db).await, 1);
}

#[tokio::test]
async fn a_commit_is_synced_in_the_state_database_and_not_in_the_log_database() {
    let directory = tempfile::tempdir().unwrap();
    let db = database(&directory).await;
    let (full, normal) = (2, 1);
    assert_eq!((synchronous(&db).await, synchronous(&db.reopen(1)).await), (full, full));
    let logs = db.open_logs().await.unwrap();
    assert_eq!((synchronous(&logs).await, synchronous(&logs.reopen(1)).await), (normal, normal));
}
