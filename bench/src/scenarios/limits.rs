//! Cost of limits: the same request of an organization without limits, of a key to which none of its organization's
//! limits applies, and of one to which ten apply.

use super::in_turn;
use crate::bench::{Bench, Measured};
use crate::error::{BenchError, BenchResult};
use crate::http_client::Api;
use crate::report::{Goal, Row, Section};
use crate::request;
use crate::responses::ResponseScript;
use crate::stats::Spread;

const LIMITS: usize = 10;
/// More than the benchmark can use.
const AMOUNT: u64 = 10_000_000_000;

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let pair = bench.start_alone(&[])?;
    let owner = pair.gateway.sign_up_as("limited")?;
    let api = Api { addr: pair.gateway.target().addr, key: &owner.key };
    let (id, limited_key) = create_key(&api)?;
    for number in 0..LIMITS {
        let body = format!(
            r#"{{"name":"limit-{number}","scope":"key","scope_id":"{id}","requests":{AMOUNT},"tokens":{AMOUNT},"concurrent":1000000}}"#
        );
        api.request("POST", &format!("/orgs/{}/limits", owner.org), &body)?;
    }
    let chat = |key: &str| request::chat(2048, ResponseScript::default(), key);
    let requests = [chat(&pair.key), chat(&owner.key), chat(&limited_key)];
    let [none, other, ten] = in_turn(bench, &pair, [&requests[0], &requests[1], &requests[2]])?;
    let cpu = |runs: &[Measured]| Spread::of(runs.iter().map(Measured::cpu_per_answer));
    let above = |runs: &[Measured]| {
        Spread::of(runs.iter().zip(&none).map(|(run, none)| run.cpu_per_answer() - none.cpu_per_answer()))
    };
    let row = |name: &str, spread| Row { gateway: spread, ..Row::of_gateway(name, "us", 0.0) };
    Ok(Section {
        id: "p",
        title: format!("limits: 2 KB prompt, 300 B answer, {} connections", bench.options.connections),
        rows: vec![
            row("CPU per request without limits", cpu(&none)),
            row("CPU added by limits that do not apply", above(&other)).goal(Goal::Below(0.5)),
            row("CPU added by ten limits that apply", above(&ten)).goal(Goal::Below(5.0)),
        ],
        notes: Vec::new(),
    })
}

fn create_key(api: &Api<'_>) -> BenchResult<(String, String)> {
    let made = api.request("POST", "/keys", r#"{"name":"limited"}"#)?;
    let text = |pointer: &str| made.pointer(pointer).and_then(|value| value.as_str()).map(str::to_owned);
    let pair = text("/key/id").zip(text("/raw_key"));
    pair.ok_or_else(|| BenchError::new(format!("POST /keys returned no key: {made}")))
}
