//! Webhooks of organizations. Secrets arrive here sealed and leave sealed.

use gateway_core::ids::{OrgId, WebhookId};
use gateway_core::time::Timestamp;

use crate::page::{Page, Paged};
use crate::row::{Row, args, json};
use crate::{Db, StoreError, Tx};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub id: WebhookId,
    pub org_id: OrgId,
    pub url: String,
    /// Sealed.
    pub secret: String,
    /// Sealed; signs too until that time.
    pub previous: Option<(String, Timestamp)>,
    /// Empty: all types.
    pub events: Vec<String>,
    pub active: bool,
    pub failing_since: Option<Timestamp>,
    pub deactivated_reason: Option<String>,
    pub created_at: Timestamp,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, org_id, url, secret, previous_secret, previous_until, events, active, failing_since, ",
            "deactivated_reason, created_at FROM webhooks WHERE ",
            $rest
        )
    };
}

pub async fn insert(tx: &mut Tx, webhook: &Webhook) -> Result<(), StoreError> {
    let Webhook {
        id,
        org_id,
        url,
        secret,
        previous,
        events,
        active,
        failing_since,
        deactivated_reason,
        created_at,
    } = webhook;
    let (previous_secret, previous_until) = previous.clone().unzip();
    tx.exec(
        "INSERT INTO webhooks (id, org_id, url, secret, previous_secret, previous_until, events, active, failing_since, \
         deactivated_reason, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        args![
            *id,
            *org_id,
            url,
            secret,
            previous_secret,
            previous_until,
            json(events),
            *active,
            *failing_since,
            deactivated_reason.clone(),
            *created_at
        ],
    )
    .await
    .map(|_| ())
}

pub async fn update(tx: &mut Tx, webhook: &Webhook) -> Result<(), StoreError> {
    let Webhook {
        id,
        org_id,
        url,
        secret,
        previous,
        events,
        active,
        failing_since,
        deactivated_reason,
        created_at: _,
    } = webhook;
    let (previous_secret, previous_until) = previous.clone().unzip();
    tx.exec(
        "UPDATE webhooks SET url = $3, secret = $4, previous_secret = $5, previous_until = $6, events = $7, active = $8, \
         failing_since = $9, deactivated_reason = $10 WHERE org_id = $1 AND id = $2",
        args![
            *org_id,
            *id,
            url,
            secret,
            previous_secret,
            previous_until,
            json(events),
            *active,
            *failing_since,
            deactivated_reason.clone()
        ],
    )
    .await
    .map(|_| ())
}

pub async fn find(db: &Db, org: OrgId, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
    let row = db.opt(select!("org_id = $1 AND id = $2"), args![org, id]).await?;
    row.as_ref().map(read).transpose()
}

/// The webhook, held until the transaction ends, so that two changes at once do not undo each other.
pub async fn find_for_update(tx: &mut Tx, org: OrgId, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
    tx.exec("UPDATE webhooks SET id = id WHERE org_id = $1 AND id = $2", args![org, id]).await?;
    let row = tx.opt(select!("org_id = $1 AND id = $2"), args![org, id]).await?;
    row.as_ref().map(read).transpose()
}

/// Newest first.
pub async fn list(db: &Db, org: OrgId, page: &Page) -> Result<Paged<Webhook>, StoreError> {
    let rows = db
        .all(
            select!("org_id = $1 AND ($2 IS NULL OR id < $2) ORDER BY id DESC LIMIT $3"),
            args![org, page.before.clone(), page.fetch()],
        )
        .await?;
    let webhooks = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(webhooks, |webhook| webhook.id.to_string()))
}

pub async fn count(tx: &mut Tx, org: OrgId) -> Result<i64, StoreError> {
    let row = tx.opt("SELECT COUNT(*) AS n FROM webhooks WHERE org_id = $1", args![org]).await?;
    row.map_or(Ok(0), |row| row.get("n"))
}

/// What it was sent goes with it.
pub async fn delete(tx: &mut Tx, org: OrgId, id: WebhookId) -> Result<bool, StoreError> {
    Ok(tx.exec("DELETE FROM webhooks WHERE org_id = $1 AND id = $2", args![org, id]).await? == 1)
}

fn read(row: &Row) -> Result<Webhook, StoreError> {
    let previous: Option<String> = row.get("previous_secret")?;
    let until: Option<Timestamp> = row.get("previous_until")?;
    Ok(Webhook {
        id: row.get("id")?,
        org_id: row.get("org_id")?,
        url: row.get("url")?,
        secret: row.get("secret")?,
        previous: previous.zip(until),
        events: row.json("events")?,
        active: row.get("active")?,
        failing_since: row.get("failing_since")?,
        deactivated_reason: row.get("deactivated_reason")?,
        created_at: row.get("created_at")?,
    })
}
