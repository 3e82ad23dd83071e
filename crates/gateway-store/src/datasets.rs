//! Datasets, their frozen versions and their cases. Cases are kept by states, not by copies: each line of the table says
//! from which version on and until which one it holds, so that freezing a version costs the same for ten cases and for a
//! million. Whoever changes cases holds the dataset first (`hold`).

use std::collections::HashMap;
use std::sync::LazyLock;

use gateway_core::datasets::{Case, CaseContent};
use gateway_core::ids::{CaseId, DatasetId, OrgId};
use gateway_core::time::Timestamp;
use serde_json::value::RawValue;
use sqlx::AssertSqlSafe;

use crate::logs::bulk::Bulk;
use crate::page::{Page, Paged};
use crate::row::{Arg, Row, args};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    pub id: DatasetId,
    pub name: String,
    pub description: String,
    /// The latest frozen version; 0 before the first.
    pub current_version: i64,
    /// Of the working copy.
    pub case_count: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetVersion {
    pub version: i64,
    pub case_count: i64,
    pub note: Option<String>,
    pub created_by: Option<String>,
    pub created_at: Timestamp,
}

/// Which cases are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edition {
    /// As they are now.
    Working,
    /// As they were when this version was frozen. The caller knows that it exists.
    Frozen(i64),
}

impl Edition {
    /// The condition on a line `c` of the table. The number is our own, so it may stand in the statement.
    pub(crate) fn condition(self) -> String {
        match self {
            Self::Working => "c.until_version IS NULL".into(),
            Self::Frozen(version) => format!(
                "c.from_version <= {version} AND (c.until_version IS NULL OR c.until_version > {version})"
            ),
        }
    }
}

const COLUMNS: &str = "id, name, description, current_version, case_count, created_at, updated_at";

pub async fn insert(tx: &mut Tx, org: OrgId, dataset: &Dataset) -> Result<(), StoreError> {
    let Dataset { id, name, description, current_version, case_count, created_at, updated_at } = dataset;
    tx.exec(
        "INSERT INTO datasets (org_id, id, name, description, current_version, case_count, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        args![org, *id, name, description, *current_version, *case_count, *created_at, *updated_at],
    )
    .await
    .map(|_| ())
}

/// None when the dataset is not there.
pub async fn update(
    tx: &mut Tx,
    org: OrgId,
    id: DatasetId,
    name: Option<&str>,
    description: Option<&str>,
    now: Timestamp,
) -> Result<Option<Dataset>, StoreError> {
    let sql = format!(
        "UPDATE datasets SET name = COALESCE($3, name), description = COALESCE($4, description), updated_at = $5 \
         WHERE org_id = $1 AND id = $2 RETURNING {COLUMNS}"
    );
    let row = tx.opt(AssertSqlSafe(sql), args![org, id, name, description, now]).await?;
    row.as_ref().map(read).transpose()
}

/// False when the dataset is not there. Its versions and cases go with it.
pub async fn delete(tx: &mut Tx, org: OrgId, id: DatasetId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM datasets WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}

pub async fn find(db: &Db, org: OrgId, id: DatasetId) -> Result<Option<Dataset>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM datasets WHERE org_id = $1 AND id = $2");
    let row = db.opt(AssertSqlSafe(sql), args![org, id]).await?;
    row.as_ref().map(read).transpose()
}

/// Newest first.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<Dataset>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM datasets WHERE org_id = $1 AND ($2 IS NULL OR id < $2) ORDER BY id DESC LIMIT $3"
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, page.before.clone(), page.fetch()]).await?;
    let datasets = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(datasets, |dataset| dataset.id.to_string()))
}

/// The dataset, held until the transaction ends: what others want to change of it waits.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: DatasetId) -> Result<Option<Dataset>, StoreError> {
    let sql = format!("UPDATE datasets SET id = id WHERE org_id = $1 AND id = $2 RETURNING {COLUMNS}");
    let row = tx.opt(AssertSqlSafe(sql), args![org, id]).await?;
    row.as_ref().map(read).transpose()
}

/// Freezes the working copy of a dataset that is held as its next version.
pub async fn freeze(
    tx: &mut Tx,
    held: &Dataset,
    note: Option<&str>,
    by: &str,
    now: Timestamp,
) -> Result<DatasetVersion, StoreError> {
    let version = DatasetVersion {
        version: held.current_version + 1,
        case_count: held.case_count,
        note: note.map(Into::into),
        created_by: Some(by.into()),
        created_at: now,
    };
    tx.exec(
        "INSERT INTO dataset_versions (dataset_id, version, case_count, note, created_by, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6)",
        args![held.id, version.version, version.case_count, note, by, now],
    )
    .await?;
    tx.exec(
        "UPDATE datasets SET current_version = $2, updated_at = $3 WHERE id = $1",
        args![held.id, version.version, now],
    )
    .await?;
    Ok(version)
}

