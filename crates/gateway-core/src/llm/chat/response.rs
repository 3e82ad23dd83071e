//! The format-independent response, model list and embeddings.

use super::{Content, Part};
use crate::llm::usage::Usage;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChatResponse {
    /// `id`, `model` and `created` are filled in from `ResponseOptions` when the provider omits them.
    pub id: String,
    pub model: String,
    pub created: Option<i64>,
    pub choices: Vec<Choice>,
    pub usage: Option<Usage>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Choice {
    pub index: u32,
    pub parts: Vec<Part>,
    pub stop: Option<StopReason>,
    pub logprobs: Vec<Logprob>,
}

impl Choice {
    /// Normalizes the parts to the form that a stream of the same response would produce. Merges adjacent texts,
    /// removes empty parts and parts that not every response format has, and generates missing tool call ids.
    pub fn normalize(&mut self) {
        let mut calls = 0;
        let mut normalized: Vec<Part> = Vec::with_capacity(self.parts.len());
        for mut part in std::mem::take(&mut self.parts) {
            if let Content::ToolCall(call) = &mut part.content {
                if call.id.is_empty() {
                    call.id = generated_call_id(self.index, calls);
                }
                calls += 1;
            }
            match (normalized.last_mut().map(|last| &mut last.content), &part.content) {
                (_, Content::Other(_) | Content::Json(_) | Content::Media(_)) => {}
                (_, Content::Text(text) | Content::Refusal(text)) if text.is_empty() => {}
                (_, Content::Thinking { text, signature: None }) if text.is_empty() => {}
                (Some(Content::Text(before)), Content::Text(text))
                | (Some(Content::Refusal(before)), Content::Refusal(text)) => before.push_str(text),
                (
                    Some(Content::Thinking { text: before, signature: open @ None }),
                    Content::Thinking { text, signature },
                ) => {
                    before.push_str(text);
                    open.clone_from(signature);
                }
                _ => normalized.push(part),
            }
        }
        self.parts = normalized;
    }
}

/// The id of a tool call whose provider sends none. It is the same for a body and for a stream.
pub fn generated_call_id(choice: u32, call: u32) -> String {
    if choice == 0 { format!("call_{call}") } else { format!("call_{choice}_{call}") }
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    EndTurn,
    MaxTokens,
    /// With the matched sequence, where the provider reports it.
    Sequence(Option<String>),
    ToolUse,
    /// The model declined to answer.
    Refusal,
    /// The provider's content filter blocked the response.
    Filtered,
    /// The provider paused a long turn and expects the caller to continue it.
    Paused,
    ContextFull,
    /// The provider failed while it generated the response.
    Failed,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Logprob {
    pub token: String,
    pub logprob: serde_json::Number,
    pub bytes: Option<Vec<u8>>,
    pub top: Vec<Logprob>,
}

/// One entry of a model list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelEntry {
    pub id: String,
    pub name: Option<String>,
    /// Unix time in seconds.
    pub created: Option<i64>,
    pub owner: Option<String>,
    pub input_limit: Option<u64>,
    pub output_limit: Option<u64>,
}

/// An embeddings request. Callers can send it in OpenAI's format only.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EmbeddingsRequest {
    pub model: String,
    pub inputs: Vec<String>,
    pub dimensions: Option<u64>,
    pub user: Option<String>,
}

/// Embeddings, in the order of their inputs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EmbeddingsResponse {
    pub vectors: Vec<Vec<f64>>,
    pub usage: Option<Usage>,
}
