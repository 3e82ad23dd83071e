//! Failover: sends attempts until one succeeds or the policy stops. The targets are planned in `plan`; what follows a
//! failure is decided by `core::failover`; this module sends, and records what came of each attempt.

use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway_core::breaker::Permit;
use gateway_core::failover::{FailedAttempt, Next, Policy, Progress, TargetQueue};
use gateway_core::llm::BodyFraming;
use gateway_core::llm::failure::{
    AttemptFacts, AttemptOutcome, Failure, Fault, HealthSignal, Refusal, classify, health_signal,
};
use http::Method;

use super::admit::limits;
use super::attempt::{Attempt, UsageChunk};
use super::context::RequestContext;
use super::payload::{Payload, PayloadError};
use super::plan::Plan;
use super::recognize::recognize;
use super::record::Record;
use super::upstream::{self, AttemptError, UpstreamResponse};
use super::validate::{WatchedRefusals, buffer_until_valid};
use super::{credentials, response_format, sandbox};
use crate::compute::ComputeError;
use crate::metrics::events::Retry;
use crate::problem::Problem;

const NOT_RETRYABLE: Failure = Failure { fault: Fault::Caller, retry: false, next: false };

/// Tries the targets of the plan. Returns the last attempt and its result.
pub async fn try_targets<'a>(
    context: RequestContext<'_>,
    plan: &'a Plan<'a>,
    payload: Payload,
    record: &mut Record,
) -> (Attempt<'a>, Result<UpstreamResponse, AttemptError>) {
    let body_bytes = payload.buffered().map_or(0, Bytes::len);
    let reserved = plan.targets.iter().enumerate();
    let reserved = reserved.filter_map(|(index, target)| Some((target.reserved_for()?, index)));
    let attempts = AttemptLoop {
        context,
        plan,
        jitter_seed: record.id().cast_unsigned(),
        payload,
        queue: TargetQueue::new(plan.unreserved(), reserved),
        deadline: record.started() + context.services.config.proxy_timeout,
        seed: plan.seed(context.identity, record.id()),
        is_head_repeated: None,
        body_bytes,
    };
    attempts.run(record).await
}

struct AttemptLoop<'c, 'a> {
    context: RequestContext<'c>,
    plan: &'a Plan<'a>,
    jitter_seed: u64,
    payload: Payload,
    /// The targets after the current one.
    queue: TargetQueue,
    deadline: Instant,
    /// Seeds the choice of credentials.
    seed: u64,
    /// The prompt begins like an earlier call of the conversation. Known once a target takes marks.
    is_head_repeated: Option<bool>,
    /// The length of the caller's body, for limits.
    body_bytes: usize,
}

