//! The body of each attempt: the caller's, with the edits that the target needs.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway_core::llm::WireFormat;
use gateway_core::llm::aggregate::set_stream;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::peek::{add_include_usage, replace_model, replace_model_at};
use gateway_core::llm::translate::contains_wrapped_signatures;
use gateway_core::memory::tree_bytes;

use super::attempt::{Attempt, UsageChunk};
use super::context::RequestContext;
use super::plan::{Adaptation, Plan, RouteTarget};
use super::{prompt_cache, translate};
use crate::compute::ComputeError;
use crate::memory::{MemoryExhausted, hold};
use crate::outbound::body::OutboundBody;
use crate::problem::Problem;

/// The caller's body, ready for one attempt or several.
pub enum Payload {
    Buffered(Bytes),
    /// Can be sent once; then it is None.
    Streamed(Option<OutboundBody>),
}

/// Why an attempt has no body.
pub enum PayloadError {
    /// A streamed body has been sent before.
    Sent,
    Untranslatable(Problem),
    MemoryExhausted(MemoryExhausted),
    /// It was not translated: too much work of the organization waits, or it took too long.
    Overloaded(ComputeError),
}

impl From<MemoryExhausted> for PayloadError {
    fn from(error: MemoryExhausted) -> Self {
        Self::MemoryExhausted(error)
    }
}

impl From<ComputeError> for PayloadError {
    fn from(error: ComputeError) -> Self {
        Self::Overloaded(error)
    }
}

impl Payload {
    /// Makes the body of an attempt. `is_last`: no other attempt follows, so the caller's body is not kept. What the
    /// gateway makes of it is reserved in the memory of the organization.
    pub async fn for_attempt(
        &mut self,
        context: RequestContext<'_>,
        attempt: &mut Attempt<'_>,
        is_last: bool,
        timeout: Duration,
    ) -> Result<OutboundBody, PayloadError> {
        let body = match self {
            Payload::Streamed(body) => return body.take().ok_or(PayloadError::Sent),
            Payload::Buffered(body) => body.clone(),
        };
        if attempt.usage_chunk == UsageChunk::Ours {
            attempt.usage_chunk = UsageChunk::Callers;
        }
        let edited = adapted(context, attempt, body, timeout).await?;
        let edited = prompt_cache::mark(context, attempt, edited)?;
        // A target that rejects the usage option gets the body again, without it.
        if is_last && attempt.usage_chunk != UsageChunk::Ours {
            *self = Payload::Streamed(None);
        }
        Ok(OutboundBody::whole(edited))
    }

    pub fn buffered(&self) -> Option<&Bytes> {
        match self {
            Payload::Buffered(body) => Some(body),
            Payload::Streamed(_) => None,
        }
    }
}

/// The body as the target needs it.
async fn adapted(
    context: RequestContext<'_>,
    attempt: &mut Attempt<'_>,
    body: Bytes,
    timeout: Duration,
) -> Result<Bytes, PayloadError> {
    let (plan, org) = (attempt.plan, &context.identity.org);
    let (compute, memory) = (&context.services.compute, &org.memory);
    let started = Instant::now();
    let set = with_fields(context, attempt.target, &body, timeout).await?;
    let model_at = plan.facts.model_at.clone().filter(|_| set.is_none());
    let body = set.unwrap_or(body);
    // Thinking blocks from an earlier turn with another provider may carry its signature, wrapped by the gateway.
    let has_foreign_signatures =
        || plan.has_fallbacks() && plan.directives.is_format_known() && contains_wrapped_signatures(&body);
    if attempt.target.adaptation == Adaptation::Translate || has_foreign_signatures() {
        let reserved = memory.reserve(tree_bytes(&body))?;
        let (bytes, translate) = (body.len(), translate::request(plan, attempt.target, body));
        // The memory belongs to the work, which goes on for a while when the client has gone away.
        let translating = move || (translate(), reserved);
        let timeout = timeout.saturating_sub(started.elapsed());
        let (translated, mut reserved) = compute.run_for_body(org.id, bytes, timeout, translating).await?;
        let (translation, body) = translated.map_err(PayloadError::Untranslatable)?;
        attempt.translation = Some(Arc::new(translation));
        reserved.resize(body.len())?;
        return Ok(hold(body, reserved));
    }
    let edits = Edits::of(attempt, model_at);
    if edits.is_empty() {
        return Ok(body);
    }
    let reserved = memory.reserve(body.len())?;
    let (scanned, unchanged) = (if edits.needs_scan() { body.len() } else { 0 }, body.clone());
    // The memory belongs to the work, as above.
    let editing = move || (edits.apply(&body), reserved);
    let timeout = timeout.saturating_sub(started.elapsed());
    let (edited, mut reserved) = compute.run_for_body(org.id, scanned, timeout, editing).await?;
    let Some((edited, requests_usage)) = edited else { return Ok(unchanged) };
    if requests_usage {
        attempt.usage_chunk = UsageChunk::Ours;
    }
    reserved.resize(edited.len())?;
    Ok(hold(edited, reserved))
}

