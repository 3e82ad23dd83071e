//! The fields that a translation drops. They are reported by their names in the caller's format, so that the caller
//! finds them in its request. If dropping a field would change the meaning of the request, the translation fails
//! instead.

use serde_json::Value;

use super::{ExtraFields, WireFormat};

/// Why a request cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TranslationError {
    /// The body does not conform to its own format. Returned as status 400.
    #[error("{field}: {message}")]
    Malformed { field: String, message: String },
    /// The target does not support the field, and dropping it would change the meaning. Returned as status 422.
    #[error("{field}: {message}")]
    Unsupported { field: String, message: String },
}

impl TranslationError {
    pub fn malformed(field: impl Into<String>, message: impl Into<String>) -> Self {
        TranslationError::Malformed { field: field.into(), message: message.into() }
    }
}

/// A field of the model that some target formats do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestField {
    CacheControl,
    Detail,
    DocumentName,
    FrequencyPenalty,
    LogitBias,
    Logprobs,
    MaxTokens,
    Message,
    MessageName,
    Metadata,
    N,
    Output,
    OutputName,
    OutputStrict,
    ParallelToolCalls,
    Part,
    PresencePenalty,
    PromptCacheKey,
    Reasoning,
    ReasoningBudget,
    ReasoningShow,
    Redacted,
    Seed,
    ServiceTier,
    Stop,
    Store,
    Strict,
    Temperature,
    Thinking,
    Tool,
    ToolArguments,
    ToolChoice,
    ToolResult,
    ToolResultError,
    TopK,
    TopLogprobs,
    TopP,
    User,
    Verbosity,
}

