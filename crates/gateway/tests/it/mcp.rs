//! The MCP endpoints: eras, lists over several servers, who sees what, and servers that are slow or down.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::on_both;
use crate::support::mcp::{names, servers_path, text};
use crate::support::mcp_server::{MODERN, McpServer, Speaks, tool};

on_both!(a_modern_client_discovers_lists_and_calls, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    app.mcp_server(&ada, "files", &server, json!({})).await;
    let about = app.modern("/mcp", "server/discover", json!({})).key(&ada.api_key).send().await.expect(200);
    let about = &about["result"];
    assert_eq!(about["supportedVersions"], json!([MODERN, "2025-11-25", "2025-06-18", "2025-03-26"]));
    assert_eq!((&about["ttlMs"], &about["cacheScope"]), (&json!(60_000), &json!("private")));
    assert_eq!(about["resultType"], "complete");
    let list = app.modern("/mcp", "tools/list", json!({})).key(&ada.api_key).send().await.expect(200);
    assert_eq!(names(&list), ["files__echo", "files__fail"]);
    assert_eq!(list["result"]["cacheScope"], "private");
    assert!(list["result"].get("_meta").is_none(), "no server is stale: {list}");
    let call = json!({"name": "files__echo", "arguments": {"a": 1.50}});
    let answer = app.modern("/mcp", "tools/call", call).key(&ada.api_key).send().await.expect(200);
    assert_eq!((text(&answer).as_str(), &answer["id"]), (r#"{"a":1.5}"#, &json!(7)));
    let sent = server.received("tools/call");
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (sent[0].header("mcp-name"), sent[0].header("mcp-method")),
        (Some("echo"), Some("tools/call"))
    );
    assert_eq!(sent[0].body["params"]["name"], "echo");
    assert!(sent[0].header("x-gateway-key").is_none(), "the caller's key is not sent on");
});

