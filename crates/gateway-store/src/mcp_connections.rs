//! Credentials that single callers stored for an MCP server. Callers encrypt the headers before they pass them in.

use gateway_core::ids::{KeyId, OrgId, UserId};
use gateway_core::time::Timestamp;

use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct McpConnection in "mcp_connections" {
        pub id: String [key],
        pub server: String [once],
        pub user_id: Option<UserId> [once],
        pub key_id: Option<KeyId> [once],
        /// Who it belongs to.
        pub caller: String [once],
        /// Encrypted JSON object.
        pub headers: String,
        pub created_at: Timestamp [once],
        pub updated_at: Timestamp,
    }
}

pub async fn insert(tx: &mut Tx, org: OrgId, connection: &McpConnection) -> Result<(), StoreError> {
    table::insert(tx, connection, vec![("org_id", org.into())]).await
}

pub async fn update(tx: &mut Tx, org: OrgId, connection: &McpConnection) -> Result<(), StoreError> {
    table::update(tx, connection, vec![("org_id", org.into())], "").await.map(|_| ())
}

pub async fn find(
    db: &Db,
    org: OrgId,
    server: &str,
    caller: &str,
) -> Result<Option<McpConnection>, StoreError> {
    let sql = McpConnection::select("org_id = $1 AND server = $2 AND caller = $3");
    let row = db.opt(sql, args![org, server, caller]).await?;
    table::read_opt(row.as_ref())
}

pub async fn find_for_update(
    tx: &mut Tx,
    org: OrgId,
    server: &str,
    caller: &str,
) -> Result<Option<McpConnection>, StoreError> {
    let sql = McpConnection::select_for_update("org_id = $1 AND server = $2 AND caller = $3");
    let row = tx.opt(sql, args![org, server, caller]).await?;
    table::read_opt(row.as_ref())
}

/// The number of callers that stored something for a server.
pub async fn count(tx: &mut Tx, org: OrgId, server: &str) -> Result<i64, StoreError> {
    let sql = "SELECT COUNT(*) AS n FROM mcp_connections WHERE org_id = $1 AND server = $2";
    let row = tx.opt(sql, args![org, server]).await?;
    row.map_or(Ok(0), |row| row.get("n"))
}

/// Deletes what revoked keys and former members stored for a server. Returns their number.
pub async fn delete_ended(tx: &mut Tx, org: OrgId, server: &str) -> Result<u64, StoreError> {
    let sql = "DELETE FROM mcp_connections WHERE org_id = $1 AND server = $2 AND (\
               key_id IN (SELECT id FROM api_keys WHERE org_id = $1 AND revoked_at IS NOT NULL) \
               OR user_id NOT IN (SELECT user_id FROM memberships WHERE org_id = $1))";
    tx.exec(sql, args![org, server]).await
}

pub async fn delete(tx: &mut Tx, org: OrgId, server: &str, caller: &str) -> Result<bool, StoreError> {
    let deleted = tx
        .exec(
            "DELETE FROM mcp_connections WHERE org_id = $1 AND server = $2 AND caller = $3",
            args![org, server, caller],
        )
        .await?;
    Ok(deleted == 1)
}

/// Deletes what a key stored, for itself and for its users.
pub async fn delete_of_key(tx: &mut Tx, org: OrgId, key: KeyId) -> Result<u64, StoreError> {
    tx.exec("DELETE FROM mcp_connections WHERE org_id = $1 AND key_id = $2", args![org, key]).await
}

/// Deletes what a person stored.
pub async fn delete_of_user(tx: &mut Tx, org: OrgId, user: UserId) -> Result<u64, StoreError> {
    tx.exec("DELETE FROM mcp_connections WHERE org_id = $1 AND user_id = $2", args![org, user]).await
}

/// Deletes what all callers stored for a server whose origin has changed.
pub async fn delete_all(tx: &mut Tx, org: OrgId, server: &str) -> Result<u64, StoreError> {
    tx.exec("DELETE FROM mcp_connections WHERE org_id = $1 AND server = $2", args![org, server]).await
}
