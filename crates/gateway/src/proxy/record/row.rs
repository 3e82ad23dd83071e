//! Makes the log row of a closed record: usage, cost and body copies.

use gateway_core::llm::estimate::estimate_from_chars;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::usage::{MeterReading, Usage};
use gateway_core::logs::{LogLevel, LogRow, Tokens};
use gateway_core::pricing;
use rust_decimal::Decimal;

use super::{CacheStatus, Record, millis_since, truncated};
use crate::auth::Principal;

impl Record {
    pub(super) fn row(&mut self, status: u16, error_code: Option<String>, reading: &MeterReading) -> LogRow {
        let is_hit = self.cache.status == Some(CacheStatus::Hit);
        let (usage, usage_estimated) =
            if is_hit { (self.response.usage.take(), false) } else { self.usage(reading) };
        let (cost_usd, unpriced) =
            if is_hit { (Some(Decimal::ZERO), false) } else { self.cost(reading, usage.as_ref()) };
        let (key_id, app_id, team_id) = match &self.caller.principal {
            Principal::Key(key) => (Some(key.id), key.app_id, key.team_id),
            Principal::User { team_id, .. } => (None, None, *team_id),
            Principal::Org => (None, None, None),
        };
        let (request, request_stored) = self.copies.take_request();
        let (response, response_stored) = self.copies.take_response();
        let provider = self.cache.provider.take();
        let row = LogRow {
            id: self.id,
            org_id: self.caller.org.id,
            request_id: self.request.request_id.to_str().unwrap_or_default().to_owned(),
            created_at: self.timing.created_at,
            level: level(status, error_code.as_deref()),
            source: self.origin.source,
            provider: provider.unwrap_or_else(|| self.attempts.target().name.clone()),
            provider_format: Some(self.attempts.target().format),
            model: self.attempts.take_model().or_else(|| reading.model.as_deref().map(truncated)),
            method: self.request.method.as_str().to_owned(),
            path: std::mem::take(&mut self.request.path),
            status,
            error_code,
            stream: self.response.stream,
            latency_ms: millis_since(self.timing.started),
            ttft_ms: self.timing.ttft_ms,
            tokens: usage.as_ref().map(tokens),
            usage_estimated,
            cost_usd,
            unpriced,
            cache: self.cache.status.map(|status| status.as_str().to_owned()),
            attempts: self.attempts.list().to_vec(),
            key_id,
            app_id,
            team_id,
            user: self.caller.user.take(),
            session_id: self.caller.session.take(),
            metadata: std::mem::take(&mut self.caller.metadata),
            prompt: self.request.prompt.take(),
            traceparent: self.caller.traceparent.take(),
            request_stored,
            response_stored,
            request,
            response,
            response_is_stream: self.copies.response_is_stream,
        };
        self.response.usage = usage;
        row
    }

    /// The usage as reported by the provider, or an estimate if a model responded without a report.
    fn usage(&self, reading: &MeterReading) -> (Option<Usage>, bool) {
        if reading.usage.is_some() {
            // The report of a response that ended early may lag behind the text that was sent.
            let (usage, is_estimated) = reading.finalize_usage(|| 0);
            return (Some(usage), is_estimated || self.response.is_partly_metered);
        }
        let is_model_call = !matches!(self.request.operation, Operation::Models | Operation::Other);
        let has_started = self.response.status.is_success() && self.response.meter.is_some();
        if !is_model_call || !has_started {
            return (None, false);
        }
        let (usage, is_estimated) = reading.finalize_usage(|| {
            self.copies.estimate_prompt_tokens() + estimate_from_chars(self.request.prompt_bytes as u64)
        });
        (Some(usage), is_estimated)
    }

    /// The cost, and whether there is no price for it. The price of the named model comes first, then that
    /// of the model in the response, then that of the requested model.
    fn cost(&self, reading: &MeterReading, usage: Option<&Usage>) -> (Option<Decimal>, bool) {
        let Some(usage) = usage else {
            let has_succeeded = self.response.status.is_success();
            let is_unmetered = self.request.operation.is_unmetered(self.request.method.as_str());
            return (None, has_succeeded && is_unmetered);
        };
        let provider = self.attempts.target().kind.name;
        let models = [reading.model.as_deref(), self.attempts.model()];
        let known = || models.into_iter().flatten().find_map(|model| self.state.prices.find(provider, model));
        let price = self.request.price.as_deref().or_else(known);
        let cost = price.and_then(|price| pricing::cost(price, usage));
        (cost, cost.is_none())
    }
}

fn level(status: u16, error_code: Option<&str>) -> LogLevel {
    match (status, error_code) {
        (_, Some("client_closed")) => LogLevel::Warn,
        (500.., _) | (_, Some(_)) => LogLevel::Error,
        (400.., None) => LogLevel::Warn,
        (_, None) => LogLevel::Info,
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
