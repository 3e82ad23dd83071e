//! Who calls, and what it may see and use.

use std::sync::Arc;

use gateway_core::access::Role;
use gateway_core::scopes::Scopes;
use http::{HeaderMap, StatusCode};

use super::catalogue::{Catalogue, Tool};
use crate::auth::{Identity, Principal};
use crate::mcp_servers::Server;
use crate::problem::{ApiResult, Problem};
use crate::proxy::directives::Tags;

/// Names the caller: a user, or a key with the end user that it acts for.
pub fn caller_of(identity: &Identity, user: Option<&str>) -> String {
    match (&identity.principal, user) {
        (Principal::User { id, .. }, _) => format!("user:{id}"),
        (Principal::Key(key), None) => format!("key:{}", key.id),
        (Principal::Key(key), Some(user)) => format!("key:{}/{user}", key.id),
        (Principal::Org, _) => "org".to_owned(),
    }
}

/// The caller by its headers. A user header that is not valid text is refused; it does not stand for the key itself.
pub fn caller_by_headers(identity: &Identity, headers: &HeaderMap) -> ApiResult<String> {
    let tags = Tags::read(headers)?;
    Ok(caller_of(identity, tags.user.as_deref()))
}

fn scopes(identity: &Identity) -> Option<&Scopes> {
    match &identity.principal {
        Principal::Key(key) => Some(&key.scopes),
        Principal::User { .. } | Principal::Org => None,
    }
}

/// A key reaches MCP by `*` or by scopes for it.
pub fn check_scope(identity: &Identity) -> ApiResult<()> {
    if scopes(identity).is_none_or(Scopes::reach_mcp) {
        return Ok(());
    }
    let message = "the key's scopes do not allow MCP; add a scope such as 'mcp:*' or 'mcp:<server>'";
    Err(Problem::new(StatusCode::FORBIDDEN, "scope_denied", message))
}

/// Viewers see lists, members call. The role of a key is the one that its creator gave it: its scopes decide the rest.
pub fn check_call(identity: &Identity) -> ApiResult<()> {
    let role = match &identity.principal {
        Principal::Key(key) => key.role,
        Principal::User { .. } | Principal::Org => identity.role,
    };
    if role >= Role::Member {
        return Ok(());
    }
    Err(Problem::forbidden(format!("calls through MCP require the role member; yours is {role}")))
}

/// Whether the caller may use something of the server.
pub fn sees_server(identity: &Identity, server: &str) -> bool {
    scopes(identity).is_none_or(|scopes| scopes.allow_server(server))
}

/// Whether the caller may use all of the server, not only tools.
pub fn sees_whole_server(identity: &Identity, server: &str) -> bool {
    scopes(identity).is_none_or(|scopes| scopes.allow_whole_server(server))
}

/// Whether the caller's scopes name the tool.
pub fn allows_tool(identity: &Identity, server: &str, tool: &str) -> bool {
    scopes(identity).is_none_or(|scopes| scopes.allow_tool(server, tool))
}

/// Whether the caller may use the tool, by its scopes and by the rules of the server.
pub fn sees_tool(identity: &Identity, server: &Server, tool: &Tool) -> bool {
    allows_tool(identity, &server.name, &tool.name)
        && server.filter.admits(&tool.name, tool.is_read_only)
        && server.approves(&tool.name, &tool.hash)
}

/// The servers that the caller may use, by name.
pub fn visible_servers(identity: &Identity) -> Vec<Arc<Server>> {
    let servers = identity.org.mcp_servers.enabled();
    servers.filter(|server| sees_server(identity, &server.name)).map(Arc::clone).collect()
}

/// The tool of this name, if the caller may use it.
pub fn find_tool<'c>(
    identity: &Identity,
    server: &Server,
    catalogue: &'c Catalogue,
    matches: impl Fn(&Tool) -> bool,
) -> Option<&'c Tool> {
    catalogue.tools.iter().find(|tool| matches(tool)).filter(|tool| sees_tool(identity, server, tool))
}