/// The body with the fields that the target sets. None: it sets none, or the body is not an object.
async fn with_fields(
    context: RequestContext<'_>,
    target: &RouteTarget,
    body: &Bytes,
    timeout: Duration,
) -> Result<Option<Bytes>, PayloadError> {
    let Some(spec) = target.spec.as_ref().filter(|spec| !spec.edits.is_empty()) else { return Ok(None) };
    let (spec, body, org) = (Arc::clone(spec), body.clone(), &context.identity.org);
    let (bytes, length) = (body.len(), spec.edits.max_length(body.len()));
    let reserved = org.memory.reserve(length)?;
    // The memory belongs to the work, which goes on for a while when the client has gone away.
    let editing = move || spec.edits.apply(&body).map(|edited| hold(edited, reserved));
    Ok(context.services.compute.run_for_body(org.id, bytes, timeout, editing).await?)
}

/// What the gateway changes in a body that it does not translate.
struct Edits {
    /// The model of the target, and the place of the caller's if it is known.
    model: Option<(String, Option<Range<usize>>)>,
    /// The body must ask for a stream, in this format: `X-Gateway-Stream` asks for one.
    stream: Option<WireFormat>,
    /// The body must ask for the usage chunk.
    usage: bool,
}

impl Edits {
    fn of(attempt: &Attempt<'_>, model_at: Option<Range<usize>>) -> Self {
        let plan = attempt.plan;
        let is_renamed = !plan.facts.model_in_path && attempt.model() != plan.facts.model.as_deref();
        Self {
            model: attempt.model().filter(|_| is_renamed).map(|model| (model.to_owned(), model_at)),
            stream: attempt.wire_format().filter(|_| plan.adds_stream()),
            usage: requests_usage(plan, attempt.target) && attempt.usage_chunk != UsageChunk::Refused,
        }
    }

    fn is_empty(&self) -> bool {
        self.model.is_none() && self.stream.is_none() && !self.usage
    }

    /// Whether places in the body must be looked for. To replace a model whose place is known copies the body once.
    fn needs_scan(&self) -> bool {
        self.stream.is_some() || self.usage || matches!(self.model, Some((_, None)))
    }

    /// The changed body, and whether it asks for the usage chunk now. None: nothing changes.
    fn apply(&self, body: &[u8]) -> Option<(Vec<u8>, bool)> {
        let mut edited = self.model.as_ref().and_then(|(model, place)| match place {
            Some(place) => replace_model_at(body, place, model),
            None => replace_model(body, model),
        });
        if let Some(format) = self.stream {
            let streaming = set_stream(format, edited.as_deref().unwrap_or(body), true);
            edited = streaming.or(edited);
        }
        let with_usage = if self.usage { add_include_usage(edited.as_deref().unwrap_or(body)) } else { None };
        let requests_usage = with_usage.is_some();
        with_usage.or(edited).map(|edited| (edited, requests_usage))
    }
}

/// Returns true if the gateway itself requests the usage chunk of the stream.
pub fn requests_usage(plan: &Plan<'_>, target: &RouteTarget) -> bool {
    plan.provider_streams()
        && target.provider.kind.supports_include_usage
        && !target.refuses_usage
        && matches!(plan.directives.operation, Operation::Chat | Operation::Completions)
        && !plan.facts.include_usage
}
