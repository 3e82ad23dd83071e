//! Webhook deliveries: created with their event, claimed by one node at a time, and completed with the response of the
//! receiver.

mod log;

use gateway_core::access::{Entitlement, Plan};
use gateway_core::events::Event;
use gateway_core::ids::{DeliveryId, EventId, OrgId, WebhookId};
use gateway_core::time::Timestamp;
use gateway_core::webhooks::{WebhookFormat, delivery_id};
use sqlx::AssertSqlSafe;

use crate::leases::{Claim, Lease, LeaseTable, Release};
use crate::row::{args, json};
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx, webhooks};

pub use log::{Delivery, DeliveryAttempt, DeliveryFilter, DeliveryStatus, find, list, retry, retry_all};

/// A delivery that is retried by hand again and again drops its oldest attempts.
const MAX_ATTEMPTS: usize = 100;
/// Rows that a sweep deletes in one transaction.
const SWEEP_ROWS: i64 = 1_000;

const LEASES: LeaseTable = LeaseTable { table: "deliveries", owner: "lease", until: "leased_until" };

/// A new delivery, due at once.
#[derive(Debug, Clone)]
pub struct NewDelivery<'a> {
    pub id: DeliveryId,
    pub org_id: OrgId,
    pub webhook_id: WebhookId,
    pub event_id: EventId,
    pub event_type: &'a str,
    pub payload: String,
    /// Deliver even when the webhook is not active.
    pub forced: bool,
    pub created_at: Timestamp,
}

table! {
    /// A delivery whose lease the caller holds.
    #[derive(Debug, Clone)]
    pub struct ClaimedDelivery in "deliveries" {
        pub id: DeliveryId [key],
        pub org_id: OrgId [once],
        pub webhook_id: WebhookId [once],
        pub event_id: EventId [once],
        pub payload: String [once],
        /// All previous attempts.
        pub attempts: Vec<DeliveryAttempt> [json],
        /// Attempts since the delivery was created or retried by hand.
        pub tries: i64,
    }
}

/// The result of an attempt and what follows from it.
#[derive(Debug, Clone)]
pub struct AttemptResult {
    /// The revision of the webhook that the attempt used.
    pub revision: i64,
    pub attempt: DeliveryAttempt,
    pub next: NextStep,
    /// Deactivates the webhook, for this reason.
    pub deactivate: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    Delivered,
    RetryAt(Timestamp),
    Failed,
    /// Not sent at all, which says nothing about the receiver.
    Discarded,
}

