//! Import of a large file of test cases: duration and memory.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Instant;

use serde_json::Value;

use crate::bench::Bench;
use crate::error::{BenchError, BenchResult};
use crate::http_client;
use crate::procfs;
use crate::report::{Goal, Row, Section};
use crate::stats::Spread;

const ROWS: u64 = 100_000;

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let pair = bench.start_pair()?;
    let target = pair.gateway.target();
    let csv = csv();
    let mut times = Vec::new();
    for _ in 0..bench.rounds {
        bench.stop.check()?;
        let dataset =
            post(target.addr, &pair.key, "/api/v1/datasets", "application/json", "{\"name\":\"bench\"}")?;
        let id = dataset.get("id").and_then(Value::as_str).unwrap_or_default();
        let path = format!("/api/v1/datasets/{id}/import");
        let began = Instant::now();
        let answer = post(target.addr, &pair.key, &path, "text/csv", &csv)?;
        times.push(began.elapsed().as_secs_f64());
        if answer.get("imported").and_then(Value::as_u64) != Some(ROWS) {
            return Err(BenchError::new(format!("the import returned {answer}")));
        }
    }
    let peak = procfs::memory(&target.pids).peak_kib as f64 / 1024.0;
    let time = Row::of_gateway("until the answer", "s", 0.0).goal(Goal::Below(5.0));
    Ok(Section {
        id: "i",
        title: format!("import of {ROWS} rows of CSV, {} MiB, SQLite", csv.len() >> 20),
        rows: vec![
            Row { gateway: Spread::of(times), ..time },
            Row::of_gateway("peak memory", "MiB", peak).goal(Goal::Below(150.0)),
        ],
        notes: Vec::new(),
    })
}

fn csv() -> String {
    let mut csv = String::from("input,expected,topic\r\n");
    for number in 0..ROWS {
        let _ = write!(
            csv,
            "\"How much is {number} plus {number}, and why?\",\"{}\",arithmetic\r\n",
            number + number
        );
    }
    csv
}

fn post(addr: SocketAddr, key: &str, path: &str, kind: &str, body: &str) -> BenchResult<Value> {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {addr}\r\nX-Gateway-Key: {key}\r\nContent-Type: {kind}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let (status, answer) = http_client::call(addr, &request)?;
    let text = String::from_utf8_lossy(&answer);
    match serde_json::from_str(&text) {
        Ok(value) if (200..300).contains(&status) => Ok(value),
        _ => Err(BenchError::new(format!("POST {path} returned {status} {text}"))),
    }
}
