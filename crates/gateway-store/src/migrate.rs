//! Forward-only migrations, embedded in the binary and run under a lock, so that several nodes may start at once.
//!
//! A release only adds to the schema; what it no longer needs is removed by a later release. Nodes of the previous
//! version therefore keep running, and can restart, during a rolling upgrade. The database records the oldest version
//! that can still use its schema (`Part::oldest`).
//!
//! One set of files serves both databases. Statements for only one of them are enclosed by a line `-- only sqlite` or
//! `-- only postgres` and a line `-- end`.
//!
//! A released file must never be edited: databases that already applied it would keep the old schema. The SHA-256 of
//! every applied file is recorded in `schema_checksums`, and a different one is an error at start.

use std::collections::HashMap;

use gateway_core::time::Timestamp;
use sha2::{Digest as _, Sha256};
use sqlx::AssertSqlSafe;

use crate::db::{Db, Dialect};
use crate::error::StoreError;
use crate::row::args;
use crate::tx::Tx;

/// State and log rows have separate schemas: two files on SQLite, two sets of tables on PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    State,
    Logs,
}

/// In the order of their versions, which begin with 1.
const STATE: &[(&str, &str)] = &[
    ("accounts", include_str!("../migrations/0001_accounts.sql")),
    ("api_keys", include_str!("../migrations/0002_api_keys.sql")),
    ("prompts", include_str!("../migrations/0003_prompts.sql")),
    ("datasets", include_str!("../migrations/0004_datasets.sql")),
    ("jobs", include_str!("../migrations/0005_jobs.sql")),
    ("evals", include_str!("../migrations/0006_evals.sql")),
    ("playground", include_str!("../migrations/0007_playground.sql")),
    ("skills", include_str!("../migrations/0008_skills.sql")),
    ("webhooks", include_str!("../migrations/0009_webhooks.sql")),
    ("budgets", include_str!("../migrations/0010_budgets.sql")),
    ("nodes", include_str!("../migrations/0011_nodes.sql")),
    ("eval_retention", include_str!("../migrations/0012_eval_retention.sql")),
    ("deletions", include_str!("../migrations/0013_deletions.sql")),
    ("revisions_and_limits", include_str!("../migrations/0014_revisions_and_limits.sql")),
    ("cache_purges", include_str!("../migrations/0015_cache_purges.sql")),
    ("skill_vectors", include_str!("../migrations/0016_skill_vectors.sql")),
    ("jobs_by_org", include_str!("../migrations/0017_jobs_by_org.sql")),
    ("invites", include_str!("../migrations/0018_invites.sql")),
    ("user_sessions", include_str!("../migrations/0019_user_sessions.sql")),
    ("unpriced", include_str!("../migrations/0020_unpriced.sql")),
    ("audit", include_str!("../migrations/0021_audit.sql")),
    ("audit_checkpoints", include_str!("../migrations/0022_audit_checkpoints.sql")),
    ("dataset_publishing", include_str!("../migrations/0023_dataset_publishing.sql")),
    ("models", include_str!("../migrations/0024_models.sql")),
    ("imports", include_str!("../migrations/0025_imports.sql")),
    ("prompt_cache_pauses", include_str!("../migrations/0026_prompt_cache_pauses.sql")),
    ("budget_openings", include_str!("../migrations/0027_budget_openings.sql")),
    ("provider_retention", include_str!("../migrations/0028_provider_retention.sql")),
    ("limits", include_str!("../migrations/0029_limits.sql")),
    ("user_budgets", include_str!("../migrations/0030_user_budgets.sql")),
    ("alerts", include_str!("../migrations/0031_alerts.sql")),
    ("skill_files", include_str!("../migrations/0032_skill_files.sql")),
    ("mcp", include_str!("../migrations/0033_mcp.sql")),
    ("prompt_labels", include_str!("../migrations/0034_prompt_labels.sql")),
    ("replays", include_str!("../migrations/0035_replays.sql")),
    ("mcp_approved_tools", include_str!("../migrations/0036_mcp_approved_tools.sql")),
    ("alert_coverage", include_str!("../migrations/0037_alert_coverage.sql")),
    ("playground_tool_calls", include_str!("../migrations/0038_playground_tool_calls.sql")),
    ("views", include_str!("../migrations/0039_views.sql")),
    ("key_indexes", include_str!("../migrations/0040_key_indexes.sql")),
];
const LOGS: &[(&str, &str)] = &[
    ("logs", include_str!("../migrations/logs/0001_logs.sql")),
    ("prompts", include_str!("../migrations/logs/0002_prompts.sql")),
    ("exports", include_str!("../migrations/logs/0003_exports.sql")),
    ("outside", include_str!("../migrations/logs/0004_outside.sql")),
    ("deleted_orgs", include_str!("../migrations/logs/0005_deleted_orgs.sql")),
    ("closed_days", include_str!("../migrations/logs/0006_closed_days.sql")),
    ("log_days", include_str!("../migrations/logs/0007_log_days.sql")),
    ("compat", include_str!("../migrations/logs/0008_compat.sql")),
    ("prompt_cache", include_str!("../migrations/logs/0009_prompt_cache.sql")),
    ("word_runs", include_str!("../migrations/logs/0010_word_runs.sql")),
    ("limits", include_str!("../migrations/logs/0011_limits.sql")),
    ("user_spend", include_str!("../migrations/logs/0012_user_spend.sql")),
    ("mcp", include_str!("../migrations/logs/0013_mcp.sql")),
    ("body_blocks", include_str!("../migrations/logs/0014_body_blocks.sql")),
    ("export_queries", include_str!("../migrations/logs/0015_export_queries.sql")),
];

