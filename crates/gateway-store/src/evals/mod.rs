//! Evals: definitions in this module, runs in `runs` and `new_items`, results in `results`.

mod new_items;
mod results;
mod runs;

pub use new_items::{CaseCopy, add_log_items, delete_incomplete, doom_incomplete};
pub use results::{
    EvalResult, NewEvalResult, VerdictCounts, VerdictFlip, compare_runs, count_verdicts, insert_live_results,
    list as list_results, list_run_results, live_judged_ids, results_for_export,
};
pub use runs::{
    ItemOutcome, NewRun, PendingSize, PromptScore, Run, RunEnd, RunFilter, RunItem, RunItemError, RunStatus,
    cancel_run, count_unfinished, delete as delete_run, find as find_run, finish_run, insert as insert_run,
    item_errors, list as list_runs, pending_items, pending_sizes, prompt_scores, record_outcomes, start_run,
};

use gateway_core::evaluators::EvaluatorKind;
use gateway_core::ids::OrgId;
use gateway_core::time::Timestamp;
use serde_json::Value;

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct Eval in "evals" {
        pub id: i64 [key],
        pub org_id: OrgId [key],
        pub name: String,
        pub kind: EvaluatorKind = "type",
        pub evaluator: String,
        pub config: Value [json],
        pub enabled: bool,
        pub sample_rate: f64,
        pub created_at: Timestamp [once],
        pub updated_at: Timestamp,
    }
}

table! {
    /// A definition that judges new log rows.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct LiveEval in "evals" {
        pub id: i64 [key],
        pub org_id: OrgId [key],
        pub sample_rate: f64,
    }
}

pub async fn insert(tx: &mut Tx, eval: &Eval) -> Result<(), StoreError> {
    table::insert(tx, eval, vec![]).await
}

/// Locks the definition until the transaction ends.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: i64) -> Result<Option<Eval>, StoreError> {
    let row = tx.opt(Eval::select_for_update("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// Updates a locked definition.
pub async fn update(tx: &mut Tx, eval: &Eval) -> Result<(), StoreError> {
    table::update(tx, eval, vec![], "").await.map(|_| ())
}

/// Deletes a definition with all its runs and results.
pub async fn delete(tx: &mut Tx, org: OrgId, id: i64) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM evals WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}

pub async fn find(db: &Db, org: OrgId, id: i64) -> Result<Option<Eval>, StoreError> {
    let row = db.opt(Eval::select("org_id = $1 AND id = $2"), args![org, id]).await?;
    table::read_opt(row.as_ref())
}

/// Newest first; the cursor is a number.
pub async fn list(
    db: &Db,
    org: OrgId,
    kind: Option<EvaluatorKind>,
    enabled: Option<bool>,
    page: &Page,
) -> Result<Paged<Eval>, StoreError> {
    let sql = Eval::select(
        "org_id = $1 AND ($2 IS NULL OR type = $2) AND ($3 IS NULL OR enabled = $3) AND ($4 IS NULL OR id < $4) \
         ORDER BY id DESC LIMIT $5",
    );
    let values = args![org, kind.map(EvaluatorKind::as_str), enabled, page.number_cursor(), page.fetch()];
    let rows = db.all(sql, values).await?;
    Ok(page.cut(table::read_all::<Eval>(&rows)?, |eval| eval.id.to_string()))
}

/// The definitions of all organizations that judge new rows.
pub async fn list_live(db: &Db) -> Result<Vec<LiveEval>, StoreError> {
    table::read_all(&db.all(LiveEval::select("enabled = 1 AND sample_rate > 0"), Vec::new()).await?)
}
