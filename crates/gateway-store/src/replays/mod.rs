//! Replays: in this module the replays themselves; `items` has their rows and the scores of evals on them.

mod items;

pub use items::{
    EvalScores, NewItem, ReplayItem, ReplayOutcome, ReplayScore, Verdict, add_items, figures, list_items,
    list_scores, pending_items, record_outcomes, score_totals,
};

use gateway_core::ids::OrgId;
use gateway_core::statuses::RunStatus;
use gateway_core::time::Timestamp;
use serde_json::Value;
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct Replay in "replays" {
        pub id: i64 [key],
        pub org_id: OrgId [key],
        pub name: Option<String>,
        pub status: RunStatus,
        pub target: Value [json],
        /// The definitions at the time the replay was created.
        pub evals: Value [json],
        pub total: i64,
        pub done: i64,
        pub errors: i64,
        pub spent: i64,
        pub estimated: i64,
        pub unpriced: i64,
        pub max_cost: Option<i64>,
        pub error: Option<String>,
        pub created_by: Option<String>,
        pub created_at: Timestamp [once],
        pub started_at: Option<Timestamp>,
        pub finished_at: Option<Timestamp>,
    }
}

pub async fn insert(tx: &mut Tx, replay: &Replay) -> Result<(), StoreError> {
    table::insert(tx, replay, vec![]).await
}

pub async fn find(db: &Db, org: OrgId, id: i64) -> Result<Option<Replay>, StoreError> {
    let row = db.opt(Replay::select("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// Newest first; the cursor is a number. Of one creator, if it is given.
pub async fn list(
    db: &Db,
    org: OrgId,
    created_by: Option<&str>,
    page: &Page,
) -> Result<Paged<Replay>, StoreError> {
    let sql = Replay::select(
        "org_id = $1 AND ($2 IS NULL OR id < $2) AND ($4 IS NULL OR created_by = $4) ORDER BY id DESC LIMIT $3",
    );
    let rows = db.all(sql, args![org, page.number_cursor(), page.fetch(), created_by]).await?;
    Ok(page.cut(table::read_all::<Replay>(&rows)?, |replay| replay.id.to_string()))
}

/// How many replays an organization has: all, and those that are not over.
pub async fn count(tx: &mut Tx, org: OrgId) -> Result<(i64, i64), StoreError> {
    let sql = "SELECT COUNT(*) AS stored, COUNT(CASE WHEN finished_at IS NULL THEN 1 END) AS unfinished \
               FROM replays WHERE org_id = $1";
    let row = tx.opt(sql, args![org]).await?;
    row.map_or(Ok((0, 0)), |row| Ok((row.get("stored")?, row.get("unfinished")?)))
}

/// Marks the replay as running. None when it does not exist or is over.
pub async fn start(db: &Db, org: OrgId, id: i64, now: Timestamp) -> Result<Option<Replay>, StoreError> {
    let sql = format!(
        "UPDATE replays SET status = 'running', started_at = COALESCE(started_at, $3) \
         WHERE org_id = $1 AND id = $2 AND finished_at IS NULL RETURNING {}",
        Replay::columns("")
    );
    let mut tx = db.begin().await?;
    let row = tx.opt(AssertSqlSafe(sql), args![org, id, now]).await?;
    tx.commit().await?;
    table::read_opt(row.as_ref())
}

/// Finishes a replay that is not over yet.
pub async fn finish(
    db: &Db,
    org: OrgId,
    id: i64,
    (status, error): (RunStatus, Option<&str>),
    at: Timestamp,
) -> Result<(), StoreError> {
    db.exec(
        "UPDATE replays SET status = $3, error = $4, finished_at = $5 \
         WHERE org_id = $1 AND id = $2 AND finished_at IS NULL",
        args![org, id, status, error, at],
    )
    .await
    .map(|_| ())
}

/// Cancels a replay. False when it was already over.
pub async fn cancel(tx: &mut Tx, org: OrgId, id: i64, now: Timestamp) -> Result<bool, StoreError> {
    let cancelled = tx
        .exec(
            "UPDATE replays SET status = 'cancelled', finished_at = $3 \
             WHERE org_id = $1 AND id = $2 AND finished_at IS NULL",
            args![org, id, now],
        )
        .await?;
    Ok(cancelled == 1)
}

/// Deletes a replay with its rows. The log rows stay.
pub async fn delete(tx: &mut Tx, org: OrgId, id: i64) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM replays WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}
