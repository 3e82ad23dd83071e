//! Attacks on the processor: evaluators, comparisons, skills and imports that cost much for few bytes.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::victim::api_request;
use super::Attacker;

const PAUSE: Duration = Duration::from_millis(50);
const TEXT_BYTES: usize = 60 << 10;

/// Patterns that almost match at each position, a schema with many parts, and a comparison of long texts.
fn evaluators() -> Vec<Value> {
    let rules: Vec<Value> =
        (0..500).map(|number| json!({"pattern": format!("a{{{}}}b", 1 + number % 50)})).collect();
    vec![
        json!({"evaluator": "regex", "config": {"field": "request", "pattern": "a[ab]{8000}[^ab]"}}),
        json!({"evaluator": "regex", "config": {"field": "request", "pattern": "a[ab]{500}[^ab]"}}),
        json!({"evaluator": "regex", "config": {"field": "request", "pattern": "(a|b|ab)*c"}}),
        json!({"evaluator": "json_schema", "config": {"field": "request:/messages/0/content", "schema": {"anyOf": rules}}}),
        json!({"evaluator": "levenshtein", "type": "similarity", "config": {"field": "request", "reference": "ab".repeat(2_000)}}),
    ]
}

/// A text of `a` and `b` without a period.
fn text(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state & 1 == 0 { 'a' } else { 'b' }
    };
    (0..TEXT_BYTES).map(|_| letter()).collect()
}

/// Every request is judged by every evaluator.
pub(super) async fn evals(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    for (number, mut eval) in evaluators().into_iter().enumerate() {
        eval["name"] = json!(format!("live {task} {number}"));
        eval["type"] = eval.get("type").cloned().unwrap_or_else(|| json!("static"));
        eval["sample_rate"] = json!(1.0);
        attacker.api("evals", &mut client, ("POST", "/evals"), &eval).await;
    }
    for number in 0_u64.. {
        let body = json!({"model": "sandbox-small", "messages": [{"role": "user", "content": text(number)}]});
        let request = attacker.proxied("X-Gateway-Provider: sandbox\r\n", body.to_string().as_bytes());
        attacker.send("evals", &mut client, &request).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs of the same evaluators over all rows.
pub(super) async fn eval_runs(attacker: Arc<Attacker>, _: usize) {
    let mut client = attacker.client();
    let mut evals = Vec::new();
    for (number, mut eval) in evaluators().into_iter().enumerate() {
        eval["name"] = json!(format!("run {number}"));
        eval["type"] = eval.get("type").cloned().unwrap_or_else(|| json!("static"));
        evals.extend(attacker.api("eval-runs", &mut client, ("POST", "/evals"), &eval).await);
    }
    loop {
        for eval in &evals {
            let path = format!("/evals/{}/run", eval["id"]);
            attacker.api("eval-runs", &mut client, ("POST", &path), &json!({"limit": 1_000})).await;
        }
        tokio::time::sleep(2 * PAUSE).await;
    }
}

/// Comparisons of many small messages over ten targets.
pub(super) async fn compare(attacker: Arc<Attacker>, _: usize) {
    let mut client = attacker.client();
    let messages = vec![json!({"role": "user", "content": ""}); 30_000];
    let targets = vec![json!({"provider": "sandbox", "model": "sandbox-small"}); 10];
    let body = json!({"messages": messages, "targets": targets}).to_string();
    let request = api_request("POST", "/playground/compare", &attacker.key, &body);
    loop {
        attacker.send("compare", &mut client, &request).await;
        tokio::time::sleep(4 * PAUSE).await;
    }
}

/// Large skills, each judged and compared with all others.
pub(super) async fn skills(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    for number in 0_u64.. {
        let body = json!({"name": format!("skill-{task}-{number}"), "description": "Writes letters a and b.",
            "body": text(number).repeat(3)});
        if let Some(skill) = attacker.api("skills", &mut client, ("POST", "/skills"), &body).await {
            let path = format!("/skills/{}/evaluate", skill["id"].as_str().unwrap_or_default());
            attacker.api("skills", &mut client, ("POST", &path), &Value::Null).await;
        }
        tokio::time::sleep(2 * PAUSE).await;
    }
}

/// Imports of many rows.
pub(super) async fn imports(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    let dataset = json!({"name": format!("hostile {task}")});
    let Some(dataset) = attacker.api("imports", &mut client, ("POST", "/datasets"), &dataset).await else {
        return;
    };
    let mut csv = String::from("input,expected\n");
    for number in 0..50_000 {
        // Writing to a String cannot fail.
        let _ = writeln!(csv, "\"question {number}\",\"answer {number}\"");
    }
    let path = format!("/datasets/{}/import", dataset["id"].as_str().unwrap_or_default());
    let request = api_request("POST", &path, &attacker.key, &csv);
    let request = String::from_utf8_lossy(&request).replace("application/json", "text/csv");
    loop {
        attacker.send("imports", &mut client, request.as_bytes()).await;
        tokio::time::sleep(2 * PAUSE).await;
    }
}
