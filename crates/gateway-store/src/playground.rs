//! Playground runs, kept for the user or key that made them.

use gateway_core::ids::{OrgId, PlayId};
use gateway_core::json::SharedJson;
use gateway_core::time::Timestamp;
use serde_json::Value;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

/// Runs kept per owner.
const MAX_RUNS: i64 = 1_000;

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct PlaygroundRun in "playground_runs" {
        pub id: PlayId [key],
        pub comparison_id: Option<PlayId>,
        /// In its comparison.
        pub position: i64,
        pub provider: String,
        pub model: String,
        pub params: SharedJson [via shared_json],
        pub messages: SharedJson [via shared_json],
        pub template: Option<String>,
        pub output: String,
        /// Calls of tools in the form of chat completions; none if the model called no tool.
        pub tool_calls: Option<Vec<Value>> [optional json],
        pub finish_reason: Option<String>,
        pub usage: Value [json],
        pub cost_usd: Option<f64>,
        pub latency_ms: i64,
        pub log_id: Option<i64>,
        /// Set when the call failed.
        pub error: Option<Value> [optional json],
        pub created_at: Timestamp [once],
    }
}

mod shared_json {
    use gateway_core::json::SharedJson;

    use crate::StoreError;
    use crate::row::{Arg, Row};

    pub(super) fn to_arg(value: &SharedJson) -> Arg {
        value.text().into()
    }

    pub(super) fn from_row(row: &Row, column: &'static str) -> Result<SharedJson, StoreError> {
        SharedJson::from_text(row.get(column)?)
            .map_err(|error| StoreError::Other(format!("invalid JSON in {column}: {error}")))
    }
}

/// Inserts a run and deletes the owner's oldest ones above the limit.
pub async fn insert(tx: &mut Tx, org: OrgId, owner: &str, run: &PlaygroundRun) -> Result<(), StoreError> {
    table::insert(tx, run, vec![("org_id", org.into()), ("owner", owner.into())]).await?;
    tx.exec(
        "DELETE FROM playground_runs WHERE org_id = $1 AND owner = $2 AND id < \
         (SELECT id FROM playground_runs WHERE org_id = $1 AND owner = $2 ORDER BY id DESC LIMIT 1 OFFSET $3)",
        args![org, owner, MAX_RUNS - 1],
    )
    .await
    .map(|_| ())
}

/// The bytes of a run.
const BYTES: &str = "OCTET_LENGTH(messages) + OCTET_LENGTH(params) + OCTET_LENGTH(output) \
                     + COALESCE(OCTET_LENGTH(tool_calls), 0)";

/// The successful runs, newest first, if there is room for their bytes. A page has fewer than its limit if the runs are
/// large.
pub async fn list<E: From<StoreError>>(
    db: &Db,
    org: OrgId,
    owner: &str,
    page: &Page,
    take_room: impl FnOnce(i64) -> Result<(), E>,
) -> Result<Paged<PlaygroundRun>, E> {
    let sizes = format!(
        "SELECT CAST({BYTES} AS BIGINT) AS size FROM playground_runs WHERE org_id = $1 AND owner = $2 \
         AND error IS NULL AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4"
    );
    let values = args![org, owner, page.before.clone(), page.limit];
    let page = page.bounded_within(&db.all(AssertSqlSafe(sizes), values).await?, take_room)?;
    let sql = PlaygroundRun::select(
        "org_id = $1 AND owner = $2 AND error IS NULL AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT $4",
    );
    let rows = db.all(sql, args![org, owner, page.before.clone(), page.fetch()]).await?;
    Ok(page.cut(table::read_all::<PlaygroundRun>(&rows)?, |run| run.id.to_string()))
}

pub async fn find(db: &Db, org: OrgId, owner: &str, id: PlayId) -> Result<Option<PlaygroundRun>, StoreError> {
    let sql = PlaygroundRun::select("org_id = $1 AND owner = $2 AND id = $3");
    table::read_opt(db.opt(sql, args![org, owner, id]).await?.as_ref())
}

/// The runs of a comparison in the requested order, if there is room for their bytes; empty when it does not exist.
pub async fn list_comparison<E: From<StoreError>>(
    db: &Db,
    org: OrgId,
    owner: &str,
    id: PlayId,
    take_room: impl FnOnce(i64) -> Result<(), E>,
) -> Result<Vec<PlaygroundRun>, E> {
    let size = format!(
        "SELECT CAST(COALESCE(SUM({BYTES}), 0) AS BIGINT) AS size FROM playground_runs \
         WHERE org_id = $1 AND owner = $2 AND comparison_id = $3"
    );
    let size = db.opt(AssertSqlSafe(size), args![org, owner, id]).await?;
    take_room(size.map_or(Ok(0), |row| row.get("size"))?)?;
    let sql = PlaygroundRun::select("org_id = $1 AND owner = $2 AND comparison_id = $3 ORDER BY position");
    Ok(table::read_all(&db.all(sql, args![org, owner, id]).await?)?)
}
