//! Work on very many rows is done in short transactions with pauses, so that the changes of others do not wait for all of
//! it.

use std::time::{Duration, Instant};

use gateway_core::ids::OrgId;
use gateway_store::partial_deletion::{self, RowsToDelete};
use gateway_store::{Db, StoreError};

/// The longest pause after a transaction.
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// Deletes rows until the rest is few enough to be deleted together with what they belong to.
pub async fn delete_rows(db: &Db, org: OrgId, what: RowsToDelete) -> Result<(), StoreError> {
    loop {
        let began = Instant::now();
        if !partial_deletion::delete_some(db, org, what).await? {
            return Ok(());
        }
        pause(began).await;
    }
}

/// Leaves half of the time to others: a database server has no priorities, and one caller alone would keep one of its
/// cores busy.
pub async fn pause(began: Instant) {
    tokio::time::sleep(began.elapsed().min(MAX_PAUSE)).await;
}
