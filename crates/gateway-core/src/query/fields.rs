//! The table of fields: their names, types, and what they are good for besides filters.

use crate::logs::LogSource;

/// The longest key of `metadata.key`.
pub const MAX_KEY_CHARS: usize = 128;

/// A field of log rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    Status,
    Error,
    Level,
    Source,
    Provider,
    Model,
    Key,
    App,
    Team,
    User,
    Session,
    Prompt,
    PromptVersion,
    Cache,
    Latency,
    Ttft,
    Cost,
    Tokens,
    InputTokens,
    OutputTokens,
    CachedTokens,
    ReasoningTokens,
    Attempts,
    Stream,
    Method,
    Path,
    Compat,
    Tool,
    Request,
    Id,
    Time,
    Metadata,
}

/// The values that a field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Upper and lower case differ; `*` stands for any characters.
    Text,
    /// The name of a resource, or its id; the rows have the id.
    Name,
    /// One of these words.
    Choice(&'static [&'static str]),
    Status,
    Number,
    /// Milliseconds.
    Duration,
    /// Units of 1e-12 USD.
    Money,
    Boolean,
    Time,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Name => "name",
            Self::Choice(_) => "choice",
            Self::Status => "status",
            Self::Number => "number",
            Self::Duration => "duration",
            Self::Money => "money",
            Self::Boolean => "boolean",
            Self::Time => "time",
        }
    }

    /// What a value must look like, for error messages.
    pub fn expected(self) -> Vec<String> {
        let one = |text: &str| vec![text.to_owned()];
        match self {
            Self::Text | Self::Name => one("a text such as abc, abc* or \"two words\""),
            Self::Choice(choices) => choices.iter().map(|choice| (*choice).to_owned()).collect(),
            Self::Status => one("error, ok, a status such as 429, a class such as 4xx, >=400 or 400..499"),
            Self::Number => one("a whole number such as 100, >100 or 100..200"),
            Self::Duration => one("a duration such as 500ms, >2s or 1s..5s"),
            Self::Money => one("an amount in USD such as >0.01 or 0.01..0.05"),
            Self::Boolean => vec!["true".into(), "false".into()],
            Self::Time => one("a time such as >=2026-01-31, <2026-01-31T12:00:00Z or 2026-01-01..2026-02-01"),
        }
    }

    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Name | Self::Choice(_))
    }
}

/// A line of the table.
#[derive(Debug, Clone, Copy)]
pub struct FieldInfo {
    pub field: Field,
    pub name: &'static str,
    pub kind: Kind,
    pub description: &'static str,
    pub example: &'static str,
    /// Rows can be counted and grouped by it.
    pub is_group: bool,
}

const fn info(
    field: Field,
    name: &'static str,
    kind: Kind,
    (description, example): (&'static str, &'static str),
) -> FieldInfo {
    FieldInfo { field, name, kind, description, example, is_group: false }
}

const fn group(line: FieldInfo) -> FieldInfo {
    FieldInfo { is_group: true, ..line }
}

const LEVELS: &[&str] = &["info", "warn", "error"];
const SOURCES: &[&str] = &[
    LogSource::Proxy.as_str(),
    LogSource::Api.as_str(),
    LogSource::Otel.as_str(),
    LogSource::Mcp.as_str(),
    LogSource::Replay.as_str(),
];
const CACHES: &[&str] = &["hit", "miss", "refresh"];

