//! The format-independent model of a conversation. Every wire format is decoded into it and encoded from it, so that
//! six formats need six codecs and not thirty converters. Fields that only one format has are kept in `extra`. They
//! are restored when the target uses the same format, and reported as dropped otherwise.

mod event;
mod loss;
mod response;

use serde_json::{Map, Number, Value};

pub use super::WireFormat;
pub use event::{ProviderError, StreamEvent, StreamStart};
pub use loss::{FieldLocation, Losses, RequestField, TranslationError};
pub use response::{
    ChatResponse, Choice, EmbeddingsRequest, EmbeddingsResponse, Logprob, ModelEntry, StopReason,
    generated_call_id,
};

/// Fields without a counterpart in the model, by their names in the source format.
pub type ExtraFields = Map<String, Value>;

/// A request to continue a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The format that this request was decoded from. All `extra` fields belong to it.
    pub format: WireFormat,
    pub model: String,
    pub stream: bool,
    /// The caller of an OpenAI stream asked for the chunk that reports usage.
    pub include_usage: bool,
    /// In the caller's order, system messages included. Encoders move these where their format has a separate field.
    pub messages: Vec<Message>,
    pub tools: Vec<Tool>,
    pub tool_choice: Option<ToolChoice>,
    pub parallel_tool_calls: Option<bool>,
    pub output: Option<OutputFormat>,
    pub max_tokens: Option<u64>,
    /// The limit came as `max_tokens`, the older of OpenAI's two names for it, which newer models reject.
    pub legacy_max_tokens: bool,
    pub temperature: Option<Number>,
    pub top_p: Option<Number>,
    pub top_k: Option<Number>,
    pub frequency_penalty: Option<Number>,
    pub presence_penalty: Option<Number>,
    pub stop: Vec<String>,
    pub seed: Option<Number>,
    /// The number of choices to generate.
    pub n: Option<u64>,
    pub logprobs: bool,
    pub top_logprobs: Option<u64>,
    pub logit_bias: Option<Value>,
    pub reasoning: Option<Reasoning>,
    /// The end user on whose behalf the request is made.
    pub user: Option<String>,
    pub metadata: Option<Value>,
    pub service_tier: Option<String>,
    pub store: Option<bool>,
    pub prompt_cache_key: Option<String>,
    pub verbosity: Option<String>,
    pub extra: ExtraFields,
}

