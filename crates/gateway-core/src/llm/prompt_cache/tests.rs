//! Golden bodies per format, the laws of marks, and what they save.

mod golden;
mod laws;
mod trace;

use super::{CacheablePrompt, MarkFormat, Marked, PromptCache, PromptCacheMode, PromptCacheTtl};

const CLAUDE: &str = "claude-sonnet-4-5";
const BEDROCK: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
const GPT: &str = "gpt-5.6";

/// A setting that marks prompts of any length that the model caches.
const AUTO: PromptCache =
    PromptCache { mode: PromptCacheMode::Auto, ttl: PromptCacheTtl::FiveMinutes, min_tokens: 1 };
const HOUR: PromptCache = PromptCache { ttl: PromptCacheTtl::OneHour, ..AUTO };

fn model(format: MarkFormat) -> &'static str {
    match format {
        MarkFormat::Anthropic => CLAUDE,
        MarkFormat::Bedrock => BEDROCK,
        MarkFormat::OpenAiChat | MarkFormat::OpenAiResponses => GPT,
    }
}

fn mark(format: MarkFormat, setting: &PromptCache, body: &str) -> Option<Marked> {
    CacheablePrompt::read(format, body.as_bytes())?.marked(setting, model(format))
}

/// A text of more than 1,024 estimated tokens.
fn long() -> String {
    "word ".repeat(1_000)
}

/// The body with `LONG` replaced by a long text, marked.
fn marked(format: MarkFormat, setting: &PromptCache, body: &str) -> (String, u32) {
    let body = body.replace("LONG", &long());
    match mark(format, setting, &body) {
        Some(Marked { body, marks }) => (String::from_utf8(body).unwrap().replace(&long(), "LONG"), marks),
        None => (body.replace(&long(), "LONG"), 0),
    }
}
