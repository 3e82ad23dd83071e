//! Saturation with prompts of 16 KiB: the cost of parsing a large body.

use super::saturation;
use crate::bench::Bench;
use crate::error::BenchResult;
use crate::report::{Goal, Section};

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let runs = saturation::saturate(bench, &bench.start_pair()?, 16 * 1024)?;
    Ok(Section {
        id: "d",
        title: format!("saturation: 16 KiB prompt, 300 B answer, {} connections", bench.options.connections),
        rows: saturation::rows(&runs, Goal::Ratio(1.8), None),
        notes: runs.saturation_notes(bench.options.workers),
    })
}