/// Inserts a delivery of the event for each active webhook that subscribes to its type.
pub(crate) async fn fan_out(
    tx: &mut Tx,
    org: OrgId,
    id: EventId,
    event: &Event,
    now: Timestamp,
) -> Result<(), StoreError> {
    let rows = tx
        .all(
            "SELECT w.id, w.events, w.format, o.plan FROM webhooks w JOIN orgs o ON o.id = w.org_id \
             WHERE w.org_id = $1 AND w.active = 1",
            args![org],
        )
        .await?;
    for row in &rows {
        let types: Vec<String> = row.json("events")?;
        if event.is_wanted(&types) && row.get::<Plan>("plan")?.includes(Entitlement::Webhooks) {
            let webhook_id = row.get("id")?;
            let new = NewDelivery {
                id: delivery_id(id, webhook_id),
                org_id: org,
                webhook_id,
                event_id: id,
                event_type: event.kind(),
                payload: row.get::<WebhookFormat>("format")?.payload(id, org, event, now),
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

/// Webhooks with a delivery that is due, each with its organization.
pub async fn list_due_webhooks(db: &Db, now: Timestamp) -> Result<Vec<(OrgId, WebhookId)>, StoreError> {
    let is_due = format!(
        "d.webhook_id = w.id AND d.status = 'pending' AND d.next_attempt_at <= $1 AND {}",
        LEASES.is_free("d.", "$1")
    );
    let sql = format!(
        "SELECT w.org_id, w.id FROM webhooks w \
         WHERE (w.active = 1 AND EXISTS (SELECT 1 FROM deliveries d WHERE {is_due})) \
         OR EXISTS (SELECT 1 FROM deliveries d WHERE {is_due} AND d.forced = 1)"
    );
    let rows = db.all(AssertSqlSafe(sql), args![now]).await?;
    rows.iter().map(|row| Ok((row.get("org_id")?, row.get("id")?))).collect()
}

/// Claims up to `limit` due deliveries of a webhook.
pub async fn claim(
    db: &Db,
    webhook: WebhookId,
    limit: i64,
    lease: &Lease<'_>,
) -> Result<Vec<ClaimedDelivery>, StoreError> {
    let mut tx = db.begin().await?;
    let condition = format!(
        "id IN (SELECT d.id FROM deliveries d JOIN webhooks w ON w.id = d.webhook_id \
         WHERE d.webhook_id = $4 AND d.status = 'pending' AND d.next_attempt_at <= $3 AND {} \
         AND (w.active = 1 OR d.forced = 1) ORDER BY d.next_attempt_at, d.id LIMIT $5 {})",
        LEASES.is_free("d.", "$3"),
        tx.dialect().skip_locked("d")
    );
    let returning = ClaimedDelivery::columns("");
    let claim = Claim { condition: &condition, also_set: "", returning: &returning };
    let rows = LEASES.claim(&mut tx, lease, claim, args![webhook, limit]).await?;
    tx.commit().await?;
    table::read_all(&rows)
}

/// Records an attempt, its consequences for the webhook, and releases the delivery. False when the delivery does not
/// exist any more or another node holds it.
///
/// If the webhook was changed during the attempt, the attempt says nothing about it: the webhook is not marked, and a
/// delivery that failed for good is tried again.
pub async fn record_attempt(
    db: &Db,
    delivery: &ClaimedDelivery,
    owner: &str,
    result: &AttemptResult,
) -> Result<bool, StoreError> {
    let AttemptResult { revision, attempt, next, deactivate } = result;
    let surplus = (delivery.attempts.len() + 1).saturating_sub(MAX_ATTEMPTS);
    let attempts: Vec<&DeliveryAttempt> = delivery.attempts.iter().skip(surplus).chain([attempt]).collect();
    let mut tx = db.begin().await?;
    let Some(webhook) = webhooks::find_for_update(&mut tx, delivery.org_id, delivery.webhook_id).await?
    else {
        return Ok(false);
    };
    let is_current = webhook.revision == *revision;
    let (status, next_at) = match next {
        NextStep::Delivered => (DeliveryStatus::Delivered, None),
        NextStep::RetryAt(at) => (DeliveryStatus::Pending, Some(*at)),
        NextStep::Failed if !is_current => (DeliveryStatus::Pending, Some(attempt.at)),
        NextStep::Failed | NextStep::Discarded => (DeliveryStatus::Failed, None),
    };
    let release = Release {
        free_at: None,
        also_set: ", status = $4, next_attempt_at = $5, attempts = $6, tries = tries + 1, forced = 0",
        values: args![status, next_at, json(&attempts)],
    };
    if !LEASES.release(&mut tx, delivery.id, owner, release).await? {
        return Ok(false);
    }
    if is_current && *next == NextStep::Delivered {
        tx.exec(
            "UPDATE webhooks SET failing_since = NULL WHERE id = $1 AND failing_since IS NOT NULL",
            args![delivery.webhook_id],
        )
        .await?;
    } else if is_current && *next != NextStep::Discarded {
        tx.exec(
            "UPDATE webhooks SET failing_since = COALESCE(failing_since, $2), \
             active = CASE WHEN $3 IS NULL THEN active ELSE 0 END, \
             deactivated_reason = COALESCE($3, deactivated_reason) WHERE id = $1",
            args![delivery.webhook_id, attempt.at, *deactivate],
        )
        .await?;
    }
    tx.commit().await?;
    Ok(true)
}

/// Extends the lease. False when the caller does not hold it any more.
pub async fn renew(db: &Db, id: DeliveryId, owner: &str, until: Timestamp) -> Result<bool, StoreError> {
    LEASES.renew(db, id, owner, until).await
}

/// Ends every lease at start-up, when no other process works on the database.
pub async fn release_all(db: &Db) -> Result<(), StoreError> {
    LEASES.release_all(db, None).await
}

/// Deletes deliveries and events older than `before`; returns how many. Call it again until it returns 0.
pub async fn sweep(db: &Db, before: Timestamp) -> Result<u64, StoreError> {
    let mut removed = 0;
    for sql in [
        "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE created_at < $1 LIMIT $2)",
        "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE created_at < $1 LIMIT $2)",
    ] {
        removed += db.exec(sql, args![before, SWEEP_ROWS]).await?;
    }
    Ok(removed)
}
