//! Parameters and results between the revisions with and without sessions.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::message::{Members, raw};
use super::names::namespaced_uri;
use super::revision::{Era, MODERN, meta};

/// Members of `_meta` that only requests of 2026-07-28 have.
const PER_REQUEST: [&str; 4] = [
    meta::PROTOCOL_VERSION,
    meta::CLIENT_CAPABILITIES,
    meta::CLIENT_INFO,
    "io.modelcontextprotocol/logLevel",
];
/// Members of results that only 2026-07-28 has.
const RESULT_MEMBERS: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// What a client says about itself.
#[derive(Debug, Clone)]
pub struct ClientFacts {
    pub info: Value,
    pub capabilities: Value,
}

impl ClientFacts {
    /// The facts in the parameters of a modern request or of `initialize`.
    pub fn of(params: &Members) -> Self {
        let meta = params.members("_meta").unwrap_or_default();
        let find = |in_meta: &str, own: &str| meta.value(in_meta).or_else(|| params.value(own));
        let or_empty = |value: Option<Value>| value.filter(Value::is_object).unwrap_or_else(|| json!({}));
        Self {
            info: or_empty(find(meta::CLIENT_INFO, "clientInfo")),
            capabilities: or_empty(find(meta::CLIENT_CAPABILITIES, "capabilities")),
        }
    }
}

/// The parameters for a server with sessions.
pub fn for_legacy_server(mut params: Members) -> Members {
    if let Some(mut own) = params.members("_meta") {
        for name in PER_REQUEST {
            own.remove(name);
        }
        if own.is_empty() {
            params.remove("_meta");
        } else {
            params.set("_meta", &own);
        }
    }
    params
}

/// The parameters for a server without sessions, on behalf of the client.
pub fn for_modern_server(mut params: Members, client: &ClientFacts) -> Members {
    let mut own = params.members("_meta").unwrap_or_default();
    own.set(meta::PROTOCOL_VERSION, &MODERN);
    own.set(meta::CLIENT_INFO, &client.info);
    own.set(meta::CLIENT_CAPABILITIES, &client.capabilities);
    params.set("_meta", &own);
    params
}

/// The result as a client of the era expects it.
pub fn result_for(era: Era, result: &RawValue) -> Box<RawValue> {
    let Some(mut members) = Members::from_raw(result) else { return result.to_owned() };
    if era.is_modern() {
        if members.get("resultType").is_none() {
            members.set("resultType", &"complete");
        }
    } else {
        for name in RESULT_MEMBERS {
            members.remove(name);
        }
    }
    raw(&members)
}

/// Whether the server asks the client something before it goes on.
pub fn is_input_required(result: &RawValue) -> bool {
    let members = Members::from_raw(result);
    members.is_some_and(|members| members.text("resultType").as_deref() == Some("input_required"))
}

/// What a client with a session gets instead of a question that it cannot be asked.
pub fn refused_input() -> Box<RawValue> {
    let text = "The server asks for more input before it goes on, which this revision of the protocol cannot carry. Use \
                a client of revision 2026-07-28.";
    raw(&json!({"content": [{"type": "text", "text": text}], "isError": true}))
}

/// The result with the URIs of its resources as they are in the list of all servers.
pub fn scoped_result(server: &str, result: &RawValue) -> Box<RawValue> {
    let Some(mut members) = Members::from_raw(result) else { return result.to_owned() };
    for list in ["contents", "content"] {
        let scoped = members.get(list).and_then(|items| scoped_items(server, items));
        if let Some(scoped) = scoped {
            members.set(list, &scoped);
        }
    }
    if let Some(skill) = members.members("skill") {
        members.set("skill", &scoped_skill(server, skill));
    }
    raw(&members)
}

/// The entry of a skill with URIs as they are in the list of all servers.
#[must_use]
pub fn scoped_skill(server: &str, skill: Members) -> Members {
    let mut skill = scoped_item(server, skill);
    let scoped = skill.get("resources").and_then(|files| scoped_items(server, files));
    if let Some(scoped) = scoped {
        skill.set("resources", &scoped);
    }
    skill
}

