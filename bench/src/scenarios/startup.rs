//! Stop and start on an existing database, as in an upgrade.

use crate::bench::{Bench, Load, Pair};
use crate::cli::LoadMode;
use crate::error::BenchResult;
use crate::report::{Row, Section};
use crate::request;
use crate::responses::ResponseScript;
use crate::stats::Spread;

const ROWS: u64 = 5000;

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
    bench.measure(&pair.gateway.target(), &load)?;
    let Pair { gateway, data_dir, .. } = pair;
    let fresh = ms(gateway.healthy_after);
    let mut stops = vec![ms(gateway.stop()?)];
    let mut starts = Vec::new();
    for _ in 0..bench.rounds + 2 {
        let gateway = bench.start_gateway(&data_dir)?;
        starts.push(ms(gateway.healthy_after));
        stops.push(ms(gateway.stop()?));
    }
    let row =
        |name, values: Vec<f64>| Row { gateway: Spread::of(values), ..Row::of_gateway(name, "ms", 0.0) };
    Ok(Section {
        id: "g",
        title: format!("start-up: from starting the process to healthy, SQLite with {ROWS} rows"),
        rows: vec![
            row("start on an existing database", starts),
            row("first start, on an empty folder", vec![fresh]),
            row("stop after SIGTERM", stops),
        ],
        notes: Vec::new(),
    })
}

fn ms(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
