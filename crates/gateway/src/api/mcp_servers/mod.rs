//! MCP servers of an organization. Secrets are encrypted before they are stored and never returned.

mod change;
mod tools;
mod view;

use std::collections::BTreeMap;

use axum::extract::State;
use gateway_core::mcp::{CallerIdentity, Definition, MAX_SERVERS, Transport, check_server_name};
use gateway_store::mcp_servers::{self as store, McpServer};
use gateway_store::{mcp_approved_tools, mcp_connections, orgs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audited::Audited;
use super::caller::{Admin, AppState, InOrg, Viewer};
use super::extract::{Body, FromPath, PathParam, QueryParams};
use super::openapi::Area;
use super::page::PageParams;
use super::response::{Created, Deleted, Json};
use crate::cluster::invalidation::{self, Invalidation};
use crate::mcp_servers::{Secrets, key_of};
use crate::problem::{ApiResult, Problem};
use change::{NewAuth, ServerChange};
use view::ServerView;

pub fn area() -> Area {
    Area::new("mcp-servers", "MCP servers of an organization, which callers reach through /mcp.")
        .get("/orgs/{orgId}/mcp-servers", list, "List the organization's MCP servers, without secrets")
        .post("/orgs/{orgId}/mcp-servers", create, "Create an MCP server")
        .get("/orgs/{orgId}/mcp-servers/{name}", get, "Get an MCP server with its state")
        .put(
            "/orgs/{orgId}/mcp-servers/{name}",
            update,
            "Update an MCP server; omitted fields stay unchanged, except that a change of the URL's origin drops secrets \
             that the request does not repeat",
        )
        .delete("/orgs/{orgId}/mcp-servers/{name}", delete, "Delete an MCP server and all connections to it")
        .post("/orgs/{orgId}/mcp-servers/{name}/test", tools::test, "Ask an MCP server what it offers, and say how that went")
        .post("/orgs/{orgId}/mcp-servers/{name}/refresh", tools::refresh, "Read the lists of an MCP server again")
        .get("/orgs/{orgId}/mcp-servers/{name}/tools", tools::list_tools, "List the tools of an MCP server with findings")
        .post(
            "/orgs/{orgId}/mcp-servers/{name}/tools/{tool}/approve",
            tools::approve,
            "Approve a new or changed tool of a server that pins its tools",
        )
}

/// The name of a server, as a path parameter.
pub(super) struct ServerName(pub String);

impl FromPath for ServerName {
    const NAME: &'static str = "name";

    fn parse(text: &str) -> Result<Self, String> {
        check_server_name(text).map(|()| Self(text.to_owned()))
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({"type": "string", "pattern": "^[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?$"})
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "McpServerList")]
struct ServerList {
    servers: Vec<ServerView>,
    next_cursor: Option<String>,
}

async fn list(
    State(app): AppState,
    caller: InOrg<Viewer>,
    QueryParams(params): QueryParams<PageParams>,
) -> ApiResult<Json<ServerList>> {
    let found = store::list_page(&app.services.db, caller.org.id, &params.page()?).await?;
    let next_cursor = super::page::encode_cursor(found.next.as_deref());
    let servers = found.rows.into_iter().map(|server| ServerView::of(&app, &caller, server)).collect();
    Ok(Json(ServerList { servers, next_cursor }))
}

async fn get(
    State(app): AppState,
    caller: InOrg<Viewer>,
    PathParam(ServerName(name)): PathParam<ServerName>,
) -> ApiResult<Json<ServerView>> {
    let found = store::find(&app.services.db, caller.org.id, &name).await?;
    Ok(Json(ServerView::of(&app, &caller, found.ok_or_else(Problem::not_found)?)))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "NewMcpServer")]
struct NewServer {
    /// 1 to 32 lowercase letters, digits or '-'; it begins the names of the server's tools.
    name: String,
    /// The endpoint, such as https://mcp.example.com/mcp.
    url: Option<String>,
    transport: Option<Transport>,
    auth: Option<NewAuth>,
    /// Write-only: further headers that are sent with every request.
    headers: Option<BTreeMap<String, String>>,
    /// `claims`: a signed token in `X-Gateway-Identity` tells the server who calls.
    identity: Option<CallerIdentity>,
    /// Names of headers of the caller that are sent on.
    forward_headers: Option<Vec<String>>,
    /// Patterns with `*` for the tools that are offered; empty for all.
    allow: Option<Vec<String>>,
    /// Patterns with `*` for tools that are never offered.
    deny: Option<Vec<String>>,
    /// Only tools that say that they change nothing (`annotations.readOnlyHint`).
    read_only: Option<bool>,
    /// A tool that is new or has changed is hidden until it is approved.
    pin: Option<bool>,
    /// Up to 600000. Default: 60000. Progress of a call begins it again.
    timeout_ms: Option<u64>,
    /// By tool, in USD for a call.
    prices: Option<BTreeMap<String, f64>>,
    /// What agents are told about the server, in place of its own text.
    instructions: Option<String>,
    enabled: Option<bool>,
}

