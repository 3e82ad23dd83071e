//! The highest possible cost of a call, which is reserved before the call is made.

use rust_decimal::Decimal;

use crate::llm::usage::Usage;
use crate::pricing::{Price, cost};
use crate::totals::cost_units;

/// Token limits for calls where neither the request nor the price table has one.
const DEFAULT_INPUT_TOKENS: u64 = 200_000;
const DEFAULT_OUTPUT_TOKENS: u64 = 16_384;
/// The lowest average number of bytes per token of text: scripts with three bytes per character have about one token
/// per character.
const BYTES_PER_TOKEN: u64 = 3;

/// What is known about the cost of a call before it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostInputs {
    /// `None` if the length of the body is not known.
    pub body_bytes: Option<u64>,
    pub max_tokens: Option<u64>,
    /// How many completions the request asks for.
    pub choices: Option<u64>,
}

/// The highest possible cost of a call at this price: every input token in the most expensive input class, every output
/// token in the most expensive output class.
pub fn max_cost(price: &Price, inputs: &CostInputs) -> i64 {
    let input = inputs.body_bytes.map_or(DEFAULT_INPUT_TOKENS, |bytes| bytes.div_ceil(BYTES_PER_TOKEN));
    let input = input.min(price.max_input_tokens.unwrap_or(u64::MAX));
    let max_output = price.max_output_tokens;
    let output = match inputs.max_tokens {
        // A limit above the model's own has no effect.
        Some(limit) => limit.min(max_output.unwrap_or(u64::MAX)),
        None => max_output.unwrap_or(DEFAULT_OUTPUT_TOKENS),
    };
    let generates_text = !matches!(&*price.mode, "embedding" | "rerank" | "moderation");
    let output =
        if generates_text { output.saturating_mul(inputs.choices.unwrap_or(1).clamp(1, 1_024)) } else { 0 };
    let none = Usage::default;
    let input_classes = [
        Usage { input, ..none() },
        Usage { cache_write: input, ..none() },
        Usage { cache_write_1h: input, ..none() },
        Usage { audio_input: input, ..none() },
    ];
    let output_classes = |usage: &Usage| {
        [
            Usage { output, ..usage.clone() },
            Usage { reasoning: output, ..usage.clone() },
            Usage { audio_output: output, ..usage.clone() },
        ]
    };
    let highest = input_classes.iter().flat_map(output_classes).filter_map(|usage| cost(price, &usage)).max();
    cost_units(highest.unwrap_or(Decimal::ZERO))
}
