//! From target to target: what is tried when an attempt fails. Where a request may go is found in `plan`; who is at
//! fault and what that means is decided in `core::llm::failure`; this is only the attempts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::breaker::Permit;
use gateway_core::llm;
use gateway_core::llm::failure::{Failure, Fault, classify};
use gateway_core::llm::paths::Operation;
use gateway_core::route::{RouteStrategy, backoff, splitmix64};
use http::request::Parts;

use super::Worker;
use super::body::Payload;
use super::call::Call;
use super::plan::seed;
use super::record::Record;
use super::target_health::TargetKey;
use super::upstream::{self, AttemptError, UpstreamResponse};
use super::validate::buffer_until_valid;
use super::{headers, response_format, sandbox};
use crate::app::App;
use crate::auth::Identity;
use crate::problem::Problem;

/// A target that wants to be left alone for longer than this is left for the next one, if there is one.
const PATIENCE: Duration = Duration::from_secs(5);
/// A credential that was rejected is not tried for so long.
const REJECTED_MS: i64 = 5 * 60_000;
/// A credential that was limited rests as long as it was told, within bounds.
const LIMITED_MS: i64 = 10_000;
const LONGEST_REST_MS: i64 = 60 * 60_000;

/// Tries one target after the other until one gives an answer, or there is nothing left to try.
pub async fn try_targets(
    app: &Arc<App>,
    worker: &Worker,
    identity: &Identity,
    call: &mut Call,
    head: &Parts,
    mut payload: Payload,
    record: &mut Record,
) -> Result<UpstreamResponse, AttemptError> {
    let mut attempts = AttemptLoop {
        ends_at: record.started() + app.services.config.proxy_timeout,
        seed: seed(identity, call, record.id()),
        app,
        worker,
        identity,
        head,
        is_bound: payload.kept().is_some_and(|body| carries_state(call.operation, body)),
    };
    if attempts.is_bound {
        let first = call.targets[0].target.name.clone();
        call.targets.retain(|hop| hop.target.name == first);
    }
    let end = call.targets.len() - 1;
    // Those that have been failing come last: never in the way of the others, but better than nothing.
    let mut failing = Vec::new();
    for at in 0..end {
        call.enter(at);
        if !attempts.breaker_allows(call) {
            record.passed_over(call.hop(), "passed over: it has been failing (circuit open)");
            failing.push(at);
            continue;
        }
        match attempts.at_target(call, &mut payload, record, false).await {
            Err(failed) if attempts.goes_on(call, &failed) => record.attempt_failed(&failed),
            ended => return ended,
        }
    }
    let (mut at, mut failing) = (end, failing.into_iter());
    loop {
        call.enter(at);
        let next = failing.next();
        match (attempts.at_target(call, &mut payload, record, next.is_none()).await, next) {
            (Err(failed), Some(next)) if attempts.goes_on(call, &failed) => {
                record.attempt_failed(&failed);
                at = next;
            }
            (ended, _) => return ended,
        }
    }
}

/// What stays the same from attempt to attempt.
struct AttemptLoop<'a> {
    app: &'a Arc<App>,
    worker: &'a Worker,
    identity: &'a Identity,
    head: &'a Parts,
    ends_at: Instant,
    seed: u64,
    /// The body refers to what one account keeps: no other can answer.
    is_bound: bool,
}

