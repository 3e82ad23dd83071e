//! The texts of a body are found in time linear in its length, whatever the body is. Every logged body is read, so one
//! that is expensive would delay the rows of everybody.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::time::Duration;

use gateway_core::llm::preview::{assistant_text, last_user_text};
use gateway_core::search_terms::body_terms;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

const LENGTH: usize = 64 << 10;
/// How much more expensive than an ordinary body of the same length a body may be.
const MAX_RATIO: u32 = 20;

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

/// The time for what the log writer and evaluators do with a body.
fn cost(body: &[u8]) -> Duration {
    let before = cpu_time();
    last_user_text(body);
    assistant_text(body, true);
    assistant_text(body, false);
    body_terms(body, body, true);
    cpu_time().saturating_sub(before)
}

fn repeated(unit: &str) -> String {
    unit.repeat(LENGTH / unit.len())
}

/// Nested to a depth that parsers accept.
fn nested(inner: &str) -> String {
    let depth = 120;
    format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn no_body_costs_much_more_than_an_ordinary_one() {
    // A conversation of short messages, and its tools.
    let messages: Vec<_> = (0..LENGTH / 200)
        .map(|number| {
            let call =
                json!({"id": number, "type": "function", "function": {"name": "find", "arguments": "{}"}});
            let text = format!("What about number {number}, is it larger?");
            json!({"role": "user", "content": [{"type": "text", "text": text}], "tool_calls": [call]})
        })
        .collect();
    let mut ordinary = json!({"model": "m", "messages": messages}).to_string();
    ordinary.truncate(LENGTH);
    let allowed = (0..3).map(|_| cost(ordinary.as_bytes())).min().unwrap() * MAX_RATIO;

    let half = LENGTH / 2;
    let bodies = [
        ("brackets and commas", "[".repeat(half) + &",".repeat(half)),
        ("objects and commas", "{".repeat(half) + &",".repeat(half)),
        ("open brackets", repeated("[")),
        ("closing brackets", repeated("]")),
        ("pairs of brackets", repeated("[]")),
        ("nested objects", repeated(r#"{"a":"#)),
        ("nested messages", repeated(r#"{"messages":[{"role":"user","content":"#)),
        ("nested content", repeated(r#"{"content":["#)),
        ("commas", repeated(",")),
        ("quotes", repeated("\"")),
        ("empty strings", format!("[{}", repeated(r#""","#))),
        ("strings and spaces", format!("[{}", repeated("\"\"   "))),
        ("backslashes", format!("[\"{}", repeated("\\"))),
        ("escapes", format!("[\"{}", repeated("\\n"))),
        ("code units", format!("[\"{}", repeated("\\u00e9"))),
        ("surrogates", format!("[\"{}", repeated("\\ud83d"))),
        ("surrogate pairs", format!("[\"{}", repeated("\\ud83d\\ude00"))),
        ("letters of other scripts", format!("[\"{}", repeated("éa "))),
        ("one long word", format!("[\"a {}", repeated("é"))),
        ("ideographs", format!("[\"a {}", repeated("日"))),
        ("lines of one event", repeated("data:\n")),
        ("lines of one event with text", repeated("data: {\"a\":1}\n")),
        ("open events", repeated("data: {\"choices\":[{\"delta\":{\"content\":\"\n\n")),
        ("open lines", repeated("{\n")),
        ("lines of brackets", repeated("{[[[[\n")),
        ("empty lines", repeated("\n")),
        ("arrays around many texts", nested(&(repeated(r#"{"text":"abcdefg"},"#) + "1"))),
        ("arrays around a long text", nested(&format!("{{\"text\":\"{}\"}}", repeated("a")))),
        (
            "messages without text",
            format!("{{\"messages\":[{}", repeated(r#"{"role":"user","content":[]},"#)),
        ),
        (
            "parts without text",
            format!("{{\"messages\":[{{\"role\":\"user\",\"content\":[{}", repeated(r#"{"type":"x"},"#)),
        ),
        (
            "many names",
            format!("{{{}", (0..LENGTH / 12).map(|n| format!("\"{n:06}\":1,")).collect::<Vec<_>>().concat()),
        ),
        ("the same name", format!("{{{}", repeated(r#""messages":[],"#))),
        ("not UTF-8", String::from_utf8_lossy(&vec![0xff; LENGTH / 3]).into_owned()),
    ];
    let mut too_expensive = Vec::new();
    for (name, body) in &bodies {
        // A repeated run is less disturbed.
        let cost = (0..3).map(|_| cost(body.as_bytes())).find(|cost| *cost <= allowed);
        if cost.is_none() {
            too_expensive.push(*name);
        }
    }
    assert!(too_expensive.is_empty(), "more than {allowed:?}: {too_expensive:#?}");
}
