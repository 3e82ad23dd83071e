//! The cases of datasets. A change of a case that belongs to a frozen version ends its state and begins a new one.

use std::collections::HashMap;
use std::sync::LazyLock;

use gateway_core::datasets::{Case, CaseContent};
use gateway_core::ids::{CaseId, DatasetId};
use gateway_core::time::Timestamp;
use serde_json::value::RawValue;
use sqlx::AssertSqlSafe;

use super::{Dataset, DatasetRef};
use crate::logs::bulk::Bulk;
use crate::page::{Page, Paged};
use crate::row::{Arg, Row, args};
use crate::{Db, StoreError, Tx};

/// Greater than every id. A bound that is always present lets the index find any page.
const AFTER_ALL_IDS: &str = "z";

/// Rows that are deleted in one transaction.
const DELETED_ROWS: i64 = 1_000;

const COLUMNS: &str = "c.id, c.input, c.expected, c.metadata, c.created_at, c.updated_at";

/// The bytes of a case.
const SIZE: &str =
    "CAST(OCTET_LENGTH(c.input) + OCTET_LENGTH(c.expected) + OCTET_LENGTH(c.metadata) AS BIGINT) AS size";

static INSERT: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO dataset_cases (dataset_id, id, from_version, input, expected, metadata, created_at, updated_at)",
        "(?,?,?,?,?,?,?,?)",
        "",
    )
});

static INSERT_STAGED: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO dataset_cases (dataset_id, id, from_version, until_version, input, expected, metadata, created_at, \
         updated_at)",
        "(?,?,?,?,?,?,?,?,?)",
        "",
    )
});

/// Adds cases to the working copy of a locked dataset. The caller updates the count (`update_case_count`).
pub async fn add_cases(
    tx: &mut Tx,
    locked: &Dataset,
    cases: Vec<(CaseId, CaseContent)>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let rows: Vec<_> =
        cases.into_iter().map(|(id, content)| state(locked, id, content, (now, now))).collect();
    INSERT.run(tx, rows.into_iter()).await
}

/// Cases that are stored in several transactions and become visible in one. While they wait, the version at which they
/// end is a negative number, which no edition includes. A last change of all cases at once would keep other writers of
/// SQLite waiting, so the dataset names the number as that of a part of its working copy, and then the cases are changed
/// batch by batch. A transaction that locks the dataset earlier changes the remaining ones.
#[derive(Debug, Clone, Copy)]
pub struct StagedImport {
    /// Unique among the imports into the dataset, and positive.
    pub number: i64,
    /// The next version of the dataset when the import began.
    pub version: i64,
    pub now: Timestamp,
}

impl StagedImport {
    /// Stores cases of the import.
    pub async fn add(
        self,
        tx: &mut Tx,
        dataset: DatasetId,
        cases: Vec<(CaseId, CaseContent)>,
    ) -> Result<(), StoreError> {
        let Self { number, version, now } = self;
        let rows = cases.into_iter().map(|(id, CaseContent { input, expected, metadata })| {
            args![dataset, id, version, -number, input, expected, metadata, now, now]
        });
        INSERT_STAGED.run(tx, rows).await
    }

    /// Adds the stored cases to the working copy of a locked dataset. The caller updates the count, and then calls
    /// `publish_batch` for each batch.
    pub async fn publish(self, tx: &mut Tx, locked: &Dataset) -> Result<(), StoreError> {
        let next = locked.current_version + 1;
        if next == self.version {
            let sql = "UPDATE datasets SET publishing = $2 WHERE id = $1";
            return tx.exec(sql, args![locked.id, self.number]).await.map(|_| ());
        }
        // The dataset was frozen meanwhile. The version is part of the key.
        let sql = "UPDATE dataset_cases SET until_version = NULL, from_version = $3 \
                   WHERE dataset_id = $1 AND until_version = $2";
        tx.exec(sql, args![locked.id, -self.number, next]).await.map(|_| ())
    }

    /// Changes the published cases with ids from `first` to `last`. Returns false if no more are to be changed.
    pub async fn publish_batch(
        self,
        tx: &mut Tx,
        dataset: DatasetId,
        (first, last): (CaseId, CaseId),
    ) -> Result<bool, StoreError> {
        let lock = "UPDATE datasets SET updated_at = updated_at WHERE id = $1 AND publishing = $2";
        if tx.exec(lock, args![dataset, self.number]).await? == 0 {
            return Ok(false);
        }
        let sql = "UPDATE dataset_cases SET until_version = NULL \
                   WHERE dataset_id = $1 AND id >= $2 AND id <= $3 AND until_version = $4";
        tx.exec(sql, args![dataset, first, last, -self.number]).await?;
        Ok(true)
    }

    /// Ends the publication after the last batch.
    pub async fn finish(self, tx: &mut Tx, dataset: DatasetId) -> Result<(), StoreError> {
        let sql = "UPDATE datasets SET publishing = NULL WHERE id = $1 AND publishing = $2";
        tx.exec(sql, args![dataset, self.number]).await.map(|_| ())
    }
}

