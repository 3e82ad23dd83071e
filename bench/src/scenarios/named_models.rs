//! Cost of a request for a named model compared with the same request whose headers name the provider, with one named
//! model, and with many models and keys.

use super::{BLOCKS_NOTE, compared, in_blocks};
use crate::bench::Bench;
use crate::error::{BenchError, BenchResult};
use crate::http_client::Api;
use crate::report::{Goal, Row, Section};
use crate::request;
use crate::responses::ResponseScript;
use crate::stats::Spread;

/// As long as the model of the target, so that the requests have the same length.
const NAME: &str = "small-model";
const MODEL: &str = "gpt-4o-mini";
const MODELS: usize = 500;

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let keys = if bench.options.quick { 500 } else { 10_000 };
    let pair = bench.start_alone(&[])?;
    let api = Api { addr: pair.gateway.target().addr, key: &pair.key };
    let org = organization(&api)?;
    api.request("POST", &format!("/orgs/{org}/providers"), r#"{"name":"openai","api_key":"sk-test"}"#)?;
    create_model(&api, &org, NAME)?;
    let by_header = edited(
        &request::chat(2048, ResponseScript::default(), &pair.key),
        &[("Authorization: Bearer sk-test\r\n", "")],
    );
    let by_name = edited(
        &by_header,
        &[("Provider: openai", "Provider: auto"), (&format!("\"{MODEL}\""), &format!("\"{NAME}\""))],
    );
    let few = in_blocks(bench, &pair, [&by_header, &by_name])?;
    for number in 1..MODELS {
        create_model(&api, &org, &format!("model-{number}"))?;
    }
    for number in 0..keys {
        bench.stop.check()?;
        api.request("POST", "/keys", &format!(r#"{{"name":"key {number}"}}"#))?;
    }
    bench.wait_until_idle(&pair.gateway.target(), std::time::Duration::from_secs(60))?;
    let many = in_blocks(bench, &pair, [&by_header, &by_name])?;
    let row = |name: String, unit, spread| Row { gateway: spread, ..Row::of_gateway(name, unit, 0.0) };
    let cpu = |blocks: &[f64]| Spread::with_confidence(blocks.iter().copied());
    let against = |[header, name]: &[Vec<f64>; 2]| compared(name, header, |name, header| name / header);
    Ok(Section {
        id: "o",
        title: format!("named models: 2 KB prompt, 300 B answer, {} connections", bench.options.connections),
        rows: vec![
            row("CPU per request by header".into(), "us", cpu(&few[0])),
            row("CPU per request by name".into(), "us", cpu(&few[1])),
            row("by name against by header".into(), "x", against(&few)).goal(Goal::Below(1.03)),
            row(format!("CPU per request by name, {MODELS} models, {keys} keys"), "us", cpu(&many[1])),
            row(format!("by name against by header, {MODELS} models"), "x", against(&many))
                .goal(Goal::Below(1.03)),
        ],
        notes: vec![BLOCKS_NOTE.to_owned()],
    })
}

fn organization(api: &Api<'_>) -> BenchResult<String> {
    let found = api.request("GET", "/orgs", "")?;
    let id = found.pointer("/orgs/0/id").and_then(|id| id.as_str()).map(str::to_owned);
    id.ok_or_else(|| BenchError::new(format!("GET /orgs names no organization: {found}")))
}

fn create_model(api: &Api<'_>, org: &str, name: &str) -> BenchResult<()> {
    let body = format!(r#"{{"name":"{name}","targets":[{{"provider":"openai","model":"{MODEL}"}}]}}"#);
    api.request("POST", &format!("/orgs/{org}/models"), &body).map(|_| ())
}

/// The request with some texts replaced.
fn edited(request: &[u8], changes: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::from_utf8_lossy(request).into_owned();
    for (old, new) in changes {
        text = text.replace(old, new);
    }
    text.into_bytes()
}