impl<'a> AttemptLoop<'_, 'a> {
    async fn run(mut self, record: &mut Record) -> (Attempt<'a>, Result<UpstreamResponse, AttemptError>) {
        let first = self.admitted_target(None, record).await;
        let mut attempt = first.unwrap_or_else(|| Attempt::new(self.plan, 0));
        loop {
            let error = match self.send(&mut attempt, record).await {
                Ok(response) => {
                    let code = response.head.status.as_u16();
                    self.count(&attempt, Some(AttemptOutcome::Status { code }));
                    self.record_success(&attempt, record);
                    return (attempt, Ok(response));
                }
                Err(error) => error,
            };
            self.count(&attempt, error.caller_problem.is_none().then_some(error.outcome));
            let failed = self.describe(&attempt, &error);
            self.record_failure(&attempt, &error, &failed, record);
            let other_credential = self.other_credential(&attempt);
            let refusal = error.refusal();
            let progress = Progress {
                has_other_target: self.has_target_after(refusal),
                ..self.progress(&attempt, other_credential)
            };
            let next = self.policy(&attempt).next(&progress, &failed);
            if next != Next::Stop {
                record.fail_attempt(&error);
            }
            let events = &self.context.state.metrics.events;
            match next {
                Next::Stop => return (attempt, Err(error)),
                Next::Retry { wait } => {
                    events.retry(Retry::SameCredential);
                    drop(error);
                    tokio::time::sleep(wait).await;
                    attempt.retry_with(self.choose_credential(&attempt, &[]));
                }
                Next::NextCredential => {
                    events.retry(Retry::NextCredential);
                    attempt.switch_credential(other_credential);
                }
                Next::RetryWithoutUsage => {
                    events.retry(Retry::WithoutUsageOption);
                    attempt.usage_chunk = UsageChunk::Refused;
                }
                Next::NextTarget => match self.admitted_target(refusal, record).await {
                    Some(next) => {
                        events.failover();
                        attempt = next;
                    }
                    None => return (attempt, Err(error)),
                },
            }
        }
    }

    fn count(&self, attempt: &Attempt<'_>, outcome: Option<AttemptOutcome>) {
        let RequestContext { state, worker, .. } = self.context;
        state.metrics.lane(worker.lane).attempt(attempt.provider().kind, outcome);
    }

    /// The failover rules at the target of the attempt.
    fn policy(&self, attempt: &Attempt<'_>) -> Policy {
        Policy {
            max_retries: attempt.target.max_retries,
            is_bound: self.plan.is_bound,
            seed: self.jitter_seed,
        }
    }

    fn has_target_after(&self, refusal: Option<Refusal>) -> bool {
        !self.queue.is_empty() || refusal.is_some_and(|refusal| self.queue.has_reserved(refusal))
    }

    /// Another target is tried if the provider of the attempt refuses the input.
    fn tries_another_after(&self, attempt: &Attempt<'_>, refusal: Refusal) -> bool {
        let spec = attempt.target.spec.as_ref();
        let falls_back =
            || spec.and_then(|spec| spec.falls_back_after(AttemptOutcome::Refused(refusal))) == Some(true);
        self.queue.has_reserved(refusal) || (!self.queue.is_empty() && falls_back())
    }

    /// Starts with the next target whose limits allow it.
    async fn admitted_target(&mut self, after: Option<Refusal>, record: &mut Record) -> Option<Attempt<'a>> {
        loop {
            let attempt = self.next_target(after, record)?;
            // Without limits nothing is awaited.
            if self.context.identity.org.limits.is_none() {
                return Some(attempt);
            }
            let moved =
                limits::move_to(self.context, self.plan, attempt.target, self.body_bytes, record).await;
            match moved {
                Ok(()) => return Some(attempt),
                Err(reason) => record.skip_target(attempt.target, &reason),
            }
        }
    }

    /// Starts with the next target. Targets with an open circuit breaker are skipped until no other is left.
    fn next_target(&mut self, after: Option<Refusal>, record: &mut Record) -> Option<Attempt<'a>> {
        let Self { context, plan, .. } = *self;
        let index = self.queue.pop(after, |index| {
            let target = &plan.targets[index];
            let is_allowed =
                context.state.health.permit(context.health_key(target), context.now()) != Permit::Deny;
            if !is_allowed {
                record.skip_target(target, "skipped: circuit breaker open");
                context.state.metrics.events.skip(target.provider.kind);
            }
            is_allowed
        })?;
        let mut attempt = Attempt::new(plan, index);
        attempt.credential = self.choose_credential(&attempt, &[]);
        Some(attempt)
    }

    /// Sends one attempt. While there are alternatives, the start of the response is buffered until it is known to be
    /// valid.
    async fn send(
        &mut self,
        attempt: &mut Attempt<'a>,
        record: &mut Record,
    ) -> Result<UpstreamResponse, AttemptError> {
        let progress = self.progress(attempt, self.other_credential(attempt));
        record.start_attempt(attempt);
        let timeout = attempt.target.timeout.min(self.time_left());
        let deadline = tokio::time::Instant::now() + timeout;
        let memory = &self.context.identity.org.memory;
        let has_alternative = self.policy(attempt).has_alternative(&progress);
        let watched = WatchedRefusals {
            context: self.tries_another_after(attempt, Refusal::Context),
            content_filter: self.tries_another_after(attempt, Refusal::ContentFilter),
        };
        attempt.is_head_repeated = self.is_head_repeated;
        let body = match self.payload.for_attempt(self.context, attempt, !has_alternative, timeout).await {
            Ok(body) => body,
            Err(PayloadError::Sent) => {
                return Err(AttemptError::timeout("the request body cannot be sent again"));
            }
            Err(PayloadError::Untranslatable(problem)) => return Err(untranslatable(attempt, problem)),
            Err(PayloadError::MemoryExhausted(overloaded)) => return Err(overloaded.into()),
            Err(PayloadError::Overloaded(error)) => {
                return Err(not_translated_in_time(error, progress.has_other_target));
            }
        };
        // A large body may have waited for its translation. The time until the first byte is the provider's.
        let now = tokio::time::Instant::now();
        let time_left = deadline.saturating_duration_since(now);
        let first_byte = attempt.target.spec.as_ref().and_then(|spec| spec.first_byte_timeout);
        let until_start = first_byte.map_or(time_left, |first_byte| first_byte.min(time_left));
        self.is_head_repeated = attempt.is_head_repeated;
        record.set_cache_marks(attempt.cache_marks);
        let mut response = if attempt.provider().is_sandbox() {
            sandbox::respond(self.context, attempt, body, until_start).await?
        } else {
            upstream::send_attempt(self.context, attempt, body, until_start).await?
        };
        // The response to a HEAD request has no body that could be converted.
        let is_passthrough =
            response_format::is_passthrough(attempt) || self.context.head.method == Method::HEAD;
        if !is_passthrough {
            response = recognize(attempt, response, deadline).await?;
        }
        if has_alternative {
            // A stream starts with its first event, a body with its head.
            let is_stream = matches!(response.framing, BodyFraming::Sse | BodyFraming::EventStream);
            let due = if is_stream { now + until_start } else { deadline };
            response = buffer_until_valid(attempt, response, due, memory, watched).await?;
        }
        if is_passthrough {
            return Ok(response);
        }
        response_format::convert(self.context, attempt, response, record.fallback_ids(), deadline).await
    }

    fn progress(&self, attempt: &Attempt<'_>, other_credential: Option<usize>) -> Progress {
        Progress {
            retries: attempt.retries,
            has_other_credential: other_credential.is_some(),
            has_other_target: self.has_target_after(Some(Refusal::Context))
                || self.has_target_after(Some(Refusal::ContentFilter)),
            time_left: self.time_left(),
        }
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn describe(&self, attempt: &Attempt<'_>, error: &AttemptError) -> FailedAttempt {
        let mut failure = match classify(error.outcome) {
            _ if error.caller_problem.is_some() => NOT_RETRYABLE,
            // The caller's own credential cannot be replaced by another.
            Some(failure) if failure.fault == Fault::Credential && self.uses_callers_credential(attempt) => {
                NOT_RETRYABLE
            }
            Some(failure) => failure,
            None => NOT_RETRYABLE,
        };
        if let Some(refusal) = error.refusal() {
            failure.next = self.tries_another_after(attempt, refusal);
        } else if let Some(spec) = &attempt.target.spec {
            failure.next &= spec.falls_back_after(error.outcome).unwrap_or(true);
        }
        FailedAttempt {
            failure,
            is_rate_limited: error.status == Some(429),
            retry_after: error.retry_after,
            usage_option_refused: error.usage_refused
                && attempt.usage_chunk != UsageChunk::Refused
                && self.payload.buffered().is_some(),
        }
    }

    fn choose_credential(&self, attempt: &Attempt<'_>, failed: &[usize]) -> Option<usize> {
        attempt.provider().choose_credential(self.seed, self.context.now().0, failed)
    }

    /// Another stored credential that can be used now.
    fn other_credential(&self, attempt: &Attempt<'_>) -> Option<usize> {
        if attempt.provider().credentials.len() < 2 || self.uses_callers_credential(attempt) {
            return None;
        }
        let used: Vec<usize> =
            attempt.failed_credentials.iter().chain(&attempt.credential).copied().collect();
        self.choose_credential(attempt, &used)
    }

    fn uses_callers_credential(&self, attempt: &Attempt<'_>) -> bool {
        credentials::has_callers_credential(self.context, attempt)
    }

    fn record_success(&self, attempt: &Attempt<'_>, record: &Record) {
        let (health, now) = (&self.context.state.health, self.context.now());
        let key = self.context.health_key(attempt.target);
        let has_fallbacks = self.plan.has_fallbacks();
        health.record_success(key, now, record.attempt_elapsed(), has_fallbacks);
        if attempt.usage_chunk == UsageChunk::Refused {
            // The next stream is sent without the option from the start.
            health.record_usage_refusal(key, now);
        }
        if has_fallbacks
            && self.plan.prefers_fast()
            && let Some(conversation) = self.plan.directives.conversation()
        {
            health.pin_session(conversation, key, now);
        }
    }

    fn record_failure(
        &self,
        attempt: &Attempt<'_>,
        error: &AttemptError,
        failed: &FailedAttempt,
        record: &Record,
    ) {
        // The caller's body failed, or the attempt is repeated without the usage option.
        if error.caller_problem.is_some() || failed.usage_option_refused {
            return;
        }
        let (health, now) = (&self.context.state.health, self.context.now());
        let key = self.context.health_key(attempt.target);
        let facts = AttemptFacts {
            callers_credential: self.uses_callers_credential(attempt),
            names_model: attempt.model().is_some(),
            silence: error.silence.unwrap_or_else(|| record.attempt_elapsed()),
        };
        match health_signal(error.outcome, &facts) {
            HealthSignal::Failure => health.record_failure(key, now),
            HealthSignal::Alive => health.record_alive(key, now),
            HealthSignal::Unknown => {}
        }
        if let Some(cooldown) = failed.credential_cooldown()
            && let Some(credential) = attempt.stored_credential()
            && !facts.callers_credential
        {
            credential.block_until(now.0 + i64::try_from(cooldown.as_millis()).unwrap_or(i64::MAX));
        }
    }
}

/// The threads that translate large bodies had no time for this one. The next target may need no translation.
fn not_translated_in_time(error: ComputeError, has_other_target: bool) -> AttemptError {
    let message = format!("the request was not translated: {error}");
    let caller_problem = (!has_other_target).then(|| Box::new(error.into()));
    AttemptError { caller_problem, ..AttemptError::new(AttemptOutcome::Untranslatable, message) }
}

/// If translation fails for the named provider, the caller gets the problem; a fallback target is skipped.
fn untranslatable(attempt: &Attempt<'_>, problem: Problem) -> AttemptError {
    let message = format!("the request cannot be translated: {}", problem.message);
    let error = AttemptError::new(AttemptOutcome::Untranslatable, message);
    let plan = attempt.plan;
    let is_named = attempt.provider().name == plan.directives.provider || !plan.has_fallbacks();
    AttemptError { caller_problem: is_named.then(|| Box::new(problem)), ..error }
}