impl AttemptLoop<'_> {
    /// One target: its credentials and retries. An error's attempt is left open, for whoever decides what follows.
    async fn at_target(
        &mut self,
        call: &mut Call,
        payload: &mut Payload,
        record: &mut Record,
        is_last: bool,
    ) -> Result<UpstreamResponse, AttemptError> {
        let mut tried = Vec::new();
        let mut again = 0;
        call.credential = self.credential(call, &tried);
        loop {
            let more = !is_last || again < call.retries || self.other_credential(call, &tried).is_some();
            record.attempt_begins(call);
            let failed = match self.once(call, payload, record, more).await {
                Ok(answered) => {
                    self.went_well(call, record);
                    return Ok(answered);
                }
                Err(failed) => failed,
            };
            if failed.usage_refused && !call.usage_refused && payload.kept().is_some() {
                record.attempt_failed(&failed);
                call.usage_refused = true;
                continue;
            }
            let judged = self.judge(call, &failed);
            self.went_wrong(call, &failed, judged);
            let limited = failed.status == Some(429);
            let of_credential = judged.fault == Fault::Credential || limited;
            // Asked again: others may have found out read_while that a credential cannot be used.
            if let Some(other) = self.other_credential(call, &tried).filter(|_| of_credential)
                && self.time_is_left()
            {
                record.attempt_failed(&failed);
                tried.extend(call.credential);
                call.credential = Some(other);
                continue;
            }
            if !judged.retry || again >= call.retries {
                return Err(failed);
            }
            again += 1;
            let wait = wait(again, &failed, record.id());
            if (wait > PATIENCE && !is_last) || Instant::now() + wait >= self.ends_at {
                return Err(failed);
            }
            record.attempt_failed(&failed);
            drop(failed);
            tokio::time::sleep(wait).await;
            tried.clear();
            call.credential = self.credential(call, &tried);
        }
    }

    fn credential(&self, call: &Call, tried: &[usize]) -> Option<usize> {
        call.target().choose(self.seed, self.app.services.clock.now().0, tried)
    }

    /// The credential to try when the one of this attempt is not taken.
    fn other_credential(&self, call: &Call, tried: &[usize]) -> Option<usize> {
        if call.target().credentials.len() < 2 || self.is_bound || self.shows_own(call) {
            return None;
        }
        let used: Vec<usize> = tried.iter().chain(&call.credential).copied().collect();
        self.credential(call, &used)
    }

    /// One attempt. While there is more to try, the answer is held back until it is known to be good.
    async fn once(
        &self,
        call: &mut Call,
        payload: &mut Payload,
        record: &Record,
        more: bool,
    ) -> Result<UpstreamResponse, AttemptError> {
        let limit = call.timeout.min(self.ends_at.saturating_duration_since(Instant::now()));
        let ends_at = tokio::time::Instant::now() + limit;
        let body = match payload.outbound(call) {
            Ok(Some(body)) => body,
            Ok(None) => return Err(AttemptError::timeout("the request has been sent already")),
            Err(problem) => return Err(untranslatable(call, problem)),
        };
        let answered = if call.target().is_sandbox() {
            sandbox::respond(call, self.head, body, limit, self.app.services.clock.now()).await?
        } else {
            upstream::attempt(self.app, self.worker, call, self.head, body, limit).await?
        };
        let answered = if more {
            buffer_until_valid(answered, call.target().format, call.format().is_some(), ends_at).await?
        } else {
            answered
        };
        if response_format::is_passthrough(call) {
            return Ok(answered);
        }
        response_format::convert(call, answered, &record.fallback_ids(), ends_at).await
    }

    fn judge(&self, call: &Call, failed: &AttemptError) -> Failure {
        let stop = Failure { fault: Fault::Caller, retry: false, next: false };
        if failed.callers_fault.is_some() {
            return stop;
        }
        match classify(failed.outcome) {
            // A credential of the caller's own is the caller's affair.
            Some(judged) if judged.fault == Fault::Credential && self.shows_own(call) => stop,
            Some(judged) => judged,
            None => stop,
        }
    }

    fn shows_own(&self, call: &Call) -> bool {
        headers::has_callers_credential(self.app, call, &self.head.headers)
    }

    fn key<'c>(&self, call: &'c Call) -> TargetKey<'c> {
        TargetKey { org: self.identity.org.id, provider: &call.target().name, model: call.model() }
    }

    fn breaker_allows(&self, call: &Call) -> bool {
        let now = self.app.services.clock.now();
        self.app.proxy.health.permit(self.key(call), now) != Permit::Deny
    }

    fn went_well(&self, call: &Call, record: &Record) {
        let (now, in_chain) = (self.app.services.clock.now(), call.targets.len() > 1);
        let took = record.attempt_began().map(|began| began.elapsed()).unwrap_or_default();
        self.app.proxy.health.record_success(self.key(call), now, took, in_chain);
        if call.usage_refused {
            // One refusal is enough: the next stream need not be sent twice.
            call.target().refuses_usage.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        if in_chain
            && call.route == RouteStrategy::Fastest
            && let Some(session) = &call.session
        {
            self.app.proxy.health.pin_session(session, self.key(call), now);
        }
    }

    fn went_wrong(&self, call: &Call, failed: &AttemptError, judged: Failure) {
        let now = self.app.services.clock.now();
        match judged.fault {
            Fault::Target => self.app.proxy.health.record_failure(self.key(call), now),
            // It answered; what was never sent says nothing of it.
            Fault::Caller | Fault::Credential if failed.status.is_some() => {
                self.app.proxy.health.record_alive(self.key(call), now);
            }
            Fault::Caller | Fault::Credential => {}
        }
        if judged.fault == Fault::Caller {
            return;
        }
        let Some(credential) = call.credential.and_then(|place| call.target().credentials.get(place)) else {
            return;
        };
        if self.shows_own(call) {
            return;
        }
        if judged.fault == Fault::Credential {
            credential.rest(now.0 + REJECTED_MS);
        } else if failed.status == Some(429) {
            let told = failed.retry_after.and_then(|wait| i64::try_from(wait.as_millis()).ok());
            credential.rest(now.0 + told.unwrap_or(LIMITED_MS).min(LONGEST_REST_MS));
        }
    }

    /// Is it worth while to try another target?
    fn goes_on(&self, call: &Call, failed: &AttemptError) -> bool {
        self.judge(call, failed).next && self.time_is_left()
    }

    fn time_is_left(&self) -> bool {
        Instant::now() < self.ends_at
    }
}

/// What cannot be said to the target that the caller named is the caller's affair; what cannot be said to another
/// one leaves that one out.
fn untranslatable(call: &Call, problem: Problem) -> AttemptError {
    let why = format!("the request cannot be translated: {}", problem.message);
    let failed = AttemptError::of(llm::failure::AttemptOutcome::Untranslatable, why);
    let is_named = call.hop().target.name == call.provider || call.targets.len() == 1;
    AttemptError { callers_fault: is_named.then(|| Box::new(problem)), ..failed }
}

/// How long to wait before the next attempt at the same target.
fn wait(again: u32, failed: &AttemptError, id: i64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let chance = (splitmix64(id.cast_unsigned() ^ u64::from(again)) >> 11) as f64 / (1u64 << 53) as f64;
    backoff(again, chance).max(failed.retry_after.unwrap_or_default())
}

/// Does the body refer to something that only the account that made it has?
fn carries_state(operation: Operation, body: &[u8]) -> bool {
    let begins_text = |after: &[u8]| {
        let value = after.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_some_and(|value| value.starts_with(b"\""))
    };
    let has = |key: &[u8]| {
        memchr::memmem::find_iter(body, key).any(|at| body.get(at + key.len()..).is_some_and(begins_text))
    };
    operation == Operation::Responses && (has(b"\"previous_response_id\"") || has(b"\"encrypted_content\""))
}
