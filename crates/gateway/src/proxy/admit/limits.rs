//! Admission by the limits of the organization: the one place that takes everything a call needs of them.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::budget::Spender;
use gateway_core::ids::UserId;
use gateway_core::limits::{
    CallFacts, DEFAULT_PRIORITY, MAX_PRIORITY, MissingSubject, TokenEstimate, TokenFacts, retry_after,
};
use gateway_core::llm::paths::Operation;
use http::header::RETRY_AFTER;
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::json;

use crate::auth::Principal;
use crate::limits::{Call, OrgLimits, Over, Refusal, Wait};
use crate::problem::{ApiResult, Problem};
use crate::proxy::context::RequestContext;
use crate::proxy::limit_headers::ShownLimits;
use crate::proxy::payload::Payload;
use crate::proxy::plan::{Plan, RouteTarget};
use crate::proxy::record::Record;

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Whether limits need the whole body: what they reserve depends on its length, and so does whether it may wait.
pub fn need_body(context: RequestContext<'_>, plan: &Plan<'_>) -> bool {
    let Some(org) = &context.identity.org.limits else { return false };
    let waits = !wait(context, plan, 0).max.is_zero();
    plan.directives.operation.calls_model() && (waits || org.set.counts_tokens_of(context.identity.spender()))
}

/// Takes what the request needs of every limit that applies to it, and gives it to the record.
pub async fn take(
    context: RequestContext<'_>,
    org: &Arc<OrgLimits>,
    plan: &Plan<'_>,
    payload: &Payload,
    record: &mut Record,
) -> ApiResult<()> {
    let body_bytes = payload.buffered().map_or(0, bytes::Bytes::len);
    let member = member(context);
    let facts = CallContext { context, plan, member: member.as_deref(), is_internal: record.is_internal() };
    if !org.set.applies_to(&facts.facts(&plan.targets[0])) {
        record.hold_limits(None, context.identity.rate);
        return Ok(());
    }
    let call = facts.call(org, &plan.targets[0], body_bytes);
    let wait = if call.is_internal { Wait::default() } else { wait(context, plan, body_bytes) };
    let events = &context.state.metrics.events;
    if !wait.max.is_zero() {
        record.begin_wait();
    }
    match context.state.limits.admit(org, &call, wait).await {
        Ok(permit) => {
            if let Some(permit) = permit.as_ref().filter(|permit| !permit.waited().is_zero()) {
                events.queued(permit.waited());
            }
            record.hold_limits(permit, context.identity.rate);
            Ok(())
        }
        Err(refusal) => {
            match &refusal {
                Refusal::Over(over) => {
                    record.refuse_by_limit(over);
                    events.limit_refused(context.identity.org.id, &over.name);
                    if !over.waited.is_zero() && !wait.max.is_zero() {
                        events.queued(over.waited);
                    }
                }
                Refusal::Missing(_) => record.forget_wait(),
                // It waited until now.
                Refusal::Stopping => {}
            }
            Err(problem(context, plan, refusal))
        }
    }
}

/// The request goes to another target: its permit moves to the limits of that one. An error says why it cannot.
pub async fn move_to(
    context: RequestContext<'_>,
    plan: &Plan<'_>,
    target: &RouteTarget,
    body_bytes: usize,
    record: &mut Record,
) -> Result<(), String> {
    let Some(org) = context.identity.org.limits.as_ref().filter(|org| org.depends_on_model()) else {
        return Ok(());
    };
    let member = member(context);
    let facts = CallContext { context, plan, member: member.as_deref(), is_internal: record.is_internal() };
    let call = facts.call(org, target, body_bytes);
    let moved = context.state.limits.move_to(org, record.permit_mut(), &call).await;
    moved.map_err(|refusal| match refusal {
        Refusal::Over(over) => {
            context.state.metrics.events.limit_refused(context.identity.org.id, &over.name);
            format!("skipped: limit '{}' reached", over.name)
        }
        Refusal::Missing(missing) => format!("skipped: limit '{}' needs {}", missing.limit, missing.per),
        Refusal::Stopping => "skipped: the node is stopping".to_owned(),
    })
}

/// What describes the calls of a request to its targets.
struct CallContext<'a> {
    context: RequestContext<'a>,
    plan: &'a Plan<'a>,
    member: Option<&'a str>,
    is_internal: bool,
}

