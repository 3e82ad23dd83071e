//! Events on their way to webhooks: made with the event, taken by one node at a time, finished with what the receiver said.

mod log;

use gateway_core::access::{Entitlement, Plan};
use gateway_core::events::Event;
use gateway_core::ids::{DeliveryId, EventId, OrgId, WebhookId};
use gateway_core::time::Timestamp;
use gateway_core::webhooks::{delivery_id, payload};
use sqlx::AssertSqlSafe;

use crate::row::{args, json};
use crate::{Db, StoreError, Tx};

pub use log::{Delivery, DeliveryAttempt, DeliveryFilter, DeliveryStatus, find, list, retry, retry_all};

/// A delivery that is sent again and again by hand forgets its oldest attempts.
const MOST_ATTEMPTS: usize = 100;
/// What is removed in one go when its time is over.
const SLICE: i64 = 1_000;

/// A new delivery, due at once.
#[derive(Debug, Clone)]
pub struct NewDelivery<'a> {
    pub id: DeliveryId,
    pub org_id: OrgId,
    pub webhook_id: WebhookId,
    pub event_id: EventId,
    pub event_type: &'a str,
    pub payload: String,
    /// Also when the webhook is not active.
    pub forced: bool,
    pub created_at: Timestamp,
}

/// A delivery that is this node's to attempt, as long as its lease lasts.
#[derive(Debug, Clone)]
pub struct ClaimedDelivery {
    pub id: DeliveryId,
    pub org_id: OrgId,
    pub webhook_id: WebhookId,
    pub event_id: EventId,
    pub payload: String,
    /// Attempts that were made before, and how many of them in this round.
    pub attempts: Vec<DeliveryAttempt>,
    pub tries: usize,
}

/// How an attempt ended, and what follows.
#[derive(Debug, Clone)]
pub struct AttemptResult {
    pub attempt: DeliveryAttempt,
    pub next: NextStep,
    /// Why the webhook is to be switched off.
    pub deactivate: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    Delivered,
    RetryAt(Timestamp),
    Failed,
}

/// A delivery of the event for each active webhook that wants its type.
pub(crate) async fn fan_out(
    tx: &mut Tx,
    org: OrgId,
    id: EventId,
    event: &Event,
    now: Timestamp,
) -> Result<(), StoreError> {
    let rows = tx
        .all(
            "SELECT w.id, w.events, o.plan FROM webhooks w JOIN orgs o ON o.id = w.org_id \
             WHERE w.org_id = $1 AND w.active = 1",
            args![org],
        )
        .await?;
    for row in &rows {
        let wanted: Vec<String> = row.json("events")?;
        let wants = wanted.is_empty() || wanted.iter().any(|kind| kind == event.kind());
        if wants && row.get::<Plan>("plan")?.includes(Entitlement::Webhooks) {
            let webhook_id = row.get("id")?;
            let new = NewDelivery {
                id: delivery_id(id, webhook_id),
                org_id: org,
                webhook_id,
                event_id: id,
                event_type: event.kind(),
                payload: payload(id, event.kind(), org, now, &event.data()),
                forced: false,
                created_at: now,
            };
            insert(tx, new).await?;
        }
    }
    Ok(())
}

pub async fn insert(tx: &mut Tx, new: NewDelivery<'_>) -> Result<(), StoreError> {
    let NewDelivery { id, org_id, webhook_id, event_id, event_type, payload, forced, created_at } = new;
    tx.exec(
        "INSERT INTO deliveries (id, org_id, webhook_id, event_id, event_type, payload, status, attempts, tries, \
         forced, next_attempt_at, created_at) VALUES ($1, $2, $3, $4, $5, $6, 'pending', '[]', 0, $7, $8, $8)",
        args![id, org_id, webhook_id, event_id, event_type, payload, forced, created_at],
    )
    .await
    .map(|_| ())
}

/// Webhooks that have a delivery to be attempted now, each with its organization.
pub async fn list_due_webhooks(db: &Db, now: Timestamp) -> Result<Vec<(OrgId, WebhookId)>, StoreError> {
    let rows = db
        .all(
            "SELECT w.org_id, w.id FROM webhooks w WHERE (w.active = 1 AND EXISTS (SELECT 1 FROM deliveries d \
             WHERE d.webhook_id = w.id AND d.status = 'pending' AND d.next_attempt_at <= $1 \
             AND (d.leased_until IS NULL OR d.leased_until <= $1))) OR EXISTS (SELECT 1 FROM deliveries d \
             WHERE d.webhook_id = w.id AND d.status = 'pending' AND d.forced = 1 AND d.next_attempt_at <= $1 \
             AND (d.leased_until IS NULL OR d.leased_until <= $1))",
            args![now],
        )
        .await?;
    rows.iter().map(|row| Ok((row.get("org_id")?, row.get("id")?))).collect()
}

