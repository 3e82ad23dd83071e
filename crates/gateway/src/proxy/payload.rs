//! The body of each attempt: the caller's, with the edits that the target needs.

use bytes::Bytes;
use gateway_core::llm::aggregate::set_stream;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::peek::{add_include_usage, replace_model};
use gateway_core::llm::translate::contains_wrapped_signatures;

use super::attempt::{Attempt, UsageChunk};
use super::plan::{Adaptation, Plan, RouteTarget};
use super::translate;
use crate::outbound::body::OutboundBody;
use crate::problem::ApiResult;

/// The caller's body, ready for one attempt or several.
pub enum Payload {
    Buffered(Bytes),
    /// Can be sent once; then it is None.
    Streamed(Option<OutboundBody>),
}

impl Payload {
    /// Makes the body of an attempt. None if a streamed body has been sent before.
    pub fn for_attempt(&mut self, attempt: &mut Attempt<'_>) -> ApiResult<Option<OutboundBody>> {
        let body = match self {
            Payload::Streamed(body) => return Ok(body.take()),
            Payload::Buffered(body) => body.clone(),
        };
        if attempt.usage_chunk == UsageChunk::Ours {
            attempt.usage_chunk = UsageChunk::Callers;
        }
        let plan = attempt.plan;
        // Thinking blocks from an earlier turn with another provider may carry its signature, wrapped by the gateway.
        let has_foreign_signatures = || {
            plan.has_fallbacks() && plan.directives.is_format_known() && contains_wrapped_signatures(&body)
        };
        if attempt.target.adaptation == Adaptation::Translate || has_foreign_signatures() {
            let (translation, body) = translate::request(plan, attempt.target, &body)?;
            attempt.translation = Some(translation);
            return Ok(Some(OutboundBody::whole(body)));
        }
        let body = edited(attempt, body);
        if requests_usage(plan, attempt.target)
            && attempt.usage_chunk != UsageChunk::Refused
            && let Some(with_usage) = add_include_usage(&body)
        {
            attempt.usage_chunk = UsageChunk::Ours;
            return Ok(Some(OutboundBody::whole(with_usage.into())));
        }
        Ok(Some(OutboundBody::whole(body)))
    }

    pub fn buffered(&self) -> Option<&Bytes> {
        match self {
            Payload::Buffered(body) => Some(body),
            Payload::Streamed(_) => None,
        }
    }
}

/// Sets the model of the target, and the stream that `X-Gateway-Stream` asks for.
fn edited(attempt: &Attempt<'_>, body: Bytes) -> Bytes {
    let plan = attempt.plan;
    let is_renamed = !plan.facts.model_in_path && attempt.model() != plan.facts.model.as_deref();
    let renamed = attempt.model().filter(|_| is_renamed).and_then(|model| replace_model(&body, model));
    let body = renamed.map_or(body, Bytes::from);
    let format = attempt.wire_format().filter(|_| plan.adds_stream());
    let streaming = format.and_then(|format| set_stream(format, &body, true));
    streaming.map_or(body, Bytes::from)
}

/// Returns true if the gateway itself requests the usage chunk of the stream.
pub fn requests_usage(plan: &Plan<'_>, target: &RouteTarget) -> bool {
    plan.provider_streams()
        && target.provider.kind.supports_include_usage
        && !target.refuses_usage
        && matches!(plan.directives.operation, Operation::Chat | Operation::Completions)
        && !plan.facts.include_usage
}
