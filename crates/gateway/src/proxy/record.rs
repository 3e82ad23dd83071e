//! The record of a request: opened at admission, closed when the response ends, fails or is dropped. The only place
//! where a log row of the proxy is made.

mod row;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway_core::cache::CacheKey;
use gateway_core::llm::BodyFraming;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::usage::{Meter, Usage};
use gateway_core::logs::{Attempt, MAX_BODY_BYTES, PromptVersionRef};
use gateway_core::time::Timestamp;
use gateway_core::totals::cost_units;
use http::request::Parts;
use http::{HeaderValue, StatusCode};

use super::ask::Origin;
use super::body::StreamedCopy;
use super::call::{Call, RouteTarget};
use super::response_format::FallbackIds;
use super::target::Target;
use super::target_health::TargetKey;
use super::upstream::AttemptError;
use crate::app::App;
use crate::auth::{Identity, OrgFacts, Who};
use crate::budgets::Reservation;

const SMALL_BODY: usize = 8 << 10;

pub struct Record {
    app: Arc<App>,
    lane: usize,
    origin: Origin,
    /// What budgets hold for this request.
    reservation: Option<Reservation>,
    org: Arc<OrgFacts>,
    who: Who,
    target: Arc<Target>,
    id: i64,
    request_id: HeaderValue,
    created_at: Timestamp,
    started: Instant,
    method: http::Method,
    path: String,
    operation: Operation,
    model: Option<String>,
    stream: bool,
    user: Option<String>,
    session: Option<String>,
    metadata: serde_json::Map<String, serde_json::Value>,
    traceparent: Option<String>,
    keep_bodies: bool,
    request: RequestCopy,
    prompt: Option<PromptVersionRef>,
    /// Bytes that the prompt added to the caller's body.
    prompt_length: usize,
    response: Vec<u8>,
    response_cut: bool,
    response_is_stream: bool,
    attempts: Vec<Attempt>,
    attempt_began: Option<Instant>,
    /// The last of the attempts has no end yet.
    attempt_open: bool,
    attempts_made: usize,
    status: StatusCode,
    /// From the beginning of the latest attempt to the provider's head.
    upstream_took: Option<Duration>,
    ttft_ms: Option<i64>,
    meter: Option<Meter>,
    cache: Option<&'static str>,
    cache_key: Option<CacheKey>,
    /// Who answered, when it was not the target.
    answered_by: Option<String>,
    /// Known once the record is closed.
    used: Option<Usage>,
    closed: bool,
}

/// What is kept of the caller's body. A body that is streamed on fills the copy while it passes.
enum RequestCopy {
    None,
    Whole(Bytes),
    Filling(Arc<Mutex<StreamedCopy>>),
}

/// How a request ended.
enum End<'a> {
    Complete,
    Broken { code: &'static str, message: &'a str },
    ClientClosed,
}

impl Record {
    pub fn open(
        app: &Arc<App>,
        lane: usize,
        identity: &Identity,
        call: &Call,
        head: &Parts,
        request_id: &HeaderValue,
        started: Instant,
    ) -> Self {
        let created_at = app.services.clock.now();
        Self {
            app: Arc::clone(app),
            lane,
            origin: Origin::default(),
            reservation: None,
            org: Arc::clone(&identity.org),
            who: identity.who.clone(),
            target: Arc::clone(call.target()),
            id: app.services.ids.next_log_id(created_at),
            request_id: request_id.clone(),
            created_at,
            started,
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            operation: call.operation,
            model: call.model().map(short),
            stream: call.stream,
            // A member's own call without an end user is the member's.
            user: call.user.clone().or_else(|| match &identity.who {
                Who::User { id, .. } => Some(id.to_string()),
                Who::Key(_) | Who::Org => None,
            }),
            session: call.session.clone(),
            metadata: call.metadata.clone(),
            traceparent: head
                .headers
                .get("traceparent")
                .and_then(|value| value.to_str().ok())
                .filter(|text| text.len() <= 256)
                .map(ToOwned::to_owned),
            keep_bodies: call.log_bodies,
            request: RequestCopy::None,
            prompt: None,
            prompt_length: 0,
            response: Vec::new(),
            response_cut: false,
            response_is_stream: false,
            attempts: Vec::new(),
            attempt_began: None,
            attempt_open: false,
            attempts_made: 0,
            status: StatusCode::BAD_GATEWAY,
            upstream_took: None,
            ttft_ms: None,
            meter: None,
            cache: None,
            cache_key: None,
            answered_by: None,
            used: None,
            closed: false,
        }
    }

    /// Where the request came from, when it is none of the proxy's own.
    pub fn came_from(&mut self, origin: Origin) {
        self.origin = origin;
    }

