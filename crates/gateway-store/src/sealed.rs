//! All values that are encrypted with the master key, for a change of the key. They are read in pages and replaced one by
//! one, each only if it is still what was read: a change at the same time wins, and an interrupted run is continued by
//! the next one.

use sqlx::AssertSqlSafe;

use crate::faults::{KillPoint, kill_point};
use crate::migrate::Part;
use crate::row::args;
use crate::{Db, StoreError};

/// A column with encrypted values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedColumn {
    pub part: Part,
    pub table: &'static str,
    /// The organization of a row, or the name of the installation.
    org: &'static str,
    /// Identifies a row within its organization.
    key: &'static str,
    pub column: &'static str,
}

const fn column(part: Part, table: &'static str, key: &'static str, column: &'static str) -> SealedColumn {
    SealedColumn { part, table, org: "org_id", key, column }
}

pub const SEALED_COLUMNS: [SealedColumn; 10] = [
    column(Part::State, "provider_credentials", "name", "api_key"),
    column(Part::State, "provider_credentials", "name", "api_keys"),
    column(Part::State, "provider_credentials", "name", "headers"),
    column(Part::State, "mcp_servers", "name", "secrets"),
    column(Part::State, "mcp_connections", "id", "headers"),
    column(Part::State, "webhooks", "id", "secret"),
    column(Part::State, "webhooks", "id", "previous_secret"),
    SealedColumn { part: Part::State, table: "audit_keys", org: "'system'", key: "id", column: "sealed" },
    column(Part::Logs, "exports", "id", "headers"),
    column(Part::Logs, "exports", "id", "secret"),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedValue {
    pub org: String,
    /// The name or id of the row.
    pub row: String,
    pub value: String,
}

/// Up to `limit` values after the given one, in a fixed order.
pub async fn list_after(
    db: &Db,
    column: SealedColumn,
    after: Option<&SealedValue>,
    limit: i64,
) -> Result<Vec<SealedValue>, StoreError> {
    let SealedColumn { table, org, key, column, .. } = column;
    let sql = format!(
        "SELECT {org} AS org_id, {key} AS row_key, {column} AS value FROM {table} WHERE {column} IS NOT NULL \
         AND ({org} > $1 OR ({org} = $1 AND {key} > $2)) ORDER BY 1, {key} LIMIT $3"
    );
    let (org, row) = after.map_or_else(Default::default, |last| (last.org.clone(), last.row.clone()));
    let rows = db.all(AssertSqlSafe(sql), args![org, row, limit]).await?;
    rows.iter()
        .map(|row| {
            Ok(SealedValue { org: row.get("org_id")?, row: row.get("row_key")?, value: row.get("value")? })
        })
        .collect()
}

/// Replaces a value. False if it was changed since it was read.
pub async fn replace(
    db: &Db,
    column: SealedColumn,
    old: &SealedValue,
    new: String,
) -> Result<bool, StoreError> {
    let SealedColumn { table, org, key, column, .. } = column;
    let sql = format!("UPDATE {table} SET {column} = $1 WHERE {org} = $2 AND {key} = $3 AND {column} = $4");
    let args = args![new, old.org.clone(), old.row.clone(), old.value.clone()];
    let replaced = db.exec(AssertSqlSafe(sql), args).await? == 1;
    kill_point(KillPoint::SecretReplaced);
    Ok(replaced)
}
