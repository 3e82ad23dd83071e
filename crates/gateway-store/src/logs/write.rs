//! Writes a batch of log rows: rows, bodies, full-text index, sessions and roll-ups in one transaction. Writing is
//! idempotent by id: rows that are already stored are skipped everywhere.

use std::borrow::Cow;
use std::collections::HashSet;

use gateway_core::ids::OrgId;
use gateway_core::logs::{BodyStorage, LimitUses, LogLevel, LogRow, LogSource};
use gateway_core::word_runs::Run;
use sqlx::AssertSqlSafe;

use super::bulk::{id_list, in_ids};
use super::columns::{ROWS, values_of};
use super::days::{Admission, BatchDays, BatchLimits, COUNTED, StoredDay};
use super::texts::{BatchTexts, Texts, has_bodies};
use super::{batches, bodies, otel_ids, partitions, purge, rollup, sessions, user_spend, words};
use crate::db::Dialect;
use crate::faults::{KillPoint, kill_point};
use crate::row::args;
use crate::{Db, StoreError, Tx, exports};

/// The key of the advisory lock for writers on PostgreSQL. Batches of different nodes update the same roll-ups, so they
/// run one at a time; that excludes deadlocks and rows that are counted twice.
const LOCK: i64 = 0x6761_7465_7761_7903;

/// The bytes of bodies that were stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BodyBytes {
    pub whole: u64,
    pub compressed: u64,
}

/// What a batch stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// The ids of the rows that were not stored before.
    pub new: Vec<i64>,
    /// Those of them that are beyond a quota: they are in the roll-ups and nowhere else.
    pub counted: Vec<i64>,
    /// How many rows were stored without their bodies, because these are beyond a quota.
    pub without_bodies: u64,
    pub bodies: BodyBytes,
    /// What the organizations of the rows have stored on the days of the rows.
    pub days: Vec<StoredDay>,
}

/// Stores the rows that are not stored yet; returns their ids.
pub async fn write_batch(logs: &Db, rows: &[LogRow]) -> Result<Vec<i64>, StoreError> {
    write_batch_within(logs, rows, &BatchLimits::default()).await.map(|written| written.new)
}

/// Stores the rows that are not stored yet, as far as the limits admit them.
pub async fn write_batch_within(
    logs: &Db,
    rows: &[LogRow],
    limits: &BatchLimits,
) -> Result<Written, StoreError> {
    write_prepared(logs, rows, BatchTexts::of(rows), limits).await
}

/// The same with texts that were derived before. A body may be expensive to read: neither other writers nor the thread
/// of the caller must wait for that.
pub async fn write_prepared(
    logs: &Db,
    rows: &[LogRow],
    texts: BatchTexts,
    limits: &BatchLimits,
) -> Result<Written, StoreError> {
    if rows.is_empty() {
        return Ok(Written::default());
    }
    partitions::ensure(logs, rows.iter().flat_map(otel_ids::possible_ids)).await?;
    let mut tx = logs.begin().await?;
    let written = insert(&mut tx, rows, texts, limits).await?;
    if !written.new.is_empty() {
        kill_point(KillPoint::BatchWritten);
        tx.commit().await?;
        kill_point(KillPoint::BatchCommitted);
    }
    Ok(written)
}

/// Checks that the store accepts an ordinary row of the same organization and time as this one, and stores nothing. If
/// so, a row that it rejects is rejected for its own data.
pub async fn check_writable(logs: &Db, like: &LogRow) -> Result<(), StoreError> {
    let probe = probe_like(like);
    partitions::ensure(logs, otel_ids::possible_ids(&probe)).await?;
    let mut tx = logs.begin().await?;
    let (probe, limits) = ([probe], BatchLimits::default());
    insert(&mut tx, &probe, BatchTexts::of(&probe), &limits).await.map(|_| ())
}

async fn insert(
    tx: &mut Tx,
    rows: &[LogRow],
    mut texts: BatchTexts,
    limits: &BatchLimits,
) -> Result<Written, StoreError> {
    lock_writers(tx).await?;
    let rows = otel_ids::assign_ids(tx, rows).await?;
    let new = new_rows(tx, &rows).await?;
    if new.is_empty() {
        return Ok(Written::default());
    }
    let all: Vec<&LogRow> = new.iter().map(|(_, row)| *row).collect();
    let mut days = BatchDays::read(tx, &all).await?;
    let mut admitted = Admitted::default();
    for (at, row) in new {
        let row_texts = texts.rows.get_mut(at).map(std::mem::take).unwrap_or_default();
        admitted.add(row, row_texts, days.admit(row, &limits.quotas));
    }
    COUNTED.run(tx, admitted.counted.iter().map(|id| args![*id])).await?;
    let bodies = store(tx, &admitted, texts).await?;
    rollup::add(tx, &all, &mut days, limits.lines).await?;
    user_spend::add(tx, &all, &mut days, limits.lines.spenders).await?;
    days.write(tx).await?;
    Ok(Written {
        new: all.iter().map(|row| row.id).collect(),
        counted: admitted.counted,
        without_bodies: admitted.without_bodies,
        bodies,
        days: days.stored(),
    })
}

/// The new rows of a batch, as they are stored.
#[derive(Default)]
struct Admitted<'a> {
    rows: Vec<(Cow<'a, LogRow>, Texts)>,
    counted: Vec<i64>,
    without_bodies: u64,
}

