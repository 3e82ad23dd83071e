//! The table of attribute names. Written names follow the GenAI semantic conventions of OpenTelemetry v1.41. Next to
//! each are the older and foreign names (OpenInference, OpenLLMetry) that ingestion accepts as well.

/// The version of the conventions that the written names follow.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";

/// An attribute and its aliases.
pub struct Name {
    pub written: &'static str,
    /// Read if the written name is absent; the first one found wins.
    pub also: &'static [&'static str],
}

macro_rules! names {
    ($($name:ident = $written:literal $(, $also:literal)*;)+) => {
        $(pub const $name: Name = Name { written: $written, also: &[$($also),*] };)+
    };
}

names! {
    OPERATION = "gen_ai.operation.name", "llm.request.type";
    PROVIDER = "gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system";
    REQUEST_MODEL = "gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "embedding.model_name",
        "llm.request.model";
    RESPONSE_MODEL = "gen_ai.response.model";
    RESPONSE_ID = "gen_ai.response.id";
    FINISH_REASONS = "gen_ai.response.finish_reasons";
    FIRST_CHUNK = "gen_ai.response.time_to_first_chunk";
    CONVERSATION = "gen_ai.conversation.id", "session.id", "traceloop.association.properties.session_id";
    STREAM = "gen_ai.request.stream", "llm.is_streaming";
    MAX_TOKENS = "gen_ai.request.max_tokens";
    TEMPERATURE = "gen_ai.request.temperature";
    TOP_P = "gen_ai.request.top_p";
    TOP_K = "gen_ai.request.top_k";
    SEED = "gen_ai.request.seed";
    FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty";
    PRESENCE_PENALTY = "gen_ai.request.presence_penalty";
    CHOICES = "gen_ai.request.choice.count";
    INPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt",
        "llm.usage.prompt_tokens";
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
        "llm.usage.completion_tokens";
    CACHE_READ = "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read";
    CACHE_WRITE = "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_write.input_tokens", "llm.token_count.prompt_details.cache_write";
    REASONING = "gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning";
    INPUT_MESSAGES = "gen_ai.input.messages";
    OUTPUT_MESSAGES = "gen_ai.output.messages";
    SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions";
    TOOL_NAME = "gen_ai.tool.name";
    MCP_METHOD = "mcp.method.name";
    ERROR = "error.type", "exception.type";
    HTTP_METHOD = "http.request.method";
    HTTP_STATUS = "http.response.status_code", "http.status_code";
    URL_PATH = "url.path";
    USER = "user.id", "enduser.id", "llm.user", "traceloop.association.properties.user_id";
    COST = "gateway.cost_usd", "llm.cost.total", "gen_ai.usage.cost";

    EVALUATION_NAME = "gen_ai.evaluation.name";
    EVALUATION_SCORE = "gen_ai.evaluation.score.value";
    EVALUATION_LABEL = "gen_ai.evaluation.score.label";
    EVALUATION_EXPLANATION = "gen_ai.evaluation.explanation";

    LOG_ID = "gateway.log_id";
    REQUEST_ID = "gateway.request_id";
    SOURCE = "gateway.source";
    CACHE = "gateway.cache";
    ESTIMATED = "gateway.usage_estimated";
    KEY = "gateway.key_id";
    APP = "gateway.app_id";
    TEAM = "gateway.team_id";
    ORG = "gateway.org_id";
    ATTEMPTS = "gateway.attempts";
    ATTEMPT = "gateway.attempt";

    AUDIT_SEQ = "gateway.audit.seq";
    AUDIT_HASH = "gateway.audit.hash";
    AUDIT_AT = "gateway.audit.at";
    AUDIT_SIGNATURE = "gateway.audit.signature";
    AUDIT_KEY = "gateway.audit.key_id";

    SERVICE = "service.name";
    SERVICE_VERSION = "service.version";
}

pub const EVALUATION_EVENT: &str = "gen_ai.evaluation.result";
/// The prefix of attributes that carry a row's metadata.
pub const METADATA: &str = "gateway.metadata.";

/// The prefix of all attributes of the conventions. A span with such an attribute is a model call.
pub const GEN_AI: &str = "gen_ai.";
/// The span kind of OpenInference. Only the two kinds below are model calls.
pub const OPENINFERENCE_KIND: &str = "openinference.span.kind";
pub const OPENINFERENCE_CALLS: [(&str, &str); 2] = [("LLM", "chat"), ("EMBEDDING", "embeddings")];

/// Plain input and output texts, for senders that write no messages.
pub const PLAIN_INPUT: &str = "input.value";
pub const PLAIN_OUTPUT: &str = "output.value";
/// Messages in numbered attributes: the prefix before the number, and the infix between the number and the field.
pub const NUMBERED_INPUT: [(&str, &str); 2] = [("llm.input_messages.", ".message."), ("gen_ai.prompt.", ".")];
pub const NUMBERED_OUTPUT: [(&str, &str); 2] =
    [("llm.output_messages.", ".message."), ("gen_ai.completion.", ".")];

/// Provider names that senders use, mapped to the gateway's.
pub const PROVIDERS: [(&str, &str); 12] = [
    ("az.ai.openai", "azure-openai"),
    ("azure", "azure-openai"),
    ("azure.ai.inference", "azure-openai"),
    ("azure_openai", "azure-openai"),
    ("bedrock", "bedrock"),
    ("aws_bedrock", "bedrock"),
    ("gcp.gen_ai", "gemini"),
    ("google", "gemini"),
    ("vertex_ai", "vertex"),
    ("vertexai", "vertex"),
    ("mistralai", "mistral"),
    ("together_ai", "together"),
];
