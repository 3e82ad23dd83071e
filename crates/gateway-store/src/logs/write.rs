//! Writes a batch of log rows: rows, bodies, full-text index, sessions and roll-ups in one transaction. Writing is
//! idempotent by id: rows that are already stored are skipped everywhere. On PostgreSQL, nodes write at the same time
//! (`concurrent`).

mod batch;
mod concurrent;
mod locks;

use gateway_core::logs::{BodyStorage, LogRow, LogSource};

use self::batch::{Batch, new_rows};
use super::days::{BatchDays, BatchLimits, StoredDay};
use super::texts::BatchTexts;
use super::{otel_ids, partitions, sessions};
use crate::faults::{KillPoint, kill_point};
use crate::{Db, StoreError, Tx};

pub(super) use self::locks::lock_usage;

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
    match write_prepared(logs, rows, BatchTexts::of(rows), limits).await? {
        Some(written) => Ok(written),
        None => write_exclusively(logs, rows, BatchTexts::of(rows), limits).await,
    }
}

/// The same with texts that were derived before. A body may be expensive to read: neither other writers nor the thread
/// of the caller must wait for that. None if another writer interfered, which is rare: nothing was stored, the texts are
/// used up, and the caller goes on with `write_exclusively`.
pub async fn write_prepared(
    logs: &Db,
    rows: &[LogRow],
    texts: BatchTexts,
    limits: &BatchLimits,
) -> Result<Option<Written>, StoreError> {
    if rows.is_empty() {
        return Ok(Some(Written::default()));
    }
    partitions::ensure(logs, rows.iter().flat_map(otel_ids::possible_ids)).await?;
    if concurrent::is_possible(logs, rows) {
        return concurrent::write(logs, rows, texts, limits).await;
    }
    write_exclusively(logs, rows, texts, limits).await.map(Some)
}

/// Stores the rows that are not stored yet while no other writer stores anything. Their partitions exist.
pub async fn write_exclusively(
    logs: &Db,
    rows: &[LogRow],
    texts: BatchTexts,
    limits: &BatchLimits,
) -> Result<Written, StoreError> {
    let mut tx = logs.begin().await?;
    let written = insert(&mut tx, rows, texts, limits).await?;
    commit(tx, written).await
}

/// Commits a batch unless all of its rows were stored before.
async fn commit(tx: Tx, written: Written) -> Result<Written, StoreError> {
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

/// Stores a batch while no other writer stores anything.
async fn insert(
    tx: &mut Tx,
    rows: &[LogRow],
    mut texts: BatchTexts,
    limits: &BatchLimits,
) -> Result<Written, StoreError> {
    locks::lock_all(tx).await?;
    let rows = otel_ids::assign_ids(tx, rows).await?;
    let new = new_rows(tx, &rows).await?;
    if new.is_empty() {
        return Ok(Written::default());
    }
    let mut days = BatchDays::read(tx, new.iter().map(|(_, row)| *row)).await?;
    let batch = Batch::admit(new, &mut texts, &mut days, limits);
    let sessions = sessions::join(tx, &batch.stored()).await?;
    let bodies = batch.store(tx, &sessions, texts).await?;
    kill_point(KillPoint::RowsInserted);
    batch.count(tx, batch.sums(), &mut days, limits.lines).await?;
    Ok(batch.written(bodies, &days))
}

/// A row without anything that a store could reject.
fn probe_like(row: &LogRow) -> LogRow {
    LogRow {
        // Another one, in the same millisecond.
        request_id: "probe".into(),
        provider: "probe".into(),
        path: "/".into(),
        request_stored: BodyStorage::Full,
        response_stored: BodyStorage::Full,
        request: b"{}".to_vec(),
        response: b"{}".to_vec(),
        ..LogRow::new(row.id ^ 1, row.org_id, row.created_at, LogSource::Proxy)
    }
}
