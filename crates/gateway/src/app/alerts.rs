//! Checks of alerts. Organizations take turns, one alert of each at a time, and a check counts as one of the organization's
//! log queries. A change of state is recorded in the transaction that creates its event, so that it is sent once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::alerts::{Definition, Reading, is_muted};
use gateway_core::events::{AlertEventData, Event};
use gateway_core::ids::OrgId;
use gateway_core::time::{MINUTE, Timestamp};
use gateway_core::totals::Totals;
use gateway_store::alerts::{self, HistoryEntry, StoredAlert};
use gateway_store::connection_shares::on_behalf_of;
use gateway_store::logs::{LogSearch, TimeRange, usage_matching};
use gateway_store::{StoreError, Tx, events};
use tokio::task::JoinSet;

use crate::app::App;
use crate::log::query_names;
use crate::problem::{ApiResult, Problem};
use crate::services::Services;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Organizations whose alerts a node checks at the same time.
const MAX_CONCURRENT_CHECKS: usize = 4;
/// Organizations that a node looks at in one round.
const MAX_DUE_ORGS: i64 = 200;
/// A claimed alert is checked again after this, if the node that claimed it dies.
const CLAIM_MS: i64 = MINUTE;
/// After a check an organization pauses for this many times as long, so that its alerts use a tenth of a core at most.
const PAUSE_FACTOR: u32 = 9;
/// Characters of the reason of a failed check.
const MAX_ERROR: usize = 300;

/// Checks due alerts until the service stops.
pub async fn run(app: Arc<App>) {
    let mut pauses = HashMap::new();
    while tokio::time::timeout(POLL_INTERVAL, app.services.tasks.stopping()).await.is_err() {
        if let Err(error) = check_due(&app, &mut pauses).await {
            tracing::debug!(%error, "cannot read the due alerts; it is retried at the next poll");
        }
    }
}

/// Checks one alert of every organization that has a due one and does not pause.
async fn check_due(app: &Arc<App>, pauses: &mut HashMap<OrgId, Instant>) -> Result<(), StoreError> {
    let now = app.services.clock.now();
    pauses.retain(|_, until| *until > Instant::now());
    let mut checks = JoinSet::new();
    let mut ended = Vec::new();
    for org in alerts::list_due_orgs(&app.services.db, now, MAX_DUE_ORGS).await? {
        if pauses.contains_key(&org) {
            continue;
        }
        if checks.len() >= MAX_CONCURRENT_CHECKS {
            ended.extend(checks.join_next().await);
        }
        if app.services.tasks.is_stopping() {
            break;
        }
        let app = Arc::clone(app);
        checks.spawn(async move {
            let started = Instant::now();
            let check = async {
                app.services.db.owners().ensure(&app.services.db, org).await?;
                Box::pin(on_behalf_of(org, check_next(&app, org))).await
            };
            if let Err(error) = check.await {
                tracing::debug!(%error, %org, "cannot check an alert; it is retried at its next check");
            }
            (org, Instant::now() + started.elapsed() * PAUSE_FACTOR)
        });
    }
    while let Some(check) = checks.join_next().await {
        ended.push(check);
    }
    for check in ended {
        match check {
            Ok((org, until)) => drop(pauses.insert(org, until)),
            Err(error) => tracing::error!(%error, "the check of an alert failed"),
        }
    }
    Ok(())
}

async fn check_next(app: &App, org: OrgId) -> Result<(), StoreError> {
    let Services { db, clock, .. } = &*app.services;
    let now = clock.now();
    let Some(alert) = alerts::claim_due(db, org, now, now.plus(CLAIM_MS)).await? else {
        return Ok(());
    };
    let definition: Definition = match serde_json::from_str(&alert.definition) {
        Ok(definition) => definition,
        Err(error) => {
            tracing::error!(alert = %alert.id, %error, "the stored alert is invalid and is not checked");
            return Ok(());
        }
    };
    let reading = measure(app, org, &definition, now).await;
    record(app, &alert, &definition, reading).await
}

