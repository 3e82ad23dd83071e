//! What may have very many rows is deleted in parts: one statement that deletes all of them by foreign keys would hold
//! SQLite's only writer, and on PostgreSQL exceed the statement timeout.

use gateway_core::ids::{DatasetId, OrgId, WebhookId};
use sqlx::AssertSqlSafe;

use crate::row::{Arg, args};
use crate::slices::{MAX_ROWS, Slice};
use crate::versioned::Versioned;
use crate::{Db, StoreError};

/// What is to be deleted with all its rows.
#[derive(Debug, Clone, Copy)]
pub enum RowsToDelete {
    Org,
    Dataset(DatasetId),
    Eval(i64),
    EvalRun(i64),
    Webhook(WebhookId),
    Versioned(Versioned),
}

/// A table, its key, the bytes of a row, and where its rows stand: `$1` is the organization, `$2` what is deleted.
struct Rows {
    table: &'static str,
    key: &'static str,
    /// An expression. Both databases know the length of a text or of bytes in bytes without reading the value.
    bytes: &'static str,
    from: &'static str,
}

const NARROW: &str = "0";
const CASE: &str = "OCTET_LENGTH(t.input) + OCTET_LENGTH(t.expected) + OCTET_LENGTH(t.metadata)";
const ITEM: &str = "COALESCE(OCTET_LENGTH(t.input), 0) + COALESCE(OCTET_LENGTH(t.expected), 0) + \
                    COALESCE(OCTET_LENGTH(t.metadata), 0)";
const DETAILS: &str = "OCTET_LENGTH(t.details)";
const DELIVERY: &str = "OCTET_LENGTH(t.payload) + OCTET_LENGTH(t.attempts)";
const SKILL_VERSION: &str = "OCTET_LENGTH(t.body) + OCTET_LENGTH(t.raw_source) + OCTET_LENGTH(t.description) + \
                             OCTET_LENGTH(t.files) + COALESCE(OCTET_LENGTH(t.scan), 0)";
const BLOB: &str = "OCTET_LENGTH(t.bytes)";
const VECTOR: &str = "OCTET_LENGTH(t.vector)";
const EVALUATION: &str = "OCTET_LENGTH(t.axes)";

