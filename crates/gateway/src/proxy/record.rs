//! The log record of a request: opened at admission, closed when the response ends, fails or is dropped. The only place
//! that makes log rows of proxied requests.

mod attempts;
mod cache;
mod copies;
mod limits;
mod metering;
mod row;
mod timing;

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway_core::budget::Amount;
use gateway_core::llm::BodyFraming;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::usage::{Meter, Usage};
use gateway_core::logs::{Attempt as LoggedAttempt, LogRow, PromptVersionRef};
use gateway_core::pricing::Price;
use gateway_core::text::first_chars;
use gateway_core::totals::saving_units;
use gateway_store::faults::{KillPoint, kill_point};
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Map, Value};

use super::attempt::Attempt;
use super::context::RequestContext;
use super::origin::CallOrigin;
use super::plan::{Plan, RouteTarget};
use super::prompt_cache::PromptCacheDirective;
use super::response_format::FallbackIds;
use super::state::ProxyState;
use super::target_health::TargetKey;
use super::upstream::AttemptError;
use crate::auth::{CachedOrg, Principal};
use crate::budgets::{Reservation, charge_of};
use crate::calls_in_progress::CallInProgress;
use crate::metrics::events::Stage;
use crate::outbound::body::StreamedCopy;
use crate::services::Services;
use attempts::AttemptLog;
pub use cache::CacheStatus;
use cache::RecordedCache;
use copies::BodyCopies;
use limits::RecordedLimits;
use timing::Timing;

/// The most characters that are kept of a text from outside.
const MAX_TEXT_CHARS: usize = 1_024;

pub struct Record {
    services: Arc<Services>,
    state: Arc<ProxyState>,
    /// The spool lane of the worker.
    lane: usize,
    id: i64,
    origin: CallOrigin,
    caller: RecordedCaller,
    request: RecordedRequest,
    attempts: AttemptLog,
    response: RecordedResponse,
    copies: BodyCopies,
    timing: Timing,
    cache: RecordedCache,
    reservation: Option<Reservation>,
    limits: RecordedLimits,
    is_closed: bool,
}

struct RecordedCaller {
    org: Arc<CachedOrg>,
    principal: Principal,
    user: Option<String>,
    session: Option<String>,
    metadata: Map<String, Value>,
    traceparent: Option<String>,
}

struct RecordedRequest {
    request_id: HeaderValue,
    method: Method,
    path: String,
    operation: Operation,
    /// The named model that was asked for, and the price of the latest target's own.
    model_name: Option<HeaderValue>,
    price: Option<Arc<Price>>,
    prompt: Option<PromptVersionRef>,
    /// Bytes that the prompt added to the caller's body.
    prompt_bytes: usize,
    /// The prompt-cache marks of the latest attempt.
    cache_marks: Option<u32>,
    prompt_cache: PromptCacheDirective,
}

struct RecordedResponse {
    status: StatusCode,
    /// The request to the provider enabled streaming, or the provider sent a stream.
    stream: bool,
    meter: Option<Meter>,
    /// A part of the response could not be decoded, so its usage is an estimate.
    is_partly_metered: bool,
    /// Known once the record is closed.
    usage: Option<Usage>,
}

/// A response that failed after it had started.
pub struct StreamFailure<'a> {
    pub code: &'static str,
    pub message: &'a str,
    /// It counts against the target's circuit breaker.
    pub is_targets_fault: bool,
}

/// How a request ended.
enum End<'a> {
    Complete,
    Failed { code: &'static str, message: &'a str },
    ClientClosed,
    Panicked,
}

impl Record {
    pub fn open(
        context: RequestContext<'_>,
        plan: &Plan<'_>,
        origin: CallOrigin,
        reservation: Option<Reservation>,
        started: Instant,
    ) -> Self {
        let RequestContext { services, state, worker, identity, head, request_id } = context;
        let (created_at, directives) = (context.now(), plan.directives);
        let traceparent = head.headers.get("traceparent").and_then(|value| value.to_str().ok());
        Self {
            services: Arc::clone(services),
            state: Arc::clone(state),
            lane: worker.lane,
            id: services.ids.next_log_id(created_at),
            origin,
            caller: RecordedCaller {
                org: Arc::clone(&identity.org),
                principal: identity.principal.clone(),
                user: plan.end_user(identity).map(Cow::into_owned),
                session: directives.session.clone(),
                metadata: directives.metadata.clone(),
                traceparent: traceparent.filter(|text| text.len() <= 256).map(ToOwned::to_owned),
            },
            request: RecordedRequest {
                request_id: request_id.clone(),
                method: head.method.clone(),
                path: head.uri.path().to_owned(),
                operation: directives.operation,
                model_name: plan.model.as_ref().and_then(|model| HeaderValue::from_str(&model.name).ok()),
                price: plan.targets[0].spec.as_ref().and_then(|spec| spec.price.clone()),
                prompt: None,
                prompt_bytes: 0,
                cache_marks: None,
                prompt_cache: directives.prompt_cache.clone(),
            },
            attempts: AttemptLog::new(&plan.targets[0]),
            response: RecordedResponse {
                status: StatusCode::BAD_GATEWAY,
                stream: plan.provider_streams(),
                meter: None,
                is_partly_metered: false,
                usage: None,
            },
            copies: BodyCopies::new(directives.log_bodies, identity.org.memory.open()),
            timing: Timing::new(created_at, started),
            cache: RecordedCache::default(),
            reservation,
            limits: RecordedLimits::default(),
            is_closed: false,
        }
    }

