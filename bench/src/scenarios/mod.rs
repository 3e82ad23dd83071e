//! The scenarios, one file each. A new one needs a file with `pub(super) fn run(bench: &Bench) ->
//! BenchResult<Section>` and a row in `SCENARIOS`. Most start a pair, build a request, run `rounds` and turn the runs
//! into rows.

mod big_prompt;
mod cache_hit;
mod chaos;
mod evals;
mod export;
mod fixed_rate;
mod import;
pub(crate) mod limits;
mod mcp;
mod memory;
mod named_models;
mod open_streams;
mod saturation;
mod startup;
mod streams;
mod tls_upstream;
mod translation;
mod usage;

use crate::bench::{Bench, Load, Measured, Pair};
use crate::error::{BenchError, BenchResult};
use crate::report::{Comparison, Row, Section};
use crate::responses::ResponseScript;
use crate::stats::Spread;
use crate::target::{Target, TargetKind};

pub(crate) struct Scenario {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Bench) -> BenchResult<Section>,
}

const SCENARIOS: [Scenario; 18] = [
    Scenario { id: "a", name: "saturation", run: saturation::run },
    Scenario { id: "b", name: "fixed rate", run: fixed_rate::run },
    Scenario { id: "c", name: "streams", run: streams::run },
    Scenario { id: "d", name: "16 KiB prompts", run: big_prompt::run },
    Scenario { id: "e", name: "open streams", run: open_streams::run },
    Scenario { id: "f", name: "memory", run: memory::run },
    Scenario { id: "g", name: "start-up", run: startup::run },
    Scenario { id: "h", name: "evals", run: evals::run },
    Scenario { id: "i", name: "import", run: import::run },
    Scenario { id: "j", name: "chaos", run: chaos::run },
    Scenario { id: "k", name: "cache hit", run: cache_hit::run },
    Scenario { id: "l", name: "translation", run: translation::run },
    Scenario { id: "m", name: "export", run: export::run },
    Scenario { id: "n", name: "usage", run: usage::run },
    Scenario { id: "o", name: "named models", run: named_models::run },
    Scenario { id: "p", name: "limits", run: limits::run },
    Scenario { id: "q", name: "MCP", run: mcp::run },
    Scenario { id: "r", name: "TLS to the upstream", run: tls_upstream::run },
];

pub(crate) fn choose(only: &[String]) -> BenchResult<Vec<&'static Scenario>> {
    if let Some(unknown) = only.iter().find(|id| !SCENARIOS.iter().any(|scenario| scenario.id == id.as_str()))
    {
        return Err(BenchError::new(format!("unknown scenario '{unknown}'")));
    }
    Ok(SCENARIOS
        .iter()
        .filter(|scenario| only.is_empty() || only.iter().any(|id| id == scenario.id))
        .collect())
}

/// The measurements of each target by round.
#[derive(Default)]
struct Runs {
    gateway: Vec<Measured>,
    nginx: Vec<Measured>,
    direct: Vec<Measured>,
}

/// Loads the targets in turn, in reverse order in every second round, so that drift of the machine affects all of
/// them equally.
fn rounds(bench: &Bench, targets: &[Target], load: &Load<'_>) -> BenchResult<Runs> {
    let mut runs = Runs::default();
    for round in 0..bench.rounds {
        let mut order: Vec<&Target> = targets.iter().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for target in order {
            let measured = bench.measure(target, load)?;
            eprintln!(
                "    round {} {:8} {:8.0}/s  p50 {:7.1} us  p99 {:8.1} us  CPU {:6.1} us",
                round + 1,
                target.kind.name(),
                measured.rate(),
                measured.load.latency.p50,
                measured.load.latency.p99,
                measured.cpu_per_answer(),
            );
            runs.of(target.kind).push(measured);
        }
    }
    Ok(runs)
}

/// CPU per request of several requests to one gateway, by request and block. They take turns in short blocks.
fn in_blocks<const N: usize>(bench: &Bench, pair: &Pair, requests: [&[u8]; N]) -> BenchResult<[Vec<f64>; N]> {
    let lengths = ResponseScript::default().lengths();
    let blocks = bench.measure_blocks(&pair.gateway.target(), &requests, lengths)?;
    blocks.try_into().map_err(|_| BenchError::new("the load generator measured other requests"))
}

/// How values of two requests compare, block by block: the median with its confidence interval.
fn compared(ours: &[f64], theirs: &[f64], compare: impl Fn(f64, f64) -> f64) -> Option<Spread> {
    Spread::with_confidence(ours.iter().zip(theirs).map(|(ours, theirs)| compare(*ours, *theirs)))
}

const BLOCKS_NOTE: &str =
    "Requests take turns in blocks of 400. Ranges are 95 % confidence intervals of the median.";

impl Runs {
    fn of(&mut self, kind: TargetKind) -> &mut Vec<Measured> {
        match kind {
            TargetKind::Gateway => &mut self.gateway,
            TargetKind::Nginx => &mut self.nginx,
            TargetKind::Direct => &mut self.direct,
        }
    }

    /// A row with the ratio of the gateway to nginx.
    fn ratio_row(&self, name: &str, unit: &'static str, read: impl Fn(&Measured) -> f64) -> Row {
        let ratio =
            Spread::of(self.gateway.iter().zip(&self.nginx).map(|(ours, theirs)| read(ours) / read(theirs)));
        Row { against: ratio.map(Comparison::Ratio), ..self.row(name, unit, read) }
    }

    /// A row with the difference between the gateway and nginx.
    fn difference_row(&self, name: &str, unit: &'static str, read: impl Fn(&Measured) -> f64) -> Row {
        let pairs = self.gateway.iter().zip(&self.nginx);
        let difference = Spread::of(pairs.map(|(ours, theirs)| read(ours) - read(theirs)));
        Row { against: difference.map(Comparison::Difference), ..self.row(name, unit, read) }
    }

