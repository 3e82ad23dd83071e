//! What was tried in the playground, kept for whoever tried it: a user, or a key.

use gateway_core::ids::{OrgId, PlayId};
use gateway_core::time::Timestamp;
use serde_json::Value;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

/// Of one owner, this many are kept.
const KEPT: i64 = 1_000;

#[derive(Debug, Clone, PartialEq)]
pub struct PlaygroundRun {
    pub id: PlayId,
    pub comparison_id: Option<PlayId>,
    /// In its comparison.
    pub position: i64,
    pub provider: String,
    pub model: String,
    pub params: Value,
    pub messages: Value,
    pub template: Option<String>,
    pub output: String,
    pub finish_reason: Option<String>,
    pub usage: Value,
    pub cost_usd: Option<f64>,
    pub latency_ms: i64,
    pub log_id: Option<i64>,
    /// Set where the model gave no answer.
    pub error: Option<Value>,
    pub created_at: Timestamp,
}

const COLUMNS: &str = "id, comparison_id, position, provider, model, params, messages, template, output, finish_reason, \
    usage, cost_usd, latency_ms, log_id, error, created_at";

/// Keeps what was tried; the oldest of what the owner has too much of goes.
pub async fn insert(tx: &mut Tx, org: OrgId, owner: &str, play: &PlaygroundRun) -> Result<(), StoreError> {
    let PlaygroundRun {
        id,
        comparison_id,
        position,
        provider,
        model,
        params,
        messages,
        template,
        output,
        finish_reason,
        usage,
        cost_usd,
        latency_ms,
        log_id,
        error,
        created_at,
    } = play;
    let clean = |text: &str| text.replace('\0', " ");
    tx.exec(
        "INSERT INTO playground_runs (org_id, owner, id, comparison_id, position, provider, model, params, messages, \
         template, output, finish_reason, usage, cost_usd, latency_ms, log_id, error, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)",
        args![
            org,
            owner,
            *id,
            *comparison_id,
            *position,
            provider,
            model,
            json(params),
            json(messages),
            template.clone(),
            clean(output),
            finish_reason.as_deref().map(clean),
            json(usage),
            *cost_usd,
            *latency_ms,
            *log_id,
            error.as_ref().map(Value::to_string),
            *created_at
        ],
    )
    .await?;
    tx.exec(
        "DELETE FROM playground_runs WHERE org_id = $1 AND owner = $2 AND id < \
         (SELECT id FROM playground_runs WHERE org_id = $1 AND owner = $2 ORDER BY id DESC LIMIT 1 OFFSET $3)",
        args![org, owner, KEPT - 1],
    )
    .await
    .map(|_| ())
}

/// The runs that were answered, newest first.
pub async fn list(db: &Db, org: OrgId, owner: &str, page: &Page) -> Result<Paged<PlaygroundRun>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM playground_runs WHERE org_id = $1 AND owner = $2 AND error IS NULL \
         AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4"
    );
    let rows = db.all(AssertSqlSafe(sql), args![org, owner, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(read_all(&rows)?, |play| play.id.to_string()))
}

pub async fn find(db: &Db, org: OrgId, owner: &str, id: PlayId) -> Result<Option<PlaygroundRun>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM playground_runs WHERE org_id = $1 AND owner = $2 AND id = $3");
    db.opt(AssertSqlSafe(sql), args![org, owner, id]).await?.as_ref().map(read).transpose()
}

/// What a comparison tried, in the order asked; empty when there is no such comparison.
pub async fn list_comparison(
    db: &Db,
    org: OrgId,
    owner: &str,
    id: PlayId,
) -> Result<Vec<PlaygroundRun>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM playground_runs WHERE org_id = $1 AND owner = $2 AND comparison_id = $3 ORDER BY position"
    );
    read_all(&db.all(AssertSqlSafe(sql), args![org, owner, id]).await?)
}

fn read_all(rows: &[Row]) -> Result<Vec<PlaygroundRun>, StoreError> {
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<PlaygroundRun, StoreError> {
    let error: Option<String> = row.get("error")?;
    Ok(PlaygroundRun {
        id: row.get("id")?,
        comparison_id: row.get("comparison_id")?,
        position: row.get("position")?,
        provider: row.get("provider")?,
        model: row.get("model")?,
        params: row.json("params")?,
        messages: row.json("messages")?,
        template: row.get("template")?,
        output: row.get("output")?,
        finish_reason: row.get("finish_reason")?,
        usage: row.json("usage")?,
        cost_usd: row.get("cost_usd")?,
        latency_ms: row.get("latency_ms")?,
        log_id: row.get("log_id")?,
        error: error.and_then(|error| serde_json::from_str(&error).ok()),
        created_at: row.get("created_at")?,
    })
}
