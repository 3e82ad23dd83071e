//! Attacks with the query language: expensive queries in every place that takes one, files of all rows that are read
//! slowly, and saved views.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::victim::api_request;
use super::Attacker;

const PAUSE: Duration = Duration::from_millis(20);
const VIEWS: usize = 250;
const FACETS: &str = "model,provider,status,error,user,session,key,path,source,level,prompt,metadata.env";

/// The most that the language allows: stars, words, values and terms.
fn expensive() -> Vec<String> {
    let words: Vec<String> = (0..32).map(|number| format!("a{}b", "ba".repeat(number % 7))).collect();
    let values: Vec<String> = (0..199).map(|number| format!("m{number}")).collect();
    let terms: Vec<String> = (0..40).map(|number| format!("-metadata.k{number}:*v{number}*")).collect();
    vec![
        "model:*a*b*a*b*a*b*a*".to_owned(),
        format!("path:*{}", "a*".repeat(7)),
        words.join(" "),
        format!("model:{}", values.join(",")),
        terms.join(" "),
        r#"-"question answer" -"aba bab" latency:>=0 tokens:0..10M"#.to_owned(),
        "user:* -user:u1* cost:>=0".to_owned(),
    ]
}

/// As a part of a URL.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Lists in every order, facets, values, usage by every group, and sessions.
pub(super) async fn queries(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    let mut paths = Vec::new();
    for query in expensive() {
        let query = encode(&query);
        for sort in ["time", "latency", "cost:asc", "tokens"] {
            paths.push(format!("/logs?limit=200&sort={sort}&query={query}"));
        }
        paths.push(format!("/logs/facets?fields={FACETS}&query={query}"));
        for by in ["model", "user", "key", "error"] {
            paths.push(format!("/usage/breakdown?by={by}&query={query}"));
        }
        paths.push(format!("/usage/timeseries?interval=hour&by=model&query={query}"));
        paths.push(format!("/usage/summary?query={query}"));
        paths.push(format!("/sessions?limit=200&query={query}"));
    }
    paths.push("/logs/values?field=user&prefix=u&limit=200".to_owned());
    paths.push("/logs/values?field=metadata".to_owned());
    loop {
        for path in paths.iter().cycle().skip(5 * task).take(paths.len()) {
            attacker.api("queries", &mut client, ("GET", path), &Value::Null).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Files of all rows with their bodies. Half of the clients read as fast as they can, half a little at a time.
pub(super) async fn files(attacker: Arc<Attacker>, task: usize) {
    let expensive = expensive();
    let query = expensive.get(task % expensive.len()).map(|query| encode(query)).unwrap_or_default();
    let paths = [
        "/logs/export?format=csv&bodies=true".to_owned(),
        format!("/logs/export?format=ndjson&query={query}"),
        "/logs/export?format=csv&sort=cost".to_owned(),
        format!("/orgs/{}/audit/export", attacker.org),
    ];
    let pause = if task.is_multiple_of(2) { Duration::ZERO } else { 10 * PAUSE };
    for path in paths.iter().cycle().skip(task) {
        let request = api_request("GET", path, &attacker.key, "");
        if let Ok(mut stream) = attacker.client().connect().await
            && stream.write_all(&request).await.is_ok()
        {
            let mut bytes = [0; 16 << 10];
            let read = stream.read(&mut bytes).await.unwrap_or(0);
            let status = crate::http::status(bytes.get(..read).unwrap_or_default());
            attacker.count("files", status.map_or("closed".to_owned(), |status| status.to_string()));
            // The connection stays open after the file, so a fast reader leaves it after a while.
            let reading = async {
                while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                    tokio::time::sleep(pause).await;
                }
            };
            let _ = tokio::time::timeout(200 * PAUSE, reading).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// As many views as possible, read and changed.
pub(super) async fn views(attacker: Arc<Attacker>, _: usize) {
    let mut client = attacker.client();
    let path = format!("/orgs/{}/views", attacker.org);
    let queries = expensive();
    let mut made = Vec::new();
    for (number, query) in queries.iter().cycle().take(VIEWS).enumerate() {
        let view = json!({"name": format!("view {number}"), "page": "logs", "query": query, "shared": true});
        if let Some(view) = attacker.api("views", &mut client, ("POST", &path), &view).await {
            made.extend(view["id"].as_str().map(str::to_owned));
        }
    }
    loop {
        for (id, query) in made.iter().zip(queries.iter().cycle()) {
            attacker.api("views", &mut client, ("GET", &path), &Value::Null).await;
            let change = json!({"query": query});
            attacker.api("views", &mut client, ("PATCH", &format!("{path}/{id}")), &change).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_as_long_as_the_language_allows_and_encoded() {
        assert_eq!(encode("a:>2 \"é*\""), "a%3A%3E2%20%22%C3%A9%2A%22");
        for query in expensive() {
            assert!(query.chars().count() <= 2_048, "{query}");
        }
        assert!(expensive().iter().map(String::len).max() > Some(800));
    }
}
