//! Forward-only migrations, embedded in the binary and run under a lock, so that several nodes may start at once.
//!
//! A release first adds and takes away only in a later one, so that nodes of the version before go on, and may even start
//! again, while nodes are replaced one by one. The schema says how old a version it still serves (`Part::oldest`).
//!
//! One set of files serves both databases. A statement that only one of them understands stands between lines
//! `-- only sqlite` or `-- only postgres` and `-- end`.

use sqlx::AssertSqlSafe;

use crate::db::{Db, Dialect, Tx};
use crate::error::StoreError;
use crate::row::args;

/// State and log rows have schemas of their own: on SQLite they are two files, on PostgreSQL two sets of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    State,
    Logs,
}

/// In order; a released file is never edited.
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
];
const LOGS: &[(&str, &str)] = &[
    ("logs", include_str!("../migrations/logs/0001_logs.sql")),
    ("prompts", include_str!("../migrations/logs/0002_prompts.sql")),
    ("exports", include_str!("../migrations/logs/0003_exports.sql")),
    ("outside", include_str!("../migrations/logs/0004_outside.sql")),
];

impl Part {
    fn migrations(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Part::State => STATE,
            Part::Logs => LOGS,
        }
    }

    /// Where the versions of this part are noted.
    fn table(self) -> &'static str {
        match self {
            Part::State => "schema_versions",
            Part::Logs => "log_schema_versions",
        }
    }

    /// The version that this binary brings the part to.
    pub fn version(self) -> i64 {
        i64::try_from(self.migrations().len()).unwrap_or(i64::MAX)
    }

    /// A binary that knows this version or a later one can work with what this one makes of the schema. Raised with a
    /// migration that takes away or changes what older binaries use, to the version of the first that does without it.
    fn oldest(self) -> i64 {
        match self {
            Part::State => 11,
            Part::Logs => 3,
        }
    }
}

/// A key of our own for PostgreSQL's advisory locks.
pub(crate) const LOCK: i64 = 0x6761_7465_7761_7901;
/// A change of a table waits no longer for those who use it, and so holds up no longer those who come after.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '10s'";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    pub from: i64,
    pub to: i64,
}

impl Db {
    /// Brings the schema up to this binary's version. `now` is the time written beside each step.
    pub async fn migrate(
        &self,
        part: Part,
        now: gateway_core::time::Timestamp,
    ) -> Result<Migrated, StoreError> {
        self.migrate_to(part, part.version(), now).await
    }

    /// Stops at an older version: for tests of upgrades.
    pub async fn migrate_to(
        &self,
        part: Part,
        version: i64,
        now: gateway_core::time::Timestamp,
    ) -> Result<Migrated, StoreError> {
        let mut tx = self.begin().await?;
        if tx.dialect() == Dialect::Postgres {
            tx.exec("SELECT pg_advisory_xact_lock($1)", args![LOCK]).await?;
            tx.script(LOCK_TIMEOUT.into()).await?;
        }
        let table = part.table();
        tx.script(format!(
            "CREATE TABLE IF NOT EXISTS {table} \
             (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL); \
             CREATE TABLE IF NOT EXISTS schema_support (part TEXT PRIMARY KEY, oldest BIGINT NOT NULL)"
        ))
        .await?;
        let from = current_version(&mut tx, table).await?;
        if from > part.version() {
            let serves_us =
                oldest_served(&mut tx, table).await?.is_some_and(|oldest| oldest <= part.version());
            return if serves_us {
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

/// How old a version may be that works with this schema, as the one says that made it.
async fn oldest_served(tx: &mut Tx, table: &str) -> Result<Option<i64>, StoreError> {
    let row = tx.opt("SELECT oldest FROM schema_support WHERE part = $1", args![table]).await?;
    row.map(|row| row.get("oldest")).transpose()
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
mod tests {
    use super::*;

    #[test]
    fn a_section_for_the_other_database_is_left_out() {
        let sql = "A;\n-- only postgres\nB;\n-- end\n-- only sqlite\nC;\n-- end\nD;";
        assert_eq!(for_dialect(sql, Dialect::Sqlite), "A;\nC;\nD;\n");
        assert_eq!(for_dialect(sql, Dialect::Postgres), "A;\nB;\nD;\n");
    }
}