/// What the rows of the window say now.
pub async fn measure(app: &App, org: OrgId, definition: &Definition, now: Timestamp) -> ApiResult<Reading> {
    let mut query = definition.parsed_query().map_err(|error| Problem::field("query", error))?;
    query_names::resolve(&app.services.db, org, &mut query).await?;
    let search = LogSearch { query, ..LogSearch::default() };
    let range = TimeRange { from: now.plus(-definition.window_ms()), to: now };
    let stored = app.query_logs(org).await?;
    let found = usage_matching(&stored, org, &search, (range, None, None)).await?;
    let mut totals = Totals::default();
    for usage in &found.usage {
        totals.add(&usage.totals);
    }
    Ok(definition.read(&totals, found.scanned_to))
}

/// Stores what a check found. If the state changes, the change and its event are stored with it.
async fn record(
    app: &App,
    claimed: &StoredAlert,
    checked: &Definition,
    reading: ApiResult<Reading>,
) -> Result<(), StoreError> {
    let now = app.services.clock.now();
    let mut tx = app.services.db.begin().await?;
    let found = alerts::find_for_update(&mut tx, claimed.org_id, claimed.id).await?;
    // What an earlier definition measured says nothing about a changed one, which is due at once.
    let Some(mut alert) = found.filter(|alert| alert.updated_at == claimed.updated_at) else {
        return Ok(());
    };
    alert.next_check_at = now.after(checked.check_interval());
    alert.checked_at = Some(now);
    match reading {
        Err(problem) => {
            // The state stays: an alert must not be resolved because the rows cannot be read.
            (alert.value, alert.scanned_to, alert.error) = (None, None, Some(shortened(&problem)));
        }
        Ok(reading) => {
            (alert.value, alert.scanned_to, alert.error) = (reading.value, reading.scanned_to, None);
            let is_changed = alert.firing != reading.is_above;
            if is_changed {
                (alert.firing, alert.changed_at) = (reading.is_above, Some(now));
            }
            // What was not sent while the alert was muted is sent afterwards, if it still holds.
            let is_sent = alert.notified != alert.firing && !is_muted(alert.muted_until, now);
            if is_sent {
                alert.notified = alert.firing;
            }
            if is_changed || is_sent {
                let kind = if alert.firing { "fired" } else { "resolved" };
                notify(app, &mut tx, (&alert, checked), reading, Notice { kind, is_sent }).await?;
            }
        }
    }
    alerts::update(&mut tx, &alert).await?;
    tx.commit().await
}

/// What became of an alert.
#[derive(Clone, Copy)]
pub struct Notice {
    /// `fired`, `resolved` or `tested`.
    pub kind: &'static str,
    /// False if it is muted, or if nobody was told that it fired.
    pub is_sent: bool,
}

/// Tells those who know that the alert fires that it does not any more, because it is changed or deleted.
pub async fn withdraw(app: &App, tx: &mut Tx, alert: &StoredAlert) -> Result<(), StoreError> {
    if !alert.notified {
        return Ok(());
    }
    let Ok(definition) = serde_json::from_str::<Definition>(&alert.definition) else { return Ok(()) };
    let reading = Reading { value: None, requests: 0, scanned_to: None, is_above: false };
    let notice = Notice { kind: "resolved", is_sent: true };
    notify(app, tx, (alert, &definition), reading, notice).await
}

/// Adds an entry to the history, and the event if it is sent.
pub async fn notify(
    app: &App,
    tx: &mut Tx,
    (alert, definition): (&StoredAlert, &Definition),
    reading: Reading,
    Notice { kind, is_sent }: Notice,
) -> Result<(), StoreError> {
    let now = app.services.clock.now();
    let (is_test, muted) = (kind == "tested", !is_sent);
    let id = app.services.ids.new_id();
    let Reading { value, requests, scanned_to, is_above: _ } = reading;
    let entry =
        HistoryEntry { id, kind: kind.to_owned(), value, requests, scanned_to, muted, created_at: now };
    alerts::add_history(tx, alert.id, &entry).await?;
    if muted {
        return Ok(());
    }
    let facts = AlertEventData {
        alert_id: alert.id,
        name: definition.name.clone(),
        query: definition.query.clone(),
        measure: definition.measure.as_str(),
        above: definition.above,
        value,
        requests,
        scanned_to,
        window_minutes: definition.window_minutes,
        is_test,
    };
    let event = if kind == "resolved" { Event::AlertResolved(facts) } else { Event::AlertFired(facts) };
    events::record(tx, alert.org_id, id, &event, now).await
}

fn shortened(problem: &Problem) -> String {
    problem.message.chars().take(MAX_ERROR).collect()
}
