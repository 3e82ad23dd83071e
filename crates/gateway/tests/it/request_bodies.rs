//! Malformed request bodies: each gets a 4xx, whatever the content.

use http::Method;
use serde_json::json;

use crate::on_both;
use crate::support::PASSWORD;
use crate::support::assertions::{assert_field_error, fields};

const KEYS: &str = "/api/v1/keys";

on_both!(a_body_that_is_no_json_object_is_a_bad_request, |app| async move {
    let ada = app.signup("acme").await;
    let broken: &[&[u8]] = &[
        b"",
        b" \n",
        b"{",
        b"}",
        b"{\"name\"",
        b"{\"name\": }",
        b"{'name': 'x'}",
        b"{\"name\": \"x\",}",
        b"{\"name\": \"x\"} {}",
        b"{\"name\": \"x\"}}",
        b"null",
        b"1",
        b"\"x\"",
        b"[]",
        b"[\"x\"]",
        b"[\"x\", null, null]",
        b"true",
        b"name=x",
        b"<name>x</name>",
        b"{\"name\": \"x\ny\"}",
        b"\xef\xbb\xbf",
        b"{\"name\": \"\xff\xfe\"}",
        b"{\"name\": \"\\ud800\"}",
        b"{\"name\": \"\x00\"}",
        b"\x00",
        b"{\"name\": \"x\", \"name\": \"y\"}",
        b"{\"name\": NaN}",
        b"\x1f\x8b\x08\x00",
    ];
    for body in broken {
        let answer = app.call(Method::POST, KEYS).key(&ada.api_key).raw(*body).send().await;
        let error = answer.expect_error(400, "bad_request");
        assert_eq!(fields(&error), ["code", "message"], "{}", String::from_utf8_lossy(body));
    }
    let keys = app.get(KEYS).key(&ada.api_key).send().await.expect(200);
    assert_eq!(keys["keys"].as_array().unwrap().len(), 1, "none of them made a key");
    // Public endpoints are as strict.
    let login = format!("[\"{}\", \"{PASSWORD}\"]", ada.email);
    app.call(Method::POST, "/api/v1/login").raw(login).send().await.expect_error(400, "bad_request");
});

on_both!(unknown_fields_are_ignored_and_wrong_types_named, |app| async move {
    let ada = app.signup("acme").await;
    let body = json!({"name": "x", "colour": "red", "nested": {"deep": [1, {"er": null}]}});
    app.post(KEYS, body).key(&ada.api_key).send().await.expect(201);
    for (field, value) in [
        ("name", json!(1)),
        ("name", json!(null)),
        ("name", json!({})),
        ("scopes", json!("*")),
        ("scopes", json!([true])),
        ("app_id", json!(7)),
        ("app_id", json!([])),
        ("app_id", json!("x")),
    ] {
        let mut body = json!({"name": "x"});
        body[field] = value;
        assert_field_error(&app.post(KEYS, body).key(&ada.api_key).send().await, field);
    }
});

on_both!(a_nul_in_a_text_is_refused_wherever_it_stands, |app| async move {
    let ada = app.signup("acme").await;
    for body in [
        r#"{"name": "a\u0000b"}"#,
        r#"{"name": "x", "scopes": ["model:\u0000"]}"#,
        r#"{"\u0000": 1, "name": "x"}"#,
    ] {
        let answer = app.call(Method::POST, KEYS).key(&ada.api_key).raw(body).send().await;
        answer.expect_error(400, "bad_request");
    }
    for (path, body) in [
        ("/api/v1/login", json!({"email": "a\u{0}@b.c", "password": PASSWORD})),
        ("/api/v1/login", json!({"email": ada.email, "password": "\u{0}"})),
        ("/api/v1/signup", json!({"email": "a@b.c", "password": "12345678\u{0}", "org_slug": "x"})),
        ("/api/v1/setup", json!({"org_name": "\u{0}"})),
    ] {
        app.post(path, body).send().await.expect_error(400, "bad_request");
    }
    let spelled = app.create_key(&ada.token, json!({"name": "a\\u0000b"})).await;
    assert_eq!(spelled.answer["key"]["name"], "a\\u0000b");
    for path in ["/api/v1/keys/%00", "/api/v1/keys?cursor=%00", "/api/v1/keys?limit=%00"] {
        app.get(path).key(&ada.api_key).send().await.expect_error(400, "bad_request");
    }
});

on_both!(unusual_texts_come_back_as_they_were_sent, |app| async move {
    let ada = app.signup("acme").await;
    for name in ["Ключ №1 🔑", "'; DROP TABLE api_keys; --", "\"quoted\" \\ back", "e\u{301}", "%s %00 {}"]
    {
        let made = app.create_key(&ada.token, json!({"name": name})).await;
        let shown = app.get(&made.path()).bearer(&ada.token).send().await.expect(200);
        assert_eq!(shown["name"], name);
    }
});

on_both!(deep_nesting_breaks_nothing, |app| async move {
    let ada = app.signup("acme").await;
    for depth in [200, 50_000] {
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for body in [nested.clone(), format!("{{\"name\": {nested}}}"), format!("{{\"scopes\": {nested}}}")] {
            let answer = app.call(Method::POST, KEYS).key(&ada.api_key).raw(body).send().await;
            answer.expect_error(400, "bad_request");
        }
        let ignored = format!("{{\"more\": {nested}, \"name\": \"x\"}}");
        let answer = app.call(Method::POST, KEYS).key(&ada.api_key).raw(ignored).send().await;
        assert!(matches!(answer.status.as_u16(), 201 | 400), "{}", answer.text());
    }
    app.get(KEYS).key(&ada.api_key).send().await.expect(200);
});

on_both!(a_body_above_the_limit_is_too_large, [("GATEWAY_MAX_BODY_BYTES", "2000")], |app| async move {
    let ada = app.signup("acme").await;
    let body = |size: usize| format!("{{\"name\": \"x\", \"pad\": \"{}\"}}", "p".repeat(size - 24));
    assert_eq!((body(2000).len(), body(2001).len()), (2000, 2001));
    let post = |size: usize| app.call(Method::POST, KEYS).key(&ada.api_key).raw(body(size)).send();
    post(2000).await.expect(201);
    for size in [2001, 20_000] {
        let error = post(size).await.expect_error(413, "payload_too_large");
        assert_eq!(fields(&error), ["code", "message"]);
    }
    let public = app.call(Method::POST, "/api/v1/login").raw(body(2001)).send().await;
    public.expect_error(413, "payload_too_large");
    // The role is checked before the size of the body.
    app.call(Method::POST, KEYS).raw(body(2001)).send().await.expect_error(401, "unauthorized");
});

on_both!(the_content_type_does_not_matter, |app| async move {
    let ada = app.signup("acme").await;
    for kind in ["application/json; charset=utf-8", "text/plain", "application/x-www-form-urlencoded"] {
        let call = app.call(Method::POST, KEYS).key(&ada.api_key).header("content-type", kind);
        call.raw(r#"{"name": "x"}"#).send().await.expect(201);
    }
    app.call(Method::POST, KEYS).key(&ada.api_key).raw(r#"{"name": "x"}"#).send().await.expect(201);
});
