//! Failover: sends attempts until one succeeds or the policy stops. The targets are planned in `plan`; what follows a
//! failure is decided by `core::failover`; this module sends, and records what came of each attempt.

use std::time::{Duration, Instant};

use gateway_core::breaker::Permit;
use gateway_core::failover::{FailedAttempt, Next, Policy, Progress, TargetQueue};
use gateway_core::llm::failure::{
    AttemptFacts, AttemptOutcome, Failure, Fault, HealthSignal, classify, health_signal,
};
use gateway_core::route::RouteStrategy;
use http::Method;

use super::attempt::{Attempt, UsageChunk};
use super::context::RequestContext;
use super::payload::{Payload, PayloadError};
use super::plan::Plan;
use super::recognize::recognize;
use super::record::Record;
use super::upstream::{self, AttemptError, UpstreamResponse};
use super::validate::buffer_until_valid;
use super::{credentials, response_format, sandbox};
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
    let attempts = AttemptLoop {
        context,
        plan,
        policy: Policy {
            max_retries: plan.directives.max_retries,
            is_bound: plan.is_bound,
            seed: record.id().cast_unsigned(),
        },
        payload,
        queue: TargetQueue::new(plan.targets.len()),
        deadline: record.started() + context.services.config.proxy_timeout,
        seed: plan.seed(context.identity, record.id()),
    };
    attempts.run(record).await
}

struct AttemptLoop<'c, 'a> {
    context: RequestContext<'c>,
    plan: &'a Plan<'a>,
    policy: Policy,
    payload: Payload,
    /// The targets after the current one.
    queue: TargetQueue,
    deadline: Instant,
    /// Seeds the choice of credentials.
    seed: u64,
}

impl<'a> AttemptLoop<'_, 'a> {
    async fn run(mut self, record: &mut Record) -> (Attempt<'a>, Result<UpstreamResponse, AttemptError>) {
        let mut attempt = self.next_target(record).unwrap_or_else(|| Attempt::new(self.plan, 0));
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
            let next = self.policy.next(&self.progress(&attempt, other_credential), &failed);
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
                Next::NextTarget => match self.next_target(record) {
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

    /// Starts with the next target. Targets with an open circuit breaker are skipped until no other is left.
    fn next_target(&mut self, record: &mut Record) -> Option<Attempt<'a>> {
        let Self { context, plan, .. } = *self;
        let index = self.queue.pop(|index| {
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
        let timeout = self.plan.directives.timeout.min(self.time_left());
        let deadline = tokio::time::Instant::now() + timeout;
        let memory = &self.context.identity.org.memory;
        let has_alternative = self.policy.has_alternative(&progress);
        let body = match self.payload.for_attempt(attempt, !has_alternative, memory) {
            Ok(body) => body,
            Err(PayloadError::Sent) => {
                return Err(AttemptError::timeout("the request body cannot be sent again"));
            }
            Err(PayloadError::Untranslatable(problem)) => return Err(untranslatable(attempt, problem)),
            Err(PayloadError::MemoryExhausted(overloaded)) => return Err(overloaded.into()),
        };
        let mut response = if attempt.provider().is_sandbox() {
            sandbox::respond(self.context, attempt, body, timeout).await?
        } else {
            upstream::send_attempt(self.context, attempt, body, timeout).await?
        };
        // The response to a HEAD request has no body that could be converted.
        let is_passthrough =
            response_format::is_passthrough(attempt) || self.context.head.method == Method::HEAD;
        if !is_passthrough {
            response = recognize(attempt, response, deadline).await?;
        }
        if has_alternative {
            response = buffer_until_valid(attempt, response, deadline, memory).await?;
        }
        if is_passthrough {
            return Ok(response);
        }
        response_format::convert(attempt, response, &record.fallback_ids(), deadline, memory).await
    }

    fn progress(&self, attempt: &Attempt<'_>, other_credential: Option<usize>) -> Progress {
        Progress {
            retries: attempt.retries,
            has_other_credential: other_credential.is_some(),
            has_other_target: !self.queue.is_empty(),
            time_left: self.time_left(),
        }
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn describe(&self, attempt: &Attempt<'_>, error: &AttemptError) -> FailedAttempt {
        let failure = match classify(error.outcome) {
            _ if error.caller_problem.is_some() => NOT_RETRYABLE,
            // The caller's own credential cannot be replaced by another.
            Some(failure) if failure.fault == Fault::Credential && self.uses_callers_credential(attempt) => {
                NOT_RETRYABLE
            }
            Some(failure) => failure,
            None => NOT_RETRYABLE,
        };
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
            && self.plan.directives.strategy == RouteStrategy::Fastest
            && let Some(session) = &self.plan.directives.session
        {
            health.pin_session(session, key, now);
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

/// If translation fails for the named provider, the caller gets the problem; a fallback target is skipped.
fn untranslatable(attempt: &Attempt<'_>, problem: Problem) -> AttemptError {
    let message = format!("the request cannot be translated: {}", problem.message);
    let error = AttemptError::new(AttemptOutcome::Untranslatable, message);
    let plan = attempt.plan;
    let is_named = attempt.provider().name == plan.directives.provider || !plan.has_fallbacks();
    AttemptError { caller_problem: is_named.then(|| Box::new(problem)), ..error }
}
