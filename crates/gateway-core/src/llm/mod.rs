//! What the gateway knows of the model providers' wire formats. Code is keyed by format; a provider is a row of data.

pub mod estimate;
pub mod eventstream;
pub mod sse;
pub mod usage;

/// The wire format that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    OpenAi,
    Anthropic,
    Gemini,
    Bedrock,
    Cohere,
}
