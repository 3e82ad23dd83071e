//! Server-sent events at a fixed rate, one event per chunk: cost per chunk and time to the first chunk.

use super::{Runs, rounds, without_direct};
use crate::bench::{Bench, Load, Measured};
use crate::cli::LoadMode;
use crate::error::BenchResult;
use crate::report::{Goal, Section};
use crate::request;
use crate::responses::ResponseScript;
use crate::target::Target;

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let options = &bench.options;
    let pair = bench.start_pair()?;
    let targets: Vec<_> = [bench.direct()].into_iter().chain(pair.targets()).collect();
    let runs = stream(bench, &targets, &pair.key)?;
    let mut rows = vec![
        without_direct(runs.ratio_row("CPU per stream", "us", Measured::cpu_per_answer))
            .goal(Goal::Ratio(1.5)),
        without_direct(
            runs.ratio_row("CPU per stream, work put off included", "us", |run| run.cpu_with_deferred),
        ),
        runs.difference_row("first chunk, p50", "us", |run| run.load.first.p50).goal(Goal::Above(60.0)),
        runs.difference_row("first chunk, p99", "us", |run| run.load.first.p99),
        runs.row("whole stream, p50", "ms", |run| run.load.latency.p50 / 1000.0),
        runs.row("whole stream, p99", "ms", |run| run.load.latency.p99 / 1000.0),
        runs.row("streams per second", "1/s", Measured::rate),
    ];
    rows.extend(runs.side_rows("stream"));
    Ok(Section { id: "c", title: title(bench), rows, notes: runs.rate_notes(options.stream_rate) })
}

pub(super) fn title(bench: &Bench) -> String {
    let options = &bench.options;
    let (rate, chunks, gap) = (options.stream_rate, options.chunks, options.chunk_gap_ms);
    format!("{rate} streams/s of {chunks} chunks, one every {gap} ms")
}

/// Also used over TLS.
pub(super) fn stream(bench: &Bench, targets: &[Target], key: &str) -> BenchResult<Runs> {
    let options = &bench.options;
    let script = ResponseScript { chunks: options.chunks, gap_ms: options.chunk_gap_ms, hold: false };
    let request = request::chat(2048, script, key);
    // A connection is busy for the length of a stream, so there are twice as many connections as concurrent streams.
    let length = f64::from(options.chunks * (options.chunk_gap_ms + 1)) / 1000.0;
    let connections = (f64::from(options.stream_rate) * length * 2.0) as usize + 16;
    let load = Load {
        mode: LoadMode::Open,
        request: &request,
        lengths: script.lengths(),
        connections,
        rate: options.stream_rate,
        requests: 0,
    };
    rounds(bench, targets, &load)
}
