//! The formats of requests and responses: what a provider serves, what a caller uses, one format of a body, and the
//! framing of a response body.

use super::paths::Operation;

/// The API that a provider serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderFormat {
    OpenAi,
    Anthropic,
    Gemini,
    Bedrock,
    Cohere,
}

impl ProviderFormat {
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
        Self::ALL.into_iter().find(|format| format.as_str() == name)
    }
}

/// The format that a caller uses: declared by `X-Gateway-Format`, or derived from the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientFormat {
    /// Chat completions, completions and embeddings.
    OpenAiChat,
    OpenAiResponses,
    Anthropic,
    Gemini,
}

impl ClientFormat {
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
        Self::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// The provider format that serves this caller without translation.
    pub fn native(self) -> ProviderFormat {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses => ProviderFormat::OpenAi,
            Self::Anthropic => ProviderFormat::Anthropic,
            Self::Gemini => ProviderFormat::Gemini,
        }
    }
}

/// The format of one body or stream. OpenAI has three of them, and compatible providers serve some of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WireFormat {
    OpenAiChat,
    /// The legacy completions. They are aggregated and synthesized, but never translated.
    OpenAiCompletions,
    OpenAiResponses,
    Anthropic,
    Gemini,
    Bedrock,
    Cohere,
}

impl WireFormat {
    pub const ALL: [Self; 7] = [
        Self::OpenAiChat,
        Self::OpenAiCompletions,
        Self::OpenAiResponses,
        Self::Anthropic,
        Self::Gemini,
        Self::Bedrock,
        Self::Cohere,
    ];

    /// The format of a provider's chat calls. `responses`: an OpenAI provider is called by its responses API.
    pub fn of_provider(format: ProviderFormat, responses: bool) -> Self {
        match format {
            ProviderFormat::OpenAi if responses => Self::OpenAiResponses,
            ProviderFormat::OpenAi => Self::OpenAiChat,
            ProviderFormat::Anthropic => Self::Anthropic,
            ProviderFormat::Gemini => Self::Gemini,
            ProviderFormat::Bedrock => Self::Bedrock,
            ProviderFormat::Cohere => Self::Cohere,
        }
    }

    /// The format of a provider's response to an operation. None for operations that never stream or are unknown.
    pub fn of_response(format: ProviderFormat, operation: Operation) -> Option<Self> {
        match (operation, format) {
            (Operation::Chat, ProviderFormat::Cohere) => Some(Self::Cohere),
            (Operation::Chat, _) => Some(Self::OpenAiChat),
            (Operation::Completions, _) => Some(Self::OpenAiCompletions),
            (Operation::Responses, _) => Some(Self::OpenAiResponses),
            (Operation::Messages, _) => Some(Self::Anthropic),
            (Operation::GenerateContent, _) => Some(Self::Gemini),
            (Operation::Converse, _) => Some(Self::Bedrock),
            (Operation::Embeddings | Operation::Models | Operation::Other, _) => None,
        }
    }

    /// The framing of the format's streams.
    pub fn framing(self) -> BodyFraming {
        if self == Self::Bedrock { BodyFraming::EventStream } else { BodyFraming::Sse }
    }
}

impl From<ClientFormat> for WireFormat {
    fn from(format: ClientFormat) -> Self {
        match format {
            ClientFormat::OpenAiChat => Self::OpenAiChat,
            ClientFormat::OpenAiResponses => Self::OpenAiResponses,
            ClientFormat::Anthropic => Self::Anthropic,
            ClientFormat::Gemini => Self::Gemini,
        }
    }
}

/// How a response body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    Json,
    Sse,
    /// Amazon's binary event stream.
    EventStream,
    /// Any other body. It is forwarded without being read.
    Opaque,
}

impl BodyFraming {
    /// The framing that a `content-type` declares. Newline-delimited JSON objects count as JSON.
    pub fn from_content_type(content_type: &str) -> Self {
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match &*essence {
            "text/event-stream" => Self::Sse,
            "application/vnd.amazon.eventstream" => Self::EventStream,
            "application/json" | "application/x-ndjson" | "application/stream+json" => Self::Json,
            other if other.ends_with("+json") => Self::Json,
            _ => Self::Opaque,
        }
    }

    /// The framing of a body whose content type says nothing, by its first bytes. None if more bytes are needed to
    /// know; `Opaque` if it is neither JSON nor a stream of events.
    pub fn sniff(start: &[u8]) -> Option<Self> {
        const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
        const SSE_FIELDS: [&[u8]; 5] = [b":", b"data:", b"event:", b"id:", b"retry:"];
        let text = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start).trim_ascii_start();
        match text.first()? {
            b'{' | b'[' => Some(Self::Json),
            // The length of a frame, which is far below 16 MiB.
            0 => Some(Self::EventStream),
            _ if SSE_FIELDS.iter().any(|field| text.starts_with(field)) => Some(Self::Sse),
            _ if SSE_FIELDS.iter().any(|field| field.starts_with(text)) => None,
            _ => Some(Self::Opaque),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_recognized_by_its_first_bytes() {
        for (start, expected) in [
            (&b"{\"id\":1}"[..], Some(BodyFraming::Json)),
            (b"\r\n [", Some(BodyFraming::Json)),
            (b"\xef\xbb\xbf{", Some(BodyFraming::Json)),
            (b"data: x", Some(BodyFraming::Sse)),
            (b"\n\nevent: x", Some(BodyFraming::Sse)),
            (b": ping", Some(BodyFraming::Sse)),
            (b"id:1", Some(BodyFraming::Sse)),
            (b"retry:1", Some(BodyFraming::Sse)),
            (b"\0\0\x01", Some(BodyFraming::EventStream)),
            (b"", None),
            (b" \n", None),
            (b"dat", None),
            (b"data", None),
            (b"date", Some(BodyFraming::Opaque)),
            (b"<html>", Some(BodyFraming::Opaque)),
            (b"OK", Some(BodyFraming::Opaque)),
        ] {
            assert_eq!(BodyFraming::sniff(start), expected, "{start:?}");
        }
    }

    #[test]
    fn format_names_parse_back_to_themselves() {
        for format in ProviderFormat::ALL {
            assert_eq!(ProviderFormat::parse(format.as_str()), Some(format));
        }
        for format in ClientFormat::ALL {
            assert_eq!(ClientFormat::parse(format.as_str()), Some(format));
        }
        assert_eq!(ProviderFormat::parse("OpenAI"), None);
        assert_eq!(ClientFormat::parse("cohere"), None);
    }
}