impl Part {
    fn migrations(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Part::State => STATE,
            Part::Logs => LOGS,
        }
    }

    /// The table that records the applied versions.
    fn table(self) -> &'static str {
        match self {
            Part::State => "schema_versions",
            Part::Logs => "log_schema_versions",
        }
    }

    /// The newest version that this binary knows.
    pub fn version(self) -> i64 {
        i64::try_from(self.migrations().len()).unwrap_or(i64::MAX)
    }

    /// The oldest version whose binaries can use the newest schema. A migration that removes or changes what older
    /// binaries use raises it to the version of the first binary that does not need it.
    fn oldest(self) -> i64 {
        match self {
            Part::State => 11,
            Part::Logs => 3,
        }
    }
}

/// The key of the migrations' advisory lock on PostgreSQL.
pub(crate) const LOCK: i64 = 0x6761_7465_7761_7901;
/// Limits how long a schema change waits for a table lock: every later query on that table queues behind it.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '10s'";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    pub from: i64,
    pub to: i64,
}

/// What a database has of a part's schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaState {
    /// 0 if it has none yet.
    pub version: i64,
    /// The newest version that this binary knows.
    pub known: i64,
    /// The oldest version whose binaries can use the schema as it is.
    pub oldest: Option<i64>,
    /// The same after the migrations of this binary.
    pub oldest_after: i64,
    /// The names of the migrations that are missing.
    pub pending: Vec<&'static str>,
}

impl SchemaState {
    /// Whether this binary can use the database.
    pub fn is_usable(&self) -> bool {
        self.version <= self.known || self.oldest.is_some_and(|oldest| oldest <= self.known)
    }
}

impl Db {
    /// Reads the state of the schema, and changes nothing.
    pub async fn schema(&self, part: Part) -> Result<SchemaState, StoreError> {
        let table = part.table();
        let (known, oldest_after) = (part.version(), part.oldest());
        let (mut version, mut oldest) = (0, None);
        if self.has_table(table).await? {
            let mut tx = self.begin().await?;
            version = current_version(&mut tx, table).await?;
            oldest = oldest_supported(&mut tx, table).await?;
        }
        let missing = (1_i64..).zip(part.migrations()).filter(|(step, _)| *step > version);
        let pending = missing.map(|(_, (name, _))| *name).collect();
        Ok(SchemaState { version, known, oldest, oldest_after, pending })
    }

    async fn has_table(&self, name: &str) -> Result<bool, StoreError> {
        let sql = match self.dialect() {
            Dialect::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'table' AND name = $1",
            Dialect::Postgres => {
                "SELECT tablename AS name FROM pg_tables \
                 WHERE schemaname = ANY (current_schemas(false)) AND tablename = $1"
            }
        };
        Ok(self.opt(sql, args![name]).await?.is_some())
    }

    /// Applies all migrations that are missing. `now` is recorded as the time of each.
    pub async fn migrate(&self, part: Part, now: Timestamp) -> Result<Migrated, StoreError> {
        self.migrate_to(part, part.version(), now).await
    }

