//! Memory of open, idle streams.

use std::time::Duration;

use crate::bench::{Bench, Load};
use crate::cli::LoadMode;
use crate::error::{BenchError, BenchResult};
use crate::process::lines;
use crate::procfs;
use crate::report::{Comparison, Goal, Row, Section};
use crate::request;
use crate::responses::ResponseScript;
use crate::stats::Spread;
use crate::target::{Target, TargetKind};

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let streams = bench.options.streams.unwrap_or(if bench.options.quick { 300 } else { 1000 }).max(1);
    let pair = bench.start_pair()?;
    let mut per_stream =
        Row::of_gateway("resident memory per open stream", "KiB", 0.0).goal(Goal::Below(22.0));
    let mut after = Row::of_gateway("kept per stream after they closed", "KiB", 0.0);
    for target in pair.targets() {
        let (open, closed) = hold(bench, &target, streams, &pair.key)?;
        eprintln!("    {:8} {open:.1} KiB per stream", target.kind.name());
        for (row, value) in [(&mut per_stream, open), (&mut after, closed)] {
            match target.kind {
                TargetKind::Gateway => row.gateway = Some(Spread::one(value)),
                TargetKind::Nginx => row.nginx = Some(Spread::one(value)),
                TargetKind::Direct => {}
            }
        }
    }
    if let (Some(ours), Some(theirs)) = (per_stream.gateway, per_stream.nginx) {
        per_stream.against = Some(Comparison::Ratio(Spread::one(ours.median / theirs.median)));
    }
    Ok(Section {
        id: "e",
        title: format!("{streams} streams held open after their first chunk"),
        rows: vec![per_stream, after],
        notes: Vec::new(),
    })
}

/// KiB per stream while the streams are open and after they have closed.
fn hold(bench: &Bench, target: &Target, streams: usize, key: &str) -> BenchResult<(f64, f64)> {
    let plain = request::chat(2048, ResponseScript::default(), key);
    let warm = Load {
        mode: LoadMode::Count,
        request: &plain,
        lengths: ResponseScript::default().lengths(),
        connections: 4,
        rate: 0,
        requests: 200,
    };
    // The first requests allocate long-lived memory, which must not count as memory of streams.
    bench.measure(target, &warm)?;
    let before = procfs::memory(&target.pids).resident_kib;

    let script = ResponseScript { chunks: 50, gap_ms: 0, hold: true };
    let request = request::chat(2048, script, key);
    let load =
        Load { mode: LoadMode::Hold, request: &request, lengths: Vec::new(), connections: streams, ..warm };
    let mut process = bench.start_load(target, &load)?;
    let said = process.child().stdout.take().map(lines);
    let errors = process.child().stderr.take().map(lines);
    // The time limit of the generator ends this wait: it then closes its output.
    let opened = said.as_ref().and_then(|said| {
        loop {
            bench.stop.check().ok()?;
            match said.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => return Some(line),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return None,
            }
        }
    });
    if opened.as_deref() != Some("open") {
        bench.stop.check()?;
        let errors: Vec<String> = errors.into_iter().flatten().collect();
        return Err(BenchError::new(format!(
            "holding streams on {}: {}",
            target.kind.name(),
            errors.join("\n")
        )));
    }
    bench.stop.sleep(Duration::from_secs(2))?;
    let open = procfs::memory(&target.pids).resident_kib;
    drop(process.child().stdin.take());
    process.wait(&bench.stop, Duration::from_secs(10))?;
    bench.wait_until_idle(target, Duration::from_secs(10))?;
    let closed = procfs::memory(&target.pids).resident_kib;
    let share = |kib: u64| (kib as f64 - before as f64) / streams as f64;
    Ok((share(open), share(closed)))
}
