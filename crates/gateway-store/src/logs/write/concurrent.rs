//! Stores a batch on PostgreSQL beside the batches of other nodes, in one transaction of two phases.
//!
//! In the first phase rows, bodies and words are inserted, which is most of the work and concerns no other batch. What
//! depends on other batches is a guess: which rows are new, what the quotas still admit, and which session a row joins.
//! The second phase holds the lock of usage. There all of it is read again. A row in another session is corrected. After
//! any other wrong guess the transaction is rolled back, and the batch is stored with all locks (`super::insert`).

use gateway_core::logs::{LogRow, LogSource};
use sqlx::AssertSqlSafe;

use super::batch::{Batch, new_rows};
use super::{Written, commit, locks};
use crate::db::Dialect;
use crate::faults::{KillPoint, kill_point};
use crate::logs::bulk::{id_list, in_ids};
use crate::logs::days::{BatchDays, BatchLimits};
use crate::logs::sessions;
use crate::logs::texts::BatchTexts;
use crate::row::args;
use crate::{Db, StoreError, Tx};

/// Whether the batch can be stored beside others. The ids of ingested spans depend on the rows that are stored.
pub(super) fn is_possible(logs: &Db, rows: &[LogRow]) -> bool {
    logs.dialect() == Dialect::Postgres && rows.iter().all(|row| row.source != LogSource::Otel)
}

/// Stores the rows that are not stored yet. None if another writer interfered: then nothing was stored.
pub(super) async fn write(
    logs: &Db,
    rows: &[LogRow],
    texts: BatchTexts,
    limits: &BatchLimits,
) -> Result<Option<Written>, StoreError> {
    let mut tx = logs.begin().await?;
    match insert(&mut tx, rows, texts, limits).await {
        Ok(Some(written)) => commit(tx, written).await.map(Some),
        // Another writer stored one of the rows after this one had looked for it.
        Ok(None) | Err(StoreError::Duplicate) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn insert(
    tx: &mut Tx,
    rows: &[LogRow],
    mut texts: BatchTexts,
    limits: &BatchLimits,
) -> Result<Option<Written>, StoreError> {
    locks::share_rows(tx).await?;
    let new = new_rows(tx, rows).await?;
    if new.is_empty() {
        return Ok(Some(Written::default()));
    }
    let mut expected = BatchDays::default();
    if limits.apply_to(rows) {
        expected = BatchDays::read(tx, new.iter().map(|(_, row)| *row)).await?;
    }
    let batch = Batch::admit(new, &mut texts, &mut expected, limits);
    let guessed = sessions::guess(tx, &batch.stored()).await?;
    let bodies = batch.store(tx, &guessed, texts).await?;
    let sums = batch.sums();
    kill_point(KillPoint::RowsInserted);

    locks::lock_usage(tx).await?;
    let mut days = BatchDays::read(tx, batch.all.iter().copied()).await?;
    if is_stored_or_deleted(tx, &batch).await? || !batch.is_admitted_by(&mut days, limits) {
        return Ok(None);
    }
    let stored = batch.stored();
    let joined = sessions::join(tx, &stored).await?;
    sessions::correct(tx, &stored, (&guessed, &joined)).await?;
    batch.count(tx, sums, &mut days, limits.lines).await?;
    Ok(Some(batch.written(bodies, &days)))
}

/// Whether another writer counted a row that this one stored, or the reverse, or an organization of the rows was
/// deleted. The primary key of each table excludes that both stored it or both counted it.
async fn is_stored_or_deleted(tx: &mut Tx, batch: &Batch<'_>) -> Result<bool, StoreError> {
    let sql = format!(
        "SELECT 1 AS found FROM log_counted WHERE {} UNION ALL SELECT 1 FROM log_rows WHERE {} \
         UNION ALL SELECT 1 FROM log_deleted_orgs WHERE {} LIMIT 1",
        in_ids(tx.dialect(), "id", 1),
        in_ids(tx.dialect(), "id", 2),
        tx.dialect().in_texts("id", 3)
    );
    let stored = id_list(batch.stored().iter().map(|row| row.id));
    let counted = id_list(batch.counted.iter().copied());
    let mut orgs: Vec<String> = batch.all.iter().map(|row| row.org_id.to_string()).collect();
    orgs.sort_unstable();
    orgs.dedup();
    let orgs = serde_json::to_string(&orgs).unwrap_or_default();
    Ok(tx.opt(AssertSqlSafe(sql), args![stored, counted, orgs]).await?.is_some())
}
