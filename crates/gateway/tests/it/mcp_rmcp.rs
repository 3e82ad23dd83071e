//! The official Rust SDK as a client of both eras. Its HTTP client for Unix sockets is used, because the other one brings
//! a second HTTP stack along.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;

use http::{HeaderName, HeaderValue};
use rmcp::model::{CallToolRequestParams, ProtocolVersion, ReadResourceRequestParams};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, UnixSocketHttpClient};
use serde_json::json;
use tokio::net::{TcpStream, UnixListener};

use crate::on_both;
use crate::support::mcp_server::{McpServer, Speaks, tool};

/// Connections to the socket reach the service.
fn forward(socket: &Path, address: SocketAddr) {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut service = TcpStream::connect(address).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut service).await;
            });
        }
    });
}

on_both!(the_official_rust_sdk_lists_calls_and_reads_in_both_eras, |app| async move {
    let ada = app.signup("acme").await;
    let newer = McpServer::start(Speaks::Modern).await;
    let older = McpServer::with_sessions(Speaks::Legacy).await;
    older.change(|script| script.tools.push(tool("steps", "Takes two steps.")));
    app.mcp_server(&ada, "newer", &newer, json!({})).await;
    app.mcp_server(&ada, "older", &older, json!({})).await;
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("gateway");
    forward(&socket, app.address);
    let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    for lifecycle in [modern, ClientLifecycleMode::Initialize] {
        let url = format!("http://{}/mcp", app.address);
        let key = HeaderValue::from_str(&ada.api_key).unwrap();
        let headers = HashMap::from([(HeaderName::from_static("x-gateway-key"), key)]);
        let config = StreamableHttpClientTransportConfig::with_uri(url.as_str()).custom_headers(headers);
        let http = UnixSocketHttpClient::new(socket.to_str().unwrap(), &url);
        let transport = StreamableHttpClientTransport::with_client(http, config);
        let client = ().serve_with_lifecycle(transport, lifecycle.clone()).await.unwrap();
        let tools = client.list_all_tools().await.unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(names, ["newer__echo", "newer__fail", "older__echo", "older__fail", "older__steps"]);
        for server in ["newer", "older"] {
            let arguments = json!({"a": 1}).as_object().unwrap().clone();
            let call = CallToolRequestParams::new(format!("{server}__echo")).with_arguments(arguments);
            let result = serde_json::to_value(client.call_tool(call).await.unwrap()).unwrap();
            assert_eq!(result["content"][0]["text"], r#"{"a":1}"#, "{lifecycle:?}");
        }
        let steps = client.call_tool(CallToolRequestParams::new("older__steps")).await.unwrap();
        assert_eq!(serde_json::to_value(steps).unwrap()["content"][0]["text"], "two steps");
        let read = ReadResourceRequestParams::new("older+file:///notes.txt");
        let read = serde_json::to_value(client.read_resource(read).await.unwrap()).unwrap();
        assert_eq!(read["contents"][0]["text"], "the notes");
        let unknown = client.call_tool(CallToolRequestParams::new("newer__absent")).await.unwrap_err();
        assert!(unknown.to_string().contains("Unknown tool"), "{unknown}");
        client.cancel().await.unwrap();
    }
});