impl<'a> CallContext<'a> {
    fn facts(&self, target: &'a RouteTarget) -> CallFacts<'a> {
        let (directives, identity) = (self.plan.directives, self.context.identity);
        let facts = CallFacts {
            spender: Spender::default(),
            user: None,
            subject: None,
            session: None,
            metadata: &directives.metadata,
            named_model: self.plan.model.as_ref().map(|model| model.name.as_str()),
            model: target.model.as_deref(),
        };
        // Calls that the gateway makes count as those of the organization.
        if self.is_internal {
            return facts;
        }
        CallFacts {
            spender: identity.spender(),
            user: self.plan.user(),
            subject: self.member,
            session: directives.session.as_deref(),
            ..facts
        }
    }

    fn call(&self, org: &OrgLimits, target: &'a RouteTarget, body_bytes: usize) -> Call<'a> {
        let (facts, identity) = (self.facts(target), self.context.identity);
        Call {
            facts,
            class: identity.key_class().filter(|_| !self.is_internal),
            tokens: self.estimate(org, &facts, target, body_bytes),
            is_internal: self.is_internal,
        }
    }

    fn estimate(
        &self,
        org: &OrgLimits,
        facts: &CallFacts<'_>,
        target: &RouteTarget,
        body_bytes: usize,
    ) -> TokenEstimate {
        let operation = self.plan.directives.operation;
        if !org.set.counts_tokens_of(facts.spender) || !operation.calls_model() {
            return TokenEstimate::default();
        }
        let price = self.plan.price(self.context, target);
        let (max_tokens, choices) = (self.plan.facts.max_tokens, self.plan.facts.choices);
        TokenEstimate::new(&TokenFacts {
            body_bytes: body_bytes as u64,
            max_input: price.and_then(|price| price.max_input_tokens),
            max_output: price.and_then(|price| price.max_output_tokens),
            max_tokens: target.edits().map_or(max_tokens, |edits| edits.max_tokens(max_tokens)),
            choices: target.edits().map_or(choices, |edits| edits.choices(choices)),
            average: facts.model.and_then(|model| org.average(facts.spender.key, model)),
            generates_text: operation != Operation::Embeddings,
        })
    }
}

/// The member that calls, as text.
fn member(context: RequestContext<'_>) -> Option<String> {
    match &context.identity.principal {
        Principal::User { id, .. } => Some(UserId::to_string(id)),
        Principal::Key(_) | Principal::Org => None,
    }
}

/// How long the call waits, and in which order.
fn wait(context: RequestContext<'_>, plan: &Plan<'_>, body_bytes: usize) -> Wait {
    let (key_wait, max_priority) = match &context.identity.principal {
        Principal::Key(key) => (key.wait_ms, key.max_priority),
        Principal::User { .. } | Principal::Org => (None, None),
    };
    let millis = plan.directives.wait_ms.or(key_wait).unwrap_or_default();
    let priority = plan.directives.priority.unwrap_or(DEFAULT_PRIORITY);
    Wait {
        max: Duration::from_millis(millis.into()),
        priority: priority.min(max_priority.unwrap_or(MAX_PRIORITY)),
        body_bytes,
    }
}

fn problem(context: RequestContext<'_>, plan: &Plan<'_>, refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Missing(missing) => missing_subject(&missing),
        Refusal::Over(over) => over_limit(context, plan, &over),
        Refusal::Stopping => {
            let message = "this node is stopping, and the call waited for a limit; send it again";
            let mut problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message);
            problem.headers.push((RETRY_AFTER, HeaderValue::from_static("1")));
            problem
        }
    }
}

fn missing_subject(missing: &MissingSubject) -> Problem {
    let MissingSubject { limit, per } = missing;
    let remedy = match per.header() {
        Some(header) => format!("send the header {header}"),
        None => "call with a credential that has one".to_owned(),
    };
    Problem::bad_request(format!("the limit '{limit}' counts by {per}, which this call lacks; {remedy}"))
}

fn over_limit(context: RequestContext<'_>, plan: &Plan<'_>, over: &Over) -> Problem {
    let Over { name, unit, limit, needed, left, per, .. } = over;
    let unit_name = unit.as_str();
    let Some(wait) = over.wait else {
        let message = format!(
            "the call needs {needed} {unit_name}, but the whole limit '{name}' is {limit}; send less, lower max_tokens, \
             or ask an admin to raise the limit"
        );
        let mut problem = Problem::new(StatusCode::BAD_REQUEST, "limit_too_small", message);
        problem.extra.insert(
            "limit".into(),
            json!({"name": name, "unit": unit_name, "limit": limit, "needed": needed}),
        );
        return problem;
    };
    let (seconds, millis) = retry_after(wait);
    let remaining = (*left).max(0);
    let message = format!(
        "the limit '{name}' of {limit} {unit_name} has {remaining} left, and the call needs {needed}; see Retry-After"
    );
    let mut problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message);
    let facts = json!({
        "name": name, "unit": unit_name, "limit": limit, "remaining": remaining, "reset_seconds": seconds, "per": per,
    });
    problem.extra.insert("limit".into(), facts);
    problem.headers.push((RETRY_AFTER, seconds.into()));
    problem.headers.push((RETRY_AFTER_MS, millis.into()));
    let shown = ShownLimits {
        setting: context.identity.org.settings.limit_headers,
        policies: &over.policies,
        plan: context.identity.rate.as_ref(),
        now: context.now(),
    };
    problem.headers.extend(shown.headers(plan.directives));
    problem
}
