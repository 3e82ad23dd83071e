//! Prompt-cache breakpoints. Some providers charge a tenth for input that they have read before, but only up to a mark
//! in the request. The marks are put into the provider's body without parsing and rewriting it: everything that is added
//! is an insertion, so the rest of the body keeps its bytes, and the provider sees the same prefix in the next call.
//!
//! Marks go to the end of the system prompt, which covers the tools before it, and to the end of the final message,
//! from which the next call of the conversation reads. Marks of the caller stay, and win at their place.

mod anthropic;
mod bedrock;
mod history;
mod layout;
mod models;
mod openai;
mod settings;
#[cfg(test)]
mod tests;

pub use history::{HeadHistory, PAUSE_AFTER_CALLS, SavingLedger};
pub use layout::{CacheablePrompt, Marked};
pub use settings::{PromptCache, PromptCacheMode, PromptCacheTtl};

use super::paths::Operation;
use super::{ProviderFormat, WireFormat};

/// How a provider's body carries marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkFormat {
    /// `cache_control` in a block.
    Anthropic,
    /// `cachePoint` behind a block.
    Bedrock,
    /// `prompt_cache_breakpoint` in a part of a message.
    OpenAiChat,
    OpenAiResponses,
}

impl MarkFormat {
    /// The marks of a request that is forwarded in the caller's format. `path` is that of the provider.
    pub fn of_forwarded(provider: ProviderFormat, operation: Operation, path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        match (provider, operation) {
            // Vertex serves Claude in Anthropic's format.
            (ProviderFormat::Anthropic | ProviderFormat::Gemini, Operation::Messages) => {
                Some(Self::Anthropic)
            }
            (ProviderFormat::Bedrock, Operation::Converse) => Some(Self::Bedrock),
            (ProviderFormat::Bedrock, Operation::Other)
                if path.ends_with("/invoke") || path.ends_with("/invoke-with-response-stream") =>
            {
                Some(Self::Anthropic)
            }
            (ProviderFormat::OpenAi, Operation::Chat) => Some(Self::OpenAiChat),
            (ProviderFormat::OpenAi, Operation::Responses) => Some(Self::OpenAiResponses),
            _ => None,
        }
    }

    /// The marks of a body of a chat call.
    pub fn of_chat(format: WireFormat) -> Option<Self> {
        match format {
            WireFormat::Anthropic => Some(Self::Anthropic),
            WireFormat::Bedrock => Some(Self::Bedrock),
            WireFormat::OpenAiChat => Some(Self::OpenAiChat),
            WireFormat::OpenAiResponses => Some(Self::OpenAiResponses),
            WireFormat::OpenAiCompletions | WireFormat::Gemini | WireFormat::Cohere => None,
        }
    }

    /// Whether the model takes marks of this format.
    pub fn is_taken_by(self, model: &str) -> bool {
        models::support(self, model).is_some()
    }
}
