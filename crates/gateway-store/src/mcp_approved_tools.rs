//! The definitions of tools as they were approved, by server.

use std::collections::BTreeMap;

use gateway_core::ids::OrgId;
use serde_json::value::RawValue;

use crate::row::args;
use crate::{Db, StoreError, Tx};

/// Definitions by the name of the tool.
pub type Definitions = BTreeMap<String, Box<RawValue>>;

fn read(row: Option<&crate::row::Row>) -> Result<Definitions, StoreError> {
    let Some(row) = row else { return Ok(Definitions::new()) };
    let text: String = row.get("tools")?;
    serde_json::from_str(&text)
        .map_err(|error| StoreError::Other(format!("mcp_approved_tools.tools: {error}")))
}

/// Empty if nothing is stored for the server.
pub async fn find(db: &Db, org: OrgId, server: &str) -> Result<Definitions, StoreError> {
    let sql = "SELECT tools FROM mcp_approved_tools WHERE org_id = $1 AND server = $2";
    read(db.opt(sql, args![org, server]).await?.as_ref())
}

/// Like `find`, in a transaction that has locked the server.
pub async fn find_in(tx: &mut Tx, org: OrgId, server: &str) -> Result<Definitions, StoreError> {
    let sql = "SELECT tools FROM mcp_approved_tools WHERE org_id = $1 AND server = $2";
    read(tx.opt(sql, args![org, server]).await?.as_ref())
}

/// Replaces the definitions of a server.
pub async fn replace(tx: &mut Tx, org: OrgId, server: &str, tools: &Definitions) -> Result<(), StoreError> {
    let text = serde_json::to_string(tools).map_err(|error| StoreError::Other(error.to_string()))?;
    let sql = "INSERT INTO mcp_approved_tools (org_id, server, tools) VALUES ($1, $2, $3) \
               ON CONFLICT (org_id, server) DO UPDATE SET tools = excluded.tools";
    tx.exec(sql, args![org, server, text]).await.map(|_| ())
}
