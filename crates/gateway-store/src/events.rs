//! The outbox of organization events. The transaction that records an event also creates its webhook deliveries, so
//! that none can be lost.

use gateway_core::events::Event;
use gateway_core::ids::{EventId, OrgId};
use gateway_core::time::Timestamp;

use crate::faults::{KillPoint, kill_point};
use crate::row::{args, json};
use crate::table::{self, Table as _, table};
use crate::{Db, StoreError, Tx, deliveries};

/// Records an event in the transaction of the change it describes, with a delivery for each webhook that subscribes to
/// it.
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
    deliveries::fan_out(tx, org, id, event, now).await?;
    kill_point(KillPoint::EventRecorded);
    Ok(())
}

table! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct StoredEvent in "events" {
        pub id: EventId [key],
        pub kind: String = "type",
        pub data: serde_json::Value [json],
        pub created_at: Timestamp [once],
    }
}

/// The events of an organization, oldest first.
pub async fn list(db: &Db, org: OrgId) -> Result<Vec<StoredEvent>, StoreError> {
    table::read_all(&db.all(StoredEvent::select("org_id = $1 ORDER BY id"), args![org]).await?)
}
