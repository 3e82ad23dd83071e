//! Attacks through the paths of other clients: dialects of other gateways, standard clients, lists of models, and named
//! models with many patterns and conditions.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Attacker;

const NESTED: usize = 60;
const MODELS: usize = 120;
const CONDITIONS: usize = 50;
const TEXT_BYTES: usize = 200 << 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Every dialect, with large directives and bodies that are rewritten.
pub(super) async fn dialects(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    let requests = dialect_requests(&attacker.key);
    loop {
        for request in requests.iter().cycle().skip(task).take(requests.len()) {
            attacker.send("dialects", &mut client, request).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn dialect_requests(key: &str) -> Vec<Vec<u8>> {
    let text = "word ".repeat(TEXT_BYTES / 5);
    let body = |more: Value| {
        let mut body =
            json!({"model": "sandbox/sandbox-small", "messages": [{"role": "user", "content": text}]});
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        body.to_string()
    };
    let bearer = format!("Authorization: Bearer {key}\r\n");
    let targets = vec![json!({"provider": "sandbox", "override_params": {"model": "sandbox-small"}}); NESTED];
    let config = json!({"strategy": {"mode": "fallback"}, "targets": targets});
    let names: Vec<String> = (0..NESTED).map(|number| format!("nobody{number}/model")).collect();
    let fallbacks: Vec<Value> = names.iter().map(|name| json!({"model": name})).collect();
    let chat = "/v1/chat/completions";
    vec![
        post(&format!("/compat/litellm{chat}"), &bearer, &body(json!({"fallbacks": fallbacks}))),
        post(
            &format!("/compat/portkey{chat}"),
            &format!("x-portkey-api-key: {key}\r\nx-portkey-config: {config}\r\n"),
            &body(Value::Null),
        ),
        post(
            &format!("/compat/openrouter/api{chat}"),
            &bearer,
            &body(json!({"models": names, "provider": {"order": names, "ignore": names}})),
        ),
        post(
            &format!("/compat/helicone{chat}"),
            &format!("Helicone-Auth: Bearer {key}\r\n"),
            &body(Value::Null),
        ),
        post(&format!("/compat/bifrost{chat}"), &bearer, &body(json!({"fallbacks": names}))),
    ]
}

/// Standard clients: every format translated, unknown models, and lists of models.
pub(super) async fn sdk_paths(attacker: Arc<Attacker>, _: usize) {
    let mut client = attacker.client();
    let (bearer, api_key) =
        (format!("Authorization: Bearer {}\r\n", attacker.key), format!("x-api-key: {}\r\n", attacker.key));
    let parts = vec![json!({"type": "text", "text": "x"}); 10_000];
    let message = json!([{"role": "user", "content": parts}]);
    let translated = json!({"model": "sandbox/sandbox-small", "max_tokens": 10, "messages": message});
    let unknown = |number: u64| {
        let model = format!("{number}-{}", "m".repeat(2_000));
        json!({"model": model, "messages": []}).to_string()
    };
    for number in 0_u64.. {
        for request in [
            post("/sdk/v1/messages", &api_key, &translated.to_string()),
            post("/sdk/v1/chat/completions", &bearer, &unknown(number)),
            get("/sdk/v1/models", &bearer),
            get("/sdk/v1beta/models", &format!("x-goog-api-key: {}\r\n", attacker.key)),
        ] {
            attacker.send("sdk-paths", &mut client, &request).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Many patterns with many conditions: each call of another name compares all of them, and each change compiles them
/// again.
pub(super) async fn named_models(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    let path = format!("/orgs/{}/models", attacker.org);
    for number in 0..MODELS {
        let model = json!({"name": format!("{}{task}-*", "a".repeat(1 + number % 100)),
            "strategy": {"mode": "conditional", "conditions": conditions(number), "default": "1"},
            "targets": [{"id": "1", "provider": "sandbox", "model": "sandbox-small"}]});
        attacker.api("named-models", &mut client, ("POST", &path), &model).await;
    }
    let list = get("/v1/models", &format!("X-Gateway-Key: {}\r\nX-Gateway-Provider: auto\r\n", attacker.key));
    for number in 0_u64.. {
        let name = format!("{}{task}-{number}", "a".repeat(100));
        let body = json!({"model": name, "messages": [{"role": "user", "content": "hi"}]}).to_string();
        let request = attacker.proxied("X-Gateway-Provider: auto\r\n", body.as_bytes());
        attacker.send("named-models", &mut client, &request).await;
        attacker.send("named-models", &mut client, &list).await;
        if number.is_multiple_of(20) {
            let change = json!({"targets": [{"id": "1", "provider": "sandbox", "model": "sandbox-small"}]});
            let path = format!("{path}/a{task}-*");
            attacker.api("named-models", &mut client, ("PUT", &path), &change).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn conditions(seed: usize) -> Vec<Value> {
    let values: Vec<String> = (0..100).map(|number| format!("value {seed} {number}")).collect();
    let query = |number: usize| json!({format!("metadata.k{number}"): {"$in": values}});
    (0..CONDITIONS).map(|number| json!({"query": query(number), "then": "1"})).collect()
}

fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\
         \r\n\r\n{body}"
    )
    .into_bytes()
}

fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_has_a_request_whose_head_fits() {
        let requests = dialect_requests("key");
        for name in super::super::super::DIALECTS.split(',') {
            let begin = format!("POST /compat/{name}/");
            let request = requests.iter().find(|request| request.starts_with(begin.as_bytes())).unwrap();
            let head = crate::http::parse_head(request).unwrap();
            assert!(head.length < 16 << 10, "{name}: {}", head.length);
        }
    }
}
