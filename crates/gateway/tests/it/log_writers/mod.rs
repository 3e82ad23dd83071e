//! Several nodes store log rows on one PostgreSQL at the same time: each row is stored and counted once, and no node
//! waits for another one that only inserts.

mod interference;
mod naive;

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use gateway_core::ids::{KeyId, OrgId};
use gateway_core::logs::LogRow;
use gateway_core::time::{DAY, MINUTE, Timestamp};
use gateway_store::logs::{self, BatchLimits, DayQuota, Written};
use gateway_store::testing::count;
use gateway_store::{Db, StoreError};

use self::naive::{assert_no_orphans, assert_sessions, assert_sums, assert_usage};
use crate::support::log_rows::{chat, row, with};
use crate::support::{Account, Backend, TestApp};

const WRITERS: usize = 6;
const NODES: usize = 3;

async fn start() -> (TestApp, Account) {
    let app = TestApp::start_with(Backend::Postgres, &[]).await;
    let account = app.signup("acme").await;
    (app, account)
}

/// Nodes with connections of their own.
fn nodes(app: &TestApp, count: usize) -> Vec<Db> {
    (0..count).map(|_| app.app.services.logs.reopen(4)).collect()
}

/// Noon of the day before yesterday. The sessions of a day begin within the same half hour.
fn noon(app: &TestApp) -> Timestamp {
    let now = app.app.services.clock.now();
    now.plus(-2 * DAY - now.0.rem_euclid(DAY) + DAY / 2)
}

/// Rows of two days in named and automatic sessions of a few users and keys.
fn rows(account: &Account, noon: Timestamp, count: i64) -> Vec<LogRow> {
    let one = |number: i64| {
        let time = noon.plus(number % 2 * DAY + number * 7 % (10 * MINUTE));
        with(row(account, time), |row| {
            row.key_id =
                Some(KeyId::from(uuid::Uuid::from_u128(u128::from(number.unsigned_abs() / 2 % 2 + 1))));
            row.user = (number % 4 > 0).then(|| format!("user-{}", number % 4));
            row.model = Some(format!("model-{}", number % 3));
            row.session_id = (number % 5 < 2).then(|| format!("session-{}", number % 5));
            row.request = chat(&format!("question number {number}"));
        })
    };
    (0..count).map(one).collect()
}

