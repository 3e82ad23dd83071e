//! Smoke test: sign up, use the key, read the health.

use serde_json::json;

use crate::on_both;

on_both!(a_new_user_signs_up_and_uses_the_key, |app| async move {
    let ada = app.signup("acme").await;
    let keys = app.get("/api/v1/keys").key(&ada.api_key).send().await.expect(200);
    assert_eq!(keys["keys"][0]["key_prefix"], ada.api_key[..19]);
    let health = app.get("/healthz").send().await.expect(200);
    assert_eq!(
        health,
        json!({"status": "ok", "components": {"database": {"status": "ok"}, "log_spool": {"status": "ok"}}})
    );
});
