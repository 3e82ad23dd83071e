//! MCP servers as responses show them.

use std::collections::BTreeMap;

use gateway_core::mcp::{Auth, CallerIdentity, Definition, Transport};
use gateway_core::time::Timestamp;
use gateway_store::mcp_servers::McpServer;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::auth::Identity;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "McpServer")]
pub struct ServerView {
    pub name: String,
    url: String,
    transport: Transport,
    auth: Auth,
    /// Headers or a client secret are stored.
    has_secrets: bool,
    identity: CallerIdentity,
    forward_headers: Vec<String>,
    allow: Vec<String>,
    deny: Vec<String>,
    read_only: bool,
    pin: bool,
    timeout_ms: u64,
    /// By tool, in USD for a call.
    prices: BTreeMap<String, f64>,
    instructions: Option<String>,
    enabled: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
    status: StatusView,
    /// True if this change of the origin (scheme, host, port) dropped stored secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets_dropped: Option<bool>,
}

/// The state of a server, as this node knows it.
#[derive(Clone, Serialize, JsonSchema)]
#[schemars(rename = "McpServerStatus")]
pub struct StatusView {
    /// `ok`, `stale` (its lists are to be read again), `down`, `auth_required` or `changed` (a pinned tool has changed).
    state: &'static str,
    /// `modern` (2026-07-28) or `legacy`.
    era: Option<&'static str>,
    protocol_version: Option<String>,
    tools: Option<usize>,
    last_ok_at: Option<Timestamp>,
    last_error: Option<String>,
}

/// What the audit log compares: everything but the state.
#[derive(Serialize)]
pub struct StoredView<'a> {
    name: &'a str,
    url: &'a str,
    transport: Transport,
    auth: &'a Auth,
    identity: CallerIdentity,
    forward_headers: &'a [String],
    allow: &'a [String],
    deny: &'a [String],
    read_only: bool,
    pin: bool,
    timeout_ms: u64,
    prices: &'a BTreeMap<String, f64>,
    instructions: Option<&'a str>,
    enabled: bool,
}

impl ServerView {
    pub fn of(app: &App, identity: &Identity, server: McpServer) -> Self {
        let McpServer { name, definition, secrets, created_at, updated_at, .. } = server;
        let Definition { url, transport, auth, identity: told, forward_headers, allow, deny, .. } =
            definition;
        let Definition { read_only, pin, timeout_ms, prices, instructions, enabled, .. } = definition;
        let loaded = identity.org.mcp_servers.find(&name);
        let status = loaded.map(|server| app.mcp.status(identity.org.id, server)).unwrap_or_default();
        Self {
            name,
            url,
            transport,
            auth,
            has_secrets: secrets.is_some(),
            identity: told,
            forward_headers,
            allow,
            deny,
            read_only,
            pin,
            timeout_ms,
            prices,
            instructions,
            enabled,
            created_at,
            updated_at,
            status: StatusView {
                state: if status.state.is_empty() { "stale" } else { status.state },
                era: status.era,
                protocol_version: status.protocol_version,
                tools: status.tools,
                last_ok_at: status.last_ok_at,
                last_error: status.last_error,
            },
            secrets_dropped: None,
        }
    }

    pub fn status(&self) -> &StatusView {
        &self.status
    }

    pub fn stored(&self) -> StoredView<'_> {
        StoredView {
            name: &self.name,
            url: &self.url,
            transport: self.transport,
            auth: &self.auth,
            identity: self.identity,
            forward_headers: &self.forward_headers,
            allow: &self.allow,
            deny: &self.deny,
            read_only: self.read_only,
            pin: self.pin,
            timeout_ms: self.timeout_ms,
            prices: &self.prices,
            instructions: self.instructions.as_deref(),
            enabled: self.enabled,
        }
    }
}
