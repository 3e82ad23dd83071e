//! The MCP endpoints: all servers that the caller may use, or one of them.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gateway_core::memory::tree_bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::caller::{AppState, McpCaller};
use super::extract::{BodyLimits, PathParam, read_body, request_memory, text_path_param};
use super::openapi::{Area, Operation, OperationInput, OperationOutput};
use super::response::Json;
use crate::app::App;
use crate::mcp::{McpRequest, PublicKey, Target};
use crate::problem::{ApiResult, Problem};

/// Arguments of a megabyte, and the rest of the message.
const MAX_BODY: usize = 2 << 20;

pub fn area() -> Area {
    Area::new("mcp", "The MCP endpoints: JSON-RPC messages of the Model Context Protocol.")
        .post(
            "/mcp",
            post_all,
            "Send a message to all MCP servers that the key may use, with names of all in one list",
        )
        .get("/mcp", get_all, "Follow changes of lists as server-sent events (revisions before 2026-07-28)")
        .delete("/mcp", delete_all, "End a session (revisions before 2026-07-28)")
        .post("/mcp/{server}", post_one, "Send a message to one MCP server, with its own names")
        .get("/mcp/{server}", get_one, "Follow changes of lists of one server (revisions before 2026-07-28)")
        .delete("/mcp/{server}", delete_one, "End a session with one server (revisions before 2026-07-28)")
        .get(
            "/.well-known/jwks.json",
            public_keys,
            "Get the keys that verify the identities of callers at MCP servers (`identity: claims`)",
        )
        .at_root()
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JsonWebKeySet")]
struct PublicKeys {
    keys: Vec<PublicKey>,
}

async fn public_keys(State(app): AppState) -> Json<PublicKeys> {
    Json(PublicKeys { keys: app.mcp.public_keys() })
}

text_path_param!(
    /// The name of a server.
    ServerName = "server"
);

/// A message, as it was sent.
struct Message(Bytes);

impl FromRequest<Arc<App>> for Message {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, Problem> {
        let memory = request_memory(&request)?;
        let bytes = read_body(request, BodyLimits::new(MAX_BODY)).await?;
        memory.grow(tree_bytes(&bytes))?;
        Ok(Self(bytes))
    }
}

impl OperationInput for Message {
    fn describe(operation: &mut Operation<'_>) {
        operation.request_body = Some(json!({
            "required": true,
            "content": {"application/json": {"schema": {"type": "object", "description": "One JSON-RPC 2.0 message."}}},
        }));
    }
}

/// An answer of the MCP gateway.
struct McpResponse(Response);

impl IntoResponse for McpResponse {
    fn into_response(self) -> Response {
        self.0
    }
}

impl OperationOutput for McpResponse {
    fn describe(operation: &mut Operation<'_>) {
        operation.json_response::<Value>(200);
    }
}

fn request(caller: McpCaller, target: Target, body: Bytes) -> McpRequest {
    let McpCaller { identity, headers, path, request_id, .. } = caller;
    McpRequest { identity, target, headers, path, request_id, body }
}

async fn post_all(State(app): AppState, caller: McpCaller, Message(body): Message) -> ApiResult<McpResponse> {
    Box::pin(app.mcp.post(request(caller, Target::All, body))).await.map(McpResponse)
}

async fn post_one(
    State(app): AppState,
    caller: McpCaller,
    PathParam(ServerName(name)): PathParam<ServerName>,
    Message(body): Message,
) -> ApiResult<McpResponse> {
    Box::pin(app.mcp.post(request(caller, Target::Server(name), body))).await.map(McpResponse)
}

async fn get_all(State(app): AppState, caller: McpCaller) -> ApiResult<McpResponse> {
    app.mcp.get(request(caller, Target::All, Bytes::new())).await.map(McpResponse)
}

async fn get_one(
    State(app): AppState,
    caller: McpCaller,
    PathParam(ServerName(name)): PathParam<ServerName>,
) -> ApiResult<McpResponse> {
    app.mcp.get(request(caller, Target::Server(name), Bytes::new())).await.map(McpResponse)
}

async fn delete_all(State(app): AppState, caller: McpCaller) -> ApiResult<McpResponse> {
    app.mcp.delete(request(caller, Target::All, Bytes::new())).await.map(McpResponse)
}

async fn delete_one(
    State(app): AppState,
    caller: McpCaller,
    PathParam(ServerName(name)): PathParam<ServerName>,
) -> ApiResult<McpResponse> {
    app.mcp.delete(request(caller, Target::Server(name), Bytes::new())).await.map(McpResponse)
}