/// The versions in use stay until the end: an organization whose deletion was interrupted can still be used. Those are
/// the current and the published ones, and what labels name. Only the files of skills may be too many for the end. They
/// go after everything else.
static OF_ORG: [Rows; 15] = [
    Rows {
        table: "dataset_cases",
        key: "dataset_id, id, from_version",
        bytes: CASE,
        from: "datasets p JOIN dataset_cases t ON t.dataset_id = p.id WHERE p.org_id = $1",
    },
    Rows {
        table: "eval_run_items",
        key: "run_id, position",
        bytes: ITEM,
        from: "eval_runs p JOIN eval_run_items t ON t.run_id = p.id WHERE p.org_id = $1",
    },
    Rows { table: "eval_results", key: "id", bytes: DETAILS, from: "eval_results t WHERE t.org_id = $1" },
    Rows {
        table: "replay_items",
        key: "replay_id, position",
        bytes: NARROW,
        from: "replays p JOIN replay_items t ON t.replay_id = p.id WHERE p.org_id = $1",
    },
    Rows {
        table: "replay_scores",
        key: "replay_id, position, eval_id",
        bytes: NARROW,
        from: "replays p JOIN replay_scores t ON t.replay_id = p.id WHERE p.org_id = $1",
    },
    Rows { table: "deliveries", key: "id", bytes: DELIVERY, from: "deliveries t WHERE t.org_id = $1" },
    Rows {
        table: "playground_runs",
        key: "id",
        bytes: "OCTET_LENGTH(t.messages) + OCTET_LENGTH(t.output) + COALESCE(OCTET_LENGTH(t.template), 0)",
        from: "playground_runs t WHERE t.org_id = $1",
    },
    Rows { table: "log_verdicts", key: "id", bytes: DETAILS, from: "log_verdicts t WHERE t.org_id = $1" },
    Rows {
        table: "prompt_versions",
        key: "prompt_id, version",
        bytes: "OCTET_LENGTH(t.content)",
        from: "prompts p JOIN prompt_versions t ON t.prompt_id = p.id WHERE p.org_id = $1 \
               AND t.version <> p.version AND NOT EXISTS (SELECT 1 FROM prompt_labels l \
               WHERE l.prompt_id = t.prompt_id AND l.version = t.version)",
    },
    Rows {
        table: "model_versions",
        key: "model_id, version",
        bytes: "OCTET_LENGTH(t.definition)",
        from: "models p JOIN model_versions t ON t.model_id = p.id WHERE p.org_id = $1 \
               AND t.version <> p.version",
    },
    Rows {
        table: "skill_versions",
        key: "skill_id, version",
        bytes: SKILL_VERSION,
        from: "skills p JOIN skill_versions t ON t.skill_id = p.id WHERE p.org_id = $1 \
               AND t.version <> p.version AND t.version <> COALESCE(p.published_version, 0)",
    },
    Rows {
        table: "skill_vectors",
        key: "skill_id, version, embedder",
        bytes: VECTOR,
        from: "skills p JOIN skill_vectors t ON t.skill_id = p.id WHERE p.org_id = $1 \
               AND t.version <> p.version AND t.version <> COALESCE(p.published_version, 0)",
    },
    Rows {
        table: "evaluations",
        key: "id",
        bytes: EVALUATION,
        from: "skills p JOIN evaluations t ON t.skill_id = p.id WHERE p.org_id = $1 \
               AND t.skill_version <> p.version AND t.skill_version <> COALESCE(p.published_version, 0)",
    },
    // Hidden skills: nobody sees their files.
    Rows {
        table: "skill_blobs",
        key: "skill_id, sha256",
        bytes: BLOB,
        from: "skills p JOIN skill_blobs t ON t.skill_id = p.id WHERE p.org_id = $1 AND p.version = 0",
    },
    Rows {
        table: "skill_blobs",
        key: "skill_id, sha256",
        bytes: BLOB,
        from: "skills p JOIN skill_blobs t ON t.skill_id = p.id WHERE p.org_id = $1 AND p.version > 0",
    },
];
static OF_DATASET: [Rows; 1] = [Rows {
    table: "dataset_cases",
    key: "dataset_id, id, from_version",
    bytes: CASE,
    from: "datasets p JOIN dataset_cases t ON t.dataset_id = p.id WHERE p.org_id = $1 AND p.id = $2",
}];
static OF_EVAL: [Rows; 2] = [
    Rows {
        table: "eval_run_items",
        key: "run_id, position",
        bytes: ITEM,
        from: "eval_runs p JOIN eval_run_items t ON t.run_id = p.id WHERE p.org_id = $1 AND p.eval_id = $2",
    },
    Rows {
        table: "eval_results",
        key: "id",
        bytes: DETAILS,
        from: "eval_results t WHERE t.org_id = $1 AND t.eval_id = $2",
    },
];
static OF_EVAL_RUN: [Rows; 2] = [
    Rows {
        table: "eval_run_items",
        key: "run_id, position",
        bytes: ITEM,
        from: "eval_runs p JOIN eval_run_items t ON t.run_id = p.id WHERE p.org_id = $1 AND p.id = $2",
    },
    Rows {
        table: "eval_results",
        key: "id",
        bytes: DETAILS,
        from: "eval_results t WHERE t.org_id = $1 AND t.run_id = $2",
    },
];
static OF_WEBHOOK: [Rows; 1] = [Rows {
    table: "deliveries",
    key: "id",
    bytes: DELIVERY,
    from: "deliveries t WHERE t.org_id = $1 AND t.webhook_id = $2",
}];
static OF_PROMPT: [Rows; 1] = [Rows {
    table: "prompt_versions",
    key: "prompt_id, version",
    bytes: "OCTET_LENGTH(t.content)",
    from: "prompts p JOIN prompt_versions t ON t.prompt_id = p.id WHERE p.org_id = $1 AND p.id = $2",
}];
static OF_MODEL: [Rows; 1] = [Rows {
    table: "model_versions",
    key: "model_id, version",
    bytes: "OCTET_LENGTH(t.definition)",
    from: "models p JOIN model_versions t ON t.model_id = p.id WHERE p.org_id = $1 AND p.id = $2",
}];
static OF_SKILL: [Rows; 4] = [
    Rows {
        table: "skill_versions",
        key: "skill_id, version",
        bytes: SKILL_VERSION,
        from: "skills p JOIN skill_versions t ON t.skill_id = p.id WHERE p.org_id = $1 AND p.id = $2",
    },
    Rows {
        table: "skill_blobs",
        key: "skill_id, sha256",
        bytes: BLOB,
        from: "skills p JOIN skill_blobs t ON t.skill_id = p.id WHERE p.org_id = $1 AND p.id = $2",
    },
    Rows {
        table: "skill_vectors",
        key: "skill_id, version, embedder",
        bytes: VECTOR,
        from: "skills p JOIN skill_vectors t ON t.skill_id = p.id WHERE p.org_id = $1 AND p.id = $2",
    },
    Rows {
        table: "evaluations",
        key: "id",
        bytes: EVALUATION,
        from: "skills p JOIN evaluations t ON t.skill_id = p.id WHERE p.org_id = $1 AND p.id = $2",
    },
];

