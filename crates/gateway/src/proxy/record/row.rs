//! The log row that a record becomes: what was used, what it cost, and what is kept of the bodies.

use std::sync::PoisonError;

use gateway_core::llm::estimate::{estimate_from_chars, estimate_tokens};
use gateway_core::llm::paths::Operation;
use gateway_core::llm::preview::last_user_text;
use gateway_core::llm::usage::{MeterReading, Usage};
use gateway_core::logs::{BodyStorage, LogLevel, LogRow, MAX_BODY_BYTES, Tokens};
use gateway_core::pricing;
use rust_decimal::Decimal;

use super::{Record, RequestCopy, millis, short};
use crate::auth::Who;

impl Record {
    pub(super) fn row(&mut self, status: u16, error_code: Option<String>, metered: &MeterReading) -> LogRow {
        let is_hit = self.cache == Some("hit");
        let (usage, usage_estimated) = if is_hit { (self.used.take(), false) } else { self.usage(metered) };
        let (cost_usd, unpriced) =
            if is_hit { (Some(Decimal::ZERO), false) } else { self.cost(metered, usage.as_ref()) };
        let level = match status {
            _ if error_code.as_deref() == Some("client_closed") => LogLevel::Warn,
            500.. => LogLevel::Error,
            _ if error_code.is_some() => LogLevel::Error,
            400.. => LogLevel::Warn,
            _ => LogLevel::Info,
        };
        let (key_id, app_id, team_id) = match &self.who {
            Who::Key(key) => (Some(key.id), key.app_id, key.team_id),
            Who::User { .. } | Who::Org => (None, None, None),
        };
        let (request, request_stored) = self.request_copy();
        let (response, response_stored) = match (self.keep_bodies, self.response_cut) {
            (false, _) => (Vec::new(), BodyStorage::Off),
            (true, cut) => (
                std::mem::take(&mut self.response),
                if cut { BodyStorage::Truncated } else { BodyStorage::Full },
            ),
        };
        let row = LogRow {
            id: self.id,
            org_id: self.org.id,
            request_id: self.request_id.to_str().unwrap_or_default().to_owned(),
            created_at: self.created_at,
            level,
            source: self.origin.source,
            provider: self.answered_by.take().unwrap_or_else(|| self.target.name.clone()),
            provider_format: Some(self.target.format),
            model: self.model.take().or_else(|| metered.model.as_deref().map(short)),
            method: self.method.as_str().to_owned(),
            path: std::mem::take(&mut self.path),
            status,
            error_code,
            stream: self.stream,
            latency_ms: millis(self.started),
            ttft_ms: self.ttft_ms,
            tokens: usage.as_ref().map(tokens),
            usage_estimated,
            cost_usd,
            unpriced,
            cache: self.cache.map(ToOwned::to_owned),
            attempts: self.attempts.clone(),
            key_id,
            app_id,
            team_id,
            user: self.user.take(),
            session_id: self.session.take(),
            metadata: std::mem::take(&mut self.metadata),
            prompt: self.prompt.take(),
            traceparent: self.traceparent.take(),
            request_stored,
            response_stored,
            request,
            response,
            response_is_stream: self.response_is_stream,
        };
        self.used = usage;
        row
    }

    fn request_copy(&mut self) -> (Vec<u8>, BodyStorage) {
        let cut = |body: &[u8], length: usize| {
            let stored = if length > MAX_BODY_BYTES { BodyStorage::Truncated } else { BodyStorage::Full };
            (body[..body.len().min(MAX_BODY_BYTES)].to_vec(), stored)
        };
        match (&self.request, self.keep_bodies) {
            (_, false) => (Vec::new(), BodyStorage::Off),
            (RequestCopy::None, true) => (Vec::new(), BodyStorage::Full),
            (RequestCopy::Whole(body), true) => cut(body, body.len()),
            (RequestCopy::Filling(copy), true) => {
                let copy = copy.lock().unwrap_or_else(PoisonError::into_inner);
                cut(&copy.beginning, copy.length)
            }
        }
    }

    /// What was used: as reported, or counted here when a model answered and nobody said.
    fn usage(&self, metered: &MeterReading) -> (Option<Usage>, bool) {
        if metered.usage.is_some() {
            // The report of an answer that broke off may lag behind the text that was sent.
            let (usage, estimated) = metered.finalize_usage(|| 0);
            return (Some(usage), estimated);
        }
        let is_model_call = !matches!(self.operation, Operation::Models | Operation::Other);
        let began = self.status.is_success() && self.meter.is_some();
        if !is_model_call || !began {
            return (None, false);
        }
        let (usage, estimated) = metered.finalize_usage(|| self.estimate_prompt());
        (Some(usage), estimated)
    }

    fn estimate_prompt(&self) -> u64 {
        let count = |body: &[u8], length: usize| match last_user_text(body) {
            Some(text) if body.len() == length && length < MAX_BODY_BYTES => {
                // The rest of the body is other messages and some JSON around them.
                estimate_tokens(&text)
                    + estimate_from_chars((body.len().saturating_sub(text.len()) / 2) as u64)
            }
            _ => estimate_from_chars(length as u64),
        };
        let own = match &self.request {
            RequestCopy::None => 0,
            RequestCopy::Whole(body) => count(body, body.len()),
            RequestCopy::Filling(copy) => {
                let copy = copy.lock().unwrap_or_else(PoisonError::into_inner);
                count(&copy.beginning, copy.length)
            }
        };
        own + estimate_from_chars(self.prompt_length as u64)
    }

    /// The model that answered has the say about the price, then the one that was asked for.
    fn cost(&self, metered: &MeterReading, usage: Option<&Usage>) -> (Option<Decimal>, bool) {
        let Some(usage) = usage else { return (None, false) };
        let provider = self.target.kind.name;
        let models = [metered.model.as_deref(), self.model.as_deref()];
        let price =
            models.into_iter().flatten().find_map(|model| self.app.proxy.prices.find(provider, model));
        let cost = price.and_then(|price| pricing::cost(price, usage));
        (cost, cost.is_none())
    }
}

fn tokens(usage: &Usage) -> Tokens {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    Tokens {
        prompt: number(usage.prompt_tokens()),
        completion: number(usage.completion_tokens()),
        cached: number(usage.cached_tokens()),
        cache_write: number(usage.cache_write.saturating_add(usage.cache_write_1h)),
        reasoning: number(usage.reasoning),
        audio: number(usage.audio_input.saturating_add(usage.audio_output)),
    }
}
