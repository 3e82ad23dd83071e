//! A stream, event by event. Readers of formats make these, writers consume them; the driver between the two sees to it
//! that `StreamStart` comes first and once, that every tool call is started before its arguments and carries an id, and that
//! nothing follows an `Error`.

use super::{Logprob, StopReason};
use crate::llm::usage::Usage;

#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    Start(StreamStart),
    Text {
        choice: u32,
        text: String,
    },
    /// A thought. One that follows a signature is a new thought.
    Thinking {
        choice: u32,
        text: String,
    },
    /// Ends the thought before it.
    Signature {
        choice: u32,
        signature: String,
    },
    Redacted {
        choice: u32,
        data: String,
    },
    /// Opens tool call number `tool` of this choice, counted from 0 in the order of opening.
    ToolStart {
        choice: u32,
        tool: u32,
        id: String,
        name: String,
        signature: Option<String>,
    },
    /// A piece of the JSON text of a call's arguments.
    ToolArguments {
        choice: u32,
        tool: u32,
        json: String,
    },
    Refusal {
        choice: u32,
        text: String,
    },
    Logprobs {
        choice: u32,
        items: Vec<Logprob>,
    },
    Stop {
        choice: u32,
        reason: StopReason,
    },
    /// The usage of the whole answer so far; a later one replaces an earlier one.
    Usage(Usage),
    Error(ProviderError),
}

/// What a stream says of itself when it begins. Empty fields are filled in by the driver.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamStart {
    pub id: String,
    pub model: String,
    pub created: Option<i64>,
    /// What is known of the input by now.
    pub usage: Option<Usage>,
}

/// An error of a provider, in a body or inside a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderError {
    /// The status that this is, or would be, as an answer.
    pub status: u16,
    /// The provider's own word for it, such as `rate_limit_exceeded` or `overloaded_error`.
    pub code: String,
    pub message: String,
}
