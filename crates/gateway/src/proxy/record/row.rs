//! Makes the log row of a closed record: usage, cost and body copies.

use gateway_core::llm::BodyFraming;
use gateway_core::llm::estimate::estimate_from_chars;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::usage::{Meter, MeterReading, Usage};
use gateway_core::logs::{LimitUses, LogLevel, LogRow, Tokens};
use gateway_core::pricing::{self, Price};
use rust_decimal::Decimal;

use super::{CacheStatus, Record, millis_since, truncated};
use crate::auth::Principal;

/// What a request cost.
struct Charge {
    cost_usd: Option<Decimal>,
    /// There is no price for it.
    unpriced: bool,
    /// What the provider's prompt cache saved.
    cache_saved_usd: Option<Decimal>,
}

impl Charge {
    /// Of an answer from the gateway's cache.
    const NONE: Self = Self { cost_usd: Some(Decimal::ZERO), unpriced: false, cache_saved_usd: None };
}

impl Record {
    pub(super) fn row(&mut self, status: u16, error_code: Option<String>, reading: &MeterReading) -> LogRow {
        let is_hit = self.cache.status == Some(CacheStatus::Hit);
        let (usage, usage_estimated) =
            if is_hit { (self.response.usage.take(), false) } else { self.usage(reading) };
        let Charge { cost_usd, unpriced, cache_saved_usd } =
            if is_hit { Charge::NONE } else { self.charge(reading, usage.as_ref()) };
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
            cache_marks: self.request.cache_marks,
            cache_saved_usd,
            queued_ms: None,
            limits: LimitUses::default(),
            attempts: self.attempts.list().to_vec(),
            key_id,
            app_id,
            team_id,
            user: self.caller.user.take(),
            session_id: self.caller.session.take(),
            metadata: std::mem::take(&mut self.caller.metadata),
            prompt: self.request.prompt.take(),
            traceparent: self.caller.traceparent.take(),
            compat: self.origin.compat.map(str::to_owned),
            operation: None,
            tool: None,
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
        // A stored response that is read again has the usage of the call that made it.
        if matches!(self.request.method.as_str(), "GET" | "HEAD" | "DELETE") {
            return (None, false);
        }
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

    fn charge(&self, reading: &MeterReading, usage: Option<&Usage>) -> Charge {
        let Some(usage) = usage else {
            let has_succeeded = self.response.status.is_success();
            let is_unmetered = self.request.operation.is_unmetered(self.request.method.as_str());
            let unpriced = has_succeeded && is_unmetered;
            return Charge { cost_usd: None, unpriced, cache_saved_usd: None };
        };
        let price = self.price(reading);
        let cost_usd = price.and_then(|price| pricing::cost(price, usage));
        let cache_saved_usd = price.and_then(|price| pricing::cache_saving(price, usage));
        Charge { cost_usd, unpriced: cost_usd.is_none(), cache_saved_usd }
    }

    /// The price of the named model comes first, then that of the model in the response, then that of the requested
    /// model.
    fn price(&self, reading: &MeterReading) -> Option<&Price> {
        let provider = self.attempts.target().kind.name;
        let models = [reading.model.as_deref(), self.attempts.model()];
        let known = || models.into_iter().flatten().find_map(|model| self.state.prices.find(provider, model));
        self.request.price.as_deref().or_else(known)
    }

    /// The cost of what has been metered so far. None if it is not known.
    pub fn cost_so_far(&self) -> Option<Decimal> {
        if self.cache.status == Some(CacheStatus::Hit) {
            return Some(Decimal::ZERO);
        }
        self.cost_by(&self.response.meter.as_ref()?.snapshot())
    }

    /// The cost of a whole response, before it is metered.
    pub fn cost_of(&self, raw: &[u8], framing: BodyFraming) -> Option<Decimal> {
        let mut meter = Meter::new(self.attempts.target().format, framing);
        meter.feed(raw);
        self.cost_by(&meter.finish())
    }

    pub(in crate::proxy) fn cost_by(&self, reading: &MeterReading) -> Option<Decimal> {
        let (usage, _) = self.usage(reading);
        self.charge(reading, usage.as_ref()).cost_usd
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
