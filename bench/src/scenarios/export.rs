//! Exports: throughput and cost of sending a backlog of log rows to an OTLP destination, and the effect on proxied
//! requests. The upstream serves as the destination.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{Bench, Load, Measured};
use crate::cli::LoadMode;
use crate::error::{BenchError, BenchResult};
use crate::http_client::Api;
use crate::procfs;
use crate::report::{Goal, Row, Section};
use crate::request;
use crate::responses::ResponseScript;
use crate::stats::Spread;
use crate::target::Target;

/// Nothing listens here, so rows accumulate.
const UNREACHABLE_ENDPOINT: &str = "http://127.0.0.1:9/v1/traces";
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
/// Polling also costs the gateway CPU.
const POLL_INTERVAL: Duration = Duration::from_millis(150);

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let rows = if bench.options.quick { 20_000 } else { 60_000 };
    let pair = bench.start_alone(&[])?;
    let target = pair.gateway.target();
    let api = Api { addr: target.addr, key: &pair.key };
    let made = format!(r#"{{"name":"sink","kind":"otlp","endpoint":"{UNREACHABLE_ENDPOINT}"}}"#);
    let made = api.request("POST", "/exports", &made)?;
    let id = made.get("id").and_then(Value::as_str).unwrap_or_default();
    let export = Export {
        api,
        path: format!("/exports/{id}"),
        sink: format!("http://{}/v1/traces", bench.direct().addr),
    };
    let request = request::chat(2048, ResponseScript::default(), &pair.key);
    let load = |mode, requests| Load {
        mode,
        request: &request,
        lengths: ResponseScript::default().lengths(),
        connections: 32,
        rate: bench.options.rate,
        requests,
    };
    let drained = drain(bench, &target, &export, &load(LoadMode::Count, rows))?;
    eprintln!("    {:8.0} rows/s  CPU {:6.1} us per row", drained.rate, drained.cpu);
    let (mut quiet, mut draining, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.rounds {
        let mut order = [false, true];
        if round % 2 == 1 {
            order.reverse();
        }
        for drains in order {
            if drains {
                fill(bench, &target, &export, &load(LoadMode::Count, rows))?;
                export.change(&format!(r#"{{"endpoint":"{}"}}"#, export.sink))?;
            } else {
                export.change(r#"{"enabled":false}"#)?;
            }
            let (before, began) = (export.status()?, Instant::now());
            let measured = bench.measure_without_idle_wait(&target, &load(LoadMode::Open, 0))?;
            if drains {
                let Status { delivered, lag } = export.status()?;
                left.push(((delivered - before.delivered) / began.elapsed().as_secs_f64(), lag));
                export.wait(bench, |lag| lag < 1.0)?;
            } else {
                export.change(r#"{"enabled":true}"#)?;
            }
            eprintln!(
                "    round {} {} p99 {:8.1} us",
                round + 1,
                if drains { "draining" } else { "quiet   " },
                measured.load.latency.p99
            );
            (if drains { &mut draining } else { &mut quiet }).push(measured);
        }
    }
    let empty = left.iter().filter(|(_, lag)| *lag < 1.0).count();
    let notes =
        (empty > 0).then(|| format!("in {empty} rounds the backlog was gone before the measurement ended"));
    Ok(Section {
        id: "m",
        title: format!(
            "export: {rows} rows of 2 KB prompts with bodies to an OTLP destination; proxy at {} requests/s",
            bench.options.rate
        ),
        rows: report(&drained, &quiet, &draining, &left),
        notes: notes.into_iter().collect(),
    })
}

fn report(drained: &Drained, quiet: &[Measured], draining: &[Measured], left: &[(f64, f64)]) -> Vec<Row> {
    let row = |name: &str, unit, spread| Row { gateway: spread, ..Row::of_gateway(name, unit, 0.0) };
    let p99 = |runs: &[Measured]| Spread::of(runs.iter().map(|run| run.load.latency.p99));
    let ratio = |read: fn(&Measured) -> f64| {
        Spread::of(draining.iter().zip(quiet).map(|(draining, quiet)| read(draining) / read(quiet)))
    };
    vec![
        Row::of_gateway("rows per second, nothing else to do", "1/s", drained.rate)
            .goal(Goal::AtLeast(20_000.0)),
        Row::of_gateway("CPU per exported row", "us", drained.cpu).goal(Goal::Below(50.0)),
        row("p99 of the proxy, nothing to export", "us", p99(quiet)),
        row("p99 of the proxy while rows leave", "us", p99(draining)),
        row("p99 while rows leave against nothing to export", "x", ratio(|run| run.load.latency.p99))
            .goal(Goal::Below(1.1)),
        row("p50 while rows leave against nothing to export", "x", ratio(|run| run.load.latency.p50)),
        row(
            "rows per second beside the proxy's requests",
            "1/s",
            Spread::of(left.iter().map(|(rate, _)| *rate)),
        ),
    ]
}

struct Export<'a> {
    api: Api<'a>,
    path: String,
    sink: String,
}

struct Status {
    delivered: f64,
    lag: f64,
}

impl Export<'_> {
    fn change(&self, body: &str) -> BenchResult<()> {
        self.api.request("PUT", &self.path, body).map(|_| ())
    }

    fn status(&self) -> BenchResult<Status> {
        let shown = self.api.request("GET", &self.path, "")?;
        let number = |name: &str| shown.get("status").and_then(|status| status.get(name)?.as_f64());
        match (number("delivered"), number("lag")) {
            (Some(delivered), Some(lag)) => Ok(Status { delivered, lag }),
            _ => Err(BenchError::new(format!("the export has no status: {shown}"))),
        }
    }

    /// Waits until the lag matches.
    fn wait(&self, bench: &Bench, wanted: impl Fn(f64) -> bool) -> BenchResult<()> {
        let until = Instant::now() + WAIT_TIMEOUT;
        loop {
            let Status { lag, .. } = self.status()?;
            if wanted(lag) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(BenchError::new(format!("the export is stuck at a lag of {lag} rows")));
            }
            bench.stop.sleep(POLL_INTERVAL)?;
        }
    }
}

/// Creates a backlog and waits until all rows are stored.
fn fill(bench: &Bench, target: &Target, export: &Export<'_>, load: &Load<'_>) -> BenchResult<()> {
    export.change(&format!(r#"{{"endpoint":"{UNREACHABLE_ENDPOINT}","enabled":true}}"#))?;
    let wanted = export.status()?.lag + load.requests as f64;
    bench.measure(target, load)?;
    export.wait(bench, |lag| lag >= wanted)
}

struct Drained {
    rate: f64,
    /// CPU of the gateway per row, in microseconds.
    cpu: f64,
}

/// Measures from the first delivered batch to the last poll before the end.
fn drain(bench: &Bench, target: &Target, export: &Export<'_>, load: &Load<'_>) -> BenchResult<Drained> {
    fill(bench, target, export, load)?;
    bench.wait_until_idle(target, WAIT_TIMEOUT)?;
    export.change(&format!(r#"{{"endpoint":"{}"}}"#, export.sink))?;
    let look = || -> BenchResult<_> {
        let status = export.status()?;
        Ok((status, Instant::now(), procfs::cpu(&target.pids)))
    };
    let (mut first, mut last) = (None, None);
    let until = Instant::now() + WAIT_TIMEOUT;
    loop {
        let seen = look()?;
        if seen.0.lag < 1.0 || Instant::now() > until {
            break;
        }
        if seen.0.delivered > 0.0 {
            match first {
                None => first = Some(seen),
                Some(_) => last = Some(seen),
            }
        }
        bench.stop.sleep(POLL_INTERVAL)?;
    }
    let (Some((first, began, cpu_before)), Some((last, ended, cpu_after))) = (first, last) else {
        return Err(BenchError::new("the backlog drained too fast or not at all; use more rows"));
    };
    let rows = last.delivered - first.delivered;
    let seconds = ended.duration_since(began).as_secs_f64();
    Ok(Drained { rate: rows / seconds, cpu: procfs::cpu_between(&cpu_before, &cpu_after) / rows })
}
