//! Which limits apply to a call, whose bucket it counts in, and which definitions are refused.

use serde_json::{Map, json};
use uuid::Uuid;

use super::limit;
use crate::budget::Spender;
use crate::ids::{AppId, KeyId, LimitId, TeamId};
use crate::limits::{CallFacts, Definition, LimitSet};

fn facts(metadata: &Map<String, serde_json::Value>) -> CallFacts<'_> {
    CallFacts {
        spender: Spender {
            key: Some(KeyId(Uuid::from_u128(1))),
            app: Some(AppId(Uuid::from_u128(2))),
            team: Some(TeamId(Uuid::from_u128(3))),
        },
        user: None,
        subject: None,
        session: Some("s"),
        metadata,
        named_model: Some("fast"),
        model: Some("claude-haiku-4"),
    }
}

#[test]
fn scope_and_models_decide_together() {
    let metadata = Map::new();
    let call = facts(&metadata);
    let id = |number: u128| Uuid::from_u128(number).to_string();
    let cases = [
        (json!({"scope": "org"}), true),
        (json!({"scope": "key", "scope_id": id(1)}), true),
        (json!({"scope": "key", "scope_id": id(9)}), false),
        (json!({"scope": "app", "scope_id": id(2)}), true),
        (json!({"scope": "team", "scope_id": id(3)}), true),
        (json!({"scope": "team", "scope_id": id(2)}), false),
        (json!({"scope": "model", "scope_id": "fast"}), true),
        (json!({"scope": "model", "scope_id": "claude-haiku-4"}), true),
        (json!({"scope": "model", "scope_id": "claude"}), false),
        (json!({"models": ["claude-*"]}), true),
        (json!({"models": ["gpt-*", "*haiku*"]}), true),
        (json!({"models": ["*-4"]}), true),
        (json!({"models": ["claude-haiku-4"]}), true),
        (json!({"models": ["fast"]}), true),
        (json!({"models": ["claude-haiku"]}), false),
        (json!({"models": ["haiku*"]}), false),
        (json!({"models": ["*5"]}), false),
        (json!({"scope": "key", "scope_id": id(9), "models": ["claude-*"]}), false),
    ];
    for (mut definition, applies) in cases {
        definition["name"] = "l".into();
        definition["requests"] = 1.into();
        assert_eq!(limit(&definition.to_string()).applies_to(&call), applies, "{definition}");
    }
    let no_model = CallFacts { model: None, named_model: None, ..call };
    assert!(!limit(r#"{"name": "l", "requests": 1, "models": ["*"]}"#).applies_to(&no_model));
}

#[test]
fn a_rotated_key_keeps_its_limit() {
    let metadata = Map::new();
    let mut call = facts(&metadata);
    let definition = json!({"name": "l", "requests": 1, "scope": "key", "scope_id": Uuid::from_u128(1)});
    let definition: Definition = serde_json::from_value(definition).unwrap();
    let successor = KeyId(Uuid::from_u128(7));
    let set = LimitSet::new([(LimitId(Uuid::nil()), definition, vec![successor])]);
    assert!(set.limits[0].applies_to(&call));
    call.spender.key = Some(successor);
    assert!(set.limits[0].applies_to(&call));
}

#[test]
fn the_bucket_is_that_of_the_subject() {
    let metadata = json!({"tenant": "acme", "tier": 3, "none": null}).as_object().cloned().unwrap();
    let call = facts(&metadata);
    let bucket = |per: &str, call: &CallFacts<'_>| {
        let text = json!({"name": "l", "requests": 1, "per": per}).to_string();
        limit(&text).bucket_of(call).map(std::borrow::Cow::into_owned).unwrap()
    };
    assert_eq!(bucket("none", &call), "");
    assert_eq!(bucket("key", &call), Uuid::from_u128(1).to_string());
    assert_eq!(bucket("session", &call), "s");
    assert_eq!(bucket("metadata.tenant", &call), "acme");
    assert_eq!(bucket("metadata.tier", &call), "3");
    assert_eq!(bucket("metadata.none", &call), "", "shared by those without it");
    assert_eq!(bucket("user", &call), "");
    let member = CallFacts { subject: Some("member"), ..call };
    assert_eq!((bucket("user", &member), bucket("subject", &member)), ("member".into(), "member".into()));
    let named = CallFacts { user: Some("u"), ..member };
    assert_eq!(bucket("user", &named), "u");
    let refusing = limit(r#"{"name": "l", "requests": 1, "per": "user", "missing": "refuse"}"#);
    let missing = refusing.bucket_of(&call).unwrap_err();
    assert_eq!(missing.per.header(), Some("X-Gateway-User"));
    assert_eq!(refusing.bucket_of(&named).unwrap(), "u");
}

#[test]
fn wrong_definitions_name_their_field() {
    let cases = [
        (json!({"name": "Upper", "requests": 1}), "name"),
        (json!({"name": "l"}), "requests"),
        (json!({"name": "l", "tokens": 0}), "tokens"),
        (json!({"name": "l", "concurrent": 1_000_001}), "concurrent"),
        (json!({"name": "l", "requests": 1, "scope": "team"}), "scope_id"),
        (json!({"name": "l", "requests": 1, "scope_id": "x"}), "scope_id"),
        (json!({"name": "l", "requests": 1, "models": []}), "models"),
        (json!({"name": "l", "requests": 1, "models": [""]}), "models"),
        (json!({"name": "l", "requests": 1, "reserve": {"prod": 1.0}}), "reserve"),
        (json!({"name": "l", "requests": 1, "reserve": {"a": 0.6, "b": 0.6}}), "reserve"),
        (json!({"name": "l", "requests": 1, "reserve": {"A b": 0.6}}), "reserve"),
    ];
    for (definition, field) in cases {
        let parsed: Definition = serde_json::from_value(definition.clone()).unwrap();
        assert_eq!(parsed.check().unwrap_err().0, field, "{definition}");
    }
    for unknown in [json!({"name": "l", "request": 1}), json!({"name": "l", "requests": 1, "per": "city"})] {
        assert!(serde_json::from_value::<Definition>(unknown).is_err());
    }
    let text = r#"{"name":"l","scope":"org","per":"metadata.team","requests":5,"window":"hour","count_cached":true,"missing":"shared","mode":"dry_run","enabled":true}"#;
    let parsed: Definition = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&parsed).unwrap(), text);
}

#[test]
fn disabled_limits_are_left_out() {
    let definition: Definition =
        serde_json::from_str(r#"{"name": "l", "tokens": 1, "enabled": false}"#).unwrap();
    let set = LimitSet::new([(LimitId(Uuid::nil()), definition, Vec::new())]);
    assert!(set.is_empty() && !set.counts_tokens);
}
