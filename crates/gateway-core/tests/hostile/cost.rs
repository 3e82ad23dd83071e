//! No input costs much more CPU time than an ordinary one of the same length, in any reader.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::{shapes, targets};

const LENGTH: usize = 16 << 10;
/// How much more expensive than an ordinary input of the same length an input may be.
const MAX_RATIO: f64 = 20.0;
/// A measurement is repeated, because a disturbed run takes longer.
const RUNS: usize = 4;

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

/// The CPU time of one run, in nanoseconds per byte.
pub fn cost(run: fn(&[u8]), input: &[u8]) -> f64 {
    let before = cpu_time();
    run(input);
    let spent = cpu_time().saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let (spent, length) = (spent.as_nanos() as f64, input.len() as f64);
    spent / length
}

/// The lowest cost of several runs, of which the first within `enough` is the last.
pub fn lowest_cost(run: fn(&[u8]), input: &[u8], enough: f64) -> f64 {
    let mut lowest = f64::INFINITY;
    for _ in 0..RUNS {
        lowest = lowest.min(cost(run, input));
        if lowest <= enough {
            break;
        }
    }
    lowest
}

#[test]
fn no_input_costs_much_more_than_an_ordinary_one() {
    let shapes = shapes::all(LENGTH);
    let mut too_expensive = Vec::new();
    for target in targets::all() {
        let ordinary = (target.ordinary)(LENGTH);
        assert!(ordinary.len() > LENGTH / 2, "{}: {} bytes", target.name, ordinary.len());
        let usual = lowest_cost(target.run, &ordinary, 0.0);
        for (shape, input) in &shapes {
            let ratio = lowest_cost(target.run, input, usual * MAX_RATIO) / usual;
            if ratio > MAX_RATIO {
                too_expensive.push(format!("{}: {shape}: {ratio:.0} times {usual:.0} ns/byte", target.name));
            }
        }
    }
    assert!(too_expensive.is_empty(), "{too_expensive:#?}");
}
