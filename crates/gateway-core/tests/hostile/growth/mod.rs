//! The cost of an input grows in proportion to its length. The inputs here are valid, so readers keep something of
//! every part, and a search among what was kept would show.

mod bodies;
mod streams;
mod texts;

use serde_json::Value;

use super::cost::lowest_cost;

const SHORT: usize = 8 << 10;
const LONG: usize = 16 * SHORT;
/// How much more a byte of the long input may cost.
const MAX_RATIO: f64 = 8.0;

type Input = fn(usize) -> Vec<u8>;
type Case = (&'static str, Input, fn(&[u8]));

fn check(cases: &[Case]) {
    let mut too_expensive = Vec::new();
    for (name, input, run) in cases {
        let short = lowest_cost(*run, &input(SHORT), 0.0);
        let long = lowest_cost(*run, &input(LONG), short * MAX_RATIO);
        if long > short * MAX_RATIO {
            too_expensive.push(format!("{name}: {long:.0} instead of {short:.0} ns/byte"));
        }
    }
    assert!(too_expensive.is_empty(), "{too_expensive:#?}");
}

/// As many items as the length allows.
fn items(length: usize, item: impl Fn(usize) -> Value) -> Vec<Value> {
    let mut items = Vec::new();
    let mut size = 0;
    while size < length {
        items.push(item(items.len()));
        size += items.last().unwrap().to_string().len() + 1;
    }
    items
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// An object with many members of their own names, besides the given ones.
fn with_names(length: usize, mut object: Value) -> Vec<u8> {
    let members = object.as_object_mut().unwrap();
    for number in 0..length / 12 {
        members.insert(format!("n{number:06}"), 1.into());
    }
    bytes(&object)
}
