//! What may have very many rows is deleted in parts: one statement that deletes all of them by foreign keys would hold
//! SQLite's only writer, and on PostgreSQL exceed the statement timeout.

use gateway_core::ids::{DatasetId, OrgId, WebhookId};
use sqlx::AssertSqlSafe;

use crate::row::args;
use crate::{Db, StoreError};

/// Rows of one statement.
const ROWS: i64 = 1_000;

/// What is to be deleted with all its rows.
#[derive(Debug, Clone, Copy)]
pub enum RowsToDelete {
    Org,
    Dataset(DatasetId),
    Eval(i64),
    EvalRun(i64),
    Webhook(WebhookId),
}

/// A table, its key, and where its rows stand: `$1` is the organization, `$2` what is deleted.
struct Rows {
    table: &'static str,
    key: &'static str,
    from: &'static str,
}

const ITEMS: &str = "eval_runs p JOIN eval_run_items t ON t.run_id = p.id WHERE p.org_id = $1";
const CASES: &str = "datasets p JOIN dataset_cases t ON t.dataset_id = p.id WHERE p.org_id = $1";

const OF_ORG: [Rows; 6] = [
    Rows { table: "dataset_cases", key: "dataset_id, id, from_version", from: CASES },
    Rows { table: "eval_run_items", key: "run_id, position", from: ITEMS },
    Rows { table: "eval_results", key: "id", from: "eval_results t WHERE t.org_id = $1" },
    Rows {
        table: "replay_items",
        key: "replay_id, position",
        from: "replays p JOIN replay_items t ON t.replay_id = p.id WHERE p.org_id = $1",
    },
    Rows { table: "deliveries", key: "id", from: "deliveries t WHERE t.org_id = $1" },
    Rows { table: "playground_runs", key: "id", from: "playground_runs t WHERE t.org_id = $1" },
];
const OF_DATASET: [Rows; 1] = [Rows {
    table: "dataset_cases",
    key: "dataset_id, id, from_version",
    from: "datasets p JOIN dataset_cases t ON t.dataset_id = p.id WHERE p.org_id = $1 AND p.id = $2",
}];
const OF_EVAL: [Rows; 2] = [
    Rows {
        table: "eval_run_items",
        key: "run_id, position",
        from: "eval_runs p JOIN eval_run_items t ON t.run_id = p.id WHERE p.org_id = $1 AND p.eval_id = $2",
    },
    Rows { table: "eval_results", key: "id", from: "eval_results t WHERE t.org_id = $1 AND t.eval_id = $2" },
];
const OF_EVAL_RUN: [Rows; 2] = [
    Rows {
        table: "eval_run_items",
        key: "run_id, position",
        from: "eval_runs p JOIN eval_run_items t ON t.run_id = p.id WHERE p.org_id = $1 AND p.id = $2",
    },
    Rows { table: "eval_results", key: "id", from: "eval_results t WHERE t.org_id = $1 AND t.run_id = $2" },
];
const OF_WEBHOOK: [Rows; 1] =
    [Rows { table: "deliveries", key: "id", from: "deliveries t WHERE t.org_id = $1 AND t.webhook_id = $2" }];

/// Deletes some rows. Returns false if the rest is few enough to be deleted together with what they belong to.
pub async fn delete_some(db: &Db, org: OrgId, what: RowsToDelete) -> Result<bool, StoreError> {
    let tables: &[Rows] = match what {
        RowsToDelete::Org => &OF_ORG,
        RowsToDelete::Dataset(_) => &OF_DATASET,
        RowsToDelete::Eval(_) => &OF_EVAL,
        RowsToDelete::EvalRun(_) => &OF_EVAL_RUN,
        RowsToDelete::Webhook(_) => &OF_WEBHOOK,
    };
    let args = || match what {
        RowsToDelete::Org => args![org],
        RowsToDelete::Dataset(id) => args![org, id],
        RowsToDelete::Eval(id) | RowsToDelete::EvalRun(id) => args![org, id],
        RowsToDelete::Webhook(id) => args![org, id],
    };
    for Rows { table, key, from } in tables {
        let columns = key.split(", ").map(|column| format!("t.{column}")).collect::<Vec<_>>().join(", ");
        let rows = format!("SELECT {columns} FROM {from}");
        let more = format!("{rows} LIMIT 1 OFFSET {ROWS}");
        if db.opt(AssertSqlSafe(more), args()).await?.is_some() {
            let delete = format!("DELETE FROM {table} WHERE ({key}) IN ({rows} LIMIT {ROWS})");
            return db.exec(AssertSqlSafe(delete), args()).await.map(|_| true);
        }
    }
    Ok(false)
}