impl RowsToDelete {
    fn tables(self) -> &'static [Rows] {
        match self {
            Self::Org => &OF_ORG,
            Self::Dataset(_) => &OF_DATASET,
            Self::Eval(_) => &OF_EVAL,
            Self::EvalRun(_) => &OF_EVAL_RUN,
            Self::Webhook(_) => &OF_WEBHOOK,
            Self::Versioned(Versioned::Prompt(_)) => &OF_PROMPT,
            Self::Versioned(Versioned::Model(_)) => &OF_MODEL,
            Self::Versioned(Versioned::Skill(_)) => &OF_SKILL,
        }
    }

    fn parameters(self, org: OrgId) -> Vec<Arg> {
        match self {
            Self::Org => args![org],
            Self::Dataset(id) => args![org, id],
            Self::Eval(id) | Self::EvalRun(id) => args![org, id],
            Self::Webhook(id) => args![org, id],
            Self::Versioned(what) => args![org, what.id()],
        }
    }
}

/// Deletes some rows. Returns false if the rest is few enough to be deleted together with what they belong to.
pub async fn delete_some(db: &Db, org: OrgId, what: RowsToDelete) -> Result<bool, StoreError> {
    let Some((Rows { table, key, from, .. }, count)) = next(db, org, what).await? else { return Ok(false) };
    let columns = key.split(", ").map(|column| format!("t.{column}")).collect::<Vec<_>>().join(", ");
    let sql = format!("DELETE FROM {table} WHERE ({key}) IN (SELECT {columns} FROM {from} LIMIT {count})");
    db.exec(AssertSqlSafe(sql), what.parameters(org)).await.map(|_| true)
}

/// Whether there is more than one transaction should delete.
pub async fn is_large(db: &Db, org: OrgId, what: RowsToDelete) -> Result<bool, StoreError> {
    Ok(next(db, org, what).await?.is_some())
}

/// Of which table how many rows are deleted next. None if all rows of all tables are few enough for one transaction.
async fn next(db: &Db, org: OrgId, what: RowsToDelete) -> Result<Option<(&'static Rows, usize)>, StoreError> {
    let mut all = Slice::default();
    for rows in what.tables() {
        let Rows { bytes, from, .. } = rows;
        let sql = format!("SELECT CAST({bytes} AS BIGINT) AS size FROM {from} LIMIT {}", MAX_ROWS + 1);
        let sizes = db.all(AssertSqlSafe(sql), what.parameters(org)).await?;
        let slice = Slice::of(&sizes)?;
        all = all.plus(slice);
        if slice.rows < sizes.len() || all.is_too_large() {
            return Ok(Some((rows, slice.rows)));
        }
    }
    Ok(None)
}
