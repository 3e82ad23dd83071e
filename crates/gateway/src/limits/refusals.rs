//! What limits refused, counted in memory and written once a second, and the events of limits that were reached.

use gateway_core::events::{Event, LimitEventData};
use gateway_core::ids::{LimitId, OrgId};
use gateway_core::limits::Limit;
use gateway_core::time::{DAY, HOUR, Timestamp};
use gateway_store::limits::{self as store, Refusals};
use gateway_store::{StoreError, events};

use super::permit::Held;
use super::state::{Short, State};
use super::{Limits, OrgLimits};

/// How long the counts of an hour are kept.
const KEPT_MS: i64 = 30 * DAY;

/// What a limit refused since it was written last.
#[derive(Default)]
pub struct Refused {
    calls: i64,
    would_refuse: i64,
    /// The window whose event is not recorded yet, with what it says.
    reached: Option<(Timestamp, LimitEventData)>,
    /// The latest window whose event was recorded.
    noticed: Option<Timestamp>,
}

impl State {
    pub fn note_refusal(&mut self, limit: &Limit, short: &Short, now: Timestamp) {
        let refused = self.refused.entry(limit.id).or_default();
        refused.calls += 1;
        let window = Timestamp(now.0 - now.0.rem_euclid(limit.window()));
        if refused.noticed == Some(window) || refused.reached.is_some() {
            return;
        }
        let facts = LimitEventData {
            limit_id: limit.id,
            name: limit.name().to_owned(),
            unit: short.shortage.unit.as_str(),
            limit: short.shortage.limit,
            per: limit.definition.per.to_string(),
            bucket: Some(short.bucket.to_string()).filter(|bucket| !bucket.is_empty()),
            window: limit.definition.window.as_str(),
        };
        refused.reached = Some((window, facts));
    }

    /// The event of a window could not be recorded.
    fn retry_event(&mut self, limit: LimitId, window: Timestamp, facts: LimitEventData) {
        let refused = self.refused.entry(limit).or_default();
        refused.noticed = None;
        refused.reached.get_or_insert((window, facts));
    }
}

/// Counts what limits in dry run would have refused.
pub fn note_dry_runs(org: &OrgLimits, held: &[Held]) {
    if !held.iter().any(|held| held.would_refuse) {
        return;
    }
    let mut state = org.state().lock();
    for held in held.iter().filter(|held| held.would_refuse) {
        let limit = org.limit(held.wanted.limit).id;
        state.refused.entry(limit).or_default().would_refuse += 1;
    }
}

pub async fn flush(limits: &Limits) {
    let services = &limits.0.services;
    let now = services.clock.now();
    let hour = Timestamp(now.0 - now.0.rem_euclid(HOUR));
    let mut counts = Vec::new();
    let mut reached = Vec::new();
    for (org, state) in limits.states() {
        let mut state = state.lock();
        for (limit, refused) in &mut state.refused {
            let (count, would) = (refused.calls, refused.would_refuse);
            if count + would > 0 {
                counts.push(Refusals { limit: *limit, hour, refused: count, would_refuse: would });
                (refused.calls, refused.would_refuse) = (0, 0);
            }
            if let Some((window, facts)) = refused.reached.take() {
                refused.noticed = Some(window);
                reached.push((org, *limit, window, facts));
            }
        }
        state.refused.retain(|_, refused| refused.noticed.is_some_and(|at| now.0 - at.0 < DAY));
    }
    if let Err(error) = store::add_refusals(&services.db, &counts).await {
        tracing::debug!(%error, "cannot record what limits refused; these counts are lost");
    }
    for (org, limit, window, facts) in reached {
        if let Err(error) = record_event(limits, (org, limit), window, facts.clone()).await {
            tracing::debug!(%error, "cannot record the event of a limit that was reached; retrying later");
            let state = limits.orgs().get(&org).cloned();
            if let Some(state) = state.filter(|_| now.0 - window.0 < DAY) {
                state.lock().retry_event(limit, window, facts);
            }
        }
    }
}

/// Once per window, over all nodes.
async fn record_event(
    limits: &Limits,
    (org, limit): (OrgId, LimitId),
    window: Timestamp,
    facts: LimitEventData,
) -> Result<(), StoreError> {
    let services = &limits.0.services;
    let mut tx = services.db.begin().await?;
    if !store::record_notice(&mut tx, org, limit, window).await? {
        return Ok(());
    }
    let event = Event::LimitReached(facts);
    events::record(&mut tx, org, services.ids.new_id(), &event, services.clock.now()).await?;
    tx.commit().await
}

pub async fn sweep(limits: &Limits) {
    let services = &limits.0.services;
    let oldest = services.clock.now().plus(-KEPT_MS);
    if let Err(error) = store::delete_refusals_before(&services.db, oldest).await {
        tracing::debug!(%error, "cannot remove old counts of refusals; retrying later");
    }
}