impl ChatRequest {
    pub fn new(format: WireFormat) -> Self {
        ChatRequest {
            format,
            model: String::new(),
            stream: false,
            include_usage: false,
            messages: Vec::new(),
            tools: Vec::new(),
            tool_choice: None,
            parallel_tool_calls: None,
            output: None,
            max_tokens: None,
            legacy_max_tokens: false,
            temperature: None,
            top_p: None,
            top_k: None,
            frequency_penalty: None,
            presence_penalty: None,
            stop: Vec::new(),
            seed: None,
            n: None,
            logprobs: false,
            top_logprobs: None,
            logit_bias: None,
            reasoning: None,
            user: None,
            metadata: None,
            service_tier: None,
            store: None,
            prompt_cache_key: None,
            verbosity: None,
            extra: ExtraFields::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    System,
    /// OpenAI's newer name for the system role. Other formats do not distinguish the two.
    Developer,
    User,
    Assistant,
    /// Contains tool results only.
    Tool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub role: Role,
    pub parts: Vec<Part>,
    /// The content was a plain string rather than a list of parts, and is encoded as one where possible.
    pub is_string: bool,
    pub name: Option<String>,
    pub extra: ExtraFields,
}

impl Message {
    pub fn new(role: Role, parts: Vec<Part>) -> Self {
        Message { role, parts, is_string: false, name: None, extra: ExtraFields::new() }
    }

    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Message { is_string: true, ..Message::new(role, vec![Part::text(text)]) }
    }

    pub fn is_system(&self) -> bool {
        matches!(self.role, Role::System | Role::Developer)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub content: Content,
    /// Asks the provider to cache the prompt up to and including this part.
    pub cache: Option<CacheControl>,
    pub extra: ExtraFields,
}

impl Part {
    pub fn new(content: Content) -> Self {
        Part { content, cache: None, extra: ExtraFields::new() }
    }

    pub fn text(text: impl Into<String>) -> Self {
        Part::new(Content::Text(text.into()))
    }
}

impl From<Content> for Part {
    fn from(content: Content) -> Self {
        Part::new(content)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    Text(String),
    Media(Media),
    ToolCall(ToolCall),
    ToolResult(ToolResult),
    /// The model's thinking. `signature` proves to the provider that it is genuine, and can come without text.
    Thinking {
        text: String,
        signature: Option<String>,
    },
    /// Encrypted thinking that only the provider can read.
    Redacted(String),
    Refusal(String),
    /// A structured value, which some formats allow in tool results.
    Json(Value),
    /// A part that exists in the source format only.
    Other(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    Image,
    Audio,
    Video,
    Document,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Media {
    pub kind: MediaKind,
    pub source: MediaSource,
    /// A file name or title.
    pub name: Option<String>,
    /// OpenAI's `detail` of an image.
    pub detail: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum MediaSource {
    Url {
        url: String,
        mime: Option<String>,
    },
    Base64 {
        mime: String,
        data: String,
    },
    /// A document given as plain text.
    Text(String),
    /// The id of a file that was uploaded to the provider.
    File(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Empty when the provider sends none. `Choice::normalize` and the stream sequencer fill it in.
    pub id: String,
    pub name: String,
    /// JSON text, which may be invalid because the model generates it.
    pub arguments: String,
    /// Gemini signs tool calls rather than thinking.
    pub signature: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The id of the tool call that this result belongs to.
    pub id: String,
    pub name: Option<String>,
    pub parts: Vec<Part>,
    /// As in `Message`.
    pub is_string: bool,
    pub is_error: Option<bool>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Tool {
    Function(FunctionTool),
    /// A tool that exists in the source format only, such as a web search that the provider runs.
    Other(Value),
}

#[derive(Debug, Clone, PartialEq)]
pub struct FunctionTool {
    pub name: String,
    pub description: Option<String>,
    /// A JSON schema. None for a function without arguments.
    pub parameters: Option<Value>,
    pub strict: Option<bool>,
    pub cache: Option<CacheControl>,
    pub extra: ExtraFields,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ToolChoice {
    Auto,
    None,
    Required,
    Tool(String),
    /// Restricts the choice to some of the tools. If `required`, one of them must be called.
    Allowed {
        names: Vec<String>,
        required: bool,
    },
    Other(Value),
}

/// A cache breakpoint of Anthropic's prompt caching. `ttl` is `5m` or `1h`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CacheControl {
    pub ttl: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum OutputFormat {
    Text,
    JsonObject,
    JsonSchema { name: Option<String>, description: Option<String>, schema: Value, strict: Option<bool> },
}

/// How much the model should reason. Formats express it as an effort level, as a token budget, or both.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reasoning {
    /// `None`: not specified. `Some(false)`: reasoning is turned off.
    pub enabled: Option<bool>,
    /// `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`.
    pub effort: Option<String>,
    /// In tokens.
    pub budget: Option<u64>,
    /// How thinking is returned: `auto`, `concise`, `detailed`, `summarized` or `omitted`.
    pub display: Option<String>,
    pub extra: ExtraFields,
}

impl Reasoning {
    /// The effort level. Derived from the budget if only that is given.
    pub fn resolved_effort(&self) -> Option<&str> {
        if self.enabled == Some(false) {
            return Some("none");
        }
        if let Some(effort) = &self.effort {
            return Some(effort);
        }
        match self.budget? {
            0 => Some("none"),
            1..=2_048 => Some("low"),
            2_049..=12_288 => Some("medium"),
            _ => Some("high"),
        }
    }

    /// The budget in tokens. Derived from the effort if only that is given. None if there is no limit to set.
    pub fn resolved_budget(&self) -> Option<u64> {
        if self.enabled == Some(false) {
            return Some(0);
        }
        if self.budget.is_some() {
            return self.budget;
        }
        match self.effort.as_deref()? {
            "none" => Some(0),
            "minimal" => Some(1_024),
            "low" => Some(2_048),
            "medium" => Some(8_192),
            "high" => Some(16_384),
            "xhigh" | "max" => Some(32_768),
            _ => None,
        }
    }
}

/// Parses tool arguments for formats that carry an object rather than JSON text. Anything that is not an object is
/// wrapped in one.
pub fn parse_arguments(text: &str) -> Value {
    let text = text.trim();
    if text.is_empty() {
        return Value::Object(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => value,
        Ok(other) => Value::Object(Map::from_iter([("arguments".to_owned(), other)])),
        Err(_) => Value::Object(Map::from_iter([("arguments".to_owned(), Value::from(text))])),
    }
}
