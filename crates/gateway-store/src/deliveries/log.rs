//! The delivery log: deliveries to a webhook with their attempts, and retries by hand.

use std::fmt::Write as _;

use gateway_core::ids::{DeliveryId, EventId, OrgId, WebhookId};
use gateway_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;

use crate::page::{Page, Paged};
use crate::row::{Arg, args, json};
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx};

pub use gateway_core::statuses::DeliveryStatus;

/// Deliveries that are rescheduled in one transaction.
const RETRY_ROWS: i64 = 1_000;

table! {
    #[derive(Debug, Clone)]
    pub struct Delivery in "deliveries" {
        pub id: DeliveryId [key],
        pub event_id: EventId [once],
        pub event_type: String [once],
        pub status: DeliveryStatus,
        pub attempts: Vec<DeliveryAttempt> [json],
        pub next_attempt_at: Option<Timestamp>,
        /// The request body.
        pub payload: String [once],
        pub created_at: Timestamp [once],
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeliveryAttempt {
    pub at: Timestamp,
    /// None: the receiver did not respond.
    pub status_code: Option<u16>,
    pub latency_ms: i64,
    pub error: Option<String>,
    /// The beginning of the response.
    pub response_body: Option<String>,
}

/// Restricts a list of deliveries; all given conditions must hold.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    pub status: Option<DeliveryStatus>,
    pub event_type: Option<String>,
    pub from: Option<Timestamp>,
    /// Exclusive.
    pub to: Option<Timestamp>,
}

impl DeliveryFilter {
    /// The SQL condition, with parameters numbered from `first` on.
    fn condition(&self, first: usize) -> (String, Vec<Arg>) {
        let mut sql = String::new();
        let mut values = Vec::new();
        for (condition, value) in [
            ("status =", self.status.map(Arg::from)),
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

/// Newest first.
pub async fn list(
    db: &Db,
    org: OrgId,
    webhook: WebhookId,
    filter: &DeliveryFilter,
    page: &Page,
) -> Result<Paged<Delivery>, StoreError> {
    let (condition, values) = filter.condition(5);
    let sql = Delivery::select(&format!(
        "org_id = $1 AND webhook_id = $2 AND ($3 IS NULL OR id < $3) {condition} ORDER BY id DESC LIMIT $4"
    ));
    let mut parameters = args![org, webhook, page.before.clone(), page.fetch()];
    parameters.extend(values);
    let rows = db.all(sql, parameters).await?;
    Ok(page.cut(table::read_all::<Delivery>(&rows)?, |delivery| delivery.id.to_string()))
}

pub async fn find(
    db: &Db,
    org: OrgId,
    webhook: WebhookId,
    id: DeliveryId,
) -> Result<Option<Delivery>, StoreError> {
    let sql = Delivery::select("org_id = $1 AND webhook_id = $2 AND id = $3");
    table::read_opt(db.opt(sql, args![org, webhook, id]).await?.as_ref())
}

/// Schedules a delivery again, whatever its status. False when it does not exist.
pub async fn retry(
    tx: &mut Tx,
    org: OrgId,
    webhook: WebhookId,
    id: DeliveryId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let rescheduled = tx
        .exec(
            "UPDATE deliveries SET status = 'pending', tries = 0, forced = 1, next_attempt_at = $4 \
             WHERE org_id = $1 AND webhook_id = $2 AND id = $3",
            args![org, webhook, id, now],
        )
        .await?;
    Ok(rescheduled == 1)
}

/// Schedules all matching deliveries again; returns how many. Works in short transactions, so that other writers do not
/// wait long.
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
        let mut parameters = args![org, webhook, after.as_str(), RETRY_ROWS];
        parameters.extend(values.clone());
        let rows = db.all(AssertSqlSafe(find.clone()), parameters).await?;
        let ids = rows.iter().map(|row| row.get("id")).collect::<Result<Vec<String>, _>>()?;
        let Some(last) = ids.last() else { return Ok(total) };
        after.clone_from(last);
        let reschedule = format!(
            "UPDATE deliveries SET status = 'pending', tries = 0, forced = 1, next_attempt_at = $2 \
             WHERE org_id = $1 AND {}",
            db.dialect().in_texts("id", 3)
        );
        total += db.exec(AssertSqlSafe(reschedule), args![org, now, json(&ids)]).await?;
    }
}
