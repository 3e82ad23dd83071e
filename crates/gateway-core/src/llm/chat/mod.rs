//! One model of a conversation, into which every wire format is read and from which every wire format is written, so
//! that six formats need six readers and writers and not thirty converters. What only one format can say rides along in
//! `extra`: it comes out again when the target speaks the same format, and is named as lost when it does not.

mod event;
mod loss;
mod response;

pub use super::WireFormat;
use serde_json::{Map, Number, Value};

pub use event::{ProviderError, StreamEvent, StreamStart};
pub use loss::{FieldLocation, Losses, RequestField, TranslationError};
pub use response::{
    ChatResponse, Choice, EmbeddingsRequest, EmbeddingsResponse, Logprob, ModelEntry, StopReason,
    generated_call_id,
};

/// Fields that the model has no place for, in the words of the format that they came in.
pub type ExtraFields = Map<String, Value>;

/// A request to continue a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The format that this was read from, and so the one that all `extra` fields belong to.
    pub format: WireFormat,
    pub model: String,
    pub stream: bool,
    /// The caller of an OpenAI stream wants the chunk that reports usage.
    pub include_usage: bool,
    /// System messages stand where the caller put them; formats with a place of their own for them gather them there.
    pub messages: Vec<Message>,
    pub tools: Vec<Tool>,
    pub tool_choice: Option<ToolChoice>,
    pub parallel_tool_calls: Option<bool>,
    pub output: Option<OutputFormat>,
    pub max_tokens: Option<u64>,
    /// OpenAI's chats have two names for that limit; this one was `max_tokens`, which newer models refuse.
    pub legacy_max_tokens: bool,
    pub temperature: Option<Number>,
    pub top_p: Option<Number>,
    pub top_k: Option<Number>,
    pub frequency_penalty: Option<Number>,
    pub presence_penalty: Option<Number>,
    pub stop: Vec<String>,
    pub seed: Option<Number>,
    /// How many answers are wanted.
    pub n: Option<u64>,
    pub logprobs: bool,
    pub top_logprobs: Option<u64>,
    pub logit_bias: Option<Value>,
    pub reasoning: Option<Reasoning>,
    /// Whom the request is made for.
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

    /// The name of the tool that a call in this conversation used, for formats that answer calls by name.
    pub fn tool_name(&self, call_id: &str) -> Option<&str> {
        let parts = self.messages.iter().rev().flat_map(|message| &message.parts);
        parts.into_iter().find_map(|part| match &part.content {
            Content::ToolCall(call) if call.id == call_id => Some(&*call.name),
            _ => None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    System,
    /// OpenAI's newer word for a system message; the same to everybody else.
    Developer,
    User,
    Assistant,
    /// Holds nothing but tool results.
    Tool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub role: Role,
    pub parts: Vec<Part>,
    /// The content was, and where possible will be, one bare text rather than a list of parts.
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
    /// The provider should cache everything up to here.
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
    /// What the model thought; `signature` proves it to the provider that made it. A signature may stand without text.
    Thinking {
        text: String,
        signature: Option<String>,
    },
    /// ThinkingDedup that only the provider can read.
    Redacted(String),
    Refusal(String),
    /// A structured value, as some formats have them in tool results.
    Json(Value),
    /// A part that only its own format knows.
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
    /// A file that was uploaded to the provider before.
    File(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Empty when the format has no ids; `ChatResponse` and the stream driver fill it in.
    pub id: String,
    pub name: String,
    /// JSON text, as models write it and streams carry it.
    pub arguments: String,
    /// Gemini signs calls rather than thoughts.
    pub signature: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The id of the call that this answers.
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
    /// A tool that only its own format knows, such as a search on the provider's side.
    Other(Value),
}

#[derive(Debug, Clone, PartialEq)]
pub struct FunctionTool {
    pub name: String,
    pub description: Option<String>,
    /// A JSON schema; None for a function without arguments.
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
    /// Only some of the tools, of which one must be called if `required`.
    Allowed {
        names: Vec<String>,
        required: bool,
    },
    Other(Value),
}

/// A mark of Anthropic's prompt caching: `ttl` is `5m` or `1h`.
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

/// How much the model shall think. Formats measure it in words, in tokens or both.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reasoning {
    /// None: not told. `Some(false)`: none at all.
    pub enabled: Option<bool>,
    /// `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`.
    pub effort: Option<String>,
    /// In tokens.
    pub budget: Option<u64>,
    /// Whether the thoughts shall be shown, or how: `auto`, `concise`, `detailed`, `summarized`, `omitted`.
    pub show: Option<String>,
    pub extra: ExtraFields,
}

impl Reasoning {
    /// The effort in words, worked out of the budget where only that is told.
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

    /// The budget in tokens, worked out of the effort where only that is told. None when there is no limit to set.
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

/// Tool arguments as a value: formats that carry an object rather than text need one whatever the model wrote.
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
