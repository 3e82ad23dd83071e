//! What the gateway knows of language-model APIs: who the providers are, what a request and an answer look
//! like in each wire format, and how failures are judged. Code is keyed by wire format; a provider is a row
//! of data in `providers`.

pub mod chat;
pub mod errors;
pub mod estimate;
pub mod eventstream;
pub mod failure;
pub mod fold;
pub mod multipart;
pub mod paths;
pub mod peek;
pub mod preview;
pub mod providers;
pub mod sandbox;
pub mod scan;
pub mod sigv4;
pub mod sse;
pub mod system;
pub mod translate;
pub mod usage;

/// The wire format that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    OpenAi,
    Anthropic,
    Gemini,
    Bedrock,
    Cohere,
}

impl Shape {
    pub const ALL: [Self; 5] = [Self::OpenAi, Self::Anthropic, Self::Gemini, Self::Bedrock, Self::Cohere];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Bedrock => "bedrock",
            Self::Cohere => "cohere",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.as_str() == name)
    }
}

/// The format that a caller speaks: what `X-Gateway-Format` names, or what the path tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientShape {
    /// Chat completions, completions and embeddings.
    OpenAiChat,
    OpenAiResponses,
    Anthropic,
    Gemini,
}

impl ClientShape {
    pub const ALL: [Self; 4] = [Self::OpenAiChat, Self::OpenAiResponses, Self::Anthropic, Self::Gemini];

    /// The value of `X-Gateway-Format`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.as_str() == name)
    }

    /// The provider shape that this caller can talk to without translation.
    pub fn native(self) -> Shape {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses => Shape::OpenAi,
            Self::Anthropic => Shape::Anthropic,
            Self::Gemini => Shape::Gemini,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shapes_read_back_as_themselves() {
        for shape in Shape::ALL {
            assert_eq!(Shape::parse(shape.as_str()), Some(shape));
        }
        for shape in ClientShape::ALL {
            assert_eq!(ClientShape::parse(shape.as_str()), Some(shape));
        }
        assert_eq!(Shape::parse("OpenAI"), None);
        assert_eq!(ClientShape::parse("cohere"), None);
    }
}
