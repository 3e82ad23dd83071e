//! The changes of an entry: what differs between two states of a resource, without secrets and without large values.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::canonical::{MAX_EXACT, canonical};

/// Values with a longer text are replaced by their hash.
pub const MAX_VALUE: usize = 4096;
/// What stands in the place of a secret.
pub const SECRET: &str = "(secret)";
/// Fields whose value is a secret wherever they occur.
const SECRET_FIELDS: &[&str] = &[
    "api_key",
    "api_keys",
    "authorization",
    "client_secret",
    "headers",
    "invite_token",
    "new_password",
    "password",
    "private_key",
    "raw_key",
    "secret",
    "token",
];

/// A difference between two states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditChange")]
pub struct Change {
    /// A JSON pointer, such as `/settings/log_bodies`.
    pub path: String,
    /// Null if it was not there.
    pub from: Value,
    /// Null if it is gone.
    pub to: Value,
}

impl Change {
    /// A secret that was set, replaced or removed.
    pub fn secret(field: &str) -> Self {
        Self { path: format!("/{field}"), from: SECRET.into(), to: SECRET.into() }
    }
}

/// The differences between two JSON objects, in the order of their names. Arrays are compared as a whole.
pub fn differences(from: &Value, to: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare(&mut found, &mut String::new(), from, to);
    found
}

fn compare(found: &mut Vec<Change>, path: &mut String, from: &Value, to: &Value) {
    if from == to {
        return;
    }
    let empty = Map::new();
    let (old, new) = match (from, to) {
        (Value::Object(old), Value::Object(new)) => (old, new),
        (Value::Object(old), Value::Null) if path.is_empty() => (old, &empty),
        (Value::Null, Value::Object(new)) if path.is_empty() => (&empty, new),
        _ => {
            found.push(Change { path: path.clone(), from: shown(from), to: shown(to) });
            return;
        }
    };
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let (before, after) = (old.get(name).unwrap_or(&Value::Null), new.get(name).unwrap_or(&Value::Null));
        if before == after {
            continue;
        }
        let length = path.len();
        let _ = write!(path, "/{}", name.replace('~', "~0").replace('/', "~1"));
        if is_secret(name) {
            found.push(Change { path: path.clone(), from: hidden(before), to: hidden(after) });
        } else {
            compare(found, path, before, after);
        }
        path.truncate(length);
    }
}

fn is_secret(name: &str) -> bool {
    SECRET_FIELDS.iter().any(|secret| name.eq_ignore_ascii_case(secret))
}

fn hidden(value: &Value) -> Value {
    if value.is_null() { Value::Null } else { SECRET.into() }
}

/// A value as an entry shows it: without secrets, every number exact, and a large one as its hash.
fn shown(value: &Value) -> Value {
    let value = redacted(value);
    let text = canonical(&value);
    if text.len() <= MAX_VALUE {
        return value;
    }
    json!({"sha256": hex::encode(Sha256::digest(&text)), "bytes": text.len()})
}

fn redacted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let member = |(name, value): (&String, &Value)| {
                (name.clone(), if is_secret(name) { hidden(value) } else { redacted(value) })
            };
            Value::Object(object.iter().map(member).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(redacted).collect()),
        Value::String(text) => Value::String(without_credentials(text)),
        Value::Number(number) if is_inexact(number) => Value::String(number.to_string()),
        other => other.clone(),
    }
}

/// Canonical JSON has only doubles.
fn is_inexact(number: &serde_json::Number) -> bool {
    number.as_u64().is_some_and(|value| value > MAX_EXACT)
        || number.as_i64().is_some_and(|value| value.unsigned_abs() > MAX_EXACT)
}

/// A URL without its user information and query, which may be credentials.
fn without_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text
        .split_once("://")
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
    else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{SECRET}@{host}"),
        None => authority.to_owned(),
    };
    let path = match path.find('?') {
        Some(query) => format!("{}?{SECRET}", &path[..query]),
        None => path.to_owned(),
    };
    format!("{scheme}://{authority}{path}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn changes(from: &Value, to: &Value) -> Value {
        json!(differences(from, to))
    }

    #[test]
    fn only_differences_are_listed() {
        let from = json!({"name": "a", "settings": {"log_bodies": true, "x": 1}, "scopes": ["*"], "same": 1});
        let to =
            json!({"name": "b", "settings": {"log_bodies": false, "x": 1}, "scopes": ["read"], "same": 1});
        assert_eq!(
            changes(&from, &to),
            json!([
                {"path": "/name", "from": "a", "to": "b"},
                {"path": "/scopes", "from": ["*"], "to": ["read"]},
                {"path": "/settings/log_bodies", "from": true, "to": false},
            ])
        );
        assert_eq!(changes(&json!({"a": 1}), &json!({"a": 1})), json!([]));
        assert_eq!(
            changes(&Value::Null, &json!({"a/b": 1, "n": null})),
            json!([{"path": "/a~1b", "from": null, "to": 1}])
        );
        assert_eq!(changes(&json!({"a": 1}), &Value::Null), json!([{"path": "/a", "from": 1, "to": null}]));
    }

    #[test]
    fn secrets_never_enter() {
        let to = json!({"api_key": "sk-1", "url": "https://user:hunter2@h/p?key=s3cret", "deep": [{"Password": "p"}]});
        let text = changes(&Value::Null, &to).to_string();
        assert_eq!(
            text,
            json!([
                {"path": "/api_key", "from": null, "to": "(secret)"},
                {"path": "/deep", "from": null, "to": [{"Password": "(secret)"}]},
                {"path": "/url", "from": null, "to": "https://(secret)@h/p?(secret)"},
            ])
            .to_string()
        );
    }

    #[test]
    fn a_large_value_is_replaced_by_its_hash_and_an_inexact_number_by_its_digits() {
        let fits = "x".repeat(MAX_VALUE - 2);
        assert_eq!(changes(&Value::Null, &json!({"v": fits}))[0]["to"], json!(fits));
        let large = "x".repeat(MAX_VALUE - 1);
        let expected = hex::encode(Sha256::digest(format!("\"{large}\"")));
        assert_eq!(
            changes(&Value::Null, &json!({"v": large}))[0]["to"],
            json!({"sha256": expected, "bytes": MAX_VALUE + 1})
        );
        assert_eq!(
            changes(&Value::Null, &json!({"v": 9_007_199_254_740_993_u64}))[0]["to"],
            json!("9007199254740993")
        );
    }

    proptest! {
        #[test]
        fn no_secret_survives(name in 0..SECRET_FIELDS.len(), depth in 0..5_usize, secret in "[a-z]{12}") {
            let mut value = json!({(SECRET_FIELDS[name]): secret});
            for level in 0..depth {
                value = if level % 2 == 0 { json!({"nested": value}) } else { json!([value]) };
            }
            let text = serde_json::to_string(&differences(&Value::Null, &json!({"v": value}))).unwrap();
            prop_assert!(!text.contains(&secret));
        }
    }
}