    pub fn set_reservation(&mut self, reservation: Option<Reservation>) {
        self.reservation = reservation;
    }

    /// What the budgets still have that this request counts against.
    pub fn budget_remaining(&self) -> Option<i64> {
        self.reservation.as_ref().and_then(Reservation::remaining)
    }

    pub fn id(&self) -> i64 {
        self.id
    }

    pub fn request_id(&self) -> &HeaderValue {
        &self.request_id
    }

    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    pub fn started(&self) -> Instant {
        self.started
    }

    /// Without the targets that were passed over.
    pub fn attempts_made(&self) -> usize {
        self.attempts_made
    }

    /// When the latest attempt was begun.
    pub fn attempt_began(&self) -> Option<Instant> {
        self.attempt_began
    }

    /// What an answer is called that has no name of its own.
    pub fn fallback_ids(&self) -> FallbackIds {
        FallbackIds { name: format!("gw-{}", self.id), created: self.created_at.0 / 1_000 }
    }

    /// When the attempt under way has taken too long, or all of them together.
    pub fn ends_at(&self, timeout: Duration) -> Instant {
        let began = self.attempt_began.unwrap_or(self.started);
        (began + timeout).min(self.started + self.app.services.config.proxy_timeout)
    }

    pub fn saw_request(&mut self, body: &Bytes) {
        // A small body is copied, because a piece of hyper's buffer would keep the whole of it while a stream runs.
        let small = body.len() < SMALL_BODY;
        self.request = RequestCopy::Whole(if small { Bytes::copy_from_slice(body) } else { body.clone() });
    }

    /// A prompt was put into the caller's body, which grew by so many bytes.
    pub fn used_prompt(&mut self, prompt: PromptVersionRef, added: usize) {
        self.prompt = Some(prompt);
        self.prompt_length = added;
    }

    /// Where a body that is streamed on leaves its copy.
    pub fn shares_request_copy(&mut self) -> Arc<Mutex<StreamedCopy>> {
        let room = if self.keep_bodies { MAX_BODY_BYTES } else { 0 };
        let copy = Arc::new(Mutex::new(StreamedCopy::with_room(room)));
        self.request = RequestCopy::Filling(Arc::clone(&copy));
        copy
    }

    pub fn attempt_begins(&mut self, call: &Call) {
        self.attempt_began = Some(Instant::now());
        self.attempt_open = true;
        self.attempts_made += 1;
        self.target = Arc::clone(call.target());
        self.model = call.model().map(short);
        self.push_attempt(call.hop(), None);
    }

