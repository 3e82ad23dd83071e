//! What belongs to something that is deleted, and may be very much, is deleted before it in short transactions with pauses,
//! so that the changes of others do not wait for all of it. After an interruption the caller deletes again.

use std::time::{Duration, Instant};

use gateway_core::ids::OrgId;
use gateway_store::StoreError;
use gateway_store::partial_deletion::{self, RowsToDelete};

use crate::app::App;

/// The longest pause after a transaction.
const MAX_PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn delete_large_parts(app: &App, org: OrgId, what: RowsToDelete) -> Result<(), StoreError> {
    loop {
        let began = Instant::now();
        if !partial_deletion::delete_some(&app.services.db, org, what).await? {
            return Ok(());
        }
        pause(began).await;
    }
}

/// Leaves half of the time to others: a database server has no priorities, and one caller alone would keep one of its
/// cores busy.
pub(super) async fn pause(began: Instant) {
    tokio::time::sleep(began.elapsed().min(MAX_PAUSE)).await;
}