/// Newest first; the cursor is a number.
pub async fn list_versions(
    db: &Db,
    org: OrgId,
    id: DatasetId,
    page: &Page,
) -> Result<Paged<DatasetVersion>, StoreError> {
    let before = page.before.as_deref().and_then(|before| before.parse::<i64>().ok());
    let rows = db
        .all(
            "SELECT v.version, v.case_count, v.note, v.created_by, v.created_at FROM dataset_versions v \
             JOIN datasets d ON d.id = v.dataset_id WHERE d.org_id = $1 AND d.id = $2 \
             AND ($3 IS NULL OR v.version < $3) ORDER BY v.version DESC LIMIT $4",
            args![org, id, before, page.fetch()],
        )
        .await?;
    let versions = rows.iter().map(read_version).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(versions, |version| version.version.to_string()))
}

pub async fn find_version(
    db: &Db,
    org: OrgId,
    id: DatasetId,
    number: i64,
) -> Result<Option<DatasetVersion>, StoreError> {
    let row = db
        .opt(
            "SELECT v.version, v.case_count, v.note, v.created_by, v.created_at FROM dataset_versions v \
             JOIN datasets d ON d.id = v.dataset_id WHERE d.org_id = $1 AND d.id = $2 AND v.version = $3",
            args![org, id, number],
        )
        .await?;
    row.as_ref().map(read_version).transpose()
}

/// Adds cases to the working copy of a dataset that is held. Their number is noted by `changed`.
pub async fn add_cases(
    tx: &mut Tx,
    held: &Dataset,
    cases: Vec<(CaseId, CaseContent)>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let from = held.current_version + 1;
    let lines = cases.into_iter().map(|(id, content)| {
        let CaseContent { input, expected, metadata } = content;
        args![held.id, id, from, input, expected, metadata, now, now]
    });
    CASES.run(tx, lines.collect::<Vec<_>>().into_iter()).await
}

/// Replaces the content of a case of the working copy. The dataset is held, and the case is one that `case` found.
pub async fn update_case(
    tx: &mut Tx,
    held: &Dataset,
    case: &Case,
    content: &CaseContent,
    now: Timestamp,
) -> Result<(), StoreError> {
    let next = held.current_version + 1;
    let touched = tx
        .exec(
            "UPDATE dataset_cases SET input = $4, expected = $5, metadata = $6, updated_at = $7 \
             WHERE dataset_id = $1 AND id = $2 AND from_version = $3 AND until_version IS NULL",
            args![held.id, case.id, next, &content.input, &content.expected, &content.metadata, now],
        )
        .await?;
    if touched == 0 {
        // The state belongs to a frozen version: it ends here, and a new one begins.
        end_state(tx, held, case.id).await?;
        tx.exec(
            "INSERT INTO dataset_cases (dataset_id, id, from_version, input, expected, metadata, created_at, updated_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            args![
                held.id,
                case.id,
                next,
                &content.input,
                &content.expected,
                &content.metadata,
                case.created_at,
                now
            ],
        )
        .await?;
    }
    Ok(())
}

/// Takes a case out of the working copy of a dataset that is held; false when it is not there.
pub async fn remove_case(tx: &mut Tx, held: &Dataset, id: CaseId) -> Result<bool, StoreError> {
    let removed = tx
        .exec(
            "DELETE FROM dataset_cases WHERE dataset_id = $1 AND id = $2 AND from_version = $3",
            args![held.id, id, held.current_version + 1],
        )
        .await?;
    Ok(removed == 1 || end_state(tx, held, id).await?)
}

async fn end_state(tx: &mut Tx, held: &Dataset, id: CaseId) -> Result<bool, StoreError> {
    let ended = tx
        .exec(
            "UPDATE dataset_cases SET until_version = $3 WHERE dataset_id = $1 AND id = $2 AND until_version IS NULL",
            args![held.id, id, held.current_version + 1],
        )
        .await?;
    Ok(ended == 1)
}

/// Notes that the cases of a held dataset were changed, and by how many there are now more (or fewer).
pub async fn update_case_count(
    tx: &mut Tx,
    held: &Dataset,
    more: i64,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.exec(
        "UPDATE datasets SET case_count = case_count + $2, updated_at = $3 WHERE id = $1",
        args![held.id, more, now],
    )
    .await
    .map(|_| ())
}

/// After many cases were added at once: has the database notice how many there are now.
pub async fn analyze_cases(db: &Db) -> Result<(), StoreError> {
    db.analyze("dataset_cases").await
}

/// Where a list of cases begins, as an id: a bound that is always there lets the index find the page, however far down.
const BEHIND_ALL: &str = "z";

const CASE_COLUMNS: &str = "c.id, c.input, c.expected, c.metadata, c.created_at, c.updated_at";