impl<'a> Admitted<'a> {
    fn add(&mut self, row: &'a LogRow, texts: Texts, admission: Admission) {
        match admission {
            Admission::Whole => self.rows.push((Cow::Borrowed(row), texts)),
            Admission::WithoutBodies => {
                let off = BodyStorage::Off;
                let (request, response) = (Vec::new(), Vec::new());
                let row =
                    LogRow { request, response, request_stored: off, response_stored: off, ..row.clone() };
                self.without_bodies += 1;
                self.rows.push((Cow::Owned(row), Texts::default()));
            }
            Admission::Counted => self.counted.push(row.id),
        }
    }
}

/// Stores everything of the rows but their usage.
async fn store(tx: &mut Tx, admitted: &Admitted<'_>, made: BatchTexts) -> Result<BodyBytes, StoreError> {
    if admitted.rows.is_empty() {
        return Ok(BodyBytes::default());
    }
    let new: Vec<&LogRow> = admitted.rows.iter().map(|(row, _)| &**row).collect();
    let texts: Vec<&Texts> = admitted.rows.iter().map(|(_, texts)| texts).collect();
    let sessions = sessions::join(tx, &new).await?;
    // Blocks and run were made before the transaction, of all rows. Mostly all are new, with their bodies.
    let mut block_of = bodies::by_row(&made.blocks);
    let mut blocks = made.blocks;
    let with_bodies: HashSet<i64> = new.iter().filter(|row| has_bodies(row)).map(|row| row.id).collect();
    // A row that is in the batch twice is in the blocks twice, too.
    let in_blocks = blocks.iter().map(|block| block.ids.len()).sum::<usize>();
    if with_bodies.len() != in_blocks || !with_bodies.iter().all(|id| block_of.contains_key(id)) {
        blocks = bodies::blocks(new.iter().copied());
        block_of = bodies::by_row(&blocks);
    }
    let values = new.iter().zip(&sessions).zip(&texts);
    let values = values.map(|((row, session), texts)| {
        values_of(row, session, texts.preview.clone(), block_of.get(&row.id).copied())
    });
    ROWS.run(tx, values).await?;
    let stored = BodyBytes {
        whole: new.iter().map(|row| (row.request.len() + row.response.len()) as u64).sum(),
        compressed: blocks.iter().map(|block| block.bytes.len() as u64).sum(),
    };
    bodies::add(tx, blocks).await?;
    let indexed: Vec<(i64, OrgId, &[u64])> = new
        .iter()
        .zip(&texts)
        .filter(|(row, _)| has_bodies(row))
        .map(|(row, texts)| (row.id, row.org_id, texts.terms.as_slice()))
        .collect();
    let is_same = |run: &Run| run.ids.iter().eq(indexed.iter().map(|(id, ..)| id));
    if let Some(run) = made.run.filter(is_same).or_else(|| Run::of(indexed.iter().copied())) {
        words::add(tx, run).await?;
    }
    batches::add(tx, &new).await?;
    exports::enqueue(tx, &new).await?;
    Ok(stored)
}

/// Waits for other writers of usage and rows, and excludes them until the transaction ends.
pub(super) async fn lock_writers(tx: &mut Tx) -> Result<(), StoreError> {
    if tx.dialect() == Dialect::Postgres {
        tx.exec("SELECT pg_advisory_xact_lock($1)", args![LOCK]).await?;
    }
    Ok(())
}

/// A row without anything that a store could reject.
fn probe_like(row: &LogRow) -> LogRow {
    LogRow {
        // Another one, in the same millisecond.
        id: row.id ^ 1,
        org_id: row.org_id,
        request_id: "probe".into(),
        created_at: row.created_at,
        level: LogLevel::Info,
        source: LogSource::Proxy,
        provider: "probe".into(),
        provider_format: None,
        model: None,
        method: "POST".into(),
        path: "/".into(),
        status: 200,
        error_code: None,
        stream: false,
        latency_ms: 0,
        ttft_ms: None,
        tokens: None,
        usage_estimated: false,
        cost_usd: None,
        unpriced: false,
        cache: None,
        cache_marks: None,
        cache_saved_usd: None,
        queued_ms: None,
        limits: LimitUses::default(),
        attempts: Vec::new(),
        key_id: None,
        app_id: None,
        team_id: None,
        user: None,
        session_id: None,
        metadata: serde_json::Map::new(),
        prompt: None,
        traceparent: None,
        compat: None,
        operation: None,
        tool: None,
        request_stored: BodyStorage::Full,
        response_stored: BodyStorage::Full,
        request: b"{}".to_vec(),
        response: b"{}".to_vec(),
        response_is_stream: false,
    }
}

/// The rows that are not stored yet with their positions, without duplicates and rows of deleted organizations, ordered
/// by id.
async fn new_rows<'a>(tx: &mut Tx, rows: &'a [LogRow]) -> Result<Vec<(usize, &'a LogRow)>, StoreError> {
    let these = in_ids(tx.dialect(), "id", 1);
    let sql =
        format!("SELECT id FROM log_rows WHERE {these} UNION ALL SELECT id FROM log_counted WHERE {these}");
    let found = tx.all(AssertSqlSafe(sql), args![id_list(rows.iter().map(|row| row.id))]).await?;
    let mut known = found.iter().map(|row| row.get("id")).collect::<Result<HashSet<i64>, _>>()?;
    let deleted = purge::deleted_orgs(tx, rows).await?;
    let is_new = |(_, row): &(usize, &LogRow)| !deleted.contains(&row.org_id) && known.insert(row.id);
    let mut new: Vec<(usize, &LogRow)> = rows.iter().enumerate().filter(is_new).collect();
    new.sort_unstable_by_key(|(_, row)| row.id);
    Ok(new)
}