    fn row(&self, name: &str, unit: &'static str, read: impl Fn(&Measured) -> f64) -> Row {
        let spread = |runs: &[Measured]| Spread::of(runs.iter().map(&read));
        Row {
            name: name.to_owned(),
            unit,
            gateway: spread(&self.gateway),
            nginx: spread(&self.nginx),
            direct: spread(&self.direct),
            against: None,
            goal: None,
        }
    }

    /// A row with the overhead of a proxy over the direct request, by round.
    fn added_row(&self, name: &str, unit: &'static str, read: impl Fn(&Measured) -> f64) -> Row {
        let added = |runs: &[Measured]| {
            Spread::of(runs.iter().zip(&self.direct).map(|(proxied, direct)| read(proxied) - read(direct)))
        };
        Row {
            gateway: added(&self.gateway),
            nginx: added(&self.nginx),
            direct: None,
            ..self.difference_row(name, unit, &read)
        }
    }

    /// Rows with the cost of client and upstream and the CPU share of the target, which show whether the figures are
    /// reliable.
    fn side_rows(&self, per: &str) -> Vec<Row> {
        let client = self
            .row(&format!("client's CPU per {per}"), "us", |run| run.load.cpu_client / run.load.completed);
        let upstream = self.row(&format!("upstream's CPU per {per}"), "us", |run| {
            run.load.cpu_upstream / run.load.completed
        });
        let busy = self.row("target's CPU in use", "%", |run| run.load.cpu_proxy / run.load.seconds / 1e4);
        let others =
            self.row("CPU of other programs", "%", |run| run.load.cpu_others / run.load.seconds / 1e4);
        vec![client, upstream, Row { direct: None, ..busy }, others]
    }

    /// Notes on conditions that affect the figures.
    fn notes(&self) -> Vec<String> {
        let all = || self.gateway.iter().chain(&self.nginx).chain(&self.direct);
        let mut notes = Vec::new();
        let disturbed = all().filter(|run| run.load.cpu_others > 0.1 * 1e6 * run.load.seconds).count();
        if disturbed > 0 {
            let of = all().count();
            notes.push(format!(
                "other programs used more than 10 % of a CPU during {disturbed} of {of} measurements"
            ));
        }
        if self.gateway.iter().any(|run| !run.became_idle) {
            notes.push(
                "the gateway was still at work long after a load: not all of its CPU is counted".to_owned(),
            );
        }
        let reconnects: f64 = all().map(|run| run.load.reconnects).sum();
        if reconnects > 0.0 {
            notes.push(format!("connections were closed and opened again {reconnects} times"));
        }
        notes
    }

    /// Notes whether the rate was reached, which the latencies assume.
    fn rate_notes(&self, rate: u32) -> Vec<String> {
        let held = |runs: &[Measured]| runs.iter().all(|run| run.rate() > 0.97 * f64::from(rate));
        let targets =
            [("the gateway", &self.gateway), ("nginx", &self.nginx), ("the upstream", &self.direct)];
        let missed = targets.into_iter().filter(|(_, runs)| !held(runs));
        missed.map(|(name, _)| format!("{name} did not hold {rate} per second")).chain(self.notes()).collect()
    }

    /// Notes whether the targets were saturated.
    fn saturation_notes(&self, cpus: usize) -> Vec<String> {
        let busy = |run: &Measured| run.load.cpu_proxy / run.load.seconds / 1e6 / cpus as f64;
        let idle = self.gateway.iter().chain(&self.nginx).filter(|run| busy(run) < 0.9).count();
        let note = format!(
            "in {idle} measurements the target got less than 90 % of its CPU: requests per second are not its limit"
        );
        (idle > 0).then_some(note).into_iter().chain(self.notes()).collect()
    }
}

/// CPU per response is meaningless for the upstream itself.
fn without_direct(row: Row) -> Row {
    Row { direct: None, ..row }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadReport;

    fn run(cpu: f64) -> Measured {
        let load = LoadReport { completed: 10.0, seconds: 1.0, cpu_serving: cpu, ..LoadReport::default() };
        Measured { load, cpu_with_deferred: cpu / 10.0, became_idle: true }
    }

    #[test]
    fn ratios_and_differences_are_taken_round_by_round() {
        let runs = Runs {
            gateway: vec![run(200.0), run(600.0), run(300.0)],
            nginx: vec![run(100.0), run(400.0), run(300.0)],
            direct: vec![run(0.0), run(100.0), run(100.0)],
        };
        let Some(Comparison::Ratio(ratio)) = runs.ratio_row("", "", Measured::cpu_per_answer).against else {
            panic!()
        };
        assert!((ratio.median - 1.5).abs() < 1e-9 && (ratio.max - 2.0).abs() < 1e-9);
        let added = runs.added_row("", "", Measured::cpu_per_answer);
        assert!((added.gateway.unwrap().median - 20.0).abs() < 1e-9);
        assert!((added.nginx.unwrap().median - 20.0).abs() < 1e-9);
        let Some(Comparison::Difference(more)) = added.against else { panic!() };
        assert!((more.median - 10.0).abs() < 1e-9);
    }

    #[test]
    fn scenarios_are_chosen_by_letter() {
        let ids = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            choose(&only).map(|chosen| chosen.iter().map(|scenario| scenario.id).collect::<String>())
        };
        assert_eq!(ids(&[]).unwrap(), "abcdefghijklmnopqr");
        assert_eq!(ids(&["c", "a"]).unwrap(), "ac");
        assert!(ids(&["z"]).is_err());
    }
}
