//! The rubric of each organization, created when it is first needed.

use gateway_core::ids::{OrgId, RubricId};
use gateway_core::skills::rubric::Rubric;
use gateway_core::time::Timestamp;
use sqlx::AssertSqlSafe;

use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq)]
pub struct StoredRubric {
    pub id: RubricId,
    pub org_id: OrgId,
    pub rubric: Rubric,
    /// Incremented by each change.
    pub revision: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

const COLUMNS: &str = "id, org_id, judge_provider, judge_model, embed_provider, embed_model, embed_dims, weights, \
                       pass_threshold, allowed_verdict_sources, allow_files, revision, created_at, updated_at";

pub async fn find(db: &Db, org: OrgId) -> Result<Option<StoredRubric>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM rubrics WHERE org_id = $1");
    db.opt(AssertSqlSafe(sql), args![org]).await?.as_ref().map(read).transpose()
}

/// Locks the organization's rubric until the transaction ends. Inserts `seed` when there is none.
pub async fn find_or_insert_for_update(
    tx: &mut Tx,
    org: OrgId,
    new_id: RubricId,
    seed: &Rubric,
    now: Timestamp,
) -> Result<StoredRubric, StoreError> {
    let Rubric {
        judge_provider,
        judge_model,
        embed_provider,
        embed_model,
        embed_dims,
        weights,
        pass_threshold,
        allowed_verdict_sources,
        allow_files,
    } = seed;
    // For an existing row, the update that changes nothing takes the row lock.
    let sql = format!(
        "INSERT INTO rubrics ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 1, $12, $12) \
         ON CONFLICT (org_id) DO UPDATE SET org_id = excluded.org_id RETURNING {COLUMNS}"
    );
    let row = tx
        .opt(
            AssertSqlSafe(sql),
            args![
                new_id,
                org,
                judge_provider,
                judge_model,
                embed_provider,
                embed_model,
                *embed_dims,
                json(weights),
                *pass_threshold,
                json(allowed_verdict_sources),
                json(allow_files),
                now
            ],
        )
        .await?;
    row.as_ref().map_or_else(|| Err(StoreError::Other("the upsert of a rubric returned no row".into())), read)
}

/// Locks the rubric with this id until the transaction ends. None when it belongs to another organization.
pub async fn find_for_update(
    tx: &mut Tx,
    org: OrgId,
    id: RubricId,
) -> Result<Option<StoredRubric>, StoreError> {
    let sql = format!(
        "UPDATE rubrics SET created_at = created_at WHERE org_id = $1 AND id = $2 RETURNING {COLUMNS}"
    );
    tx.opt(AssertSqlSafe(sql), args![org, id]).await?.as_ref().map(read).transpose()
}

pub async fn update(tx: &mut Tx, id: RubricId, rubric: &Rubric, now: Timestamp) -> Result<(), StoreError> {
    let Rubric {
        judge_provider,
        judge_model,
        embed_provider,
        embed_model,
        embed_dims,
        weights,
        pass_threshold,
        allowed_verdict_sources,
        allow_files,
    } = rubric;
    tx.exec(
        "UPDATE rubrics SET judge_provider = $2, judge_model = $3, embed_provider = $4, embed_model = $5, \
         embed_dims = $6, weights = $7, pass_threshold = $8, allowed_verdict_sources = $9, \
         allow_files = $10, revision = revision + 1, updated_at = $11 WHERE id = $1",
        args![
            id,
            judge_provider,
            judge_model,
            embed_provider,
            embed_model,
            *embed_dims,
            json(weights),
            *pass_threshold,
            json(allowed_verdict_sources),
            json(allow_files),
            now
        ],
    )
    .await
    .map(|_| ())
}

fn read(row: &Row) -> Result<StoredRubric, StoreError> {
    Ok(StoredRubric {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        rubric: Rubric {
            judge_provider: row.get("judge_provider")?,
            judge_model: row.get("judge_model")?,
            embed_provider: row.get("embed_provider")?,
            embed_model: row.get("embed_model")?,
            embed_dims: row.get("embed_dims")?,
            weights: row.json("weights")?,
            pass_threshold: row.get("pass_threshold")?,
            allowed_verdict_sources: row.json("allowed_verdict_sources")?,
            allow_files: row.json("allow_files")?,
        },
        revision: row.get("revision")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
    })
}
