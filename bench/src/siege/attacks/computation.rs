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

/// Replays of many rows with a local evaluator, and their estimates.
pub(super) async fn replays(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    let eval = evaluators().into_iter().next().map(|mut eval| {
        eval["name"] = json!(format!("replayed {task}"));
        eval["type"] = json!("static");
        eval
    });
    let eval = attacker.api("replays", &mut client, ("POST", "/evals"), &eval.unwrap_or_default()).await;
    let evals: Vec<Value> = eval.iter().map(|eval| eval["id"].clone()).collect();
    let target = json!({"provider": "sandbox", "model": "sandbox-large"});
    loop {
        let rows = json!({"query": "model:*sandbox* latency:>=0", "limit": 1_000, "target": target});
        attacker.api("replays", &mut client, ("POST", "/replays/estimate"), &rows).await;
        let mut replay = rows;
        (replay["name"], replay["eval_ids"]) = (json!("again"), json!(evals));
        if let Some(replay) = attacker.api("replays", &mut client, ("POST", "/replays"), &replay).await {
            for what in ["", "/rows?limit=200"] {
                let path = format!("/replays/{}{what}", replay["id"]);
                attacker.api("replays", &mut client, ("GET", &path), &Value::Null).await;
            }
        }
        tokio::time::sleep(2 * PAUSE).await;
    }
}

/// As many alerts as possible on all rows of a day, each tested again and again.
pub(super) async fn alerts(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    let path = format!("/orgs/{}/alerts", attacker.org);
    let measures = ["requests", "errors", "error_rate", "p95_ms", "cost_usd"];
    let mut made = Vec::new();
    for (number, measure) in measures.iter().cycle().take(30).enumerate() {
        let alert = json!({"name": format!("alert {task} {number}"), "query": "-model:*q*r*s*t* latency:>=0",
            "measure": measure, "above": 0, "window_minutes": 1_440});
        if let Some(alert) = attacker.api("alerts", &mut client, ("POST", &path), &alert).await {
            made.extend(alert["id"].as_str().map(str::to_owned));
        }
    }
    loop {
        for id in &made {
            let test = format!("{path}/{id}/test");
            attacker.api("alerts", &mut client, ("POST", &test), &json!({})).await;
            attacker.api("alerts", &mut client, ("GET", &format!("{path}/{id}/history")), &Value::Null).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Plans of imports of many keys, each of which is written in a transaction that is then dropped.
pub(super) async fn config_imports(attacker: Arc<Attacker>, _: usize) {
    let mut client = attacker.client();
    let path = format!("/orgs/{}/import", attacker.org);
    let source = |count: usize| {
        let keys: Vec<Value> = (0..count).map(|number| json!({"token": format!("{number:064x}")})).collect();
        json!({"source": "litellm-keys", "data": json!({"keys": keys}).to_string()})
    };
    let sources = [source(2_000), source(50_000)];
    loop {
        for source in &sources {
            attacker.api("config-imports", &mut client, ("POST", &path), source).await;
        }
        tokio::time::sleep(4 * PAUSE).await;
    }
}
