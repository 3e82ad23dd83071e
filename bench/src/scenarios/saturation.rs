//! Maximum throughput with a 2 KB prompt and a 300 byte response.

use super::{Runs, rounds};
use crate::bench::{Bench, Load, Measured, Pair};
use crate::cli::LoadMode;
use crate::error::BenchResult;
use crate::report::{Goal, Row, Section};
use crate::request;
use crate::responses::ResponseScript;

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let runs = saturate(bench, &bench.start_pair()?, 2048)?;
    Ok(Section {
        id: "a",
        title: format!("saturation: 2 KB prompt, 300 B answer, {} connections", bench.options.connections),
        rows: rows(&runs, Goal::Ratio(1.6), Some(Goal::Ratio(3.5))),
        notes: runs.saturation_notes(bench.options.workers),
    })
}

/// Also used for larger prompts and over TLS.
pub(super) fn saturate(bench: &Bench, pair: &Pair, body_bytes: usize) -> BenchResult<Runs> {
    let request = request::chat(body_bytes, ResponseScript::default(), &pair.key);
    let load = Load {
        mode: LoadMode::Closed,
        request: &request,
        lengths: ResponseScript::default().lengths(),
        connections: bench.options.connections,
        rate: 0,
        requests: 0,
    };
    rounds(bench, &pair.targets(), &load)
}

/// `all_in`: the target with the work that is put off.
pub(super) fn rows(runs: &Runs, goal: Goal, all_in: Option<Goal>) -> Vec<Row> {
    let deferred =
        runs.ratio_row("CPU per request, work put off included", "us", |run| run.cpu_with_deferred);
    let mut rows = vec![
        runs.ratio_row("CPU per request", "us", Measured::cpu_per_answer).goal(goal),
        runs.ratio_row("CPU per request, all threads", "us", Measured::all_cpu_per_answer),
        Row { goal: all_in, ..deferred },
        runs.ratio_row("requests per second", "1/s", Measured::rate),
        runs.row("p50", "ms", |run| run.load.latency.p50 / 1000.0),
        runs.row("p99", "ms", |run| run.load.latency.p99 / 1000.0),
    ];
    rows.extend(runs.side_rows("request"));
    rows
}
