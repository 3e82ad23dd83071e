//! Static evaluations: ten runs over a thousand rows each, from the first request to the end of the last run.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{Bench, Load};
use crate::cli::LoadMode;
use crate::error::{BenchError, BenchResult};
use crate::http_client::Api;
use crate::report::{Goal, Row, Section};
use crate::request;
use crate::responses::ResponseScript;
use crate::stats::Spread;

const ROWS: u64 = 1_000;
const RUNS: usize = 10;
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let pair = bench.start_pair()?;
    let request = request::chat(2048, ResponseScript::default(), &pair.key);
    let load = Load {
        mode: LoadMode::Count,
        request: &request,
        lengths: ResponseScript::default().lengths(),
        connections: bench.options.connections,
        rate: 0,
        requests: ROWS,
    };
    let target = pair.gateway.target();
    bench.measure(&target, &load)?;
    bench.wait_until_idle(&target, WAIT_TIMEOUT)?;
    let api = Api { addr: target.addr, key: &pair.key };
    let eval = api.request("POST", "/evals", r#"{"name":"json","type":"static","evaluator":"is_json"}"#)?;
    let mut times = Vec::new();
    for _ in 0..bench.rounds {
        times.push(ten_runs(bench, &api, &eval)?);
    }
    let row = Row { gateway: Spread::of(times), ..Row::of_gateway("10,000 static evaluations", "ms", 0.0) };
    Ok(Section {
        id: "h",
        title: format!("evals: {RUNS} runs of is_json over {ROWS} rows each, SQLite"),
        rows: vec![row.goal(Goal::Below(2_000.0))],
        notes: Vec::new(),
    })
}

fn ten_runs(bench: &Bench, api: &Api<'_>, eval: &Value) -> BenchResult<f64> {
    let id = |value: &Value| value.get("id").and_then(Value::as_i64).unwrap_or_default();
    let begun = Instant::now();
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let order = format!(r#"{{"limit":{ROWS}}}"#);
        runs.push(id(&api.request("POST", &format!("/evals/{}/run", id(eval)), &order)?));
    }
    for run in runs {
        loop {
            let run = api.request("GET", &format!("/evals/runs/{run}"), "")?;
            match run.get("status").and_then(Value::as_str) {
                Some("completed") if run.get("completed").and_then(Value::as_u64) == Some(ROWS) => break,
                Some("queued" | "running") if begun.elapsed() < WAIT_TIMEOUT => {}
                _ => return Err(BenchError::new(format!("a run did not judge every row: {run}"))),
            }
            bench.stop.check()?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(begun.elapsed().as_secs_f64() * 1_000.0)
}
