//! The attempts of a request, as the log row lists them.

use std::sync::Arc;
use std::time::Instant;

use gateway_core::logs::Attempt as LoggedAttempt;
use http::StatusCode;

use super::{millis_since, truncated};
use crate::proxy::plan::RouteTarget;
use crate::proxy::upstream::AttemptError;
use crate::targets::Target;

pub(super) struct AttemptLog {
    /// The provider and model of the latest attempt; before the first one, those of the first target.
    target: Arc<Target>,
    model: Option<String>,
    list: Vec<LoggedAttempt>,
    /// When the first and the latest attempt started.
    first_started: Option<Instant>,
    started: Option<Instant>,
    /// The latest attempt has not ended yet.
    is_open: bool,
    /// The number of attempts, without skipped targets.
    sent: usize,
    /// How often the target of an attempt was another one than before.
    moves: usize,
}

impl AttemptLog {
    pub fn new(first: &RouteTarget) -> Self {
        Self {
            target: Arc::clone(&first.provider),
            model: first.model.as_deref().map(truncated),
            list: Vec::new(),
            first_started: None,
            started: None,
            is_open: false,
            sent: 0,
            moves: 0,
        }
    }

    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    pub fn take_model(&mut self) -> Option<String> {
        self.model.take()
    }

    /// Replaces the model, unless the new one is unknown.
    pub fn set_model(&mut self, model: Option<&str>) {
        self.model = model.map(truncated).or_else(|| self.model.take());
    }

    pub fn list(&self) -> &[LoggedAttempt] {
        &self.list
    }

    pub fn started(&self) -> Option<Instant> {
        self.started
    }

    pub fn first_started(&self) -> Option<Instant> {
        self.first_started
    }

    pub fn sent(&self) -> usize {
        self.sent
    }

    pub fn moves(&self) -> usize {
        self.moves
    }

    pub fn start(&mut self, target: &RouteTarget, request_started: Instant) {
        let model = target.model.as_deref().map(truncated);
        let is_other = target.provider.name != self.target.name || model != self.model;
        self.moves += usize::from(self.sent > 0 && is_other);
        let now = Instant::now();
        self.started = Some(now);
        self.first_started.get_or_insert(now);
        self.is_open = true;
        self.sent += 1;
        self.target = Arc::clone(&target.provider);
        self.model = model;
        self.push(target, None, request_started);
    }

    pub fn skip(&mut self, target: &RouteTarget, reason: &str, request_started: Instant) {
        self.push(target, Some(reason.to_owned()), request_started);
    }

    pub fn fail(&mut self, error: &AttemptError) {
        let latency = self.latency_ms();
        self.is_open = false;
        if let Some(attempt) = self.list.last_mut() {
            attempt.status = error.status;
            attempt.latency_ms = latency;
            attempt.error = Some(truncated(&error.message));
        }
    }

    pub fn set_status(&mut self, status: StatusCode) {
        if let Some(attempt) = self.list.last_mut() {
            attempt.status = Some(status.as_u16());
        }
    }

    pub fn set_open_status(&mut self, status: Option<u16>) {
        if let Some(attempt) = self.open_attempt() {
            attempt.status = status;
        }
    }

    pub fn set_first_byte(&mut self) {
        let started = self.started;
        if let Some(attempt) = self.list.last_mut() {
            attempt.ttft_ms = started.map(millis_since);
        }
    }

    /// The request has ended, and with it the open attempt.
    pub fn finish(&mut self, error: Option<String>) {
        let latency = self.latency_ms();
        if let Some(attempt) = self.open_attempt() {
            attempt.latency_ms = latency;
            attempt.error = error;
        }
    }

    fn open_attempt(&mut self) -> Option<&mut LoggedAttempt> {
        self.list.last_mut().filter(|_| self.is_open)
    }

    fn latency_ms(&self) -> i64 {
        self.started.map_or(0, millis_since)
    }

    fn push(&mut self, target: &RouteTarget, error: Option<String>, request_started: Instant) {
        self.list.push(LoggedAttempt {
            provider: target.provider.name.clone(),
            model: target.model.as_deref().map(truncated),
            status: None,
            start_ms: millis_since(request_started),
            ttft_ms: None,
            latency_ms: 0,
            error,
        });
    }
}