impl RequestField {
    /// The field's name in a format. If the format has no such field, the name of the closest one.
    pub fn name(self, format: WireFormat) -> &'static str {
        match format {
            WireFormat::OpenAiChat | WireFormat::OpenAiCompletions | WireFormat::Cohere => self.chat_name(),
            WireFormat::OpenAiResponses => self.responses_name(),
            WireFormat::Anthropic | WireFormat::Bedrock => self.messages_name(),
            WireFormat::Gemini => self.gemini_name(),
        }
    }

    fn chat_name(self) -> &'static str {
        match self {
            RequestField::CacheControl => "messages[].content[].cache_control",
            RequestField::Detail => "messages[].content[].image_url.detail",
            RequestField::DocumentName => "messages[].content[].file.filename",
            RequestField::FrequencyPenalty => "frequency_penalty",
            RequestField::LogitBias => "logit_bias",
            RequestField::Logprobs => "logprobs",
            RequestField::MaxTokens => "max_completion_tokens",
            RequestField::Message => "messages",
            RequestField::MessageName => "messages[].name",
            RequestField::Metadata => "metadata",
            RequestField::N => "n",
            RequestField::Output => "response_format",
            RequestField::OutputName => "response_format.json_schema.name",
            RequestField::OutputStrict => "response_format.json_schema.strict",
            RequestField::ParallelToolCalls => "parallel_tool_calls",
            RequestField::Part => "messages[].content[]",
            RequestField::PresencePenalty => "presence_penalty",
            RequestField::PromptCacheKey => "prompt_cache_key",
            RequestField::Reasoning | RequestField::ReasoningBudget | RequestField::ReasoningShow => {
                "reasoning_effort"
            }
            RequestField::Redacted => "messages[].reasoning_details[]",
            RequestField::Seed => "seed",
            RequestField::ServiceTier => "service_tier",
            RequestField::Stop => "stop",
            RequestField::Store => "store",
            RequestField::Strict => "tools[].function.strict",
            RequestField::Temperature => "temperature",
            RequestField::Thinking => "messages[].reasoning_content",
            RequestField::Tool => "tools[]",
            RequestField::ToolArguments => "messages[].tool_calls[].function.arguments",
            RequestField::ToolChoice => "tool_choice",
            RequestField::ToolResult | RequestField::ToolResultError => "messages[].content",
            RequestField::TopK => "top_k",
            RequestField::TopLogprobs => "top_logprobs",
            RequestField::TopP => "top_p",
            RequestField::User => "user",
            RequestField::Verbosity => "verbosity",
        }
    }

    fn responses_name(self) -> &'static str {
        match self {
            RequestField::CacheControl => "input[].content[].cache_control",
            RequestField::Detail => "input[].content[].detail",
            RequestField::DocumentName => "input[].content[].filename",
            RequestField::MaxTokens => "max_output_tokens",
            RequestField::Message => "input",
            RequestField::MessageName => "input[].name",
            RequestField::Output => "text.format",
            RequestField::OutputName => "text.format.name",
            RequestField::OutputStrict => "text.format.strict",
            RequestField::Part => "input[].content[]",
            RequestField::Reasoning => "reasoning.effort",
            RequestField::ReasoningBudget => "reasoning.max_tokens",
            RequestField::ReasoningShow => "reasoning.summary",
            RequestField::Redacted => "input[].encrypted_content",
            RequestField::Strict => "tools[].strict",
            RequestField::Thinking => "input[].summary",
            RequestField::ToolArguments => "input[].arguments",
            RequestField::ToolResult | RequestField::ToolResultError => "input[].output",
            RequestField::Verbosity => "text.verbosity",
            other => other.chat_name(),
        }
    }

    fn messages_name(self) -> &'static str {
        match self {
            RequestField::DocumentName => "messages[].content[].title",
            RequestField::MaxTokens => "max_tokens",
            RequestField::Metadata => "metadata",
            RequestField::Output | RequestField::OutputName | RequestField::OutputStrict => {
                "output_config.format"
            }
            RequestField::ParallelToolCalls => "tool_choice.disable_parallel_tool_use",
            RequestField::Reasoning => "thinking",
            RequestField::ReasoningBudget => "thinking.budget_tokens",
            RequestField::ReasoningShow => "thinking.display",
            RequestField::Redacted => "messages[].content[].data",
            RequestField::Stop => "stop_sequences",
            RequestField::Strict => "tools[].strict",
            RequestField::Thinking => "messages[].content[].thinking",
            RequestField::ToolArguments => "messages[].content[].input",
            RequestField::ToolResult => "messages[].content[].content",
            RequestField::ToolResultError => "messages[].content[].is_error",
            RequestField::User => "metadata.user_id",
            other => other.chat_name(),
        }
    }

    fn gemini_name(self) -> &'static str {
        match self {
            RequestField::CacheControl | RequestField::PromptCacheKey => "cachedContent",
            RequestField::Detail | RequestField::Part => "contents[].parts[]",
            RequestField::DocumentName => "contents[].parts[].inlineData.displayName",
            RequestField::FrequencyPenalty => "generationConfig.frequencyPenalty",
            RequestField::Logprobs => "generationConfig.responseLogprobs",
            RequestField::MaxTokens => "generationConfig.maxOutputTokens",
            RequestField::Message | RequestField::MessageName => "contents",
            RequestField::Metadata | RequestField::User => "labels",
            RequestField::N => "generationConfig.candidateCount",
            RequestField::Output | RequestField::OutputName | RequestField::OutputStrict => {
                "generationConfig.responseSchema"
            }
            RequestField::ParallelToolCalls | RequestField::ToolChoice => "toolConfig.functionCallingConfig",
            RequestField::PresencePenalty => "generationConfig.presencePenalty",
            RequestField::Reasoning => "generationConfig.thinkingConfig",
            RequestField::ReasoningBudget => "generationConfig.thinkingConfig.thinkingBudget",
            RequestField::ReasoningShow => "generationConfig.thinkingConfig.includeThoughts",
            RequestField::Redacted => "contents[].parts[].thoughtSignature",
            RequestField::Seed => "generationConfig.seed",
            RequestField::Stop => "generationConfig.stopSequences",
            RequestField::Strict | RequestField::Tool => "tools[]",
            RequestField::Temperature => "generationConfig.temperature",
            RequestField::Thinking => "contents[].parts[].thought",
            RequestField::ToolArguments => "contents[].parts[].functionCall.args",
            RequestField::ToolResult | RequestField::ToolResultError => "contents[].parts[].functionResponse",
            RequestField::TopK => "generationConfig.topK",
            RequestField::TopLogprobs => "generationConfig.logprobs",
            RequestField::TopP => "generationConfig.topP",
            other => other.chat_name(),
        }
    }
}

