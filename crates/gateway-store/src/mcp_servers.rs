//! MCP servers of organizations. Callers encrypt the secrets before they pass them in.

use std::collections::BTreeMap;

use gateway_core::ids::OrgId;
use gateway_core::mcp::Definition;
use gateway_core::time::Timestamp;

use crate::page::{Page, Paged};
use crate::row::args;
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct McpServer in "mcp_servers" {
        pub name: String [key],
        pub definition: Definition [json],
        /// Encrypted JSON object.
        pub secrets: Option<String>,
        /// The hashes of the approved tools by name; `None` until the tools were read for the first time.
        pub pins: Option<BTreeMap<String, String>> [optional json],
        pub created_at: Timestamp [once],
        pub updated_at: Timestamp,
    }
}

pub async fn insert(tx: &mut Tx, org: OrgId, server: &McpServer) -> Result<(), StoreError> {
    table::insert(tx, server, vec![("org_id", org.into())]).await
}

pub async fn update(tx: &mut Tx, org: OrgId, server: &McpServer) -> Result<(), StoreError> {
    table::update(tx, server, vec![("org_id", org.into())], "").await.map(|_| ())
}

/// All servers of an organization, ordered by name.
pub async fn list(db: &Db, org: OrgId) -> Result<Vec<McpServer>, StoreError> {
    table::read_all(&db.all(McpServer::select("org_id = $1 ORDER BY name"), args![org]).await?)
}

/// Newest first.
pub async fn list_page(db: &Db, org: OrgId, page: &Page) -> Result<Paged<McpServer>, StoreError> {
    let (time, name) = page.time_cursor();
    let sql = McpServer::select(
        "org_id = $1 AND ($2 IS NULL OR created_at < $2 OR (created_at = $2 AND name < $3)) \
         ORDER BY created_at DESC, name DESC LIMIT $4",
    );
    let rows = db.all(sql, args![org, time, name, page.fetch()]).await?;
    let servers = table::read_all::<McpServer>(&rows)?;
    Ok(page.cut(servers, |server| Page::encode_time_cursor(server.created_at, &server.name)))
}

pub async fn find(db: &Db, org: OrgId, name: &str) -> Result<Option<McpServer>, StoreError> {
    let row = db.opt(McpServer::select("org_id = $1 AND name = $2"), args![org, name]).await?;
    table::read_opt(row.as_ref())
}

/// Locks the server until the transaction ends.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, name: &str) -> Result<Option<McpServer>, StoreError> {
    let row = tx.opt(McpServer::select_for_update("org_id = $1 AND name = $2"), args![org, name]).await?;
    table::read_opt(row.as_ref())
}

pub async fn count(tx: &mut Tx, org: OrgId) -> Result<u64, StoreError> {
    let row = tx.opt("SELECT COUNT(*) AS servers FROM mcp_servers WHERE org_id = $1", args![org]).await?;
    let servers: i64 = row.map_or(Ok(0), |row| row.get("servers"))?;
    Ok(servers.unsigned_abs())
}

pub async fn delete(tx: &mut Tx, org: OrgId, name: &str) -> Result<bool, StoreError> {
    let deleted =
        tx.exec("DELETE FROM mcp_servers WHERE org_id = $1 AND name = $2", args![org, name]).await?;
    Ok(deleted == 1)
}
