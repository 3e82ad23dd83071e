//! A rate that every target can sustain: added latency, and the cost per request without batching.

use super::{rounds, without_direct};
use crate::bench::{Bench, Load, Measured};
use crate::cli::LoadMode;
use crate::error::BenchResult;
use crate::report::{Goal, Section};
use crate::request;
use crate::responses::ResponseScript;

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let rate = bench.options.rate;
    let pair = bench.start_pair()?;
    let request = request::chat(2048, ResponseScript::default(), &pair.key);
    let load = Load {
        mode: LoadMode::Open,
        request: &request,
        lengths: ResponseScript::default().lengths(),
        connections: 32,
        rate,
        requests: 0,
    };
    let targets: Vec<_> = [bench.direct()].into_iter().chain(pair.targets()).collect();
    let runs = rounds(bench, &targets, &load)?;
    let mut rows = vec![
        runs.added_row("p50 added to the direct call", "us", |run| run.load.latency.p50),
        runs.added_row("p99 added to the direct call", "us", |run| run.load.latency.p99)
            .goal(Goal::Above(200.0)),
        runs.row("p50", "us", |run| run.load.latency.p50),
        runs.row("p99", "us", |run| run.load.latency.p99),
        runs.row("p99.9", "us", |run| run.load.latency.p999),
        without_direct(runs.ratio_row("CPU per request", "us", Measured::cpu_per_answer)),
        without_direct(
            runs.ratio_row("CPU per request, work put off included", "us", |run| run.cpu_with_deferred),
        )
        .goal(Goal::Ratio(3.0)),
        runs.row("requests per second", "1/s", Measured::rate),
    ];
    rows.extend(runs.side_rows("request"));
    rows.push(runs.row("client's own lateness, p99", "us", |run| run.load.late.p99));
    Ok(Section {
        id: "b",
        title: format!(
            "{rate} requests/s: 2 KB prompt, 300 B answer, latency from the moment a request was due"
        ),
        rows,
        notes: runs.rate_notes(rate),
    })
}