/// Changes the remaining cases of a published import of a locked dataset.
pub(super) async fn finish_publishing(tx: &mut Tx, locked: &Dataset) -> Result<(), StoreError> {
    let sql = "SELECT publishing FROM datasets WHERE id = $1 AND publishing IS NOT NULL";
    let Some(row) = tx.opt(sql, args![locked.id]).await? else { return Ok(()) };
    let number: i64 = row.get("publishing")?;
    let sql = "UPDATE dataset_cases SET until_version = NULL WHERE dataset_id = $1 AND until_version = $2";
    tx.exec(sql, args![locked.id, -number]).await?;
    tx.exec("UPDATE datasets SET publishing = NULL WHERE id = $1", args![locked.id]).await.map(|_| ())
}

/// Deletes cases of imports that were interrupted before this time; returns how many. Call it again until it returns 0.
pub async fn delete_abandoned(db: &Db, dataset: DatasetId, before: Timestamp) -> Result<u64, StoreError> {
    let abandoned = "SELECT c.id FROM datasets d JOIN dataset_cases c ON c.dataset_id = d.id WHERE d.id = $1 \
                     AND c.until_version < 0 AND c.until_version <> -COALESCE(d.publishing, 0) AND c.created_at < $2";
    // A read first, so that the usual case writes nothing.
    let sql = format!("{abandoned} LIMIT 1");
    if db.opt(AssertSqlSafe(sql), args![dataset, before]).await?.is_none() {
        return Ok(0);
    }
    let sql = format!(
        "DELETE FROM dataset_cases WHERE dataset_id = $1 AND until_version < 0 AND id IN ({abandoned} LIMIT {DELETED_ROWS})"
    );
    db.exec(AssertSqlSafe(sql), args![dataset, before]).await
}

/// Replaces the content of a case of the working copy. The dataset is locked, and `find_case` returned the case.
pub async fn update_case(
    tx: &mut Tx,
    locked: &Dataset,
    case: &Case,
    content: &CaseContent,
    now: Timestamp,
) -> Result<(), StoreError> {
    let next = locked.current_version + 1;
    let touched = tx
        .exec(
            "UPDATE dataset_cases SET input = $4, expected = $5, metadata = $6, updated_at = $7 \
             WHERE dataset_id = $1 AND id = $2 AND from_version = $3 AND until_version IS NULL",
            args![locked.id, case.id, next, &content.input, &content.expected, &content.metadata, now],
        )
        .await?;
    if touched == 0 {
        end_state(tx, locked, case.id).await?;
        let row = state(locked, case.id, content.clone(), (case.created_at, now));
        INSERT.run(tx, std::iter::once(row)).await?;
    }
    Ok(())
}

/// Removes a case from the working copy of a locked dataset. False when it does not exist.
pub async fn remove_case(tx: &mut Tx, locked: &Dataset, id: CaseId) -> Result<bool, StoreError> {
    let removed = tx
        .exec(
            "DELETE FROM dataset_cases WHERE dataset_id = $1 AND id = $2 AND from_version = $3",
            args![locked.id, id, locked.current_version + 1],
        )
        .await?;
    Ok(removed == 1 || end_state(tx, locked, id).await?)
}

async fn end_state(tx: &mut Tx, locked: &Dataset, id: CaseId) -> Result<bool, StoreError> {
    let ended = tx
        .exec(
            "UPDATE dataset_cases SET until_version = $3 WHERE dataset_id = $1 AND id = $2 AND until_version IS NULL",
            args![locked.id, id, locked.current_version + 1],
        )
        .await?;
    Ok(ended == 1)
}

fn state(
    locked: &Dataset,
    id: CaseId,
    content: CaseContent,
    (created_at, updated_at): (Timestamp, Timestamp),
) -> Vec<Arg> {
    let CaseContent { input, expected, metadata } = content;
    args![locked.id, id, locked.current_version + 1, input, expected, metadata, created_at, updated_at]
}

/// Updates the database's statistics after a bulk insert of cases.
pub async fn analyze_cases(db: &Db) -> Result<(), StoreError> {
    db.analyze("dataset_cases").await
}

/// A case of the working copy of a locked dataset.
pub async fn find_case(tx: &mut Tx, locked: &Dataset, id: CaseId) -> Result<Option<Case>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM dataset_cases c WHERE c.dataset_id = $1 AND c.id = $2 AND c.until_version IS NULL"
    );
    let row = tx.opt(AssertSqlSafe(sql), args![locked.id, id]).await?;
    row.as_ref().map(read).transpose()
}

