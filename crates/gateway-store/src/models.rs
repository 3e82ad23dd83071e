//! Named models and their versions. A version never changes. Version numbers have no gaps, because `next_version` locks
//! the model until the new version is committed. `versioned` deletes models.

use std::collections::HashMap;

use gateway_core::ids::{ModelId, OrgId};
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::{Row, args};
use crate::{Db, StoreError, Tx};

/// A model in one of its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredModel {
    pub id: ModelId,
    pub name: String,
    pub version: i64,
    /// JSON.
    pub definition: String,
    /// The author of this version.
    pub created_by: Option<String>,
    /// When the model was created.
    pub created_at: Timestamp,
    /// When this version was created.
    pub updated_at: Timestamp,
}

/// Inserts a model with its first version. `Duplicate` when the name is in use.
pub async fn insert(tx: &mut Tx, org: OrgId, model: &StoredModel) -> Result<(), StoreError> {
    tx.exec(
        "INSERT INTO models (org_id, id, name, version, created_at) VALUES ($1, $2, $3, $4, $5)",
        args![org, model.id, &model.name, model.version, model.created_at],
    )
    .await?;
    insert_version(tx, model).await
}

/// Assigns the next version number and locks the model until the transaction ends. Returns the model in its latest
/// version before that; none when it does not exist.
pub async fn next_version(tx: &mut Tx, org: OrgId, id: ModelId) -> Result<Option<StoredModel>, StoreError> {
    let locked = tx
        .exec(
            "UPDATE models SET version = version + 1 WHERE org_id = $1 AND id = $2 AND version > 0",
            args![org, id],
        )
        .await?;
    if locked == 0 {
        return Ok(None);
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM models m JOIN model_versions v ON v.model_id = m.id AND v.version = m.version - 1 \
         WHERE m.org_id = $1 AND m.id = $2"
    );
    tx.opt(AssertSqlSafe(sql), args![org, id]).await?.as_ref().map(read).transpose()
}

/// Inserts the version that `next_version` numbered.
pub async fn insert_version(tx: &mut Tx, model: &StoredModel) -> Result<(), StoreError> {
    let StoredModel { id, version, definition, created_by, updated_at, .. } = model;
    tx.exec(
        "INSERT INTO model_versions (model_id, version, definition, created_by, created_at) \
         VALUES ($1, $2, $3, $4, $5)",
        args![*id, *version, definition, created_by.as_deref(), *updated_at],
    )
    .await
    .map(|_| ())
}

const COLUMNS: &str =
    "m.id, m.name, v.version, v.definition, v.created_by, m.created_at, v.created_at AS updated_at";

/// One version, or the latest, of the model with this name, or else with this id.
pub async fn find(
    db: &Db,
    org: OrgId,
    name: &str,
    version: Option<i64>,
) -> Result<Option<StoredModel>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM models m JOIN model_versions v ON v.model_id = m.id \
         AND v.version = COALESCE($3, m.version) WHERE m.org_id = $1 AND (m.name = $2 OR m.id = $2) AND m.version > 0 \
         ORDER BY CASE WHEN m.name = $2 THEN 0 ELSE 1 END LIMIT 1"
    );
    let row = db.opt(AssertSqlSafe(sql), args![org, name, version]).await?;
    row.as_ref().map(read).transpose()
}

/// The latest version of a model, as requests need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatestModel {
    pub name: String,
    /// JSON.
    pub definition: String,
    /// When the model was created.
    pub created_at: Timestamp,
}

/// Every model of an organization.
pub async fn latest(db: &Db, org: OrgId) -> Result<Vec<LatestModel>, StoreError> {
    let rows = db
        .all(
            "SELECT m.name, m.created_at, v.definition FROM models m JOIN model_versions v ON v.model_id = m.id \
             AND v.version = m.version WHERE m.org_id = $1",
            args![org],
        )
        .await?;
    let read = |row: &Row| {
        let (name, definition) = (row.get("name")?, row.get("definition")?);
        Ok(LatestModel { name, definition, created_at: row.get("created_at")? })
    };
    rows.iter().map(read).collect()
}

/// The length of the definitions of an organization in their latest versions, in bytes.
pub async fn total_bytes(tx: &mut Tx, org: OrgId) -> Result<u64, StoreError> {
    let row = tx
        .opt(
            "SELECT COALESCE(SUM(OCTET_LENGTH(v.definition)), 0) AS bytes FROM models m \
             JOIN model_versions v ON v.model_id = m.id AND v.version = m.version WHERE m.org_id = $1",
            args![org],
        )
        .await?;
    let bytes: i64 = row.map_or(Ok(0), |row| row.get("bytes"))?;
    Ok(bytes.unsigned_abs())
}

/// The latest versions by name, for a transaction that changes many.
pub async fn by_name(tx: &mut Tx, org: OrgId) -> Result<HashMap<String, StoredModel>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM models m JOIN model_versions v ON v.model_id = m.id AND v.version = m.version \
         WHERE m.org_id = $1"
    );
    let rows = tx.all(AssertSqlSafe(sql), args![org]).await?;
    rows.iter().map(|row| read(row).map(|model| (model.name.clone(), model))).collect()
}

/// Every model in its latest version, newest first.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<StoredModel>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM models m JOIN model_versions v ON v.model_id = m.id AND v.version = m.version \
         WHERE m.org_id = $1 AND ($2 IS NULL OR m.id < $2) ORDER BY m.id DESC LIMIT $3"
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, page.before.clone(), page.fetch()]).await?;
    let models = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(models, |model| model.id.to_string()))
}

/// The versions of a model, newest first; the cursor is a number.
pub async fn list_versions(
    db: &Db,
    org: OrgId,
    id: ModelId,
    page: &Page,
) -> Result<Paged<StoredModel>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM models m JOIN model_versions v ON v.model_id = m.id \
         WHERE m.org_id = $1 AND m.id = $2 AND ($3 IS NULL OR v.version < $3) ORDER BY v.version DESC LIMIT $4"
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, id, page.number_cursor(), page.fetch()]).await?;
    let versions = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(versions, |model| model.version.to_string()))
}

fn read(row: &Row) -> Result<StoredModel, StoreError> {
    Ok(StoredModel {
        id: row.get("id")?,
        name: row.get("name")?,
        version: row.get("version")?,
        definition: row.get("definition")?,
        created_by: row.get("created_by")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
    })
}
