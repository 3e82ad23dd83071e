//! The delivery log: what was sent to a webhook, every attempt of it, and the wish to have it sent again.

use std::fmt::Write as _;

use gateway_core::ids::{DeliveryId, EventId, OrgId, WebhookId};
use gateway_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::{Arg, Row, args, json};
use crate::{Db, StoreError, Tx};

pub use gateway_core::statuses::DeliveryStatus;

/// Deliveries that are put back in one transaction.
const SLICE: i64 = 1_000;

#[derive(Debug, Clone)]
pub struct Delivery {
    pub id: DeliveryId,
    pub event_id: EventId,
    pub event_type: String,
    pub status: DeliveryStatus,
    pub attempts: Vec<DeliveryAttempt>,
    pub next_attempt_at: Option<Timestamp>,
    /// The body as it is sent.
    pub payload: String,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeliveryAttempt {
    pub at: Timestamp,
    /// None: no answer came.
    pub status_code: Option<u16>,
    pub latency_ms: i64,
    pub error: Option<String>,
    /// The beginning of what the receiver said.
    pub response_body: Option<String>,
}

/// Which deliveries are asked for; everything that is given must hold.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    pub status: Option<DeliveryStatus>,
    pub event_type: Option<String>,
    pub from: Option<Timestamp>,
    /// Up to, but not including.
    pub to: Option<Timestamp>,
}

impl DeliveryFilter {
    /// The condition, with parameters from `first` on.
    fn condition(&self, first: usize) -> (String, Vec<Arg>) {
        let mut sql = String::new();
        let mut values = Vec::new();
        for (condition, value) in [
            ("status =", self.status.map(|status| Arg::from(status.as_str()))),
            ("event_type =", self.event_type.clone().map(Arg::from)),
            ("created_at >=", self.from.map(Arg::from)),
            ("created_at <", self.to.map(Arg::from)),
        ] {
            if let Some(value) = value {
                let _ = write!(sql, " AND {condition} ${}", first + values.len());
                values.push(value);
            }
        }
        (sql, values)
    }
}

const COLUMNS: &str = "id, event_id, event_type, status, attempts, next_attempt_at, payload, created_at";

/// Newest first.
pub async fn list(
    db: &Db,
    org: OrgId,
    webhook: WebhookId,
    filter: &DeliveryFilter,
    page: &Page,
) -> Result<Paged<Delivery>, StoreError> {
    let (condition, values) = filter.condition(5);
    let sql = format!(
        "SELECT {COLUMNS} FROM deliveries WHERE org_id = $1 AND webhook_id = $2 AND ($3 IS NULL OR id < $3) \
         {condition} ORDER BY id DESC LIMIT $4"
    );
    let mut parameters = args![org, webhook, page.before.clone(), page.fetch()];
    parameters.extend(values);
    let rows = db.all(AssertSqlSafe(sql), parameters).await?;
    let found = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(page.cut(found, |delivery| delivery.id.to_string()))
}

pub async fn find(
    db: &Db,
    org: OrgId,
    webhook: WebhookId,
    id: DeliveryId,
) -> Result<Option<Delivery>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM deliveries WHERE org_id = $1 AND webhook_id = $2 AND id = $3");
    let row = db.opt(AssertSqlSafe(sql), args![org, webhook, id]).await?;
    row.as_ref().map(read).transpose()
}

/// Has a delivery sent again now, whatever became of it. False when there is none.
pub async fn retry(
    tx: &mut Tx,
    org: OrgId,
    webhook: WebhookId,
    id: DeliveryId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let put_back = tx
        .exec(
            "UPDATE deliveries SET status = 'pending', tries = 0, forced = 1, next_attempt_at = $4 \
             WHERE org_id = $1 AND webhook_id = $2 AND id = $3",
            args![org, webhook, id, now],
        )
        .await?;
    Ok(put_back == 1)
}

/// Has all that fit sent again; answers how many. In slices, so that nobody waits long behind it.
pub async fn retry_all(
    db: &Db,
    org: OrgId,
    webhook: WebhookId,
    filter: &DeliveryFilter,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let (condition, values) = filter.condition(5);
    let find = format!(
        "SELECT id FROM deliveries WHERE org_id = $1 AND webhook_id = $2 AND id > $3 {condition} ORDER BY id LIMIT $4"
    );
    let (mut after, mut total) = (String::new(), 0);
    loop {
        let mut parameters = args![org, webhook, after.as_str(), SLICE];
        parameters.extend(values.clone());
        let rows = db.all(AssertSqlSafe(find.clone()), parameters).await?;
        let ids = rows.iter().map(|row| row.get("id")).collect::<Result<Vec<String>, _>>()?;
        let Some(last) = ids.last() else { return Ok(total) };
        after.clone_from(last);
        let put_back = format!(
            "UPDATE deliveries SET status = 'pending', tries = 0, forced = 1, next_attempt_at = $2 \
             WHERE org_id = $1 AND {}",
            db.dialect().in_texts("id", 3)
        );
        total += db.exec(AssertSqlSafe(put_back), args![org, now, json(&ids)]).await?;
    }
}

fn read(row: &Row) -> Result<Delivery, StoreError> {
    let status: String = row.get("status")?;
    let known = DeliveryStatus::ALL.into_iter().find(|known| known.as_str() == status);
    Ok(Delivery {
        id: row.get("id")?,
        event_id: row.get("event_id")?,
        event_type: row.get("event_type")?,
        status: known
            .ok_or_else(|| StoreError::Other(format!("a delivery has the unknown status {status:?}")))?,
        attempts: row.json("attempts")?,
        next_attempt_at: row.get("next_attempt_at")?,
        payload: row.get("payload")?,
        created_at: row.get("created_at")?,
    })
}