    pub fn id(&self) -> i64 {
        self.id
    }

    pub fn request_id(&self) -> &HeaderValue {
        &self.request.request_id
    }

    /// The named model that was asked for.
    pub fn model_name(&self) -> Option<&HeaderValue> {
        self.request.model_name.as_ref()
    }

    pub fn started(&self) -> Instant {
        self.timing.started
    }

    /// What the call takes of its organization's share, for as long as its response lasts.
    pub fn take_call(&mut self) -> Option<CallInProgress> {
        self.origin.take_call()
    }

    /// What is left of the budgets that this request counts against.
    pub fn budget_remaining(&self) -> Option<Amount> {
        self.reservation.as_ref().and_then(Reservation::remaining)
    }

    pub fn attempts(&self) -> &[LoggedAttempt] {
        self.attempts.list()
    }

    /// The number of attempts, without skipped targets.
    pub fn attempt_count(&self) -> usize {
        self.attempts.sent()
    }

    /// Attempts at a target after its first one, and targets that were called after the first one.
    pub fn attempt_counts(&self) -> (usize, usize) {
        let fallbacks = self.attempts.moves();
        (self.attempts.sent().saturating_sub(1 + fallbacks), fallbacks)
    }

    /// How long the call has taken, and how much of it was not spent at the provider of the latest attempt.
    pub fn durations(&self) -> (Duration, Duration) {
        let total = self.timing.started.elapsed();
        (total, total.saturating_sub(self.timing.upstream.unwrap_or_default()))
    }

    /// The time since the latest attempt started.
    pub fn attempt_elapsed(&self) -> Duration {
        self.attempts.started().map(|started| started.elapsed()).unwrap_or_default()
    }

    pub fn fallback_ids(&self) -> FallbackIds {
        FallbackIds { id: format!("gw-{}", self.id), created: self.timing.created_at.0 / 1_000 }
    }

    /// The deadline of the current attempt, which is never after the deadline of the whole request.
    pub fn deadline(&self, timeout: Duration) -> Instant {
        let started = self.attempts.started().unwrap_or(self.timing.started);
        (started + timeout).min(self.timing.started + self.services.config.proxy_timeout)
    }

    pub fn provider(&self) -> &str {
        self.cache.provider.as_deref().unwrap_or(&self.attempts.target().name)
    }

    pub fn model(&self) -> Option<&str> {
        self.attempts.model()
    }

    pub fn set_request_body(&mut self, body: &Bytes) {
        self.copies.set_request(body);
    }

    /// The copy that a streamed request body fills while it is sent.
    pub fn streamed_request_copy(&mut self) -> Arc<Mutex<StreamedCopy>> {
        self.copies.stream_request()
    }

    /// A prompt was added to the caller's body, which grew by `added_bytes`.
    pub fn set_prompt(&mut self, prompt: PromptVersionRef, added_bytes: usize) {
        self.request.prompt = Some(prompt);
        self.request.prompt_bytes = added_bytes;
    }

    /// The marks that the gateway added to the body of the attempt.
    pub fn set_cache_marks(&mut self, marks: Option<u32>) {
        self.request.cache_marks = marks;
    }

    pub fn start_attempt(&mut self, attempt: &Attempt<'_>) {
        self.request.price = attempt.target.spec.as_ref().and_then(|spec| spec.price.clone());
        self.attempts.start(attempt.target, self.timing.started);
    }

    /// The attempt failed, and another one follows.
    pub fn fail_attempt(&mut self, error: &AttemptError) {
        self.attempts.fail(error);
        if let Some(usage) = &error.usage {
            self.limits.spend(usage);
        }
    }

    pub fn skip_target(&mut self, target: &RouteTarget, reason: &str) {
        self.attempts.skip(target, reason, self.timing.started);
    }

    /// The head of the response has arrived. From here on the body is metered.
    pub fn start_response(&mut self, status: StatusCode, framing: BodyFraming) {
        let is_stream = matches!(framing, BodyFraming::Sse | BodyFraming::EventStream);
        self.response.status = status;
        self.response.stream |= is_stream;
        self.response.meter = Some(Meter::new(self.attempts.target().format, framing));
        self.copies.response_is_stream = is_stream;
        let now = Instant::now();
        self.timing.head_at = Some(now);
        self.timing.upstream = self.attempts.started().map(|started| now - started);
        self.attempts.set_status(status);
    }

    /// The response is complete. Returns the usage.
    pub fn complete(mut self) -> Option<Usage> {
        self.close(&End::Complete);
        self.response.usage.take()
    }

