//! Streams from the providers' references, the bodies that they aggregate to, and the laws between the two.

mod laws;
mod native;
mod openai;
mod refused;
mod requests;

use serde_json::Value;

use super::*;

fn sse(events: &[&str]) -> Vec<u8> {
    events.iter().flat_map(|event| ["data: ", event, "\n\n"]).collect::<String>().into_bytes()
}

fn named(events: &[(&str, &str)]) -> Vec<u8> {
    let lines = events.iter().flat_map(|(name, data)| ["event: ", name, "\ndata: ", data, "\n\n"]);
    lines.collect::<String>().into_bytes()
}

/// Names every event by its `type`.
fn typed(events: &[&str]) -> Vec<u8> {
    let kind =
        |event: &str| serde_json::from_str::<Value>(event).unwrap()["type"].as_str().unwrap().to_owned();
    events
        .iter()
        .flat_map(|event| format!("event: {}\ndata: {event}\n\n", kind(event)).into_bytes())
        .collect()
}

fn aggregated(format: WireFormat, bytes: &[u8]) -> Value {
    let body = aggregate_stream(format, format.framing(), bytes).unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn fails(format: WireFormat, bytes: &[u8]) -> AggregateError {
    aggregate_stream(format, format.framing(), bytes).unwrap_err()
}

fn synthesized(format: WireFormat, body: &Value) -> Vec<u8> {
    synthesize_stream(format, body.to_string().as_bytes(), true).unwrap().concat()
}
