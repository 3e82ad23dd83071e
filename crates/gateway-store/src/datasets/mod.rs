//! Datasets, their frozen versions and their cases.
//!
//! A case is stored as a series of states, each valid from one version until another. Freezing a version therefore
//! copies nothing and costs the same for ten cases and for a million. Callers that change cases lock the dataset first
//! (`find_for_update`).

mod cases;

use gateway_core::ids::{DatasetId, OrgId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

pub use cases::{
    StagedImport, add_cases, analyze_cases, case_ids_after, case_sizes_after, case_sizes_by_id, cases_after,
    cases_by_id, delete_abandoned, find_case, input_chars, list_cases, remove_case, update_case,
};

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Dataset in "datasets" {
        pub id: DatasetId [key],
        pub name: String,
        pub description: String,
        /// The latest frozen version; 0 before the first.
        pub current_version: i64,
        /// The number of cases in the working copy.
        pub case_count: i64,
        pub created_at: Timestamp [once],
        pub updated_at: Timestamp,
    }
}

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DatasetVersion in "dataset_versions" {
        pub version: i64 [key],
        pub case_count: i64,
        pub note: Option<String>,
        pub created_by: Option<String>,
        pub created_at: Timestamp [once],
    }
}

impl Dataset {
    /// Whether neither it nor its cases were changed after `earlier` was read.
    pub fn is_unchanged_since(&self, earlier: &Self) -> bool {
        (self.current_version, self.updated_at) == (earlier.current_version, earlier.updated_at)
    }
}

/// The cases of a dataset, either the current ones or those of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edition {
    /// The working copy.
    Working,
    /// A frozen version, which the caller knows to exist.
    Frozen(i64),
}

impl Edition {
    /// The SQL condition on a case state `c` of a dataset `d`. The number is not user text, so it is safe in the statement.
    pub(crate) fn condition(self) -> String {
        match self {
            Self::Working => "(c.until_version IS NULL OR c.until_version = -d.publishing)".into(),
            Self::Frozen(version) => format!(
                "c.from_version <= {version} AND (c.until_version IS NULL OR c.until_version > {version})"
            ),
        }
    }
}

/// An edition of one dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetRef {
    pub org: OrgId,
    pub id: DatasetId,
    pub edition: Edition,
}

pub async fn insert(tx: &mut Tx, org: OrgId, dataset: &Dataset) -> Result<(), StoreError> {
    table::insert(tx, dataset, vec![("org_id", org.into())]).await
}

/// A partial update; none leaves the field as it is.
#[derive(Debug, Clone, Copy)]
pub struct DatasetChanges<'a> {
    pub name: Option<&'a str>,
    pub description: Option<&'a str>,
    pub now: Timestamp,
}

/// None when the dataset does not exist.
pub async fn update(
    tx: &mut Tx,
    org: OrgId,
    id: DatasetId,
    changes: DatasetChanges<'_>,
) -> Result<Option<Dataset>, StoreError> {
    let DatasetChanges { name, description, now } = changes;
    let sql = format!(
        "UPDATE datasets SET name = COALESCE($3, name), description = COALESCE($4, description), updated_at = {} \
         WHERE org_id = $1 AND id = $2 RETURNING {}",
        later_time(5),
        Dataset::columns("")
    );
    let row = tx.opt(AssertSqlSafe(sql), args![org, id, name, description, now]).await?;
    table::read_opt(row.as_ref())
}

/// Deletes a dataset with its versions and cases. False when it does not exist.
pub async fn delete(tx: &mut Tx, org: OrgId, id: DatasetId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM datasets WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}

pub async fn find(db: &Db, org: OrgId, id: DatasetId) -> Result<Option<Dataset>, StoreError> {
    let row = db.opt(Dataset::select("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// Newest first.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<Dataset>, StoreError> {
    let sql = Dataset::select("org_id = $1 AND ($2 IS NULL OR id < $2) ORDER BY id DESC LIMIT $3");
    let rows = db.all(sql, args![org, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<Dataset>(&rows)?, |dataset| dataset.id.to_string()))
}

/// Locks the dataset until the transaction ends; other changes of it or its cases wait.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: DatasetId) -> Result<Option<Dataset>, StoreError> {
    let row = tx.opt(Dataset::select_for_update("org_id = $1 AND id = $2"), args![org, id]).await?;
    let locked = table::read_opt::<Dataset>(row.as_ref())?;
    if let Some(locked) = &locked {
        cases::finish_publishing(tx, locked).await?;
    }
    Ok(locked)
}

/// Freezes the working copy of a locked dataset as its next version.
pub async fn freeze(
    tx: &mut Tx,
    locked: &Dataset,
    note: Option<&str>,
    by: &str,
    now: Timestamp,
) -> Result<DatasetVersion, StoreError> {
    let version = DatasetVersion {
        version: locked.current_version + 1,
        case_count: locked.case_count,
        note: note.map(Into::into),
        created_by: Some(by.into()),
        created_at: now,
    };
    table::insert(tx, &version, vec![("dataset_id", locked.id.into())]).await?;
    tx.exec(
        "UPDATE datasets SET current_version = $2, updated_at = $3 WHERE id = $1",
        args![locked.id, version.version, now],
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
    let sql = select_versions("($3 IS NULL OR v.version < $3) ORDER BY v.version DESC LIMIT $4");
    let rows = db.all(sql, args![org, id, page.number_cursor(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<DatasetVersion>(&rows)?, |version| version.version.to_string()))
}

pub async fn find_version(
    db: &Db,
    org: OrgId,
    id: DatasetId,
    number: i64,
) -> Result<Option<DatasetVersion>, StoreError> {
    let row = db.opt(select_versions("v.version = $3"), args![org, id, number]).await?;
    table::read_opt(row.as_ref())
}

/// Records that the cases of a locked dataset changed, and by how many their number grew.
pub async fn update_case_count(
    tx: &mut Tx,
    locked: &Dataset,
    added: i64,
    now: Timestamp,
) -> Result<(), StoreError> {
    let later = later_time(3);
    let sql = format!("UPDATE datasets SET case_count = case_count + $2, updated_at = {later} WHERE id = $1");
    tx.exec(AssertSqlSafe(sql), args![locked.id, added, now]).await.map(|_| ())
}

/// The time in a parameter, or one after that of the last change: no two states of a dataset have the same, although two
/// changes may be made within a millisecond.
fn later_time(parameter: usize) -> String {
    format!("CASE WHEN updated_at < ${parameter} THEN ${parameter} ELSE updated_at + 1 END")
}

fn select_versions(condition: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!(
        "SELECT {} FROM dataset_versions v JOIN datasets d ON d.id = v.dataset_id \
         WHERE d.org_id = $1 AND d.id = $2 AND {condition}",
        DatasetVersion::columns("v.")
    ))
}
