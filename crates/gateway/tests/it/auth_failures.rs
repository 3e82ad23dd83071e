//! Requests with a wrong credential: limited per address, and cheap for the database.

use http::Method;
use serde_json::json;

use crate::on_both;
use crate::support::{Backend, TcpForwarder, TestApp, TestResponse, migrated_postgres};

const LIMITED: [(&str, &str); 2] =
    [("GATEWAY_AUTH_FAILURES", "5"), ("GATEWAY_TRUSTED_PROXIES", "127.0.0.0/8")];

fn wrong_key(number: usize) -> String {
    format!("sk-gateway-{number:064x}")
}

async fn try_key(app: &TestApp, key: &str, from: &str) -> TestResponse {
    app.get("/api/v1/keys").key(key).header("x-forwarded-for", from).send().await
}

on_both!(an_address_with_too_many_wrong_keys_has_to_wait, LIMITED, |app| async move {
    let ada = app.signup("acme").await;
    let spare = app.create_key(&ada.token, json!({"name": "spare"})).await;
    try_key(&app, &ada.api_key, "192.0.2.1").await.expect(200);
    app.advance_to_next_minute();
    for number in 0..5 {
        try_key(&app, &wrong_key(number), "192.0.2.1").await.expect_error(401, "unauthorized");
    }
    let refused = try_key(&app, &wrong_key(5), "192.0.2.1").await;
    refused.expect_error(429, "rate_limited");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    // The proxy refuses as well, in its own format.
    let proxied = app.call(Method::POST, "/v1/chat/completions").header("x-gateway-provider", "openai");
    let proxied = proxied.key(&wrong_key(6)).header("x-forwarded-for", "192.0.2.1").send().await;
    assert_eq!(proxied.status, 429);
    // Known callers behind the same address go on, and other addresses are not affected.
    try_key(&app, &ada.api_key, "192.0.2.1").await.expect(200);
    app.get("/api/v1/keys")
        .bearer(&ada.token)
        .header("x-forwarded-for", "192.0.2.1")
        .send()
        .await
        .expect(200);
    try_key(&app, &wrong_key(7), "192.0.2.2").await.expect_error(401, "unauthorized");
    try_key(&app, &spare.raw, "192.0.2.2").await.expect(200);
    app.app.services.clock.advance(61_000);
    try_key(&app, &wrong_key(8), "192.0.2.1").await.expect_error(401, "unauthorized");
});

on_both!(a_client_that_repeats_one_revoked_key_locks_out_nobody, LIMITED, |app| async move {
    let ada = app.signup("acme").await;
    let revoked = app.create_key(&ada.token, json!({"name": "old"})).await;
    let fresh = app.create_key(&ada.token, json!({"name": "new"})).await;
    app.delete(&revoked.path()).bearer(&ada.token).send().await.expect(200);
    app.advance_to_next_minute();
    for number in 0..20 {
        let answer = try_key(&app, &revoked.raw, "192.0.2.1").await;
        assert_eq!(answer.status.as_u16(), if number < 5 { 401 } else { 429 }, "{number}");
    }
    // It was looked up once, so the address may still have other keys looked up.
    try_key(&app, &fresh.raw, "192.0.2.1").await.expect(200);
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_key_is_not_looked_up_again_at_once() {
    let (forwarder, url) = TcpForwarder::to_database(&migrated_postgres().await).await;
    let app = TestApp::start_with(Backend::Postgres, &[("GATEWAY_DATABASE_URL", &url)]).await;
    app.get("/api/v1/keys").key(&wrong_key(1)).send().await.expect_error(401, "unauthorized");
    forwarder.cut();
    app.get("/api/v1/keys").key(&wrong_key(1)).send().await.expect_error(401, "unauthorized");
    app.get("/api/v1/keys").key(&wrong_key(2)).send().await.expect_error(503, "unavailable");
    forwarder.open();
}
