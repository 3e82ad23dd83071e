//! Exports: how fast a backlog of log rows leaves for an OTLP destination and what a row costs, and what callers of the proxy
//! notice of it. The upstream takes the destination's part: it reads what it is sent and answers at once.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::answers::Script;
use crate::bench::{Bench, Load, Measured};
use crate::cli::LoadMode;
use crate::failure::{Failure, Outcome};
use crate::plain::Api;
use crate::procfs;
use crate::report::{Goal, Row, Section};
use crate::request;
use crate::stats::Spread;
use crate::target::Target;

/// Nobody listens there: rows wait.
const NOWHERE: &str = "http://127.0.0.1:9/v1/traces";
const PATIENCE: Duration = Duration::from_secs(120);
/// Looking costs the gateway something too.
const LOOK_EVERY: Duration = Duration::from_millis(150);

pub(super) fn run(bench: &Bench) -> Outcome<Section> {
    let rows = if bench.options.quick { 20_000 } else { 60_000 };
    let pair = bench.start_alone(&[])?;
    let target = pair.gateway.target();
    let api = Api { addr: target.addr, key: &pair.key };
    let made = format!(r#"{{"name":"sink","kind":"otlp","endpoint":"{NOWHERE}"}}"#);
    let made = api.ask("POST", "/exports", &made)?;
    let id = made.get("id").and_then(Value::as_str).unwrap_or_default();
    let export = Export {
        api,
        path: format!("/exports/{id}"),
        sink: format!("http://{}/v1/traces", bench.direct().addr),
    };
    let request = request::chat(2048, Script::default(), &pair.key);
    let load = |mode, requests| Load {
        mode,
        request: &request,
        lengths: Script::default().lengths(),
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
            let measured = bench.measure_now(&target, &load(LoadMode::Open, 0))?;
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
    fn change(&self, body: &str) -> Outcome<()> {
        self.api.ask("PUT", &self.path, body).map(|_| ())
    }

    fn status(&self) -> Outcome<Status> {
        let shown = self.api.ask("GET", &self.path, "")?;
        let number = |name: &str| shown.get("status").and_then(|status| status.get(name)?.as_f64());
        match (number("delivered"), number("lag")) {
            (Some(delivered), Some(lag)) => Ok(Status { delivered, lag }),
            _ => Err(Failure::new(format!("the export has no status: {shown}"))),
        }
    }

    /// Waits until the lag is as it is wanted.
    fn wait(&self, bench: &Bench, wanted: impl Fn(f64) -> bool) -> Outcome<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let Status { lag, .. } = self.status()?;
            if wanted(lag) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(Failure::new(format!("the export stays at {lag} rows that wait")));
            }
            bench.stop.sleep(LOOK_EVERY)?;
        }
    }
}

/// Makes a backlog and waits until all of it is in the store.
fn fill(bench: &Bench, target: &Target, export: &Export<'_>, load: &Load<'_>) -> Outcome<()> {
    export.change(&format!(r#"{{"endpoint":"{NOWHERE}","enabled":true}}"#))?;
    let wanted = export.status()?.lag + load.requests as f64;
    bench.measure(target, load)?;
    export.wait(bench, |lag| lag >= wanted)
}

struct Drained {
    rate: f64,
    /// Of the gateway, per row, in microseconds.
    cpu: f64,
}

/// From the first batch that has arrived to the last look before the end.
fn drain(bench: &Bench, target: &Target, export: &Export<'_>, load: &Load<'_>) -> Outcome<Drained> {
    fill(bench, target, export, load)?;
    bench.settle(target, PATIENCE)?;
    export.change(&format!(r#"{{"endpoint":"{}"}}"#, export.sink))?;
    let look = || -> Outcome<_> {
        let status = export.status()?;
        Ok((status, Instant::now(), procfs::cpu(&target.pids)))
    };
    let (mut first, mut last) = (None, None);
    let until = Instant::now() + PATIENCE;
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
        bench.stop.sleep(LOOK_EVERY)?;
    }
    let (Some((first, began, cpu_before)), Some((last, ended, cpu_after))) = (first, last) else {
        return Err(Failure::new("the backlog left too fast, or not at all; use more rows"));
    };
    let rows = last.delivered - first.delivered;
    let seconds = ended.duration_since(began).as_secs_f64();
    Ok(Drained { rate: rows / seconds, cpu: procfs::cpu_between(&cpu_before, &cpu_after) / rows })
}
