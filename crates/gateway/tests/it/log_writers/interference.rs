//! What happens to a writer between the phases of its transaction: failures, other writers, deletions and retention.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use gateway_core::ids::OrgId;
use gateway_core::logs::LogRow;
use gateway_core::time::{DAY, MINUTE};
use gateway_store::faults::{DbCall, Fault, Injector, Point};
use gateway_store::logs::{self, BatchLimits, Written};
use gateway_store::testing::{count, traces_of};
use gateway_store::{Db, StoreError, Tx};
use tokio::task::JoinHandle;

use super::naive::{assert_no_orphans, assert_sessions, assert_sums, assert_usage};
use super::{NODES, WRITERS, new_ids, nodes, noon, quota, rows, share, start, store, store_together};
use crate::support::Account;
use crate::support::log_rows::{row, with};

/// At least this many statements store a batch.
const STATEMENTS: i64 = 18;

/// A fault at one statement of a node.
struct AtStatement {
    skip: AtomicI64,
    fault: Fault,
}

impl AtStatement {
    fn install(node: &Db, skip: i64, fault: Fault) {
        node.faults().set(Some(Arc::new(Self { skip: AtomicI64::new(skip), fault })));
    }
}

impl Injector for AtStatement {
    fn fault(&self, point: Point) -> Option<Fault> {
        if point != Point::Db(DbCall::Statement) || self.skip.fetch_sub(1, Ordering::SeqCst) != 0 {
            return None;
        }
        Some(self.fault)
    }
}

/// A writer that has inserted its rows, but not their bodies: a transaction of the test holds the ids of these.
struct Waiting {
    gate: Tx,
    task: JoinHandle<Written>,
}

impl Waiting {
    async fn start(node: &Db, batch: &[LogRow], limits: &BatchLimits) -> Self {
        let ids: Vec<String> = batch.iter().map(|row| row.id.to_string()).collect();
        let sql = format!(
            "INSERT INTO log_body_blocks (id, last_id, bodies) SELECT x, x, '' \
             FROM UNNEST(CAST('{{{}}}' AS BIGINT[])) AS x",
            ids.join(",")
        );
        let mut gate = node.begin().await.unwrap();
        gate.exec(&*sql.leak(), Vec::new()).await.unwrap();
        let task = spawn_store(node, batch, limits);
        wait_for_blocked(node, 1).await;
        Self { gate, task }
    }

    /// Asserts that the writer waits still, and lets it continue.
    async fn end(self) -> Written {
        assert!(!self.task.is_finished(), "the writer did not wait");
        drop(self.gate);
        self.task.await.unwrap()
    }
}

fn spawn_store(node: &Db, batch: &[LogRow], limits: &BatchLimits) -> JoinHandle<Written> {
    let (node, batch, limits) = (node.clone(), batch.to_vec(), limits.clone());
    tokio::spawn(async move { store(&node, &batch, &limits).await })
}

