//! What the record of a request knows of its limits: the permit until the request ends, and what the row says of it.

use std::time::{Duration, Instant};

use gateway_core::limits::{LimitStatus, TokensUsed};
use gateway_core::llm::usage::Usage;
use gateway_core::logs::{LimitUses, LogRow, Tokens};
use http::{HeaderName, HeaderValue};

use super::{CacheStatus, Record};
use crate::limits::{Over, Permit};
use crate::proxy::directives::Directives;
use crate::proxy::limit_headers::ShownLimits;

#[derive(Default)]
pub(super) struct RecordedLimits {
    permit: Option<Permit>,
    /// Of a request that was refused.
    uses: LimitUses,
    queued: Option<Duration>,
    /// While the request may wait for its limits. Its caller may hang up meanwhile.
    waits_since: Option<Instant>,
    plan: Option<LimitStatus>,
}

impl RecordedLimits {
    /// An attempt failed, but used tokens. They count beside those of the response that the caller gets.
    pub(super) fn spend(&mut self, usage: &Usage) {
        if let Some(permit) = &mut self.permit {
            permit.spend(TokensUsed {
                input: usage.prompt_tokens(),
                cached: usage.cached_tokens(),
                output: usage.completion_tokens(),
            });
        }
    }
}

impl Record {
    /// The gateway makes the call itself, for the organization.
    pub fn is_internal(&self) -> bool {
        self.origin.source.is_internal()
    }

    /// The request may have to wait for its limits. If it ends before it is admitted or refused, it waited until then.
    pub fn begin_wait(&mut self) {
        self.limits.waits_since = Some(Instant::now());
    }

    /// The request is refused without having waited.
    pub fn forget_wait(&mut self) {
        self.limits.waits_since = None;
    }

    /// The request holds this until it ends.
    pub fn hold_limits(&mut self, permit: Option<Permit>, plan: Option<LimitStatus>) {
        let queued = permit.as_ref().map(Permit::waited).filter(|waited| !waited.is_zero());
        self.limits = RecordedLimits { permit, queued, plan, ..RecordedLimits::default() };
    }

    /// The request was refused by a limit.
    pub fn refuse_by_limit(&mut self, over: &Over) {
        self.limits.uses.clone_from(&over.uses);
        self.limits.queued = Some(over.waited).filter(|waited| waited.as_millis() > 0);
        self.forget_wait();
    }

    pub fn permit_mut(&mut self) -> &mut Option<Permit> {
        &mut self.limits.permit
    }

    /// The headers about the limits that applied.
    pub fn limit_headers(&self, directives: &Directives) -> Vec<(HeaderName, HeaderValue)> {
        let Some(permit) = &self.limits.permit else { return Vec::new() };
        let shown = ShownLimits {
            setting: self.caller.org.settings.limit_headers,
            policies: permit.policies(),
            plan: self.limits.plan.as_ref(),
            now: self.services.clock.now(),
        };
        shown.headers(directives)
    }

    /// Replaces what was reserved by what the request used. An answer from the cache used no tokens.
    pub(super) fn settle_limits(&mut self, row: &mut LogRow) {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        row.queued_ms = self.limits.queued.or_else(|| self.waited_in_vain()).map(millis);
        row.limits = std::mem::take(&mut self.limits.uses);
        let Some(permit) = &mut self.limits.permit else { return };
        let is_hit = self.cache.status == Some(CacheStatus::Hit);
        let used = row.tokens.filter(|_| !is_hit).map(|tokens| used(&tokens)).unwrap_or_default();
        row.limits = permit.settle(used);
    }

    /// How long a request waited whose caller hung up, or whose node stopped.
    fn waited_in_vain(&self) -> Option<Duration> {
        let waited = self.limits.waits_since?.elapsed();
        if waited.as_millis() == 0 {
            return None;
        }
        self.state.metrics.events.queued(waited);
        Some(waited)
    }
}

fn used(tokens: &Tokens) -> TokensUsed {
    let number = |count: i64| u64::try_from(count).unwrap_or(0);
    TokensUsed {
        input: number(tokens.prompt),
        cached: number(tokens.cached),
        output: number(tokens.completion),
    }
}
