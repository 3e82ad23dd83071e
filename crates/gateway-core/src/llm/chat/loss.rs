//! What a translation loses. Each loss has a name in the caller's own words, since the caller has to find it in its
//! own request; a loss that would change the meaning of the request is refused instead.

use serde_json::Value;

use super::{Extra, Wire};

/// Why a request cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    /// The body is not what its own format prescribes: a 400.
    #[error("{field}: {message}")]
    Malformed { field: String, message: String },
    /// The target cannot express it, and leaving it out would change what is asked: a 422.
    #[error("{field}: {message}")]
    Refused { field: String, message: String },
}

impl Untranslatable {
    pub fn malformed(field: impl Into<String>, message: impl Into<String>) -> Self {
        Untranslatable::Malformed { field: field.into(), message: message.into() }
    }
}

/// A field of the model that some target has no place for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
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

impl Field {
    /// The field's name in a format; the name is that of the nearest field where the format has no such thing.
    pub fn name(self, wire: Wire) -> &'static str {
        match wire {
            Wire::OpenAiChat | Wire::Cohere => self.in_chat(),
            Wire::OpenAiResponses => self.in_responses(),
            Wire::Anthropic | Wire::Bedrock => self.in_messages(),
            Wire::Gemini => self.in_gemini(),
        }
    }

    fn in_chat(self) -> &'static str {
        match self {
            Field::CacheControl => "messages[].content[].cache_control",
            Field::Detail => "messages[].content[].image_url.detail",
            Field::DocumentName => "messages[].content[].file.filename",
            Field::FrequencyPenalty => "frequency_penalty",
            Field::LogitBias => "logit_bias",
            Field::Logprobs => "logprobs",
            Field::MaxTokens => "max_completion_tokens",
            Field::Message => "messages",
            Field::MessageName => "messages[].name",
            Field::Metadata => "metadata",
            Field::N => "n",
            Field::Output => "response_format",
            Field::OutputName => "response_format.json_schema.name",
            Field::OutputStrict => "response_format.json_schema.strict",
            Field::ParallelToolCalls => "parallel_tool_calls",
            Field::Part => "messages[].content[]",
            Field::PresencePenalty => "presence_penalty",
            Field::PromptCacheKey => "prompt_cache_key",
            Field::Reasoning | Field::ReasoningBudget | Field::ReasoningShow => "reasoning_effort",
            Field::Redacted => "messages[].reasoning_details[]",
            Field::Seed => "seed",
            Field::ServiceTier => "service_tier",
            Field::Stop => "stop",
            Field::Store => "store",
            Field::Strict => "tools[].function.strict",
            Field::Temperature => "temperature",
            Field::Thinking => "messages[].reasoning_content",
            Field::Tool => "tools[]",
            Field::ToolArguments => "messages[].tool_calls[].function.arguments",
            Field::ToolChoice => "tool_choice",
            Field::ToolResult | Field::ToolResultError => "messages[].content",
            Field::TopK => "top_k",
            Field::TopLogprobs => "top_logprobs",
            Field::TopP => "top_p",
            Field::User => "user",
            Field::Verbosity => "verbosity",
        }
    }

    fn in_responses(self) -> &'static str {
        match self {
            Field::CacheControl => "input[].content[].cache_control",
            Field::Detail => "input[].content[].detail",
            Field::DocumentName => "input[].content[].filename",
            Field::MaxTokens => "max_output_tokens",
            Field::Message => "input",
            Field::MessageName => "input[].name",
            Field::Output => "text.format",
            Field::OutputName => "text.format.name",
            Field::OutputStrict => "text.format.strict",
            Field::Part => "input[].content[]",
            Field::Reasoning => "reasoning.effort",
            Field::ReasoningBudget => "reasoning.max_tokens",
            Field::ReasoningShow => "reasoning.summary",
            Field::Redacted => "input[].encrypted_content",
            Field::Strict => "tools[].strict",
            Field::Thinking => "input[].summary",
            Field::ToolArguments => "input[].arguments",
            Field::ToolResult | Field::ToolResultError => "input[].output",
            Field::Verbosity => "text.verbosity",
            other => other.in_chat(),
        }
    }

    fn in_messages(self) -> &'static str {
        match self {
            Field::DocumentName => "messages[].content[].title",
            Field::MaxTokens => "max_tokens",
            Field::Metadata => "metadata",
            Field::Output | Field::OutputName | Field::OutputStrict => "output_config.format",
            Field::ParallelToolCalls => "tool_choice.disable_parallel_tool_use",
            Field::Reasoning => "thinking",
            Field::ReasoningBudget => "thinking.budget_tokens",
            Field::ReasoningShow => "thinking.display",
            Field::Redacted => "messages[].content[].data",
            Field::Stop => "stop_sequences",
            Field::Strict => "tools[].strict",
            Field::Thinking => "messages[].content[].thinking",
            Field::ToolArguments => "messages[].content[].input",
            Field::ToolResult => "messages[].content[].content",
            Field::ToolResultError => "messages[].content[].is_error",
            Field::User => "metadata.user_id",
            other => other.in_chat(),
        }
    }

    fn in_gemini(self) -> &'static str {
        match self {
            Field::CacheControl | Field::PromptCacheKey => "cachedContent",
            Field::Detail | Field::Part => "contents[].parts[]",
            Field::DocumentName => "contents[].parts[].inlineData.displayName",
            Field::FrequencyPenalty => "generationConfig.frequencyPenalty",
            Field::Logprobs => "generationConfig.responseLogprobs",
            Field::MaxTokens => "generationConfig.maxOutputTokens",
            Field::Message | Field::MessageName => "contents",
            Field::Metadata | Field::User => "labels",
            Field::N => "generationConfig.candidateCount",
            Field::Output | Field::OutputName | Field::OutputStrict => "generationConfig.responseSchema",
            Field::ParallelToolCalls | Field::ToolChoice => "toolConfig.functionCallingConfig",
            Field::PresencePenalty => "generationConfig.presencePenalty",
            Field::Reasoning => "generationConfig.thinkingConfig",
            Field::ReasoningBudget => "generationConfig.thinkingConfig.thinkingBudget",
            Field::ReasoningShow => "generationConfig.thinkingConfig.includeThoughts",
            Field::Redacted => "contents[].parts[].thoughtSignature",
            Field::Seed => "generationConfig.seed",
            Field::Stop => "generationConfig.stopSequences",
            Field::Strict | Field::Tool => "tools[]",
            Field::Temperature => "generationConfig.temperature",
            Field::Thinking => "contents[].parts[].thought",
            Field::ToolArguments => "contents[].parts[].functionCall.args",
            Field::ToolResult | Field::ToolResultError => "contents[].parts[].functionResponse",
            Field::TopK => "generationConfig.topK",
            Field::TopLogprobs => "generationConfig.logprobs",
            Field::TopP => "generationConfig.topP",
            other => other.in_chat(),
        }
    }
}