/// Waits until this many transactions wait for a lock.
async fn wait_for_blocked(node: &Db, transactions: i64) {
    let blocked = "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let began = Instant::now();
    while count(node, blocked).await.unwrap() < transactions {
        assert!(began.elapsed() < Duration::from_secs(15), "nothing waits for a lock");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Creates the partitions of the rows.
async fn prepare(node: &Db, rows: &[LogRow]) {
    for row in rows {
        logs::check_writable(node, row).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_does_not_wait_for_one_that_inserts() {
    let (app, ada) = start().await;
    let nodes = nodes(&app, 2);
    let all = rows(&ada, noon(&app), 150);
    prepare(&nodes[0], &all[..2]).await;
    for rows in all.chunks(50) {
        let (first, second) = rows.split_at(25);
        let waiting = Waiting::start(&nodes[0], first, &BatchLimits::default()).await;
        assert_eq!(store(&nodes[1], second, &BatchLimits::default()).await.new.len(), 25);
        assert_eq!(waiting.end().await.new.len(), 25);
    }
    assert_sums(&app.app.services.logs).await;
    assert_usage(&app, &ada, &all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_another_writer_began_is_joined() {
    let (app, ada) = start().await;
    let nodes = nodes(&app, 2);
    let noon = noon(&app);
    let of_owner = |minutes: i64| row(&ada, noon.plus(minutes * MINUTE));
    prepare(&nodes[0], &[of_owner(0)]).await;
    let waiting = Waiting::start(&nodes[0], &[of_owner(10)], &BatchLimits::default()).await;
    store(&nodes[1], &[of_owner(0)], &BatchLimits::default()).await;
    waiting.end().await;
    let logs = &app.app.services.logs;
    assert_eq!(count(logs, "log_sessions WHERE requests = 2").await.unwrap(), 1);
    assert_sums(logs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_another_writer_inserted_are_skipped() {
    let (app, ada) = start().await;
    let nodes = nodes(&app, 2);
    let all = rows(&ada, noon(&app), 60);
    prepare(&nodes[0], &all[..2]).await;
    let waiting = Waiting::start(&nodes[0], &all[..40], &BatchLimits::default()).await;
    let second = spawn_store(&nodes[1], &all[20..], &BatchLimits::default());
    // It waits for the rows of the first one.
    wait_for_blocked(&nodes[1], 2).await;
    let (first, second) = (waiting.end().await, second.await.unwrap());
    assert_eq!((first.new.len(), second.new.len()), (40, 20));
    assert_eq!(new_ids(&[first, second]).len(), 60);
    assert_sums(&app.app.services.logs).await;
    assert_usage(&app, &ada, &all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_was_used_up_meanwhile_is_kept() {
    let (app, ada) = start().await;
    let nodes = nodes(&app, 2);
    let noon = noon(&app);
    let all: Vec<LogRow> = (0..16).map(|second| row(&ada, noon.plus(second * 1_000))).collect();
    prepare(&nodes[0], &all[..1]).await;
    let limits = quota(&ada, Some(10), None);
    let waiting = Waiting::start(&nodes[0], &all[..8], &limits).await;
    assert_eq!(store(&nodes[1], &all[8..], &limits).await.counted, [0_i64; 0]);
    assert_eq!(waiting.end().await.counted.len(), 6);
    let logs = &app.app.services.logs;
    assert_eq!(count(logs, "log_rows").await.unwrap(), 10);
    assert_no_orphans(logs).await;
    assert_sessions(logs).await;
    assert_usage(&app, &ada, &all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_fails_at_any_statement_leaves_nothing() {
    let (app, ada) = start().await;
    let node = &nodes(&app, 1)[0];
    let logs = &app.app.services.logs;
    let all = rows(&ada, noon(&app), 20);
    store(node, &all[..10], &BatchLimits::default()).await;
    let tables = [
        "log_rows",
        "log_counted",
        "log_body_blocks",
        "log_word_runs",
        "log_word_parts",
        "log_sessions",
        "log_batches",
        "usage_dims",
        "usage_hours",
        "usage_user_hours",
        "usage_days",
        "user_spend",
        "log_days",
    ];
    let counts = async || {
        let mut counts = Vec::new();
        for table in tables {
            counts.push(count(logs, table).await.unwrap());
        }
        counts
    };
    let before = counts().await;
    let mut failures = 0;
    let written = loop {
        let fault = if failures % 2 == 0 { Fault::LostConnection } else { Fault::DiskFull };
        AtStatement::install(node, failures, fault);
        match logs::write_batch(node, &all).await {
            Ok(written) => break written,
            Err(StoreError::Unavailable(_)) => failures += 1,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(counts().await, before, "after {failures} failures");
        assert_sums(logs).await;
    };
    assert!(failures > STATEMENTS, "{failures}");
    assert_eq!(written.len(), 10);
    assert_sums(logs).await;
    assert_usage(&app, &ada, &all).await;
}

/// The tables of the log that have something of the organization. Its account exists still, in the same database.
async fn log_tables_with(logs: &Db, org: OrgId) -> Vec<String> {
    let mut found = traces_of(logs, org).await.unwrap();
    found.retain(|table| {
        ["log_", "usage_", "user_spend", "export"].iter().any(|part| table.starts_with(part))
    });
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_organization_that_is_deleted_meanwhile_leaves_nothing() {
    let (app, ada) = start().await;
    let eve = app.signup("other").await;
    let (ada_org, logs) = (ada.org_id.parse().unwrap(), &app.app.services.logs);
    let nodes = nodes(&app, NODES);
    let noon = noon(&app);
    let (of_ada, of_eve) = (rows(&ada, noon, 300), rows(&eve, noon, 300));
    prepare(&nodes[0], &of_eve[..2]).await;
    let mixed: Vec<LogRow> = of_ada.iter().zip(&of_eve).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    let waiting = Waiting::start(&nodes[0], &mixed[..20], &BatchLimits::default()).await;
    let others =
        (0..WRITERS).map(|writer| (share(&mixed[20..], writer, 10), BatchLimits::default())).collect();
    let others = {
        let nodes = nodes[1..].to_vec();
        tokio::spawn(async move { store_together(&nodes, others).await })
    };
    tokio::time::sleep(Duration::from_millis(150)).await;
    logs::mark_deleted(logs, ada_org).await.unwrap();
    while logs::purge_slice(logs, ada_org).await.unwrap() > 0 {}
    // Writers that saw the organization have ended, and later ones drop its rows.
    assert_eq!(log_tables_with(logs, ada_org).await, [""; 0]);
    assert_eq!(waiting.end().await.new.len(), 10);
    others.await.unwrap();
    assert_eq!(log_tables_with(logs, ada_org).await, [""; 0]);
    assert_eq!(count(logs, "log_rows").await.unwrap(), 300);
    assert_no_orphans(logs).await;
    assert_sessions(logs).await;
    assert_usage(&app, &eve, &of_eve).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_beside_writers_leaves_no_orphans() {
    let (app, ada) = start().await;
    let eve = app.signup("longer").await;
    let (eve_org, logs) = (eve.org_id.parse().unwrap(), &app.app.services.logs);
    let (nodes, now) = (nodes(&app, NODES), app.app.services.clock.now());
    // Rows that are kept, rows that are deleted one by one, and rows whose partition is dropped.
    let aged = |account: &Account, days: i64, count: i64| -> Vec<LogRow> {
        let one = |number: i64| {
            with(row(account, now.plus(-days * DAY - number * 1_000)), |row| {
                row.session_id = Some(format!("{days}-{}", number % 3));
            })
        };
        (0..count).map(one).collect()
    };
    let kept = [aged(&ada, 0, 100), aged(&eve, 3, 100)].concat();
    let all = [kept.clone(), aged(&ada, 4, 100), aged(&ada, 8, 60), aged(&eve, 8, 60)].concat();
    let mixed: Vec<LogRow> = (0..all.len()).map(|at| all[at * 11 % all.len()].clone()).collect();
    let writers = (0..WRITERS).map(|writer| (share(&mixed, writer, 8), BatchLimits::default())).collect();
    let running = tokio::spawn(async move { store_together(&nodes, writers).await });
    let sweep = async || logs::sweep(logs, now, 2, &[(eve_org, 5)]).await;
    while !running.is_finished() {
        match sweep().await {
            Ok(_) | Err(StoreError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    running.await.unwrap();
    while sweep().await.unwrap() > 0 {}
    assert_eq!(count(logs, "log_rows").await.unwrap(), 200);
    let mut found = BTreeSet::new();
    let wanted: BTreeSet<i64> = kept.iter().map(|row| row.id).collect();
    let ids: Vec<i64> = wanted.iter().copied().collect();
    for org in [ada.org_id.parse().unwrap(), eve_org] {
        found.extend(logs::existing_ids(logs, org, None, &ids).await.unwrap());
    }
    assert_eq!(found, wanted);
    assert_no_orphans(logs).await;
    assert_sessions(logs).await;
}