/// Takes up to `most` due deliveries of a webhook for the holder of `lease`.
pub async fn claim(
    db: &Db,
    webhook: WebhookId,
    most: i64,
    lease: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<Vec<ClaimedDelivery>, StoreError> {
    let mut tx = db.begin().await?;
    let sql = format!(
        "UPDATE deliveries SET lease = $3, leased_until = $4 WHERE id IN (SELECT d.id FROM deliveries d \
         JOIN webhooks w ON w.id = d.webhook_id WHERE d.webhook_id = $1 AND d.status = 'pending' \
         AND d.next_attempt_at <= $2 AND (d.leased_until IS NULL OR d.leased_until <= $2) \
         AND (w.active = 1 OR d.forced = 1) ORDER BY d.next_attempt_at, d.id LIMIT $5 {}) \
         RETURNING id, org_id, webhook_id, event_id, payload, attempts, tries",
        tx.dialect().skip_locked()
    );
    let rows = tx.all(AssertSqlSafe(sql), args![webhook, now, lease, until, most]).await?;
    tx.commit().await?;
    rows.iter()
        .map(|row| {
            Ok(ClaimedDelivery {
                id: row.get("id")?,
                org_id: row.get("org_id")?,
                webhook_id: row.get("webhook_id")?,
                event_id: row.get("event_id")?,
                payload: row.get("payload")?,
                attempts: row.json("attempts")?,
                tries: usize::try_from(row.get::<i64>("tries")?).unwrap_or(0),
            })
        })
        .collect()
}

/// Notes an attempt and what follows from it. False when the delivery is gone, or another node's by now.
pub async fn record_attempt(
    db: &Db,
    due: &ClaimedDelivery,
    lease: &str,
    finished: &AttemptResult,
) -> Result<bool, StoreError> {
    let AttemptResult { attempt, next, deactivate } = finished;
    let (status, next_at) = match next {
        NextStep::Delivered => (DeliveryStatus::Delivered, None),
        NextStep::RetryAt(at) => (DeliveryStatus::Pending, Some(*at)),
        NextStep::Failed => (DeliveryStatus::Failed, None),
    };
    let surplus = (due.attempts.len() + 1).saturating_sub(MOST_ATTEMPTS);
    let attempts: Vec<&DeliveryAttempt> = due.attempts.iter().skip(surplus).chain([attempt]).collect();
    let mut tx = db.begin().await?;
    let ours = tx
        .exec(
            "UPDATE deliveries SET status = $3, next_attempt_at = $4, attempts = $5, tries = tries + 1, forced = 0, \
             lease = NULL, leased_until = NULL WHERE id = $1 AND lease = $2",
            args![due.id, lease, status.as_str(), next_at, json(&attempts)],
        )
        .await?;
    if ours == 0 {
        return Ok(false);
    }
    if *next == NextStep::Delivered {
        tx.exec(
            "UPDATE webhooks SET failing_since = NULL WHERE id = $1 AND failing_since IS NOT NULL",
            args![due.webhook_id],
        )
        .await?;
    } else {
        tx.exec(
            "UPDATE webhooks SET failing_since = COALESCE(failing_since, $2), \
             active = CASE WHEN $3 IS NULL THEN active ELSE 0 END, \
             deactivated_reason = COALESCE($3, deactivated_reason) WHERE id = $1",
            args![due.webhook_id, attempt.at, *deactivate],
        )
        .await?;
    }
    tx.commit().await?;
    Ok(true)
}

/// Ends every lease. Only for a store that no other node uses: what its last process held is free again.
pub async fn release_all(db: &Db) -> Result<(), StoreError> {
    let sql = "UPDATE deliveries SET lease = NULL, leased_until = NULL WHERE leased_until IS NOT NULL";
    db.exec(sql, Vec::new()).await.map(|_| ())
}

/// Removes deliveries and events from before that time; answers how many. To be called again while it answers some.
pub async fn sweep(db: &Db, before: Timestamp) -> Result<u64, StoreError> {
    let mut removed = 0;
    for sql in [
        "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE created_at < $1 LIMIT $2)",
        "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE created_at < $1 LIMIT $2)",
    ] {
        removed += db.exec(sql, args![before, SLICE]).await?;
    }
    Ok(removed)
}