/// Every field, in the order of the documentation. `metadata` stands for `metadata.key` with any key.
pub const FIELDS: [FieldInfo; 32] = [
    group(info(Field::Status, "status", Kind::Status, ("The status of the response.", "status:error"))),
    group(info(Field::Error, "error", Kind::Text, ("The error code.", "error:rate_limited"))),
    group(info(Field::Level, "level", Kind::Choice(LEVELS), ("The level of the row.", "level:warn,error"))),
    group(info(Field::Source, "source", Kind::Choice(SOURCES), ("Who made the request.", "-source:api"))),
    group(info(Field::Provider, "provider", Kind::Text, ("The provider.", "provider:openai"))),
    group(info(Field::Model, "model", Kind::Text, ("The model.", "model:gpt-4o*"))),
    group(info(Field::Key, "key", Kind::Name, ("The API key, by name or id.", "key:backend"))),
    group(info(Field::App, "app", Kind::Name, ("The application, by name or id.", "app:checkout"))),
    group(info(Field::Team, "team", Kind::Name, ("The team, by name or id.", "team:search"))),
    group(info(
        Field::User,
        "user",
        Kind::Name,
        ("The end user of the request, or a member by email.", "user:maria"),
    )),
    info(Field::Session, "session", Kind::Text, ("The session.", "session:chat-17")),
    group(info(Field::Prompt, "prompt", Kind::Text, ("The prompt, as namespace/slug.", "prompt:support/*"))),
    info(Field::PromptVersion, "version", Kind::Number, ("The version of the prompt.", "version:>=3")),
    group(info(Field::Cache, "cache", Kind::Choice(CACHES), ("What the cache did.", "cache:hit"))),
    info(Field::Latency, "latency", Kind::Duration, ("The time to the end of the response.", "latency:>2s")),
    info(Field::Ttft, "ttft", Kind::Duration, ("The time to the first byte of the response.", "ttft:>500ms")),
    info(Field::Cost, "cost", Kind::Money, ("The cost in USD.", "cost:>0.01")),
    info(Field::Tokens, "tokens", Kind::Number, ("Input and output tokens.", "tokens:>10k")),
    info(Field::InputTokens, "input", Kind::Number, ("Input tokens.", "input:>8000")),
    info(Field::OutputTokens, "output", Kind::Number, ("Output tokens.", "output:>1000")),
    info(
        Field::CachedTokens,
        "cached",
        Kind::Number,
        ("Input from the provider's prompt cache.", "cached:>0"),
    ),
    info(Field::ReasoningTokens, "reasoning", Kind::Number, ("Reasoning tokens.", "reasoning:>0")),
    info(Field::Attempts, "attempts", Kind::Number, ("Calls to providers.", "attempts:>1")),
    group(info(Field::Stream, "stream", Kind::Boolean, ("Whether a stream was asked for.", "stream:true"))),
    info(Field::Method, "method", Kind::Text, ("The HTTP method.", "method:POST")),
    info(Field::Path, "path", Kind::Text, ("The path of the request.", "path:*/embeddings")),
    info(Field::Compat, "compat", Kind::Text, ("The dialect of a request below /compat.", "compat:litellm")),
    group(info(Field::Tool, "tool", Kind::Text, ("The tool of an MCP call.", "tool:get_*"))),
    info(Field::Request, "request", Kind::Text, ("The request id.", "request:req-1")),
    info(Field::Id, "id", Kind::Number, ("The id of the row.", "id:7318349394477056")),
    info(Field::Time, "time", Kind::Time, ("When the request began, in UTC.", "time:>=2026-01-31")),
    group(info(
        Field::Metadata,
        "metadata",
        Kind::Text,
        ("A key of the request's metadata, after a dot.", "metadata.env:prod"),
    )),
];

impl Field {
    pub fn info(self) -> &'static FieldInfo {
        // Every field has a line: see the tests.
        FIELDS.iter().find(|line| line.field == self).unwrap_or(&FIELDS[0])
    }

    pub fn kind(self) -> Kind {
        self.info().kind
    }

    /// Reads a name such as `model` or `metadata.env`.
    pub fn parse(name: &str) -> Option<(Self, Option<&str>)> {
        if let Some(key) = name.strip_prefix("metadata.") {
            return is_key(key).then_some((Self::Metadata, Some(key)));
        }
        let found = FIELDS.iter().find(|line| line.name == name && line.field != Self::Metadata);
        found.map(|line| (line.field, None))
    }
}

/// Whether a key of metadata can be part of a field's name. Others cannot be searched for.
fn is_key(key: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '@');
    !key.is_empty() && key.chars().count() <= MAX_KEY_CHARS && key.chars().all(is_part)
}
