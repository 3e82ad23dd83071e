//! Memory of an idle gateway and of one after load, and disk usage.

use std::path::Path;
use std::time::Duration;

use crate::bench::{Bench, Load};
use crate::cli::LoadMode;
use crate::error::BenchResult;
use crate::procfs;
use crate::report::{Goal, Row, Section};
use crate::request;
use crate::responses::ResponseScript;
use crate::stats::Spread;
use crate::target::TargetKind;

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let options = &bench.options;
    let default = if options.full { 1_000_000 } else { 200_000 };
    let requests = options.requests.unwrap_or(if options.quick { 20_000 } else { default }).max(1);
    let pair = bench.start_pair()?;
    bench.stop.sleep(Duration::from_secs(1))?;
    let mib = |kib: u64| Spread::one(kib as f64 / 1024.0);
    let mut idle = Row::of_gateway("resident memory, idle", "MiB", 0.0).goal(Goal::Below(25.0));
    let mut after = Row::of_gateway("resident memory after the requests", "MiB", 0.0).goal(Goal::Below(60.0));
    let mut peak = Row::of_gateway("peak", "MiB", 0.0);
    let mut notes = Vec::new();
    for target in pair.targets() {
        let request = request::chat(2048, ResponseScript::default(), &pair.key);
        let load = Load {
            mode: LoadMode::Count,
            request: &request,
            lengths: ResponseScript::default().lengths(),
            connections: options.connections,
            rate: 0,
            // A few requests are enough for the figures of nginx.
            requests: if target.kind == TargetKind::Gateway { requests } else { requests.min(20_000) },
        };
        let before = procfs::memory(&target.pids);
        let measured = bench.measure(&target, &load)?;
        let then = procfs::memory(&target.pids);
        eprintln!(
            "    {:8} {:.0} requests in {:.1} s",
            target.kind.name(),
            measured.load.total,
            measured.load.seconds
        );
        if !measured.became_idle {
            notes.push(format!("{} was still at work when its memory was read", target.kind.name()));
        }
        let cells =
            [(&mut idle, before.resident_kib), (&mut after, then.resident_kib), (&mut peak, then.peak_kib)];
        for (row, kib) in cells {
            match target.kind {
                TargetKind::Gateway => row.gateway = Some(mib(kib)),
                TargetKind::Nginx => row.nginx = Some(mib(kib)),
                TargetKind::Direct => {}
            }
        }
    }
    if requests < 1_000_000 {
        notes.push("the target is meant for 1,000,000 requests: --full makes them".to_owned());
    }
    let disk = folder_bytes(&pair.data_dir) as f64 / requests as f64 / 1024.0;
    let disk = Row::of_gateway("on disk per request", "KiB", disk);
    Ok(Section {
        id: "f",
        title: format!("memory, before and after {requests} requests"),
        rows: vec![idle, after, peak, disk],
        notes,
    })
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => folder_bytes(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0,
        })
        .sum()
}