/// Returns whether dropping an extra field has no effect. That holds for ids of earlier output items, for a request to
/// include what translated responses contain anyway, and for schemas that were converted to JSON Schema.
fn is_insignificant(from: WireFormat, key: &str, value: &Value) -> bool {
    match (from, key) {
        (WireFormat::OpenAiResponses, "id" | "status" | "type")
        | (WireFormat::Gemini, "parameters" | "generationConfig.responseSchema") => true,
        (WireFormat::OpenAiResponses, "include") => {
            *value == serde_json::json!(["reasoning.encrypted_content"])
        }
        _ => false,
    }
}

/// The object that extra fields belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldLocation {
    Request,
    Message,
    Part,
    Tool,
    Reasoning,
}

/// The number of dropped fields that are named. They are returned in a header, and callers choose names of fields.
const MAX_DROPPED: usize = 64;
const MAX_DROPPED_BYTES: usize = 64;

/// The fields that a translation has dropped so far.
#[derive(Debug)]
pub struct Losses {
    from: WireFormat,
    dropped: Vec<String>,
}

impl Losses {
    pub fn new(from: WireFormat) -> Self {
        Losses { from, dropped: Vec::new() }
    }

    /// Records a dropped field.
    pub fn drop(&mut self, field: RequestField) {
        self.record(field.name(self.from));
    }

    /// Records all extra fields that matter as dropped.
    pub fn drop_extra(&mut self, location: FieldLocation, extra: &ExtraFields) {
        for (key, value) in extra {
            if !is_insignificant(self.from, key, value) {
                self.drop_key(location, key);
            }
        }
    }

    /// Records a dropped extra field by its name.
    pub fn drop_key(&mut self, location: FieldLocation, key: &str) {
        let prefix = self.prefix(location);
        self.record(&format!("{prefix}{key}"));
    }

    /// Returns the error for a field that must not be dropped.
    pub fn unsupported(&self, field: RequestField, message: impl Into<String>) -> TranslationError {
        TranslationError::Unsupported { field: field.name(self.from).to_owned(), message: message.into() }
    }

    pub fn into_dropped(self) -> Vec<String> {
        self.dropped
    }

    fn record(&mut self, name: &str) {
        let name = &name[..name.floor_char_boundary(MAX_DROPPED_BYTES)];
        if self.dropped.len() < MAX_DROPPED && !self.dropped.iter().any(|known| known == name) {
            self.dropped.push(name.to_owned());
        }
    }

    fn prefix(&self, location: FieldLocation) -> &'static str {
        match (self.from, location) {
            (_, FieldLocation::Request) => "",
            (WireFormat::OpenAiResponses, FieldLocation::Message) => "input[].",
            (WireFormat::OpenAiResponses, FieldLocation::Part) => "input[].content[].",
            (WireFormat::Gemini, FieldLocation::Message) => "contents[].",
            (WireFormat::Gemini, FieldLocation::Part) => "contents[].parts[].",
            (WireFormat::Gemini, FieldLocation::Tool) => "tools[].functionDeclarations[].",
            (WireFormat::Gemini, FieldLocation::Reasoning) => "generationConfig.thinkingConfig.",
            (_, FieldLocation::Message) => "messages[].",
            (_, FieldLocation::Part) => "messages[].content[].",
            (_, FieldLocation::Tool) => "tools[].",
            (WireFormat::Anthropic | WireFormat::Bedrock, FieldLocation::Reasoning) => "thinking.",
            (_, FieldLocation::Reasoning) => "reasoning.",
        }
    }
}
