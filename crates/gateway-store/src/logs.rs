//! tmp
use crate::{Db, StoreError};
use gateway_core::logs::LogRow;
pub async fn write_batch(_logs: &Db, rows: &[LogRow]) -> Result<usize, StoreError> {
    Ok(rows.len())
}
