//! `/openapi.yaml` and `/llms.txt` compared with the mounted routes.

use std::collections::{BTreeMap, BTreeSet};

use gateway::api::openapi;
use gateway::api::openapi::{Operation, Schemas};
use http::Method;
use serde_json::Value;

use crate::on_both;
use crate::support::routes::{fill_params, params, routes};
use crate::support::skills::ENTERPRISE;

/// Every operation of the document with its path and method.
fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, item)| {
            item.as_object().unwrap().iter().map(move |(method, op)| (path.as_str(), method.as_str(), op))
        })
        .collect()
}

/// Visits every object of a JSON value.
fn visit<'a>(value: &'a Value, see: &mut dyn FnMut(&'a serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            see(object);
            object.values().for_each(|inner| visit(inner, see));
        }
        Value::Array(items) => items.iter().for_each(|inner| visit(inner, see)),
        _ => {}
    }
}

on_both!(the_served_document_is_yaml_and_says_what_the_code_says, |app| async move {
    let ada = app.signup("acme").await;
    let served = app.get("/openapi.yaml").bearer(&ada.token).send().await;
    assert_eq!(served.header("content-type"), Some("application/yaml"));
    let parsed: Value = serde_saphyr::from_str(&served.text()).unwrap();
    assert_eq!(parsed, openapi::document());
    assert!(parsed["openapi"].as_str().unwrap().starts_with("3.1."));
    assert!(parsed["info"]["title"].is_string());
    assert_eq!(parsed["info"]["version"], env!("CARGO_PKG_VERSION"));
});

#[test]
fn no_field_of_the_document_has_a_default_of_null() {
    fn check(value: &Value, path: &str) {
        match value {
            Value::Object(members) => {
                assert_ne!(members.get("default"), Some(&Value::Null), "{path}");
                members.iter().for_each(|(name, value)| check(value, &format!("{path}/{name}")));
            }
            Value::Array(values) => values.iter().for_each(|value| check(value, path)),
            _ => {}
        }
    }
    check(&openapi::document(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_in_llms_txt_works() {
    let app = crate::support::TestApp::start_with(crate::support::Backend::Sqlite, &[]).await;
    let ada = app.signup("acme").await;
    let text = app.get("/llms.txt").key(&ada.api_key).send().await.text();
    for word in
        ["X-Gateway-Key", "X-Gateway-Provider", "X-Gateway-Fallback", "sandbox", "/openapi.yaml", "docs/"]
    {
        assert!(text.contains(word), "{word} is not in llms.txt");
    }
    let script = text.split("```").nth(1).and_then(|block| block.strip_prefix("sh\n")).unwrap().to_owned();
    let (url, key) = (format!("http://{}", app.address), ada.api_key.clone());
    let run = move || {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]).env("GATEWAY_URL", url).env("GATEWAY_KEY", key).env("NO_PROXY", "*");
        command.output()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "The sandbox read: Hello");
}

/// Headers that llms.txt names exist: the documentation of the proxy has them too.
#[test]
fn every_header_in_llms_txt_is_documented() {
    let documented = include_str!("../../../../docs/proxy.md");
    let words = openapi::llms_txt().split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let headers: BTreeSet<&str> = words.filter(|word| word.starts_with("X-Gateway-")).collect();
    assert!(headers.len() > 12, "{headers:?}");
    for header in headers {
        assert!(documented.contains(&format!("`{header}`")), "{header}");
    }
}

#[test]
fn every_mounted_route_is_in_both_documents() {
    let document = openapi::document();
    let mut documented: BTreeSet<_> = operations(&document)
        .iter()
        .map(|(path, method, _)| format!("{} {path}", method.to_uppercase()))
        .collect();
    for route in routes() {
        let line = format!("{} {}", route.method, route.path);
        assert!(openapi::llms_txt().contains(&format!("{line}:")), "{line} is not in llms.txt");
        assert!(documented.remove(&line), "{line} is not in the document, or mounted twice");
    }
    assert!(documented.is_empty(), "documented, but not mounted: {documented:?}");
}

on_both!(every_documented_operation_really_answers, ENTERPRISE, |app| async move {
    let ada = app.signup("acme").await;
    let document = openapi::document();
    for (path, method, operation) in operations(&document) {
        let method: Method = method.to_uppercase().parse().unwrap();
        // A malformed id is rejected by the route itself, which proves that the route exists. No id contains a NUL.
        let call = fill_params(path, |_| "Not-An-Id!%00".to_owned());
        // With a key, since the logout would end a token.
        let answer = app.call(method.clone(), &call).key(&ada.api_key).send().await;
        let code = answer.status.as_u16();
        // Where any text is a valid id, the route reports a missing resource; a missing route has another error.
        // Revisions of MCP before 2026-07-28 allow GET and DELETE, and this answer to them.
        if path.starts_with("/mcp") && method != Method::POST && code == 405 {
            continue;
        }
        let looked = code == 404 && answer.text().contains("no such resource");
        assert!(
            looked || (code < 500 && code != 404 && code != 405),
            "{method} {path}: {code} {}",
            answer.text()
        );
        // Where keys are refused, that comes before the id.
        let is_for_people = code == 403 && answer.text().contains("requires a session token");
        if !params(path).is_empty() && !looked && !is_for_people && code >= 300 {
            let coded = gateway::api::error_format_of(path) == gateway::problem::ErrorFormat::ErrorCode;
            answer.expect_error(400, if coded { "invalid_id" } else { "bad_request" });
        }
        if code < 300 {
            let responses = operation["responses"].as_object().unwrap();
            let described = &responses[&code.to_string()]["content"];
            let kind = answer.header("content-type").unwrap().split(';').next().unwrap();
            assert!(described.get(kind).is_some(), "{method} {path} answers {code} {kind}: {described}");
        }
    }
});

#[test]
fn operation_ids_are_unique_and_tags_are_known() {
    let document = openapi::document();
    let tags: BTreeSet<_> =
        document["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).map(Value::to_string).collect();
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap();
        assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{id}");
        assert!(ids.insert(id), "{id} names two operations");
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path}");
        assert!(operation["tags"].as_array().unwrap().iter().all(|tag| tags.contains(&tag.to_string())));
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.contains_key("default") && responses.len() > 1, "{method} {path}: {responses:?}");
    }
}

