//! The locks of writers on PostgreSQL, where several nodes store batches at the same time. Both are held until the
//! transaction ends. SQLite has one writer and needs none.
//!
//! A writer takes the lock of rows first and the lock of usage second. Nothing takes them in another order, which
//! excludes deadlocks.

use crate::db::Dialect;
use crate::row::args;
use crate::{StoreError, Tx};

/// The key of the lock of usage: roll-ups, sessions, the counts of days and users, and the order of batches. Batches of
/// different nodes change the same of these lines, so that is done by one transaction at a time.
const USAGE: i64 = 0x6761_7465_7761_7903;
/// The key of the lock of rows. Writers share it while they insert rows. A writer that must see the rows of all others
/// takes it alone.
const ROWS: i64 = 0x6761_7465_7761_790d;

/// Allows to insert rows beside other writers. Waits for a writer that has all locks.
pub(super) async fn share_rows(tx: &mut Tx) -> Result<(), StoreError> {
    if tx.dialect() == Dialect::Postgres {
        tx.exec("SELECT pg_advisory_xact_lock_shared($1)", args![ROWS]).await?;
    }
    Ok(())
}

/// Waits for other writers of usage, and excludes them until the transaction ends. What they stored is visible to the
/// next statement. Other writers may have inserted rows that are not visible yet: these are not counted before this
/// transaction has ended.
pub(in crate::logs) async fn lock_usage(tx: &mut Tx) -> Result<(), StoreError> {
    if tx.dialect() == Dialect::Postgres {
        tx.exec("SELECT pg_advisory_xact_lock($1)", args![USAGE]).await?;
    }
    Ok(())
}

/// Waits for all other writers, and excludes them until the transaction ends: every row that was inserted is visible to
/// the next statement.
pub(super) async fn lock_all(tx: &mut Tx) -> Result<(), StoreError> {
    if tx.dialect() == Dialect::Postgres {
        tx.exec("SELECT pg_advisory_xact_lock($1)", args![ROWS]).await?;
    }
    lock_usage(tx).await
}
