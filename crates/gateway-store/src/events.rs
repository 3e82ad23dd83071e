//! The outbox of organization events. An event is handed to the webhooks that want it in the transaction that records it,
//! so that none can be forgotten in between.

use gateway_core::events::Event;
use gateway_core::ids::{EventId, OrgId};
use gateway_core::time::Timestamp;

use crate::row::{args, json};
use crate::{StoreError, Tx, deliveries};

/// Writes an event in the transaction of the change that it tells of, and a delivery for each webhook that wants it.
pub async fn record(
    tx: &mut Tx,
    org: OrgId,
    id: EventId,
    event: &Event,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.exec(
        "INSERT INTO events (id, org_id, type, data, created_at) VALUES ($1, $2, $3, $4, $5)",
        args![id, org, event.kind(), json(&event.data()), now],
    )
    .await?;
    deliveries::fan_out(tx, org, id, event, now).await
}

#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    pub id: EventId,
    pub kind: String,
    pub data: serde_json::Value,
    pub created_at: Timestamp,
}

/// The events of an organization, oldest first.
pub async fn list(db: &crate::Db, org: OrgId) -> Result<Vec<StoredEvent>, StoreError> {
    let rows = db
        .all("SELECT id, type, data, created_at FROM events WHERE org_id = $1 ORDER BY id", args![org])
        .await?;
    rows.iter()
        .map(|row| {
            Ok(StoredEvent {
                id: row.get("id")?,
                kind: row.get("type")?,
                data: row.json("data")?,
                created_at: row.get("created_at")?,
            })
        })
        .collect()
}
