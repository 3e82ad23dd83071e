//! Session tokens: lifetime, claims, and forgeries.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::on_both;
use crate::support::assertions::{assert_unauthorized, assert_uuid_v7, fields, missing_id};

const ME: &str = "/api/v1/auth/entitlements";
/// The secret of the test application.
const SECRET: &str = "a token secret for tests, 32 bytes or more";

fn part(token: &str, index: usize) -> Value {
    let text = token.split('.').nth(index).unwrap();
    serde_json::from_slice(&BASE64.decode(text).unwrap()).unwrap()
}

fn signature(token: &str) -> &str {
    token.split('.').nth(2).unwrap()
}

fn pack(value: &Value) -> String {
    BASE64.encode(value.to_string())
}

fn signed(algorithm: Algorithm, secret: &str, claims: &Value) -> String {
    jsonwebtoken::encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret.as_bytes()))
        .unwrap()
}

on_both!(a_token_holds_the_documented_claims_for_24_hours, |app| async move {
    let ada = app.signup("acme").await;
    assert_eq!(part(&ada.token, 0)["alg"], "HS256");
    let claims = part(&ada.token, 1);
    assert_eq!(fields(&claims), ["exp", "iat", "jti", "org", "role", "sub"]);
    assert_eq!((&claims["sub"], &claims["org"]), (&json!(ada.user_id), &json!(ada.org_id)));
    assert_eq!(claims["role"], "owner");
    assert_uuid_v7(&claims["jti"]);
    let (iat, exp) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
    assert_eq!(exp - iat, 24 * 60 * 60);
    assert!((app.app.services.clock.now().0 / 1000 - iat).abs() <= 5);
});

on_both!(a_token_works_until_the_24_hours_are_over_and_no_longer, |app| async move {
    let ada = app.signup("acme").await;
    let exp = part(&ada.token, 1)["exp"].as_i64().unwrap() * 1000;
    // Half a second is far more than a request takes, and far less than a leeway would be.
    app.app.services.clock.advance(exp - app.app.services.clock.now().0 - 500);
    assert_eq!(app.status_with_token(&ada.token).await, 200);
    app.app.services.clock.advance(exp - app.app.services.clock.now().0);
    assert_unauthorized(&app.get(ME).bearer(&ada.token).send().await);
    assert_eq!(app.status_with_key(&ada.api_key).await, 200, "keys know no such end");
});

on_both!(a_forged_token_is_refused, |app| async move {
    let ada = app.signup("acme").await;
    let bob = app.signup("bobs").await;
    let (header, claims) = (part(&ada.token, 0), part(&ada.token, 1));
    let sign = signature(&ada.token);
    let mut forged = Vec::new();
    // A payload that was not signed.
    for (claim, value) in [
        ("org", json!(bob.org_id)),
        ("sub", json!(bob.user_id)),
        ("role", json!("viewer")),
        ("exp", json!(claims["exp"].as_i64().unwrap() + 1)),
    ] {
        let mut other = claims.clone();
        other[claim] = value;
        forged.push(format!("{}.{}.{sign}", pack(&header), pack(&other)));
    }
    // A signature of another token.
    forged.push(format!("{}.{}.{}", pack(&header), pack(&claims), signature(&bob.token)));
    forged.push(format!("{}.{}.", pack(&header), pack(&claims)));
    forged.push(format!("{}.{}", pack(&header), pack(&claims)));
    let mut bytes = BASE64.decode(sign).unwrap();
    bytes[0] ^= 1;
    forged.push(format!("{}.{}.{}", pack(&header), pack(&claims), BASE64.encode(&bytes)));
    forged.push(format!("{}.{}.{}", pack(&header), pack(&claims), BASE64.encode(&bytes[..16])));
    // An algorithm chosen by the forger.
    for name in ["none", "None", "NONE", "HS512", "RS256", "ES256", ""] {
        let header = json!({"alg": name, "typ": "JWT"});
        forged.push(format!("{}.{}.", pack(&header), pack(&claims)));
        forged.push(format!("{}.{}.{sign}", pack(&header), pack(&claims)));
    }
    forged.push(signed(Algorithm::HS512, SECRET, &claims));
    forged.push(signed(Algorithm::HS384, SECRET, &claims));
    forged.push(signed(Algorithm::HS256, "another secret of at least 32 bytes", &claims));
    forged.push(signed(Algorithm::HS256, "", &claims));
    for token in &forged {
        assert_unauthorized(&app.get(ME).bearer(token).send().await);
    }
    // The same claims with the right key are valid, so the rejections above have the intended cause.
    assert_eq!(app.status_with_token(&signed(Algorithm::HS256, SECRET, &claims)).await, 200);
});

on_both!(what_a_well_signed_token_claims_is_checked_against_the_store, |app| async move {
    let owner = app.signup("acme").await;
    let viewer = app.join(&owner, "viewer").await;
    let stranger = app.signup("strangers").await;
    let claims = part(&viewer.token, 1);
    let change = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        signed(Algorithm::HS256, SECRET, &claims)
    };
    // A role in the claims is ignored.
    let promoted = app.get(ME).bearer(&change("role", json!("owner"))).send().await.expect(200);
    assert_eq!(promoted["role"], "viewer");
    for token in [
        change("org", json!(stranger.org_id)),
        change("org", missing_id()),
        change("sub", json!(stranger.user_id)),
        change("sub", missing_id()),
        change("sub", json!("nobody")),
        change("role", json!("emperor")),
        change("exp", json!(claims["iat"])),
        change("exp", json!("tomorrow")),
        change("exp", Value::Null),
        change("jti", Value::Null),
    ] {
        assert_unauthorized(&app.get(ME).bearer(&token).send().await);
    }
});