/// Newest first, if there is room for their bytes.
pub async fn list_cases<E: From<StoreError>>(
    db: &Db,
    dataset: DatasetRef,
    page: &Page,
    take_room: impl FnOnce(i64) -> Result<(), E>,
) -> Result<Paged<Case>, E> {
    let before = page.before.as_deref().unwrap_or(AFTER_ALL_IDS);
    let sql = select(SIZE, dataset, "c.id < $3", "ORDER BY c.id DESC LIMIT $4");
    let sizes = db.all(sql, args![dataset.org, dataset.id, before, page.limit]).await?;
    let page = page.bounded_within(&sizes, take_room)?;
    let sql = select(COLUMNS, dataset, "c.id < $3", "ORDER BY c.id DESC LIMIT $4");
    let rows = db.all(sql, args![dataset.org, dataset.id, before, page.fetch()]).await?;
    let cases = rows.iter().map(read).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(page.cut(cases, |case| case.id.to_string()))
}

/// The bytes of the next cases after an id, in the order of `cases_after`.
pub async fn case_sizes_after(
    db: &Db,
    dataset: DatasetRef,
    after: Option<CaseId>,
    limit: i64,
) -> Result<Vec<i64>, StoreError> {
    let sql = select(SIZE, dataset, "c.id > $3", "ORDER BY c.id LIMIT $4");
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    let rows = db.all(sql, args![dataset.org, dataset.id, after, limit]).await?;
    rows.iter().map(|row| row.get("size")).collect()
}

/// The next cases after an id, oldest first, for callers that read all of them.
pub async fn cases_after(
    db: &Db,
    dataset: DatasetRef,
    after: Option<CaseId>,
    limit: i64,
) -> Result<Vec<Case>, StoreError> {
    let sql = select(COLUMNS, dataset, "c.id > $3", "ORDER BY c.id LIMIT $4");
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    let rows = db.all(sql, args![dataset.org, dataset.id, after, limit]).await?;
    rows.iter().map(read).collect()
}

/// Like `cases_after`, but returns only the ids.
pub async fn case_ids_after(
    db: &Db,
    dataset: DatasetRef,
    after: Option<CaseId>,
    limit: i64,
) -> Result<Vec<CaseId>, StoreError> {
    let sql = select("c.id", dataset, "c.id > $3", "ORDER BY c.id LIMIT $4");
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    let rows = db.all(sql, args![dataset.org, dataset.id, after, limit]).await?;
    rows.iter().map(|row| row.get("id")).collect()
}

/// The cases with these ids, in the same order. Ids that are not in this edition are skipped.
pub async fn cases_by_id(db: &Db, dataset: DatasetRef, ids: &[CaseId]) -> Result<Vec<Case>, StoreError> {
    let rows = by_id(db, COLUMNS, dataset, ids).await?;
    let cases = rows.iter().map(|row| read(row).map(|case| (case.id, case)));
    let mut found = cases.collect::<Result<HashMap<_, _>, _>>()?;
    Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
}

/// The bytes of the cases with these ids, in the same order. Ids that are not in this edition have none.
pub async fn case_sizes_by_id(db: &Db, dataset: DatasetRef, ids: &[CaseId]) -> Result<Vec<i64>, StoreError> {
    let rows = by_id(db, &format!("c.id, {SIZE}"), dataset, ids).await?;
    let sizes =
        rows.iter().map(|row| Ok::<_, StoreError>((row.get::<CaseId>("id")?, row.get::<i64>("size")?)));
    let found = sizes.collect::<Result<HashMap<_, _>, _>>()?;
    Ok(ids.iter().map(|id| found.get(id).copied().unwrap_or(0)).collect())
}

async fn by_id(db: &Db, columns: &str, dataset: DatasetRef, ids: &[CaseId]) -> Result<Vec<Row>, StoreError> {
    let parameters: Vec<String> = (3..ids.len() + 3).map(|number| format!("${number}")).collect();
    let sql = select(columns, dataset, &format!("c.id IN ({})", parameters.join(", ")), "");
    let mut values = args![dataset.org, dataset.id];
    values.extend(ids.iter().copied().map(Arg::from));
    db.all(sql, values).await
}

/// The characters of all inputs of an edition.
pub async fn input_chars(db: &Db, dataset: DatasetRef) -> Result<i64, StoreError> {
    let sum = "CAST(COALESCE(SUM(LENGTH(c.input)), 0) AS BIGINT) AS found";
    let row = db.opt(select(sum, dataset, "TRUE", ""), args![dataset.org, dataset.id]).await?;
    row.map_or(Ok(0), |row| row.get("found"))
}

fn select(columns: &str, dataset: DatasetRef, condition: &str, order: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!(
        "SELECT {columns} FROM datasets d JOIN dataset_cases c ON c.dataset_id = d.id \
         WHERE d.org_id = $1 AND d.id = $2 AND {condition} AND {} {order}",
        dataset.edition.condition()
    ))
}

fn read(row: &Row) -> Result<Case, StoreError> {
    Ok(Case {
        id: row.get("id")?,
        input: raw(row, "input")?,
        expected: raw(row, "expected")?,
        metadata: raw(row, "metadata")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
    })
}

fn raw(row: &Row, column: &'static str) -> Result<Box<RawValue>, StoreError> {
    RawValue::from_string(row.get(column)?)
        .map_err(|error| StoreError::Other(format!("column {column} cannot be read: {error}")))
}
