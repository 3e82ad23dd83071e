//! What an MCP server offers: its tools with findings, the approval of changed ones, and a test of the server.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use axum::extract::State;
use gateway_core::mcp::{Finding, raw};
use gateway_store::{mcp_approved_tools, mcp_servers as store};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::ServerName;
use super::view::ServerView;
use crate::api::audited::Audited;
use crate::api::caller::{Admin, AppState, InOrg, Viewer};
use crate::api::extract::{Body, FromPath, PathParam};
use crate::api::response::Json;
use crate::auth::Identity;
use crate::cluster::invalidation::{self, Invalidation};
use crate::mcp::{CatalogueRequest, Failure, Lookup, Tool, caller_of};
use crate::problem::{ApiResult, Problem};

/// The name of a tool, as its server lists it.
pub struct ToolName(String);

impl FromPath for ToolName {
    const NAME: &'static str = "tool";

    fn parse(text: &str) -> Result<Self, String> {
        let is_name = !text.contains('\0') && text.len() <= 256;
        is_name
            .then(|| Self(text.into()))
            .ok_or_else(|| "must be at most 256 bytes without NUL characters".into())
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }
}

/// How a server is asked on behalf of the caller.
fn catalogue_request(identity: &Identity, name: &str) -> ApiResult<CatalogueRequest> {
    let server = identity.org.mcp_servers.find(name).ok_or_else(Problem::not_found)?;
    Ok(CatalogueRequest {
        org: identity.org.id,
        memory: std::sync::Arc::clone(&identity.org.memory),
        server: std::sync::Arc::clone(server),
        caller: caller_of(identity, None),
    })
}

#[derive(Serialize, JsonSchema)]
pub struct McpServerTest {
    ok: bool,
    /// The revision that it speaks.
    protocol_version: Option<String>,
    tools: Option<usize>,
    latency_ms: u64,
    error: Option<String>,
}

pub async fn test(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(ServerName(name)): PathParam<ServerName>,
) -> ApiResult<Json<McpServerTest>> {
    let request = catalogue_request(&caller, &name)?;
    let began = Instant::now();
    let Lookup { catalogue, failure, .. } = app.mcp.refresh(&request).await;
    let latency_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let is_ok = failure.is_none() && catalogue.is_some();
    app.write(app.entry().named(&name).created(&json!({"ok": is_ok}))).await?;
    let catalogue = catalogue.filter(|_| is_ok);
    Ok(Json(McpServerTest {
        ok: is_ok,
        protocol_version: catalogue.as_ref().map(|catalogue| catalogue.protocol_version().to_owned()),
        tools: catalogue.as_ref().map(|catalogue| catalogue.tools.len()),
        latency_ms,
        error: failure
            .map(|failure| failure.message)
            .or((!is_ok).then(|| "the server does not answer".into())),
    }))
}

pub async fn refresh(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(ServerName(name)): PathParam<ServerName>,
) -> ApiResult<Json<ServerView>> {
    let request = catalogue_request(&caller, &name)?;
    app.mcp.refresh(&request).await;
    let found = store::find(&app.services.db, caller.org.id, &name).await?.ok_or_else(Problem::not_found)?;
    let view = ServerView::of(&app, &caller, found);
    app.write(app.entry().named(&name).created(view.status())).await?;
    Ok(Json(view))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "McpTool")]
struct ToolView {
    name: String,
    description: Option<String>,
    input_schema: Value,
    /// Of the whole definition.
    hash: String,
    /// It is as it was approved; null if the server does not pin its tools.
    pinned: Option<bool>,
    /// Callers are offered it, if their scopes allow it.
    offered: bool,
    findings: Vec<Finding>,
    /// What has changed since it was approved; null if nothing has, or if the server does not pin its tools.
    changed: Option<ToolChange>,
}

/// Whole definitions, to be compared.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "McpToolChange")]
struct ToolChange {
    /// Null if the tool is new, or if its definition was too large to be kept.
    #[schemars(with = "Option<Value>")]
    approved: Option<Box<RawValue>>,
    #[schemars(with = "Value")]
    current: Box<RawValue>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "McpToolList")]