/// A case of the working copy of a dataset that is held.
pub async fn find_case(tx: &mut Tx, held: &Dataset, id: CaseId) -> Result<Option<Case>, StoreError> {
    let sql = format!(
        "SELECT {CASE_COLUMNS} FROM dataset_cases c \
         WHERE c.dataset_id = $1 AND c.id = $2 AND c.until_version IS NULL"
    );
    let row = tx.opt(AssertSqlSafe(sql), args![held.id, id]).await?;
    row.as_ref().map(read_case).transpose()
}

/// Newest first, for lists.
pub async fn list_cases(
    db: &Db,
    org: OrgId,
    id: DatasetId,
    of: Edition,
    page: &Page,
) -> Result<Paged<Case>, StoreError> {
    let before = page.before.as_deref().unwrap_or(BEHIND_ALL);
    let sql = format!(
        "SELECT {CASE_COLUMNS} FROM datasets d JOIN dataset_cases c ON c.dataset_id = d.id \
         WHERE d.org_id = $1 AND d.id = $2 AND c.id < $3 AND {} ORDER BY c.id DESC LIMIT $4",
        of.condition()
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, id, before, page.fetch()]).await?;
    let cases = rows.iter().map(read_case).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(cases, |case| case.id.to_string()))
}

/// Oldest first, behind the last one that was seen: for whoever goes through all of them.
pub async fn cases_after(
    db: &Db,
    org: OrgId,
    id: DatasetId,
    of: Edition,
    after: Option<CaseId>,
    limit: i64,
) -> Result<Vec<Case>, StoreError> {
    let sql = format!(
        "SELECT {CASE_COLUMNS} FROM datasets d JOIN dataset_cases c ON c.dataset_id = d.id \
         WHERE d.org_id = $1 AND d.id = $2 AND c.id > $3 AND {} ORDER BY c.id LIMIT $4",
        of.condition()
    );
    let rows = db
        .all(AssertSqlSafe(sql), args![org, id, after.map(|id| id.to_string()).unwrap_or_default(), limit])
        .await?;
    rows.iter().map(read_case).collect()
}

/// The same, ids only.
pub async fn case_ids_after(
    db: &Db,
    org: OrgId,
    id: DatasetId,
    of: Edition,
    after: Option<CaseId>,
    limit: i64,
) -> Result<Vec<CaseId>, StoreError> {
    let sql = format!(
        "SELECT c.id FROM datasets d JOIN dataset_cases c ON c.dataset_id = d.id \
         WHERE d.org_id = $1 AND d.id = $2 AND c.id > $3 AND {} ORDER BY c.id LIMIT $4",
        of.condition()
    );
    let rows = db
        .all(AssertSqlSafe(sql), args![org, id, after.map(|id| id.to_string()).unwrap_or_default(), limit])
        .await?;
    rows.iter().map(|row| row.get("id")).collect()
}

/// A few cases, in the order in which they are named; those that are not in this edition are left out.
pub async fn cases_by_id(
    db: &Db,
    org: OrgId,
    id: DatasetId,
    of: Edition,
    ids: &[CaseId],
) -> Result<Vec<Case>, StoreError> {
    let places: Vec<String> = (3..ids.len() + 3).map(|place| format!("${place}")).collect();
    let sql = format!(
        "SELECT {CASE_COLUMNS} FROM datasets d JOIN dataset_cases c ON c.dataset_id = d.id \
         WHERE d.org_id = $1 AND d.id = $2 AND c.id IN ({}) AND {}",
        places.join(", "),
        of.condition()
    );
    let mut values = args![org, id];
    values.extend(ids.iter().copied().map(Arg::from));
    let rows = db.all(AssertSqlSafe(sql), values).await?;
    let cases = rows.iter().map(|row| read_case(row).map(|case| (case.id, case)));
    let mut found = cases.collect::<Result<HashMap<_, _>, _>>()?;
    Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
}

static CASES: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::new(
        "INSERT INTO dataset_cases (dataset_id, id, from_version, input, expected, metadata, created_at, updated_at)",
        "(?,?,?,?,?,?,?,?)",
        "",
    )
});

fn read(row: &Row) -> Result<Dataset, StoreError> {
    Ok(Dataset {
        id: row.get("id")?,
        name: row.get("name")?,
        description: row.get("description")?,
        current_version: row.get("current_version")?,
        case_count: row.get("case_count")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
    })
}

fn read_version(row: &Row) -> Result<DatasetVersion, StoreError> {
    Ok(DatasetVersion {
        version: row.get("version")?,
        case_count: row.get("case_count")?,
        note: row.get("note")?,
        created_by: row.get("created_by")?,
        created_at: row.get("created_at")?,
    })
}

fn read_case(row: &Row) -> Result<Case, StoreError> {
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
