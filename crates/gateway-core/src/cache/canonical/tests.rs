//! Tests of when two requests are the same.

use std::collections::HashSet;

use serde_json::json;
use uuid::Uuid;

use super::*;

const ORG: OrgId = OrgId(Uuid::from_u128(1));
const TARGET: CacheTarget<'_> =
    CacheTarget { provider: "openai", base: None, model: Some("gpt-4o"), edits: "" };

fn parts() -> KeyParts<'static> {
    KeyParts {
        org: ORG,
        namespace: "",
        targets: &[TARGET],
        format: None,
        path: "/v1/chat/completions",
        query: None,
        content_type: Some("application/json"),
        headers: &[],
    }
}

fn full_key(parts: &KeyParts<'_>, body: &[u8]) -> Result<CacheKey, NotCacheable> {
    CanonicalBody::of(body).map(|canonical| key(parts, &canonical, body))
}

fn key_of(body: &str) -> CacheKey {
    full_key(&parts(), body.as_bytes()).unwrap()
}

#[test]
fn everything_that_changes_the_answer_changes_the_key() {
    let base = parts();
    let other = CacheTarget { provider: "azure-openai", ..TARGET };
    let moved = CacheTarget { base: Some("http://one"), ..TARGET };
    let mini = CacheTarget { model: Some("gpt-4o-mini"), ..TARGET };
    let edited = CacheTarget { edits: "temperature", ..TARGET };
    let all = [
        base,
        KeyParts { org: OrgId(Uuid::from_u128(2)), ..base },
        KeyParts { namespace: "a", ..base },
        KeyParts { targets: &[other], ..base },
        KeyParts { targets: &[moved], ..base },
        KeyParts { targets: &[mini], ..base },
        KeyParts { targets: &[CacheTarget { model: None, ..TARGET }], ..base },
        KeyParts { targets: &[edited], ..base },
        KeyParts { targets: &[CacheTarget { model: Some(""), ..TARGET }], ..base },
        KeyParts { targets: &[TARGET, other], ..base },
        KeyParts { targets: &[other, TARGET], ..base },
        KeyParts { format: Some("anthropic"), ..base },
        KeyParts { path: "/v1/completions", ..base },
        KeyParts { query: Some("api-version=1"), ..base },
        KeyParts { query: Some("api-version=2"), ..base },
        KeyParts { headers: &[("anthropic-beta", b"a")], ..base },
        KeyParts { headers: &[("anthropic-beta", b"b")], ..base },
        KeyParts { headers: &[("anthropic-beta", b"b"), ("anthropic-version", b"1")], ..base },
        KeyParts { headers: &[("x-sandbox-reply", b"b")], ..base },
    ];
    let keys: HashSet<CacheKey> = all.iter().map(|parts| full_key(parts, b"{}").unwrap()).collect();
    assert_eq!(keys.len(), all.len());
    assert!(!keys.contains(&key_of(r#"{"temperature":1}"#)));
}

#[test]
fn parts_never_run_into_each_other() {
    let base = parts();
    let (ab, a_b) =
        (KeyParts { namespace: "ab", path: "c", ..base }, KeyParts { namespace: "a", path: "bc", ..base });
    assert_ne!(full_key(&ab, b""), full_key(&a_b, b""));
    let split = PromptSplit { rest: b"{}".to_vec(), text: "x".into() };
    assert_ne!(Ok(semantic_key(&base, &split)), full_key(&base, b"{}"));
}

#[test]
fn how_the_answer_is_delivered_changes_nothing() {
    let plain = key_of(r#"{"model":"m","messages":[],"temperature":1}"#);
    for body in [
        r#"{"temperature":1.0,"messages":[],"model":"m"}"#,
        "{ \"model\": \"m\",\n \"messages\": [ ], \"temperature\": 1e0 }",
        r#"{"model":"m","messages":[],"temperature":1,"stream":true,"stream_options":{"include_usage":true}}"#,
        r#"{"stream":false,"model":"m","messages":[],"temperature":1}"#,
    ] {
        assert_eq!(key_of(body), plain, "{body}");
    }
    let at = |path: &str, query: Option<&str>| full_key(&KeyParts { path, query, ..parts() }, b"{}").unwrap();
    let gemini = at("/v1beta/models/g:generateContent", None);
    assert_eq!(gemini, at("/v1beta/models/g:streamGenerateContent", Some("alt=sse")));
    assert_eq!(gemini, at("/v1beta/models/g:streamGenerateContent", Some("key=secret&alt=sse")));
    assert_eq!(at("/model/c/converse", None), at("/model/c/converse-stream", None));
    assert_eq!(at("/x", Some("a=1&b=2")), at("/x", Some("b=2&a=1")));
    assert_ne!(at("/x", Some("a=1&a=2")), at("/x", Some("a=2&a=1")));
}

#[test]
fn headers_that_change_nothing_stay_out() {
    let with = |headers: &[(&str, &[u8])]| full_key(&KeyParts { headers, ..parts() }, b"{}").unwrap();
    assert_eq!(with(&[("user-agent", b"x"), ("authorization", b"y"), ("x-request-id", b"1")]), with(&[]));
    let (beta, version) = (("anthropic-beta", &b"x"[..]), ("anthropic-version", &b"y"[..]));
    assert_eq!(with(&[beta, version]), with(&[version, beta]));
    assert!(affects_response("openai-beta") && !affects_response("x-gateway-key"));
}

#[test]
fn bodies_that_are_not_json_count_byte_by_byte_and_by_their_type() {
    let with = |kind, body: &[u8]| full_key(&KeyParts { content_type: Some(kind), ..parts() }, body).unwrap();
    assert_eq!(with("text/plain", b"a b"), with("text/plain", b"a b"));
    assert_ne!(with("text/plain", b"a b"), with("text/plain", b"a  b"));
    assert_ne!(with("multipart/form-data; boundary=1", b"x"), with("multipart/form-data; boundary=2", b"x"));
    assert_eq!(with("application/json; charset=utf-8", b"{}"), with("application/json", b"{ }"));
}

#[test]
fn requests_without_a_reliable_key_are_not_cached() {
    let refused = |body: &str| full_key(&parts(), body.as_bytes()).unwrap_err();
    assert_eq!(refused(r#"{"model":"a","model":"b"}"#), NotCacheable::DuplicateKey);
    assert_eq!(refused(&format!("{}1", "[".repeat(200))), NotCacheable::TooDeep);
    assert_eq!(refused(r#"{"conversation":"c_1"}"#), NotCacheable::Stateful("conversation"));
    assert_eq!(refused(r#"{"container":{"id":"c"}}"#), NotCacheable::Stateful("container"));
    assert_eq!(refused(r#"{"background":true}"#), NotCacheable::Stateful("background"));
    assert!(full_key(&parts(), br#"{"background":false,"conversation":null}"#).is_ok());
}

#[test]
fn only_computing_calls_are_cached() {
    for operation in [Operation::Chat, Operation::Responses, Operation::Messages, Operation::Embeddings] {
        assert!(is_cacheable("POST", operation) && !is_cacheable("GET", operation), "{operation:?}");
    }
    assert!(!is_cacheable("POST", Operation::Other) && !is_cacheable("POST", Operation::Models));
}

#[test]
fn only_complete_successes_are_stored() {
    let chat = json!({"choices": [{"message": {"content": "x"}}]});
    let message = json!({"type": "message", "stop_reason": "end_turn"});
    for (operation, body) in [
        (Operation::Chat, chat.clone()),
        (Operation::Chat, json!({"message": {"content": "x"}})),
        (Operation::Messages, message.clone()),
        (Operation::Responses, json!({"status": "completed", "error": null})),
        (Operation::GenerateContent, json!({"candidates": [{}]})),
        (Operation::Embeddings, json!({"data": []})),
    ] {
        let body = body.to_string();
        assert!(is_storable(operation, 200, body.as_bytes()), "{body}");
        for status in [201, 206, 400, 429, 500] {
            assert!(!is_storable(operation, status, body.as_bytes()), "{status} {body}");
        }
    }
    for (operation, body) in [
        (Operation::Chat, json!({"error": {"message": "no"}})),
        (Operation::Chat, json!({"choices": []})),
        (Operation::Chat, json!({"choices": [{"error": {"code": 502}}]})),
        (Operation::Messages, json!({"type": "error", "error": {}})),
        (Operation::Messages, json!({"type": "message", "stop_reason": null})),
        (Operation::Responses, json!({"status": "incomplete"})),
        (Operation::Responses, json!({"status": "in_progress"})),
        (Operation::GenerateContent, json!({"promptFeedback": {"blockReason": "OTHER"}})),
        (Operation::Chat, json!([1])),
    ] {
        assert!(!is_storable(operation, 200, body.to_string().as_bytes()), "{body}");
    }
    assert!(!is_storable(Operation::Chat, 200, b"") && !is_storable(Operation::Chat, 200, b"data: x\n\n"));
}

#[test]
fn keys_read_back_as_themselves() {
    let key = key_of("{}");
    assert_eq!(CacheKey::parse(&key.to_string()), Some(key));
    assert_eq!(CacheKey::parse("12"), None);
    assert_eq!(CacheKey::parse(&"z".repeat(64)), None);
}