impl NewServer {
    fn into_change(self) -> (String, ServerChange) {
        let Self { name, url, transport, auth, headers, identity, forward_headers, .. } = self;
        let Self { allow, deny, read_only, pin, timeout_ms, prices, instructions, enabled, .. } = self;
        let change = ServerChange {
            url,
            transport,
            auth,
            headers: Some(headers),
            identity,
            forward_headers,
            allow,
            deny,
            read_only,
            pin,
            timeout_ms,
            prices,
            instructions: Some(instructions),
            enabled,
        };
        (name, change)
    }
}

async fn create(
    app: Audited,
    caller: InOrg<Admin>,
    Body(request): Body<NewServer>,
) -> ApiResult<Created<ServerView>> {
    let (name, change) = request.into_change();
    check_server_name(&name).map_err(|why| Problem::field("name", why))?;
    if change.url.is_none() {
        return Err(Problem::field("url", "is required"));
    }
    let (org, now) = (caller.org.id, app.services.clock.now());
    let (mut definition, mut secrets) = (Definition::default(), Secrets::default());
    let named = change.secret_names();
    change.apply(&mut definition, &mut secrets)?;
    let sealed = secrets.seal(&app.services.vault, org, &name).map_err(Problem::internal)?;
    let server =
        McpServer { name, definition, secrets: sealed, pins: None, created_at: now, updated_at: now };
    let mut tx = app.services.db.begin().await?;
    orgs::lock_for_update(&mut tx, org).await?;
    if usize::try_from(store::count(&mut tx, org).await?).unwrap_or(usize::MAX) >= MAX_SERVERS {
        let why = format!("the organization already has the maximum of {MAX_SERVERS} MCP servers");
        return Err(Problem::conflict(why));
    }
    let duplicate = Problem::on_duplicate("an MCP server with this name already exists; update it with PUT");
    store::insert(&mut tx, org, &server).await.map_err(duplicate)?;
    let view = ServerView::of(&app, &caller, server);
    let entry = app.entry().target(&view.name, &view.name).created(&view.stored());
    tx.record(named.into_iter().fold(entry, |entry, (field, is_set)| entry.secret_if(is_set, field)));
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Created(view))
}

async fn update(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(ServerName(name)): PathParam<ServerName>,
    Body(change): Body<ServerChange>,
) -> ApiResult<Json<ServerView>> {
    let (org, vault) = (caller.org.id, &app.services.vault);
    // An invalid change is reported before a missing server.
    change.check()?;
    let mut tx = app.services.db.begin().await?;
    let mut server = store::find_for_update(&mut tx, org, &name).await?.ok_or_else(Problem::not_found)?;
    let before = ServerView::of(&app, &caller, server.clone());
    let mut secrets = Secrets::open(vault, org, &server).unwrap_or_default();
    let (named, was_pinned) = (change.secret_names(), server.definition.pin);
    let concerns_secrets = change.concerns_secrets();
    let moved = change.drop_foreign_secrets(&server.definition, &mut secrets);
    change.apply(&mut server.definition, &mut secrets)?;
    if moved.is_some() {
        mcp_connections::delete_all(&mut tx, org, &name).await?;
    }
    // Sealed text differs each time, so secrets that stay are not sealed again: the server would count as another one.
    if concerns_secrets {
        server.secrets = secrets.seal(vault, org, &name).map_err(Problem::internal)?;
    }
    // What the server has when pins are turned on is the new state to compare with. Where that is not known, the first
    // request that needs the tools reads them.
    if server.definition.pin && !was_pinned {
        let known = app.mcp.current_tools(org, &key_of(&server));
        let (pins, definitions) = known.map(|known| (known.pins, known.definitions)).unzip();
        server.pins = pins;
        mcp_approved_tools::replace(&mut tx, org, &name, &definitions.unwrap_or_default()).await?;
    }
    server.updated_at = app.services.clock.now();
    store::update(&mut tx, org, &server).await?;
    let mut view = ServerView::of(&app, &caller, server);
    let entry = app.entry().named(&name).changed(&before.stored(), &view.stored());
    tx.record(named.into_iter().fold(entry, |entry, (field, is_set)| entry.secret_if(is_set, field)));
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    view.secrets_dropped = moved.filter(|dropped| *dropped);
    Ok(Json(view))
}

async fn delete(
    app: Audited,
    caller: InOrg<Admin>,
    PathParam(ServerName(name)): PathParam<ServerName>,
) -> ApiResult<Json<Deleted>> {
    let org = caller.org.id;
    let mut tx = app.services.db.begin().await?;
    if !store::delete(&mut tx, org, &name).await? {
        return Err(Problem::not_found());
    }
    tx.record(app.entry().named(&name));
    let pending = invalidation::record(&mut tx, Invalidation::Org(org)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Deleted::yes())
}