pub struct ToolList {
    tools: Vec<ToolView>,
}

pub async fn list_tools(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PathParam(ServerName(name)): PathParam<ServerName>,
) -> ApiResult<Json<ToolList>> {
    let request = catalogue_request(&caller, &name)?;
    let lookup = app.mcp.look_up(&request).await;
    let server = &request.server;
    let catalogue = lookup.catalogue.ok_or_else(|| unread(lookup.failure))?;
    let is_changed = |tool: &Tool| !server.approves(&tool.name, &tool.hash);
    let mut definitions = if catalogue.tools.iter().any(is_changed) {
        mcp_approved_tools::find(&app.services.db, caller.org.id, &name).await?
    } else {
        BTreeMap::new()
    };
    let tools = catalogue.tools.iter().map(|tool| {
        let approved = !is_changed(tool);
        let changed = (!approved)
            .then(|| ToolChange { approved: definitions.remove(&tool.name), current: raw(&tool.members) });
        ToolView {
            name: tool.name.clone(),
            description: tool.members.text("description"),
            input_schema: tool.members.value("inputSchema").unwrap_or_default(),
            hash: tool.hash.clone(),
            pinned: server.definition.pin.then_some(approved),
            offered: approved && server.filter.admits(&tool.name, tool.is_read_only),
            findings: tool.findings.clone(),
            changed,
        }
    });
    Ok(Json(ToolList { tools: tools.collect() }))
}

fn unread(failure: Option<Failure>) -> Problem {
    let why = failure.map_or_else(|| "it does not answer".to_owned(), |failure| failure.message);
    Problem::new(StatusCode::BAD_GATEWAY, "provider_error", format!("the MCP server cannot be read: {why}"))
}

#[derive(Deserialize, JsonSchema)]
pub struct Approval {
    /// The hash of the definition that was looked at.
    hash: String,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "McpToolApproval")]
pub struct Approved {
    tool: String,
    hash: String,
}

pub async fn approve(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(ServerName(name)): PathParam<ServerName>,
    PathParam(ToolName(tool)): PathParam<ToolName>,
    Body(Approval { hash }): Body<Approval>,
) -> ApiResult<Json<Approved>> {
    let request = catalogue_request(&caller, &name)?;
    let lookup = app.mcp.look_up(&request).await;
    let catalogue = lookup.catalogue.ok_or_else(|| unread(lookup.failure))?;
    let current = catalogue.tools.iter().find(|known| known.name == tool).ok_or_else(Problem::not_found)?;
    if current.hash != hash {
        let why = "the tool has changed since; look at its definition and approve the new hash";
        return Err(Problem::conflict(why));
    }
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    let mut server = store::find_for_update(&mut tx, org, &name).await?.ok_or_else(Problem::not_found)?;
    if !server.definition.pin {
        return Err(Problem::conflict("the server does not pin its tools; set `pin` first"));
    }
    let Some(pins) = server.pins.as_mut() else {
        let why = "the tools of the server were not pinned yet: every tool is offered until they are read; refresh the \
                   server first";
        return Err(Problem::conflict(why));
    };
    let before = pins.insert(tool.clone(), hash.clone());
    store::update(&mut tx, org, &server).await?;
    // Only tools that the server lists are kept, so that there are not more than a server may list.
    let mut definitions = mcp_approved_tools::find_in(&mut tx, org, &name).await?;
    let listed: HashSet<&str> = catalogue.tools.iter().map(|tool| tool.name.as_str()).collect();
    definitions.retain(|approved, _| listed.contains(approved.as_str()));
    match current.definition() {
        Some(definition) => definitions.insert(tool.clone(), definition),
        None => definitions.remove(&tool),
    };
    mcp_approved_tools::replace(&mut tx, org, &name, &definitions).await?;
    let change = (json!({"tool": tool, "hash": before}), json!({"tool": tool, "hash": hash}));
    tx.record(app.entry().named(&name).changed(&change.0, &change.1));
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json(Approved { tool, hash }))
}
