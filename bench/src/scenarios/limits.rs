//! Cost of limits: the same request of an organization without limits, of a key to which none of its organization's
//! limits applies, and of one to which ten apply: ten with a number each, and ten with three.

use super::{BLOCKS_NOTE, compared, in_blocks};
use crate::bench::Bench;
use crate::error::{BenchError, BenchResult};
use crate::gateway::Gateway;
use crate::http_client::Api;
use crate::report::{Goal, Row, Section};
use crate::request;
use crate::responses::ResponseScript;
use crate::stats::Spread;

const LIMITS: usize = 10;
/// What a limit counts, with more than the benchmark can use.
const NUMBERS: [(&str, u64); 3] =
    [("requests", 10_000_000_000), ("tokens", 10_000_000_000), ("concurrent", 1_000_000)];

/// Keys of an organization with limits.
pub(crate) struct LimitedKeys {
    /// None of the limits applies to it.
    pub(crate) unlimited: String,
    /// Ten limits with one number each.
    pub(crate) single: String,
    /// Ten limits with three numbers each.
    pub(crate) triple: String,
}

pub(crate) fn create_limited_keys(gateway: &Gateway) -> BenchResult<LimitedKeys> {
    let owner = gateway.sign_up_as("limited")?;
    let api = Api { addr: gateway.target().addr, key: &owner.key };
    let (single, single_key) = create_key(&api)?;
    let (triple, triple_key) = create_key(&api)?;
    for number in 0..LIMITS {
        let all = NUMBERS.map(|(name, amount)| format!(r#""{name}":{amount}"#));
        for (kind, key, numbers) in
            [("one", &single, all[number % NUMBERS.len()].clone()), ("all", &triple, all.join(","))]
        {
            let body = format!(r#"{{"name":"{kind}-{number}","scope":"key","scope_id":"{key}",{numbers}}}"#);
            api.request("POST", &format!("/orgs/{}/limits", owner.org), &body)?;
        }
    }
    Ok(LimitedKeys { unlimited: owner.key, single: single_key, triple: triple_key })
}

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    // Without bodies the writer of the log has less to do, whose turns would hide a few microseconds.
    let pair = bench.start_alone(&["GATEWAY_LOG_BODIES=false".to_owned()])?;
    let keys = create_limited_keys(&pair.gateway)?;
    let chat = |key: &str| request::chat(2048, ResponseScript::default(), key);
    let requests = [chat(&pair.key), chat(&keys.unlimited), chat(&keys.single), chat(&keys.triple)];
    let [none, other, ten, thirty] = in_blocks(bench, &pair, requests.each_ref().map(Vec::as_slice))?;
    let above = |blocks: &[f64]| compared(blocks, &none, |limited, none| limited - none);
    let row = |name: &str, spread| Row { gateway: spread, ..Row::of_gateway(name, "us", 0.0) };
    Ok(Section {
        id: "p",
        title: format!("limits: 2 KB prompt, 300 B answer, {} connections", bench.options.connections),
        rows: vec![
            row("CPU per request without limits", Spread::with_confidence(none.iter().copied())),
            row("CPU added by limits that do not apply", above(&other)).goal(Goal::Below(0.5)),
            row("CPU added by ten limits that apply", above(&ten)).goal(Goal::Below(5.0)),
            row("CPU added by ten limits of three numbers each", above(&thirty)),
        ],
        notes: vec![BLOCKS_NOTE.to_owned()],
    })
}

fn create_key(api: &Api<'_>) -> BenchResult<(String, String)> {
    let made = api.request("POST", "/keys", r#"{"name":"limited"}"#)?;
    let text = |pointer: &str| made.pointer(pointer).and_then(|value| value.as_str()).map(str::to_owned);
    let pair = text("/key/id").zip(text("/raw_key"));
    pair.ok_or_else(|| BenchError::new(format!("POST /keys returned no key: {made}")))
}
