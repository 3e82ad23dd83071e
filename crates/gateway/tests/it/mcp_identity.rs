//! Servers that are told who calls, by a token that anyone can verify with the published keys.

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::TestApp;
use crate::support::mcp::{names, servers_path};
use crate::support::mcp_server::{McpServer, Received, Speaks};

/// The claims of a request, verified with the published keys and for the server's own address.
async fn claims(app: &TestApp, server: &McpServer, got: &Received) -> Value {
    let token = got.header("x-gateway-identity").unwrap();
    let published = app.get("/.well-known/jwks.json").send().await.expect(200);
    let key = published["keys"].as_array().unwrap().iter();
    let kid = decode_header(token).unwrap().kid.unwrap();
    let key = key.clone().find(|key| key["kid"] == json!(kid)).unwrap();
    assert_eq!((&key["kty"], &key["crv"], &key["alg"]), (&json!("OKP"), &json!("Ed25519"), &json!("EdDSA")));
    let mut rules = Validation::new(Algorithm::EdDSA);
    rules.set_audience(&[server.url()]);
    // The clock of the tests may be another one than that of the library.
    rules.validate_exp = false;
    let key = DecodingKey::from_ed_components(key["x"].as_str().unwrap()).unwrap();
    decode::<Value>(token, &key, &rules).unwrap().claims
}

on_both!(a_server_is_told_who_calls, |app| async move {
    let ada = app.signup("acme").await;
    let (server, other) = (McpServer::start(Speaks::Modern).await, McpServer::start(Speaks::Modern).await);
    let made = app.mcp_server(&ada, "s", &server, json!({"identity": "claims"})).await;
    assert_eq!(made["identity"], "claims");
    app.mcp_server(&ada, "other", &other, json!({})).await;
    let call = |name: &str| app.modern("/mcp", "tools/call", json!({"name": name, "arguments": {}}));
    let made = app.post("/api/v1/keys", json!({"name": "agent"})).bearer(&ada.token).send().await.expect(201);
    let (id, raw) = (&made["key"]["id"], made["raw_key"].as_str().unwrap());
    let forged =
        call("s__echo").key(raw).header("x-gateway-user", "maria").header("x-gateway-identity", "forged");
    forged.send().await.expect(200);
    call("s__echo").bearer(&ada.token).send().await.expect(200);
    let calls = server.received("tools/call");
    let told = claims(&app, &server, &calls[0]).await;
    let sub = json!(format!("key:{}/maria", id.as_str().unwrap()));
    assert_eq!((&told["sub"], &told["key_id"], &told["user"]), (&sub, id, &json!("maria")));
    assert_eq!((&told["org"], &told["aud"]), (&json!(ada.org_id), &json!(server.url())));
    assert_eq!(told["exp"].as_i64().unwrap() - told["iat"].as_i64().unwrap(), 60);
    let told = claims(&app, &server, &calls[1]).await;
    assert_eq!((&told["key_id"], &told["user"]), (&Value::Null, &json!(ada.user_id)));
    // Its lists may depend on who asks, so each caller has its own.
    assert_eq!(server.received("tools/list").len(), 2);
    let asked = claims(&app, &server, &server.received("tools/list")[0]).await;
    assert_eq!(asked["sub"], sub);
    // Others are told nothing.
    call("other__echo").key(raw).send().await.expect(200);
    assert!(other.all_received().iter().all(|got| got.header("x-gateway-identity").is_none()));
    let path = format!("{}/s", servers_path(&ada));
    app.put(&path, json!({"identity": "none"})).bearer(&ada.token).send().await.expect(200);
    let list = app.modern("/mcp/s", "tools/list", json!({})).key(raw).send().await.expect(200);
    assert_eq!(names(&list), ["echo", "fail"]);
    assert!(server.received("tools/list")[2].header("x-gateway-identity").is_none());
});
