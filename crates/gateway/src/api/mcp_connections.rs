//! Credentials that a caller stores for itself at an MCP server that asks each caller for its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use gateway_core::ids::{KeyId, OrgId};
use gateway_core::time::Timestamp;
use gateway_store::mcp_connections::{self as store, McpConnection};
use gateway_store::{Tx, orgs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::audited::Audited;
use super::caller::{AppState, McpUser};
use super::destinations::check_headers;
use super::extract::{Body, PathParam, text_path_param};
use super::openapi::Area;
use super::response::{Deleted, Json};
use crate::auth::{Identity, Principal};
use crate::mcp::{caller_by_headers, seal_headers};
use crate::mcp_servers::Server;
use crate::problem::{ApiResult, Problem};

/// Callers that may store a credential for one server.
const MAX_CONNECTIONS: i64 = 10_000;

pub fn area() -> Area {
    Area::new("mcp-connections", "The caller's own credentials at MCP servers.")
        .get("/mcp-connections/{server}", get, "Get the state of the caller's own credential at a server")
        .put("/mcp-connections/{server}", put, "Store the caller's own credential for a server")
        .delete("/mcp-connections/{server}", delete, "Delete the caller's own credential at a server")
}

text_path_param!(
    /// The name of a server.
    ServerName = "server"
);

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "McpConnectionState")]
enum ConnectionState {
    Active,
    NeedsAuth,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "McpConnection")]
struct ConnectionView {
    server: String,
    state: ConnectionState,
    /// The headers that the server asks each caller for.
    names: Vec<String>,
    updated_at: Option<Timestamp>,
}

#[derive(Deserialize, JsonSchema)]
struct NewConnection {
    /// Write-only: a value for each header that the server asks for.
    headers: BTreeMap<String, String>,
}

/// A server that the caller may use, and that asks each caller for a credential.
fn server_of(identity: &Identity, name: &str) -> ApiResult<Arc<Server>> {
    let is_visible = match &identity.principal {
        Principal::Key(key) => key.scopes.allow_server(name),
        Principal::User { .. } | Principal::Org => true,
    };
    let server = identity.org.mcp_servers.find(name).filter(|server| is_visible && server.is_per_user());
    server.cloned().ok_or_else(Problem::not_found)
}

/// Who the credential belongs to, as the MCP endpoints see it.
fn owner_of(caller: &McpUser) -> ApiResult<String> {
    caller_by_headers(&caller.identity, &caller.headers)
}

/// Makes room for one more credential at the server.
async fn check_count(tx: &mut Tx, org: OrgId, server: &str) -> ApiResult<()> {
    orgs::lock_for_update(tx, org).await?;
    store::delete_ended(tx, org, server).await?;
    if store::count(tx, org, server).await? < MAX_CONNECTIONS {
        return Ok(());
    }
    Err(Problem::conflict(format!(
        "the MCP server '{server}' already has the maximum of {MAX_CONNECTIONS} stored credentials; delete those that \
         are not used with DELETE /api/v1/mcp-connections/{server}, or revoke the keys that stored them"
    )))
}

fn view(server: &Server, connection: Option<&McpConnection>) -> ConnectionView {
    ConnectionView {
        server: server.name.to_string(),
        state: if connection.is_some() { ConnectionState::Active } else { ConnectionState::NeedsAuth },
        names: server.user_header_names().to_vec(),
        updated_at: connection.map(|connection| connection.updated_at),
    }
}

async fn get(
    State(app): AppState,
    caller: McpUser,
    PathParam(ServerName(name)): PathParam<ServerName>,
) -> ApiResult<Json<ConnectionView>> {
    let server = server_of(&caller.identity, &name)?;
    let owner = owner_of(&caller)?;
    let found = store::find(&app.services.db, caller.identity.org.id, &name, &owner).await?;
    Ok(Json(view(&server, found.as_ref())))
}

async fn put(
    app: Audited,
    caller: McpUser,
    PathParam(ServerName(name)): PathParam<ServerName>,
    Body(request): Body<NewConnection>,
) -> ApiResult<Json<ConnectionView>> {
    let server = server_of(&caller.identity, &name)?;
    let lower = |name: &String| name.to_ascii_lowercase();
    let wanted: BTreeSet<String> = server.user_header_names().iter().map(lower).collect();
    let given: BTreeSet<String> = request.headers.keys().map(lower).collect();
    if wanted != given {
        let names = server.user_header_names().join(", ");
        return Err(Problem::field("headers", format!("must have exactly these headers: {names}")));
    }
    check_headers(&request.headers).map_err(|why| Problem::field("headers", why))?;
    let (org, now) = (caller.identity.org.id, app.services.clock.now());
    let owner = owner_of(&caller)?;
    let mut tx = app.services.db.begin().await?;
    let before = store::find_for_update(&mut tx, org, &name, &owner).await?;
    let id = before
        .as_ref()
        .map_or_else(|| app.services.ids.new_id::<Uuid>().to_string(), |stored| stored.id.clone());
    let headers =
        seal_headers(&app.services.vault, (org, &id), &request.headers).map_err(Problem::internal)?;
    let (user_id, key_id): (_, Option<KeyId>) = match &caller.identity.principal {
        Principal::User { id, .. } => (Some(*id), None),
        Principal::Key(key) => (None, Some(key.id)),
        Principal::Org => (None, None),
    };
    let created_at = before.as_ref().map_or(now, |stored| stored.created_at);
    let (server_name, is_new) = (name.clone(), before.is_none());
    let connection = McpConnection {
        id,
        server: server_name,
        user_id,
        key_id,
        caller: owner,
        headers,
        created_at,
        updated_at: now,
    };
    if is_new {
        check_count(&mut tx, org, &name).await?;
        store::insert(&mut tx, org, &connection).await?;
    } else {
        store::update(&mut tx, org, &connection).await?;
    }
    tx.record(app.entry().named(&name).secret_if(true, "headers"));
    tx.commit().await?;
    app.mcp.forget_caller(org, &server, &connection.caller);
    Ok(Json(view(&server, Some(&connection))))
}

async fn delete(
    app: Audited,
    caller: McpUser,
    PathParam(ServerName(name)): PathParam<ServerName>,
) -> ApiResult<Json<Deleted>> {
    let server = server_of(&caller.identity, &name)?;
    let owner = owner_of(&caller)?;
    let mut tx = app.services.db.begin().await?;
    if !store::delete(&mut tx, caller.identity.org.id, &name, &owner).await? {
        return Err(Problem::not_found());
    }
    tx.record(app.entry().named(&name));
    tx.commit().await?;
    app.mcp.forget_caller(caller.identity.org.id, &server, &owner);
    Ok(Deleted::yes())
}