on_both!(each_era_reaches_servers_of_the_other, |app| async move {
    let ada = app.signup("acme").await;
    let (old, new) = (McpServer::with_sessions(Speaks::Legacy).await, McpServer::start(Speaks::Modern).await);
    app.mcp_server(&ada, "old", &old, json!({})).await;
    app.mcp_server(&ada, "new", &new, json!({})).await;
    let call = |name: &str| json!({"name": name, "arguments": {"x": 1}});
    for _ in 0..2 {
        let answer =
            app.modern("/mcp", "tools/call", call("old__echo")).key(&ada.api_key).send().await.expect(200);
        assert_eq!(
            (text(&answer).as_str(), &answer["result"]["resultType"]),
            (r#"{"x":1}"#, &json!("complete"))
        );
    }
    let sent = old.received("tools/call");
    assert_eq!(sent[0].header("mcp-session-id"), sent[1].header("mcp-session-id"), "the session is kept");
    assert!(sent[0].body["params"].get("_meta").is_none(), "{}", sent[0].body);
    // A session that the server no longer knows is begun again, once.
    old.forget_sessions();
    let again =
        app.modern("/mcp", "tools/call", call("old__echo")).key(&ada.api_key).send().await.expect(200);
    assert_eq!(text(&again), r#"{"x":1}"#);
    let answer =
        app.legacy("/mcp", "tools/call", call("new__echo")).key(&ada.api_key).send().await.expect(200);
    assert_eq!(text(&answer), r#"{"x":1}"#);
    assert!(answer["result"].get("resultType").is_none(), "{answer}");
    let meta = &new.received("tools/call")[0].body["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], MODERN);
});

on_both!(a_legacy_client_initializes_and_gets_a_session_only_if_a_server_has_one, |app| async move {
    let ada = app.signup("acme").await;
    let plain = McpServer::start(Speaks::Legacy).await;
    let stateful = McpServer::with_sessions(Speaks::Legacy).await;
    app.mcp_server(&ada, "plain", &plain, json!({})).await;
    let begin = |version: &str| json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    for (asked, given) in
        [("2025-06-18", "2025-06-18"), ("2025-03-26", "2025-03-26"), ("1999-01-01", "2025-11-25")]
    {
        let answer = app.legacy("/mcp", "initialize", begin(asked)).key(&ada.api_key).send().await;
        assert!(answer.header("mcp-session-id").is_none());
        assert_eq!(answer.expect(200)["result"]["protocolVersion"], given);
    }
    app.mcp_server(&ada, "stateful", &stateful, json!({})).await;
    let answer =
        app.legacy("/mcp/stateful", "initialize", begin("2025-11-25")).key(&ada.api_key).send().await;
    let session = answer.header("mcp-session-id").unwrap().to_owned();
    assert!(session.starts_with("gws_") && session.len() <= 4096, "{session}");
    assert_eq!(answer.expect(200)["result"]["serverInfo"]["name"], "mock");
    let call = json!({"name": "echo", "arguments": {}});
    let with = |path: &str| app.legacy(path, "tools/call", call.clone()).header("mcp-session-id", &session);
    with("/mcp/stateful").key(&ada.api_key).send().await.expect(200);
    // The session belongs to its caller, and to nobody after its end.
    let other = app.scoped_key(&ada, &["*"]).await;
    assert_eq!(with("/mcp/stateful").key(&other).send().await.status, 404);
    let end = app.delete("/mcp/stateful").header("mcp-session-id", &session).key(&ada.api_key);
    assert_eq!(end.send().await.status, 204);
    assert_eq!(with("/mcp/stateful").key(&ada.api_key).send().await.status, 404);
    assert_eq!(app.delete("/mcp").key(&ada.api_key).send().await.status, 405);
});

on_both!(malformed_and_contradicting_messages_are_refused, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    app.mcp_server(&ada, "files", &server, json!({})).await;
    let raw = |body: &'static str| app.call(http::Method::POST, "/mcp").key(&ada.api_key).raw(body);
    for (body, code) in [
        ("{", -32_700),
        ("[]", -32_600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32_600),
        (r#"{"id":1,"method":"ping"}"#, -32_600),
    ] {
        assert_eq!(raw(body).send().await.expect(400)["error"]["code"], code, "{body}");
    }
    let unknown = app.post("/mcp", json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    let unknown =
        unknown.header("mcp-protocol-version", "2024-01-01").key(&ada.api_key).send().await.expect(400);
    assert_eq!(
        (&unknown["error"]["code"], &unknown["error"]["data"]["supported"][0]),
        (&json!(-32_022), &json!(MODERN))
    );
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let bare = app.post("/mcp", body).header("mcp-protocol-version", MODERN).key(&ada.api_key).send().await;
    assert_eq!(bare.expect(400)["error"]["code"], -32_602);
    let nowhere = app.modern("/mcp", "tools/dance", json!({})).key(&ada.api_key).send().await.expect(404);
    assert_eq!(nowhere["error"]["code"], -32_601);
    let ping = app.modern("/mcp", "ping", json!({})).key(&ada.api_key).send().await.expect(404);
    assert_eq!(ping["error"]["code"], -32_601);
    app.legacy("/mcp", "ping", json!({})).key(&ada.api_key).send().await.expect(200);
    let cursor =
        app.modern("/mcp", "tools/list", json!({"cursor": "x"})).key(&ada.api_key).send().await.expect(200);
    assert_eq!(cursor["error"]["code"], -32_602);
    app.legacy("/mcp/absent", "ping", json!({}))
        .key(&ada.api_key)
        .send()
        .await
        .expect_error(404, "not_found");
    app.legacy("/mcp", "ping", json!({})).send().await.expect_error(401, "unauthorized");
});

on_both!(
    pages_of_other_sites_are_refused,
    [("GATEWAY_PUBLIC_URL", "http://public.test"), ("GATEWAY_ALLOWED_ORIGINS", "https://tool.test")],
    |app| async move {
        let ada = app.signup("acme").await;
        let from =
            |origin: &str| app.legacy("/mcp", "ping", json!({})).header("origin", origin).key(&ada.api_key);
        // The name under which the service was called proves nothing: any name can lead to it.
        for origin in ["https://evil.example", "http://gateway.test", "https://public.test", "null", ""] {
            from(origin).send().await.expect_error(403, "forbidden");
        }
        for origin in ["http://public.test", "https://tool.test"] {
            from(origin).send().await.expect(200);
        }
    }
);

on_both!(scopes_and_rules_hide_tools, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Modern).await;
    let mut reading = tool("get_a", "Reads.");
    reading["annotations"] = json!({"readOnlyHint": true});
    server.change(|script| script.tools = vec![reading, tool("get_b", "Reads too."), tool("put", "Writes.")]);
    app.mcp_server(&ada, "one", &server, json!({"deny": ["put*"]})).await;
    app.mcp_server(&ada, "two", &server, json!({"read_only": true})).await;
    app.mcp_server(&ada, "three", &server, json!({"allow": ["*_b", "put"]})).await;
    app.mcp_server(&ada, "off", &server, json!({"enabled": false})).await;
    let list = async |key: &str| {
        names(&app.modern("/mcp", "tools/list", json!({})).key(key).send().await.expect(200))
    };
    let all = ["one__get_a", "one__get_b", "three__get_b", "three__put", "two__get_a"];
    assert_eq!(list(&ada.api_key).await, all);
    let whole = app.scoped_key(&ada, &["mcp:two", "mcp:three/put"]).await;
    assert_eq!(list(&whole).await, ["three__put", "two__get_a"]);
    let call = async |key: &str, name: &str| {
        let answer = app.modern("/mcp", "tools/call", json!({"name": name})).key(key).send().await;
        answer.expect(200)["error"]["code"].as_i64()
    };
    assert_eq!(call(&whole, "three__put").await, None);
    for hidden in ["three__get_b", "one__get_a", "two__put", "off__put", "absent__x", "put", "gateway__x"] {
        assert_eq!(call(&whole, hidden).await, Some(-32_602), "{hidden}");
    }
    // The endpoint of a server has its own names, and one outside the scopes does not exist.
    let own = app.modern("/mcp/three", "tools/list", json!({})).key(&whole).send().await.expect(200);
    assert_eq!(names(&own), ["put"]);
    app.modern("/mcp/one", "tools/list", json!({})).key(&whole).send().await.expect_error(404, "not_found");
    for scope in ["proxy", "read", "model:*"] {
        let key = app.scoped_key(&ada, &[scope]).await;
        let denied = app.modern("/mcp", "tools/list", json!({})).key(&key).send().await;
        denied.expect_error(403, "scope_denied");
    }
    let only = app.scoped_key(&ada, &["mcp:*"]).await;
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
    let chat = app.post("/v1/chat/completions", chat).header("x-gateway-provider", "sandbox").key(&only);
    chat.send().await.expect_error(403, "scope_denied");
    // Viewers read lists, members call.
    let viewer = app.join(&ada, "viewer").await;
    let seen = app.modern("/mcp", "tools/list", json!({})).bearer(&viewer.token).send().await.expect(200);
    assert_eq!(names(&seen), all);
    let called =
        app.modern("/mcp", "tools/call", json!({"name": "three__put"})).bearer(&viewer.token).send().await;
    called.expect_error(403, "forbidden");
});

on_both!(prompts_and_resources_are_namespaced_too, |app| async move {
    let ada = app.signup("acme").await;
    let server = McpServer::start(Speaks::Legacy).await;
    app.mcp_server(&ada, "one", &server, json!({})).await;
    app.mcp_server(&ada, "two", &server, json!({})).await;
    let ask = async |path: &str, method: &str, params: Value| {
        app.modern(path, method, params).key(&ada.api_key).send().await.expect(200)
    };
    let prompts = ask("/mcp", "prompts/list", json!({})).await;
    assert_eq!(prompts["result"]["prompts"][1]["name"], "two__greet");
    let prompt = ask("/mcp", "prompts/get", json!({"name": "two__greet", "arguments": {"who": "Ada"}})).await;
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Hello Ada");
    let resources = ask("/mcp", "resources/list", json!({})).await;
    assert_eq!(resources["result"]["resources"][0]["uri"], "one+file:///notes.txt");
    let read = ask("/mcp", "resources/read", json!({"uri": "one+file:///notes.txt"})).await;
    assert_eq!(read["result"]["contents"][0]["uri"], "one+file:///notes.txt");
    assert_eq!(server.received("resources/read")[0].body["params"]["uri"], "file:///notes.txt");
    let templates = ask("/mcp", "resources/templates/list", json!({})).await;
    assert_eq!(templates["result"]["resourceTemplates"][1]["uriTemplate"], "two+file:///{name}");
    for (method, params) in [
        ("prompts/get", json!({"name": "two__absent"})),
        ("resources/read", json!({"uri": "absent+file:///x"})),
        ("resources/read", json!({"uri": "file:///x"})),
    ] {
        assert_eq!(ask("/mcp", method, params).await["error"]["code"], -32_602, "{method}");
    }
    let own = ask("/mcp/one", "resources/read", json!({"uri": "file:///notes.txt"})).await;
    assert_eq!(own["result"]["contents"][0]["uri"], "file:///notes.txt");
    let tools_only = app.scoped_key(&ada, &["mcp:one/echo"]).await;
    let hidden = app.modern("/mcp", "prompts/list", json!({})).key(&tools_only).send().await.expect(200);
    assert_eq!(hidden["result"]["prompts"], json!([]));
});

on_both!(a_dead_or_slow_server_neither_empties_nor_delays_the_lists_of_others, |app| async move {
    let ada = app.signup("acme").await;
    let (good, dead, slow) = (
        McpServer::start(Speaks::Modern).await,
        McpServer::start(Speaks::Modern).await,
        McpServer::start(Speaks::Modern).await,
    );
    slow.change(|script| script.hangs = true);
    app.mcp_server(&ada, "good", &good, json!({})).await;
    app.mcp_server(&ada, "dead", &dead, json!({})).await;
    app.mcp_server(&ada, "slow", &slow, json!({})).await;
    let list =
        async || app.modern("/mcp", "tools/list", json!({})).key(&ada.api_key).send().await.expect(200);
    let began = Instant::now();
    let first = list().await;
    assert!(began.elapsed() < Duration::from_secs(8), "all servers are asked at once");
    assert_eq!(names(&first), ["dead__echo", "dead__fail", "good__echo", "good__fail"]);
    assert_eq!(first["result"]["_meta"]["gateway/stale"], json!(["slow"]));
    // A server that goes down keeps its list.
    dead.change(|script| script.fails_with = Some(503));
    let refresh = format!("{}/dead/refresh", servers_path(&ada));
    let state = app.post(&refresh, json!({})).bearer(&ada.token).send().await.expect(200);
    assert_eq!(state["status"]["state"], "down", "{state}");
    let second = list().await;
    assert_eq!(names(&second), names(&first));
    assert_eq!(second["result"]["_meta"]["gateway/stale"], json!(["dead", "slow"]));
    let call = app.modern("/mcp", "tools/call", json!({"name": "dead__echo"})).key(&ada.api_key).send().await;
    assert_eq!(call.expect(502)["error"]["code"], -32_603);
    let call = app.legacy("/mcp", "tools/call", json!({"name": "dead__echo"})).key(&ada.api_key).send().await;
    assert_eq!(call.expect(200)["error"]["code"], -32_603);
});

on_both!(two_hundred_servers_of_which_ten_hang_are_listed_without_waiting_for_them_twice, |app| async move {
    let ada = app.signup("acme").await;
    let (good, hanging) = (McpServer::start(Speaks::Modern).await, McpServer::start(Speaks::Modern).await);
    hanging.change(|script| script.hangs = true);
    for number in 0..200 {
        let server = if number % 20 == 0 { &hanging } else { &good };
        app.mcp_server(&ada, &format!("s{number:03}"), server, json!({"allow": ["echo"]})).await;
    }
    let list =
        async || app.modern("/mcp", "tools/list", json!({})).key(&ada.api_key).send().await.expect(200);
    let expected: Vec<String> =
        (0..200).filter(|number| number % 20 != 0).map(|number| format!("s{number:03}__echo")).collect();
    let hang: Vec<String> = (0..200).step_by(20).map(|number| format!("s{number:03}")).collect();
    // On a busy machine the first list does not wait for all of those that answer, and a later one has them.
    let began = Instant::now();
    while names(&list().await) != expected {
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    for _ in 0..2 {
        let answer = list().await;
        assert_eq!(names(&answer), expected);
        assert_eq!(answer["result"]["_meta"]["gateway/stale"], json!(hang));
    }
    // Each server was asked once: the second list is from memory.
    assert_eq!(good.received("tools/list").len(), 190);
    let one_more = json!({"name": "one-more", "url": good.url()});
    let refused = app.post(&servers_path(&ada), one_more).bearer(&ada.token).send().await;
    refused.expect_error(409, "conflict");
});