    /// The attempt came to nothing, and another follows.
    pub fn attempt_failed(&mut self, failed: &AttemptError) {
        let latency = self.attempt_began.map_or(0, millis);
        self.attempt_open = false;
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.status = failed.status;
            attempt.latency_ms = latency;
            attempt.error = Some(short(&failed.message));
        }
    }

    /// A target that was not tried, and why.
    pub fn passed_over(&mut self, hop: &RouteTarget, why: &str) {
        self.push_attempt(hop, Some(why.to_owned()));
    }

    fn push_attempt(&mut self, hop: &RouteTarget, error: Option<String>) {
        self.attempts.push(Attempt {
            provider: hop.target.name.clone(),
            model: hop.model.as_deref().map(short),
            status: None,
            start_ms: millis(self.started),
            ttft_ms: None,
            latency_ms: 0,
            error,
        });
    }

    /// The provider's head has come: from here on its body is metered.
    pub fn answered(&mut self, status: StatusCode, framing: BodyFraming) {
        self.status = status;
        self.upstream_took = self.attempt_began.map(|began| began.elapsed());
        self.response_is_stream = matches!(framing, BodyFraming::Sse | BodyFraming::EventStream);
        self.stream |= self.response_is_stream;
        self.meter = Some(Meter::new(self.target.format, framing));
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.status = Some(status.as_u16());
        }
    }

    /// A piece of the provider's answer passes.
    pub fn saw_response(&mut self, data: &[u8]) {
        if self.ttft_ms.is_none() {
            self.ttft_ms = Some(millis(self.started));
            let began = self.attempt_began;
            if let Some(attempt) = self.attempts.last_mut() {
                attempt.ttft_ms = began.map(millis);
            }
        }
        if let Some(meter) = &mut self.meter {
            meter.feed(data);
        }
        if self.keep_bodies && !self.response_cut {
            let room = MAX_BODY_BYTES - self.response.len();
            self.response_cut = data.len() > room;
            self.response.extend_from_slice(&data[..data.len().min(room)]);
        }
    }

    /// Answers what was used.
    pub fn completed(mut self) -> Option<Usage> {
        self.close(&End::Complete);
        self.used.take()
    }

    /// What the caller asked of the cache, and did not find there.
    pub fn missed(&mut self, refreshes: bool) {
        self.cache = Some(if refreshes { "refresh" } else { "miss" });
    }

    /// The answer comes from the cache: it costs nothing, and whoever made it gets the credit.
    pub fn found(&mut self, status: StatusCode, provider: &str, model: Option<&str>, usage: Option<&Usage>) {
        self.status = status;
        self.cache = Some("hit");
        self.answered_by = Some(provider.to_owned());
        self.model = model.map(short).or_else(|| self.model.take());
        self.used = usage.cloned();
    }

    /// The name of the entry that the answer comes from, or becomes.
    pub fn named_entry(&mut self, key: CacheKey) {
        self.cache_key = Some(key);
    }

    pub fn cache_key(&self) -> Option<CacheKey> {
        self.cache_key
    }

    /// What the caller is told of the cache.
    pub fn cache(&self) -> Option<&'static str> {
        self.cache
    }

    pub fn answered_by(&self) -> &str {
        self.answered_by.as_deref().unwrap_or(&self.target.name)
    }

    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The stream broke after it had begun.
    pub fn broke(mut self, code: &'static str, message: &str) {
        self.app.proxy.health.record_failure(
            TargetKey { org: self.org.id, provider: &self.target.name, model: self.model.as_deref() },
            self.app.services.clock.now(),
        );
        self.close(&End::Broken { code, message });
    }

    /// There was no answer to pass on. The record stays readable for the error's body.
    pub fn failed(&mut self, status: StatusCode, code: &'static str, failed: &AttemptError) {
        self.status = status;
        if self.attempt_open
            && let Some(attempt) = self.attempts.last_mut()
        {
            attempt.status = failed.status;
        }
        self.close(&End::Broken { code, message: &failed.message });
    }

    /// The caller's request could not be sent on. The record stays readable for the error's headers.
    pub fn refused(&mut self, status: StatusCode, code: &'static str, message: &str) {
        self.status = status;
        self.close(&End::Broken { code, message });
    }

    /// The time spent here and at the provider until its head came.
    pub fn server_timing(&self) -> String {
        let upstream = self.upstream_took.unwrap_or_default();
        let gateway = self.started.elapsed().saturating_sub(upstream);
        // Milliseconds with three places, out of whole microseconds: formatting floats takes longer.
        let parts = |time: Duration| (time.as_millis(), time.subsec_micros() % 1_000);
        let ((gateway, gateway_part), (upstream, upstream_part)) = (parts(gateway), parts(upstream));
        let mut text = String::with_capacity(48);
        let _ = write!(
            text,
            "gateway;dur={gateway}.{gateway_part:03}, upstream;dur={upstream}.{upstream_part:03}"
        );
        text
    }

    fn close(&mut self, end: &End<'_>) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let metered = self.meter.as_mut().map(Meter::finish).unwrap_or_default();
        // A caller that hangs up once the answer is complete has had it all.
        let complete = matches!(end, End::Complete) || (matches!(end, End::ClientClosed) && metered.saw_end);
        let (status, error_code, error) = match end {
            _ if complete => (self.status.as_u16(), None, metered.in_band_error.as_deref().map(short)),
            End::Broken { code, message } => {
                (self.status.as_u16(), Some((*code).to_owned()), Some((*message).into()))
            }
            End::ClientClosed | End::Complete => (499, Some("client_closed".to_owned()), None),
        };
        // A refusal says so by its status; an error inside an answer that began well has no other mark.
        let fails_inside = metered.in_band_error.is_some() && self.status.is_success();
        let error_code = error_code.or_else(|| fails_inside.then(|| "provider_error".to_owned()));
        let latency = self.attempt_began.map_or(0, millis);
        if self.attempt_open
            && let Some(attempt) = self.attempts.last_mut()
        {
            attempt.latency_ms = latency;
            attempt.error = error;
        }
        let row = self.row(status, error_code, &metered);
        self.app.proxy.metrics.count(self.lane, &row);
        self.origin.tell(&row);
        if let Some(reservation) = &mut self.reservation {
            // Before the append, so that the cost is counted when the log writer stores the row.
            reservation.commit(row.id, row.cost_usd.map_or(0, cost_units), self.app.services.clock.now());
        }
        self.app.proxy.spool.append(self.lane, row);
    }
}

/// A response that is dropped before its end: the caller hung up.
impl Drop for Record {
    fn drop(&mut self) {
        self.close(&End::ClientClosed);
    }
}

/// Texts of others are cut before they go into a row, which must stay short enough for the spool.
fn short(text: &str) -> String {
    text.chars().take(1_024).collect()
}

fn millis(since: Instant) -> i64 {
    i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX)
}