/// The items of a list, of which those without URIs stay as they are. `None` if it is no list. Only one item at a time is
/// parsed: the members of many small ones take a multiple of their text.
fn scoped_items(server: &str, items: &RawValue) -> Option<Box<RawValue>> {
    let items: Vec<&RawValue> = serde_json::from_str(items.get()).ok()?;
    let scoped = items.into_iter().map(|item| match Members::from_raw(item) {
        Some(members) if members.get("uri").is_some() || members.get("resource").is_some() => {
            Cow::Owned(raw(&scoped_item(server, members)))
        }
        _ => Cow::Borrowed(item),
    });
    Some(raw(&scoped.collect::<Vec<Cow<'_, RawValue>>>()))
}

fn scoped_item(server: &str, mut item: Members) -> Members {
    if let Some(uri) = item.text("uri") {
        item.set("uri", &namespaced_uri(server, &uri));
    }
    if let Some(mut resource) = item.members("resource")
        && let Some(uri) = resource.text("uri")
    {
        resource.set("uri", &namespaced_uri(server, &uri));
        item.set("resource", &resource);
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Members {
        serde_json::from_str(text).unwrap()
    }

    fn text(value: &impl serde::Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }

    #[test]
    fn what_a_modern_client_says_about_itself_is_not_sent_to_a_server_with_sessions() {
        let params = format!(
            r#"{{"name":"a","_meta":{{"{}":"{MODERN}","{}":{{}},"progressToken":7}}}}"#,
            meta::PROTOCOL_VERSION,
            meta::CLIENT_INFO
        );
        assert_eq!(text(&for_legacy_server(members(&params))), r#"{"_meta":{"progressToken":7},"name":"a"}"#);
        let only = format!(r#"{{"_meta":{{"{}":"{MODERN}"}}}}"#, meta::PROTOCOL_VERSION);
        assert_eq!(text(&for_legacy_server(members(&only))), "{}");
    }

    #[test]
    fn a_server_without_sessions_learns_of_the_client_with_each_request() {
        let client = ClientFacts::of(&members(r#"{"clientInfo":{"name":"c"},"capabilities":{"roots":{}}}"#));
        let sent = for_modern_server(members(r#"{"name":"a"}"#), &client);
        let own = sent.members("_meta").unwrap();
        assert_eq!(own.text(meta::PROTOCOL_VERSION).as_deref(), Some(MODERN));
        assert_eq!(own.value(meta::CLIENT_INFO), Some(json!({"name": "c"})));
        assert_eq!(ClientFacts::of(&sent).capabilities, json!({"roots": {}}));
    }

    #[test]
    fn results_have_the_members_of_the_client_s_revision() {
        let plain = RawValue::from_string(r#"{"tools":[]}"#.into()).unwrap();
        let modern = result_for(Era::Modern, &plain);
        assert_eq!(modern.get(), r#"{"resultType":"complete","tools":[]}"#);
        let whole = RawValue::from_string(
            r#"{"tools":[],"resultType":"complete","ttlMs":1,"cacheScope":"x"}"#.into(),
        );
        assert_eq!(result_for(Era::Legacy("2025-06-18"), &whole.unwrap()).get(), r#"{"tools":[]}"#);
        let asking = RawValue::from_string(r#"{"resultType":"input_required"}"#.into()).unwrap();
        assert!(is_input_required(&asking) && !is_input_required(&modern));
        assert_eq!(result_for(Era::Modern, &asking).get(), asking.get());
    }

    #[test]
    fn uris_in_results_name_their_server() {
        let result = r#"{"content":[{"type":"resource_link","uri":"file:///a"},{"type":"resource","resource":{"uri":"ui://x"}},{"type":"text","text":"t"}]}"#;
        let scoped = scoped_result("s", &RawValue::from_string(result.into()).unwrap());
        let value: Value = serde_json::from_str(scoped.get()).unwrap();
        assert_eq!(value["content"][0]["uri"], "s+file:///a");
        assert_eq!(value["content"][1]["resource"]["uri"], "ui://s/x");
        assert_eq!(value["content"][2]["text"], "t");
        let skill =
            r#"{"skill":{"uri":"skill://a/SKILL.md","resources":[{"uri":"skill://a/SKILL.md","size":1}]}}"#;
        let scoped = scoped_result("s", &RawValue::from_string(skill.into()).unwrap());
        let value: Value = serde_json::from_str(scoped.get()).unwrap();
        assert_eq!(value["skill"]["uri"], "skill://s/a/SKILL.md");
        assert_eq!(value["skill"]["resources"][0]["uri"], "skill://s/a/SKILL.md");
        let dynamic = r#"{"skill":{"uri":"skill://a/SKILL.md","resources":"dynamic"}}"#;
        let scoped = scoped_result("s", &RawValue::from_string(dynamic.into()).unwrap());
        assert!(scoped.get().contains(r#""resources":"dynamic""#));
    }
}
