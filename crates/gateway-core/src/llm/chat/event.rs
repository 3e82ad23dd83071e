//! The events of a response stream. Stream decoders produce them and stream encoders consume them. The sequencer
//! between the two guarantees three things: `Start` comes first and only once, a tool call is started with an id
//! before its arguments arrive, and nothing follows an `Error`.

use super::{Logprob, StopReason};
use crate::llm::usage::Usage;

#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    Start(StreamStart),
    Text {
        choice: u32,
        text: String,
    },
    /// A piece of thinking. After a `Signature` it opens a new thinking block.
    Thinking {
        choice: u32,
        text: String,
    },
    /// Closes the current thinking block.
    Signature {
        choice: u32,
        signature: String,
    },
    Redacted {
        choice: u32,
        data: String,
    },
    /// Opens tool call number `tool` of this choice. Calls are numbered from 0 in the order in which they open.
    ToolStart {
        choice: u32,
        tool: u32,
        id: String,
        name: String,
        signature: Option<String>,
    },
    /// A piece of the JSON text of a tool call's arguments.
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
    /// The usage of the whole response so far. A later value replaces an earlier one.
    Usage(Usage),
    Error(ProviderError),
}

/// The identity of a stream, sent when it begins. The sequencer fills in empty fields.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamStart {
    pub id: String,
    pub model: String,
    pub created: Option<i64>,
    /// Input usage, where the provider reports it at the start.
    pub usage: Option<Usage>,
}

/// An error that a provider returned in a body or inside a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderError {
    /// The HTTP status. For an error inside a stream, the status that it corresponds to.
    pub status: u16,
    /// The provider's own error code, such as `rate_limit_exceeded` or `overloaded_error`.
    pub code: String,
    pub message: String,
}