#[test]
fn every_parameter_of_a_path_is_declared_once() {
    let document = openapi::document();
    for (path, method, operation) in operations(&document) {
        let declared = operation["parameters"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<_> =
            declared.iter().map(|p| (p["in"].as_str().unwrap(), p["name"].as_str().unwrap())).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{method} {path} declares a parameter twice");
        let in_path: BTreeSet<_> =
            names.iter().filter(|(place, _)| *place == "path").map(|(_, name)| *name).collect();
        assert_eq!(in_path, params(path).into_iter().collect(), "{method} {path}");
        for parameter in &declared {
            assert!(parameter["schema"].is_object() && parameter["required"].is_boolean(), "{parameter}");
            assert!(parameter["in"] != "path" || parameter["required"] == true, "{parameter}");
        }
    }
}

#[test]
fn every_reference_resolves_and_every_schema_is_used() {
    let document = openapi::document();
    let mut used = BTreeSet::new();
    visit(&document, &mut |object| {
        assert!(!object.contains_key("$defs"), "a schema keeps definitions to itself: {object:?}");
        if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
            let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads outside"));
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
            used.insert(reference.rsplit('/').next().unwrap());
        }
    });
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(used.contains(name.as_str()), "{name} is never referred to");
    }
}

#[test]
fn no_schema_name_means_two_shapes() {
    let mut schemas = Schemas::default();
    for route in gateway::api::areas().iter().flat_map(|area| &area.routes) {
        Operation::of(route, &mut schemas);
    }
    let Schemas { mut input, mut output } = schemas;
    let read: BTreeMap<_, _> = input.take_definitions(true).into_iter().collect();
    let written: BTreeMap<_, _> = output.take_definitions(true).into_iter().collect();
    assert!(!read.is_empty() && !written.is_empty());
    for (name, shape) in &read {
        assert!(
            written.get(name).is_none_or(|other| other == shape),
            "{name} differs when read and when written"
        );
    }
    // A second type with the same name gets a numeric suffix.
    for name in read.keys().chain(written.keys()) {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let twin = stem.len() < name.len() && (read.contains_key(stem) || written.contains_key(stem));
        assert!(!twin, "{name} and {stem} are two types of one name");
    }
    for own in ["Error", "CodedError"] {
        assert!(!read.contains_key(own) && !written.contains_key(own), "{own} is taken by the errors");
    }
}

#[test]
fn the_document_says_which_operations_need_no_credential() {
    let document = openapi::document();
    let open: BTreeSet<_> = operations(&document)
        .into_iter()
        .filter(|(_, _, operation)| operation["security"] == serde_json::json!([]))
        .map(|(path, method, _)| format!("{method} {path}"))
        .collect();
    let expected = [
        "get /.well-known/jwks.json",
        "get /healthz",
        "get /s/{token}/{path}",
        "post /s/{token}/{path}",
        "post /api/v1/auth/reset",
        "post /api/v1/login",
        "post /api/v1/setup",
        "post /api/v1/signup",
    ];
    assert_eq!(open, expected.map(str::to_owned).into());
}