/// Stores a batch as the writer of a node does: again after the database was not available.
async fn store(node: &Db, batch: &[LogRow], limits: &BatchLimits) -> Written {
    loop {
        match logs::write_batch_within(node, batch, limits).await {
            Ok(written) => return written,
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Each writer stores its batches one after the other, all of them at the same time.
async fn store_together(nodes: &[Db], writers: Vec<(Vec<Vec<LogRow>>, BatchLimits)>) -> Vec<Written> {
    let run = |(number, (batches, limits)): (usize, (Vec<Vec<LogRow>>, BatchLimits))| {
        let node = nodes[number % nodes.len()].clone();
        tokio::spawn(async move {
            let mut written = Vec::new();
            for batch in batches {
                written.push(store(&node, &batch, &limits).await);
            }
            written
        })
    };
    let done = join_all(writers.into_iter().enumerate().map(run)).await;
    done.into_iter().flat_map(Result::unwrap).collect()
}

/// The batches of a writer: its share of the rows, and some of the next writer's.
fn share(rows: &[LogRow], writer: usize, size: usize) -> Vec<Vec<LogRow>> {
    let is_own = |at: usize| {
        at % WRITERS == writer || (at % WRITERS == (writer + 1) % WRITERS && at.is_multiple_of(5))
    };
    let own: Vec<LogRow> =
        rows.iter().enumerate().filter(|(at, _)| is_own(*at)).map(|(_, row)| row.clone()).collect();
    own.chunks(size).map(<[LogRow]>::to_vec).collect()
}

/// Ids that were reported as new, each of them once.
fn new_ids(written: &[Written]) -> BTreeSet<i64> {
    let ids: Vec<i64> = written.iter().flat_map(|written| written.new.iter().copied()).collect();
    let distinct: BTreeSet<i64> = ids.iter().copied().collect();
    assert_eq!(distinct.len(), ids.len(), "a row was stored twice");
    distinct
}

fn quota(account: &Account, rows: Option<u64>, body_bytes: Option<u64>) -> BatchLimits {
    let org: OrgId = account.org_id.parse().unwrap();
    BatchLimits { quotas: [(org, DayQuota { rows, body_bytes })].into(), ..BatchLimits::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_row_is_stored_and_counted_once() {
    let (app, ada) = start().await;
    let all = rows(&ada, noon(&app), 600);
    let writers = (0..WRITERS).map(|writer| (share(&all, writer, 17), BatchLimits::default())).collect();
    let written = store_together(&nodes(&app, NODES), writers).await;
    assert_eq!(new_ids(&written), all.iter().map(|row| row.id).collect());
    let logs = &app.app.services.logs;
    assert_eq!(count(logs, "log_rows").await.unwrap(), 600);
    assert_sums(logs).await;
    assert_usage(&app, &ada, &all).await;
    // Two days, each with two named sessions, and one automatic session of each key and user.
    let owners: BTreeSet<_> = all
        .iter()
        .filter(|row| row.session_id.is_none())
        .map(|row| (row.created_at.0 / DAY, row.key_id, row.user.clone()))
        .collect();
    let automatic = count(logs, "log_sessions WHERE owner IS NOT NULL").await.unwrap();
    assert_eq!(usize::try_from(automatic).unwrap(), owners.len());
    assert_eq!(count(logs, "log_sessions WHERE owner IS NULL").await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_never_exceeded() {
    let (app, ada) = start().await;
    let noon = noon(&app);
    // One day.
    let all: Vec<LogRow> =
        rows(&ada, noon, 400).into_iter().filter(|row| row.created_at < noon.plus(DAY / 2)).collect();
    assert_eq!(all.len(), 200);
    let bytes = u64::try_from(all[0].request.len() + all[0].response.len()).unwrap();
    let limits = quota(&ada, Some(70), Some(bytes * 30));
    let writers = (0..WRITERS).map(|writer| (share(&all, writer, 5), limits.clone())).collect();
    let written = store_together(&nodes(&app, NODES), writers).await;
    assert_eq!(new_ids(&written).len(), 200);
    assert_eq!(written.iter().map(|written| written.counted.len()).sum::<usize>(), 130);
    let logs = &app.app.services.logs;
    assert_eq!(count(logs, "log_rows").await.unwrap(), 70);
    assert_eq!(count(logs, "log_counted").await.unwrap(), 130);
    let exceeded = format!(
        "(SELECT SUM(body_bytes) AS used FROM log_rows) x WHERE used > {} OR used < {}",
        bytes * 30,
        bytes * 25
    );
    assert_eq!(count(logs, &exceeded).await.unwrap(), 0);
    assert_no_orphans(logs).await;
    assert_sessions(logs).await;
    assert_usage(&app, &ada, &all).await;
}

/// A node may not know of a quota yet. The same row is then stored by one writer and only counted by another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_not_stored_by_one_node_and_counted_by_another() {
    let (app, ada) = start().await;
    let all = rows(&ada, noon(&app), 300);
    let batches: Vec<Vec<LogRow>> = all.chunks(10).map(<[LogRow]>::to_vec).collect();
    let none = quota(&ada, Some(0), None);
    let writers = vec![
        (batches.clone(), none.clone()),
        (batches.clone(), BatchLimits::default()),
        (batches.clone(), none),
        (batches, BatchLimits::default()),
    ];
    let written = store_together(&nodes(&app, NODES), writers).await;
    assert_eq!(new_ids(&written).len(), 300);
    let logs = &app.app.services.logs;
    assert_eq!(
        count(logs, "(SELECT id FROM log_rows UNION ALL SELECT id FROM log_counted) x").await.unwrap(),
        300
    );
    assert_no_orphans(logs).await;
    assert_sessions(logs).await;
    assert_usage(&app, &ada, &all).await;
}