/// Fields that hold no wish: names that items were given when they were answers, the wish for what translated answers
/// carry anyway, and schemas in the format's own words, which the model has read in everybody's.
fn says_nothing(from: Wire, key: &str, value: &Value) -> bool {
    match (from, key) {
        (Wire::OpenAiResponses, "id" | "status" | "type")
        | (Wire::Gemini, "parameters" | "generationConfig.responseSchema") => true,
        (Wire::OpenAiResponses, "include") => *value == serde_json::json!(["reasoning.encrypted_content"]),
        _ => false,
    }
}

/// Where fields stand that the model has no name for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Request,
    Message,
    Part,
    Tool,
    Reasoning,
}

/// What one translation has lost so far.
#[derive(Debug)]
pub struct Losses {
    from: Wire,
    dropped: Vec<String>,
}

impl Losses {
    pub fn new(from: Wire) -> Self {
        Losses { from, dropped: Vec::new() }
    }

    /// Notes that a field was left out, which does no harm.
    pub fn drop(&mut self, field: Field) {
        self.note(field.name(self.from));
    }

    /// Notes all fields of an `extra`.
    pub fn drop_extra(&mut self, place: Place, extra: &Extra) {
        for (key, value) in extra {
            if !says_nothing(self.from, key, value) {
                self.drop_key(place, key);
            }
        }
    }

    /// Notes a field by its own name.
    pub fn drop_key(&mut self, place: Place, key: &str) {
        let prefix = self.prefix(place);
        self.note(&format!("{prefix}{key}"));
    }

    pub fn refuse(&self, field: Field, message: impl Into<String>) -> Untranslatable {
        Untranslatable::Refused { field: field.name(self.from).to_owned(), message: message.into() }
    }

    pub fn into_dropped(self) -> Vec<String> {
        self.dropped
    }

    fn note(&mut self, name: &str) {
        if !self.dropped.iter().any(|known| known == name) {
            self.dropped.push(name.to_owned());
        }
    }

    fn prefix(&self, place: Place) -> &'static str {
        match (self.from, place) {
            (_, Place::Request) => "",
            (Wire::OpenAiResponses, Place::Message) => "input[].",
            (Wire::OpenAiResponses, Place::Part) => "input[].content[].",
            (Wire::Gemini, Place::Message) => "contents[].",
            (Wire::Gemini, Place::Part) => "contents[].parts[].",
            (Wire::Gemini, Place::Tool) => "tools[].functionDeclarations[].",
            (Wire::Gemini, Place::Reasoning) => "generationConfig.thinkingConfig.",
            (_, Place::Message) => "messages[].",
            (_, Place::Part) => "messages[].content[].",
            (_, Place::Tool) => "tools[].",
            (Wire::Anthropic | Wire::Bedrock, Place::Reasoning) => "thinking.",
            (_, Place::Reasoning) => "reasoning.",
        }
    }
}
