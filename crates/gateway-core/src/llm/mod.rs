//! tmp
pub mod providers;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    OpenAi,
    Anthropic,
    Gemini,
    Bedrock,
    Cohere,
}
