//! What marks save: a conversation of an agent with 45 calls, against a cache that works and is priced like
//! Anthropic's.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher as _};

use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::super::{CacheablePrompt, MarkFormat, PromptCache};
use super::{AUTO, CLAUDE, HOUR};
use crate::llm::usage::Usage;
use crate::pricing::{Price, cost};

const CALLS: usize = 45;
/// How many blocks before a mark are searched for an entry.
const LOOKBACK: usize = 20;

/// The provider's cache: the prefixes that were written.
#[derive(Default)]
struct Provider {
    entries: HashSet<u64>,
}

struct Block {
    text: String,
    mark: Option<Value>,
}

impl Provider {
    /// Reads a request and reports its usage.
    fn call(&mut self, body: &[u8]) -> Usage {
        let blocks = blocks(&serde_json::from_slice(body).unwrap());
        let (mut hasher, mut length) = (DefaultHasher::new(), 0);
        let mut prefixes = vec![(0, 0)];
        for block in &blocks {
            hasher.write(block.text.as_bytes());
            length += block.text.len() as u64;
            prefixes.push((hasher.finish(), length / 4));
        }
        let prefix = |end: usize| prefixes[end].0;
        let tokens = |end: usize| prefixes[end].1;
        let ends: Vec<usize> = (1..=blocks.len()).filter(|end| blocks[end - 1].mark.is_some()).collect();
        assert!(ends.len() <= 4, "too many marks");
        let searched = ends.iter().flat_map(|end| (end.saturating_sub(LOOKBACK)..=*end).rev());
        let read = searched.filter(|end| self.entries.contains(&prefix(*end))).max().unwrap_or(0);
        let written = ends.last().copied().unwrap_or(0).max(read);
        let mut usage = Usage {
            cache_read: tokens(read),
            input: tokens(blocks.len()) - tokens(written),
            output: 300,
            ..Usage::default()
        };
        let mut from = read;
        for end in ends.into_iter().filter(|end| *end > read) {
            let part = tokens(end) - tokens(from);
            let is_long = blocks[end - 1].mark.as_ref().is_some_and(|mark| mark["ttl"] == "1h");
            *(if is_long { &mut usage.cache_write_1h } else { &mut usage.cache_write }) += part;
            self.entries.insert(prefix(end));
            from = end;
        }
        usage
    }
}

/// The blocks of a request in the order in which the provider reads them.
fn blocks(body: &Value) -> Vec<Block> {
    let list = |value: &Value| match value {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(items) => items.clone(),
        _ => Vec::new(),
    };
    let messages = body["messages"].as_array().unwrap().iter();
    let contents = messages.flat_map(|message| list(&message["content"]));
    let all = list(&body["tools"]).into_iter().chain(list(&body["system"])).chain(contents);
    let block = |mut block: Value| {
        let mark = block.as_object_mut().unwrap().remove("cache_control");
        Block { text: block.to_string(), mark }
    };
    all.map(block).collect()
}

/// The requests of an agent: tools and instructions of about 20,000 tokens, and about 2,600 more with every turn.
fn requests(system: impl Fn(usize) -> Value) -> Vec<Value> {
    let tools: Vec<Value> = (0..30)
        .map(|tool| json!({"name": format!("tool_{tool}"), "description": "does something useful ".repeat(50)}))
        .collect();
    let mut messages = vec![json!({"role": "user", "content": "fix the failing test"})];
    let mut requests = Vec::new();
    for call in 0..CALLS {
        requests.push(json!({
            "model": CLAUDE, "max_tokens": 4_096, "tools": tools, "system": system(call), "messages": messages,
        }));
        let id = format!("toolu_{call}");
        messages.push(json!({"role": "assistant", "content": [
            {"type": "text", "text": format!("Step {call}. {}", "I look at the file. ".repeat(40))},
            {"type": "tool_use", "id": id, "name": "tool_1", "input": {"path": format!("src/{call}.rs")}},
        ]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": "let line = read(input)?;\n".repeat(380)},
        ]}));
    }
    requests
}

/// What the calls cost without output: with marks, and without.
fn input_costs(requests: &[Value], setting: &PromptCache) -> (Decimal, Decimal) {
    let price = Price {
        input_per_mtok: Some(Decimal::from(3)),
        cache_read_per_mtok: Some(Decimal::new(3, 1)),
        cache_write_per_mtok: Some(Decimal::new(375, 2)),
        cache_write_1h_per_mtok: Some(Decimal::from(6)),
        output_per_mtok: Some(Decimal::ZERO),
        ..Price::default()
    };
    let (mut with, mut without) = (Provider::default(), Provider::default());
    let mut sums = (Decimal::ZERO, Decimal::ZERO);
    for request in requests {
        let body = request.to_string();
        let prompt = CacheablePrompt::read(MarkFormat::Anthropic, body.as_bytes()).unwrap();
        let marked = prompt.marked(setting, CLAUDE).unwrap();
        let (marked, plain) = (with.call(&marked.body), without.call(body.as_bytes()));
        assert_eq!(marked.prompt_tokens(), plain.prompt_tokens());
        sums.0 += cost(&price, &marked).unwrap();
        sums.1 += cost(&price, &plain).unwrap();
    }
    sums
}

#[test]
fn an_agent_of_45_calls_pays_less_than_a_fifth_for_its_input() {
    let system = |_| json!([{"type": "text", "text": "You are a careful engineer. ".repeat(1_500)}]);
    let requests = requests(system);
    for setting in [AUTO, HOUR] {
        let (with, without) = input_costs(&requests, &setting);
        assert!(without > Decimal::from(8), "the trace has about 3.5 million input tokens: {without}");
        assert!(with * Decimal::from(5) <= without, "{with} of {without}");
    }
}

#[test]
fn a_plain_text_as_system_prompt_is_cached_too() {
    let requests = requests(|_| json!("You are a careful engineer. ".repeat(1_500)));
    let (with, without) = input_costs(&requests, &AUTO);
    assert!(with * Decimal::from(5) <= without, "{with} of {without}");
}

/// The case that `HeadHistory` recognizes.
#[test]
fn a_time_of_day_in_the_system_prompt_costs_money() {
    let requests = requests(|call| json!(format!("It is 12:{call:02}. {}", "Be careful. ".repeat(3_000))));
    let (with, without) = input_costs(&requests, &AUTO);
    assert!(with > without, "{with} of {without}");
}
