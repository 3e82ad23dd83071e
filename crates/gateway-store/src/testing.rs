//! Helpers for tests, such as a fresh database for each test.

use std::fmt::Write as _;
use std::str::FromStr;

use gateway_core::ids::OrgId;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use crate::db::Dialect;
use crate::row::args;
use crate::{Db, StoreError, migrate};

/// Creates an empty database on the server and returns its URL.
pub async fn create_postgres_database(server_url: &str, name: &str) -> Result<String, StoreError> {
    on_server(server_url, format!("CREATE DATABASE \"{name}\"")).await?;
    Ok(PgConnectOptions::from_str(server_url)?.database(name).to_url_lossy().to_string())
}

/// Copies a database to which nobody is connected, and returns the URL of the copy.
pub async fn copy_postgres_database(server_url: &str, from: &str, to: &str) -> Result<String, StoreError> {
    on_server(server_url, format!("CREATE DATABASE \"{to}\" TEMPLATE \"{from}\"")).await?;
    Ok(PgConnectOptions::from_str(server_url)?.database(to).to_url_lossy().to_string())
}

/// Drops a database and ends the connections to it.
pub async fn drop_postgres_database(server_url: &str, name: &str) -> Result<(), StoreError> {
    on_server(server_url, format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)")).await
}

async fn on_server(server_url: &str, sql: String) -> Result<(), StoreError> {
    let mut connection = PgConnectOptions::from_str(server_url)?.connect().await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
    connection.close().await?;
    Ok(())
}

/// Loads a dump made by `pg_dump` into an empty database.
pub async fn load_postgres_dump(url: &str, dump: String) -> Result<(), StoreError> {
    let mut connection = PgConnectOptions::from_str(url)?.connect().await?;
    sqlx::raw_sql(AssertSqlSafe(dump)).execute(&mut connection).await?;
    connection.close().await?;
    Ok(())
}

/// The schema version of a database.
pub async fn schema_version(db: &Db) -> Result<i64, StoreError> {
    let row = db.opt("SELECT MAX(version) AS version FROM schema_versions", Vec::new()).await?;
    row.map_or(Ok(0), |row| row.get::<Option<i64>>("version").map(Option::unwrap_or_default))
}

/// The tables with rows of the organization, and those with rows that belong to no log row or dimension any more.
pub async fn traces_of(db: &Db, org: OrgId) -> Result<Vec<String>, StoreError> {
    let columns = match db.dialect() {
        Dialect::Sqlite => {
            "SELECT m.name AS name FROM sqlite_master m, pragma_table_info(m.name) c \
             WHERE m.type = 'table' AND c.name = 'org_id'"
        }
        Dialect::Postgres => {
            "SELECT CAST(table_name AS TEXT) AS name FROM information_schema.columns \
             WHERE column_name = 'org_id' AND table_schema = 'public'"
        }
    };
    let mut queries = Vec::new();
    for row in db.all(columns, Vec::new()).await? {
        let table: String = row.get("name")?;
        queries.push((format!("SELECT COUNT(*) AS n FROM {table} WHERE org_id = $1"), table));
    }
    let key = if db.dialect() == Dialect::Sqlite { "rowid" } else { "id" };
    for (table, column, of) in [
        ("log_bodies", "id", "log_rows"),
        ("log_words", key, "log_rows"),
        ("log_unindexed", "id", "log_rows"),
        ("usage_hours", "dim_id", "usage_dims"),
        ("usage_user_hours", "dim_id", "usage_dims"),
        ("usage_days", "dim_id", "usage_dims"),
        ("usage_closed", "dim_id", "usage_dims"),
    ] {
        let sql = format!(
            "SELECT COUNT(*) AS n FROM {table} WHERE $1 <> '' AND {column} NOT IN (SELECT id FROM {of})"
        );
        queries.push((sql, table.to_owned()));
    }
    let blocks = "SELECT COUNT(*) AS n FROM log_body_blocks WHERE $1 <> '' AND id NOT IN \
                  (SELECT body_block FROM log_rows WHERE body_block IS NOT NULL)";
    queries.push((blocks.to_owned(), "log_body_blocks".to_owned()));
    let parts = "SELECT COUNT(*) AS n FROM log_word_parts WHERE $1 <> '' AND id / 256 NOT IN (SELECT id FROM log_word_runs)";
    queries.push((parts.to_owned(), "log_word_parts".to_owned()));
    let has_logs = queries.iter().any(|(_, table)| table == "log_sessions");
    let mut found = Vec::new();
    for (sql, table) in queries {
        let is_orphan_check = sql.contains("NOT IN");
        if is_orphan_check && !has_logs {
            continue;
        }
        let count = db.opt(AssertSqlSafe(sql), args![org]).await?;
        if count.map_or(Ok(0), |row| row.get::<i64>("n"))? > 0 {
            found.push(table);
        }
    }
    Ok(found)
}

/// The number of rows in a table, with an optional condition: `table WHERE …`.
pub async fn count(db: &Db, rows: &str) -> Result<i64, StoreError> {
    let row = db.opt(AssertSqlSafe(format!("SELECT COUNT(*) AS n FROM {rows}")), Vec::new()).await?;
    row.map_or(Ok(0), |row| row.get("n"))
}

/// Runs a statement; returns the number of changed rows.
pub async fn execute(db: &Db, sql: &str) -> Result<u64, StoreError> {
    db.exec(AssertSqlSafe(sql.to_owned()), Vec::new()).await
}

/// What a later release does to the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FutureMigration {
    /// Adds a table, and columns to tables that every request uses.
    Additive,
    /// Removes something that this release needs.
    Breaking,
}

/// Migrates the database like a later release; returns the new schema version.
pub async fn apply_future_migration(db: &Db, what: FutureMigration) -> Result<i64, StoreError> {
    let before = schema_version(db).await?;
    let version = before + 1;
    let mut tx = db.begin().await?;
    if tx.dialect() == Dialect::Postgres {
        tx.exec("SELECT pg_advisory_xact_lock($1)", args![migrate::LOCK]).await?;
    }
    if what == FutureMigration::Additive {
        let mut sql = String::from("CREATE TABLE later_things (id TEXT PRIMARY KEY);");
        for table in ["api_keys", "orgs", "jobs", "deliveries"] {
            let _ = write!(sql, "ALTER TABLE {table} ADD COLUMN later TEXT;");
        }
        if tx.dialect() == Dialect::Postgres {
            sql.push_str("ALTER TABLE log_rows ADD COLUMN later TEXT;");
        }
        tx.script(sql).await?;
    }
    tx.exec(
        "INSERT INTO schema_versions (version, name, applied_at) VALUES ($1, $2, $3)",
        args![version, "from the future", 0_i64],
    )
    .await?;
    let oldest = if what == FutureMigration::Additive { before } else { version };
    tx.exec("UPDATE schema_support SET oldest = $1 WHERE part = 'schema_versions'", args![oldest]).await?;
    tx.commit().await?;
    Ok(version)
}
