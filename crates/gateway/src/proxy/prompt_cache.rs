//! Marks for the prompt caches of providers: whether a call gets them, and what they saved. A setting that loses money
//! over a hundred calls of a key is paused for that key; a caller that asks for marks in a header gets them anyway.

mod state;

use bytes::Bytes;
use gateway_core::ids::KeyId;
use gateway_core::llm::affinity::beginning;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::prompt_cache::{CacheablePrompt, MarkFormat, Marked, PromptCache, PromptCacheMode};

use super::attempt::Attempt;
use super::context::RequestContext;
use super::plan::RouteTarget;
use crate::auth::{Identity, Principal};
use crate::memory::{MemoryExhausted, hold};
pub use state::{Loss, PromptCaches};

/// What the caller or a setting says about marks.
#[derive(Debug, Clone)]
pub struct PromptCacheDirective {
    pub setting: PromptCache,
    /// `X-Gateway-Prompt-Cache`
    header: Option<PromptCacheMode>,
    /// The named model with the setting. None: it is the organization's.
    model: Option<String>,
}

impl PromptCacheDirective {
    /// The setting of the organization, unless the header says otherwise.
    pub fn new(setting: PromptCache, header: Option<PromptCacheMode>) -> Self {
        let mode = header.unwrap_or(setting.mode);
        Self { setting: PromptCache { mode, ..setting }, header, model: None }
    }

    /// Takes over the setting of a named model.
    pub fn adopt(&mut self, setting: PromptCache, model: String) {
        *self = Self { model: Some(model), ..Self::new(setting, self.header) };
    }

    /// Whether the body of a request to this target may get marks.
    pub fn applies_to(&self, target: &RouteTarget) -> bool {
        self.setting.is_auto() && target.provider.kind.takes_cache_marks
    }

    /// The setting that is paused if it loses money, by the named model with it. None if the caller asked for marks.
    pub fn pausable(&self) -> Option<Option<&str>> {
        self.header.is_none().then_some(self.model.as_deref())
    }
}

/// The key of a caller. Members without a key count together.
pub fn key_of(identity: &Identity) -> Option<KeyId> {
    match &identity.principal {
        Principal::Key(key) => Some(key.id),
        Principal::User { .. } | Principal::Org => None,
    }
}

/// Adds marks to the provider's body, if they are asked for and can pay.
pub fn mark(
    context: RequestContext<'_>,
    attempt: &mut Attempt<'_>,
    body: Bytes,
) -> Result<Bytes, MemoryExhausted> {
    attempt.cache_marks = None;
    let directive = &attempt.plan.directives.prompt_cache;
    if !directive.applies_to(attempt.target) {
        return Ok(body);
    }
    attempt.cache_marks = Some(0);
    let Some(model) = attempt.model() else { return Ok(body) };
    let format = format_of(context, attempt).filter(|format| format.is_taken_by(model));
    let Some(format) = format.filter(|_| !is_paused(context, directive)) else { return Ok(body) };
    let Some(prompt) = CacheablePrompt::read(format, &body) else { return Ok(body) };
    let is_repeated = attempt.is_head_repeated.unwrap_or_else(|| {
        let conversation = conversation(context, attempt, format, &body);
        context.state.prompt_caches.observe(conversation, prompt.head_hash(), context.now())
    });
    attempt.is_head_repeated = Some(is_repeated);
    let marked = prompt.marked(&directive.setting, model).filter(|_| is_repeated);
    let Some(Marked { body: marked, marks }) = marked else { return Ok(body) };
    let reserved = context.identity.org.memory.reserve(marked.len())?;
    attempt.cache_marks = Some(marks);
    Ok(hold(Bytes::from(marked), reserved))
}

/// How the body of the attempt carries marks.
fn format_of(context: RequestContext<'_>, attempt: &Attempt<'_>) -> Option<MarkFormat> {
    if let Some(translation) = &attempt.translation {
        return MarkFormat::of_chat(translation.chat_format()?);
    }
    let operation = attempt.plan.directives.operation;
    MarkFormat::of_forwarded(attempt.provider().format, operation, &attempt.path(context.head))
}

fn is_paused(context: RequestContext<'_>, directive: &PromptCacheDirective) -> bool {
    let pauses = &context.identity.org.prompt_cache_pauses;
    match directive.pausable() {
        Some(model) if !pauses.is_empty() => {
            pauses.contains(&(key_of(context.identity), model.map(ToOwned::to_owned)))
        }
        _ => false,
    }
}

/// Identifies the conversation of a call: by the session that it names, or else by the first text of the user. The
/// system prompt is no part of that, because it is what is compared.
fn conversation(
    context: RequestContext<'_>,
    attempt: &Attempt<'_>,
    format: MarkFormat,
    body: &[u8],
) -> Option<u64> {
    let caches = &context.state.prompt_caches;
    let owner = (context.identity.org.id, key_of(context.identity), attempt.model());
    if let Some(session) = attempt.plan.directives.named_conversation() {
        return Some(caches.hash((owner, session)));
    }
    let operation = match format {
        MarkFormat::Anthropic => Operation::Messages,
        MarkFormat::Bedrock => Operation::Converse,
        MarkFormat::OpenAiChat => Operation::Chat,
        MarkFormat::OpenAiResponses => Operation::Responses,
    };
    Some(caches.hash((owner, beginning(operation, body)?.first_text)))
}