    /// Stops at an older version: for tests of upgrades.
    pub async fn migrate_to(&self, part: Part, version: i64, now: Timestamp) -> Result<Migrated, StoreError> {
        let mut tx = self.begin().await?;
        if tx.dialect() == Dialect::Postgres {
            // Another node may take long to migrate, and so may this one.
            tx.lift_timeout().await?;
            tx.script(format!("SELECT pg_advisory_xact_lock({LOCK}); {LOCK_TIMEOUT}")).await?;
        }
        let table = part.table();
        tx.script(format!(
            "CREATE TABLE IF NOT EXISTS {table} \
             (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL); \
             CREATE TABLE IF NOT EXISTS schema_support (part TEXT PRIMARY KEY, oldest BIGINT NOT NULL); \
             CREATE TABLE IF NOT EXISTS schema_checksums (part TEXT NOT NULL, version BIGINT NOT NULL, \
             checksum TEXT NOT NULL, PRIMARY KEY (part, version))"
        ))
        .await?;
        let from = current_version(&mut tx, table).await?;
        let recorded = recorded_checksums(&mut tx, table).await?;
        check_checksums(part, &recorded)?;
        if from > part.version() {
            let oldest = oldest_supported(&mut tx, table).await?;
            return if oldest.is_some_and(|oldest| oldest <= part.version()) {
                Ok(Migrated { from, to: from })
            } else {
                Err(StoreError::NewerSchema { found: from, known: part.version() })
            };
        }
        for (step, (name, sql)) in (1_i64..).zip(part.migrations()) {
            if step > from && step <= version {
                tx.script(for_dialect(sql, tx.dialect())).await.map_err(|error| {
                    StoreError::Other(format!("migration {step} ({name}) failed: {error}"))
                })?;
                tx.exec(
                    AssertSqlSafe(format!(
                        "INSERT INTO {table} (version, name, applied_at) VALUES ($1, $2, $3)"
                    )),
                    args![step, *name, now],
                )
                .await?;
            }
        }
        let to = from.max(version);
        record_checksums(&mut tx, part, to, &recorded).await?;
        if to == part.version() {
            tx.exec(
                "INSERT INTO schema_support (part, oldest) VALUES ($1, $2) \
                 ON CONFLICT (part) DO UPDATE SET oldest = excluded.oldest",
                args![table, part.oldest()],
            )
            .await?;
        }
        tx.commit().await?;
        Ok(Migrated { from, to })
    }
}

async fn current_version(tx: &mut Tx, table: &str) -> Result<i64, StoreError> {
    let sql = format!("SELECT COALESCE(MAX(version), 0) AS version FROM {table}");
    let row = tx.opt(AssertSqlSafe(sql), Vec::new()).await?;
    row.map_or(Ok(0), |row| row.get("version"))
}

async fn oldest_supported(tx: &mut Tx, table: &str) -> Result<Option<i64>, StoreError> {
    let row = tx.opt("SELECT oldest FROM schema_support WHERE part = $1", args![table]).await?;
    row.map(|row| row.get("oldest")).transpose()
}

type Checksums = HashMap<i64, String>;

async fn recorded_checksums(tx: &mut Tx, table: &str) -> Result<Checksums, StoreError> {
    let sql = "SELECT version, checksum FROM schema_checksums WHERE part = $1";
    let rows = tx.all(sql, args![table]).await?;
    rows.iter().map(|row| Ok((row.get("version")?, row.get("checksum")?))).collect()
}

/// Compares the files of this binary with the ones that the database has applied.
fn check_checksums(part: Part, recorded: &Checksums) -> Result<(), StoreError> {
    for (version, (name, sql)) in (1_i64..).zip(part.migrations()) {
        if recorded.get(&version).is_some_and(|applied| *applied != checksum(sql)) {
            return Err(StoreError::EditedMigration { version, name });
        }
    }
    Ok(())
}

/// Records the checksums of all applied files, also of those that an older binary applied without one.
async fn record_checksums(
    tx: &mut Tx,
    part: Part,
    applied: i64,
    recorded: &Checksums,
) -> Result<(), StoreError> {
    for (version, (_, sql)) in (1..=applied).zip(part.migrations()) {
        if !recorded.contains_key(&version) {
            tx.exec(
                "INSERT INTO schema_checksums (part, version, checksum) VALUES ($1, $2, $3)",
                args![part.table(), version, checksum(sql)],
            )
            .await?;
        }
    }
    Ok(())
}

/// The SHA-256 of a file's bytes in hex, comments and white space included.
fn checksum(sql: &str) -> String {
    hex::encode(Sha256::digest(sql))
}

fn for_dialect(sql: &str, dialect: Dialect) -> String {
    let ours = match dialect {
        Dialect::Sqlite => "sqlite",
        Dialect::Postgres => "postgres",
    };
    let mut keep = true;
    let mut text = String::with_capacity(sql.len());
    for line in sql.lines() {
        match line.trim().strip_prefix("-- only ") {
            Some(name) => keep = name == ours,
            None if line.trim() == "-- end" => keep = true,
            None if keep => {
                text.push_str(line);
                text.push('\n');
            }
            None => {}
        }
    }
    text
}

#[cfg(test)]
mod tests;