    /// The response failed after it had started.
    pub fn fail_stream(mut self, failure: &StreamFailure<'_>) {
        let StreamFailure { code, message, is_targets_fault } = *failure;
        if is_targets_fault {
            let key = TargetKey {
                org: self.caller.org.id,
                provider: &self.attempts.target().name,
                model: self.attempts.model(),
            };
            self.state.health.record_failure(key, self.services.clock.now());
        }
        self.close(&End::Failed { code, message });
    }

    /// The caller's stream ended with an error: one that the provider reported within its stream, which the meter has
    /// read too, or a stream that cannot be translated.
    pub fn fail_translation(mut self, message: &str) {
        let reported = self.response.meter.as_ref().and_then(|meter| meter.snapshot().in_band_error);
        if reported.is_some() {
            return self.close(&End::Complete);
        }
        self.fail_stream(&StreamFailure { code: "provider_error", message, is_targets_fault: true });
    }

    /// No attempt had a response that can be forwarded. The record stays readable for the body of the error.
    pub fn fail(&mut self, status: StatusCode, code: &'static str, error: &AttemptError) {
        self.response.status = status;
        self.attempts.set_open_status(error.status);
        self.close(&End::Failed { code, message: &error.message });
    }

    /// The request was rejected. The record stays readable for the headers of the error.
    pub fn reject(&mut self, status: StatusCode, code: &'static str, message: &str) {
        self.response.status = status;
        self.close(&End::Failed { code, message });
    }

    pub fn server_timing(&self) -> String {
        self.timing.header()
    }

    fn close(&mut self, end: &End<'_>) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let reading = self.response.meter.as_mut().map(Meter::finish).unwrap_or_default();
        let response_status = self.response.status.as_u16();
        // If the client closes the connection after the last event, the response was complete.
        let is_complete =
            matches!(end, End::Complete) || (matches!(end, End::ClientClosed) && reading.saw_end);
        let (status, error_code, error) = match end {
            _ if is_complete => (response_status, None, reading.in_band_error.as_deref().map(truncated)),
            End::Failed { code, message } => {
                (response_status, Some((*code).to_owned()), Some((*message).into()))
            }
            End::Panicked => (500, Some("internal".to_owned()), Some("the gateway failed".to_owned())),
            End::ClientClosed | End::Complete => (499, Some("client_closed".to_owned()), None),
        };
        // An error response shows by its status; an error inside a successful one needs a code.
        let fails_in_band = reading.in_band_error.is_some() && self.response.status.is_success();
        let error_code = error_code.or_else(|| fails_in_band.then(|| "provider_error".to_owned()));
        self.attempts.finish(error);
        let mut row = self.row(status, error_code, &reading);
        self.settle_limits(&mut row);
        self.count_saving(&row);
        self.state.metrics.count(self.lane, &row);
        self.count_stages();
        self.origin.report(&row);
        if let Some(reservation) = &mut self.reservation {
            // Before the append: the log writer must find the cost committed when it stores the row.
            reservation.commit(row.id, charge_of(&row), self.services.clock.now());
            kill_point(KillPoint::BudgetCommitted);
        }
        self.state.spool.append(self.lane, row);
        kill_point(KillPoint::RowSpooled);
    }
}

impl Record {
    /// Counts what the marks of the gateway saved, for the setting that asked for them.
    fn count_saving(&self, row: &LogRow) {
        let has_marks = row.cache_marks.is_some_and(|marks| marks > 0) && row.cost_usd.is_some();
        if let Some(model) = self.request.prompt_cache.pausable().filter(|_| has_marks) {
            let saved = row.cache_saved_usd.map_or(0, saving_units);
            self.state.prompt_caches.record_saving((row.org_id, row.key_id), model, saved);
        }
    }

    fn count_stages(&self) {
        let events = self.state.metrics.lane(self.lane);
        let (Timing { started, head_at, upstream, .. }, attempts) = (&self.timing, &self.attempts);
        let now = Instant::now();
        let (Some(first), Some(last)) = (attempts.first_started(), attempts.started()) else {
            return events.stage(Stage::Prepare, now - *started);
        };
        events.stage(Stage::Prepare, first - *started);
        if attempts.sent() > 1 {
            events.stage(Stage::Failover, last - first);
        }
        if let (Some(head_at), Some(upstream)) = (head_at, upstream) {
            events.stage(Stage::Upstream, *upstream);
            events.stage(Stage::Response, now - *head_at);
        }
    }
}

/// A record that is dropped before the end of the response: the client closed the connection, or the thread panics.
impl Drop for Record {
    fn drop(&mut self) {
        let end = if std::thread::panicking() { End::Panicked } else { End::ClientClosed };
        self.close(&end);
    }
}

/// Texts from outside are truncated, because the size of a spool record is limited.
fn truncated(text: &str) -> String {
    first_chars(text, MAX_TEXT_CHARS).to_owned()
}

fn millis_since(start: Instant) -> i64 {
    i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX)
}
