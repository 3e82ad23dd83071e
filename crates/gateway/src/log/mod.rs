//! The log: rows are appended to a spool on disk before their response ends, and a background writer moves them to the
//! store.
//!
//! # Life of a row
//!
//! ```text
//!   append ──► Spooled ──► Writing ──► Stored ──► Removed
//!      │          │ ▲          │
//!      │          │ └──────────┘ the store rejects the batch
//!      │          │           └──► Quarantined          the store rejects this one row (`poison`)
//!      │          ├─ a copy in memory saves reading it back (`spool::recent`)
//!      │          └──► Damaged                           the record is not what was written (`spool::damage`)
//!      ├──► Unspooled ──► Writing ──► Stored     the disk rejects the row: it waits in memory
//!      │                       └──► Counted      a quota of the organization is used up: usage has it, lists do not
//!      └──► Shed                                 the spool is over its limit: first bodies, then rows are dropped
//! ```
//!
//! - **Spooled**: the record is in the page cache, so it survives a crash of the process. Each worker thread appends to
//!   a segment of its own. A segment is closed when it is full or after a failed write.
//! - **Writing**: the writer stores a batch, with rows of several segments (`gather`), in one transaction. The store skips rows that it has, so a batch that is
//!   written twice counts once.
//! - **Stored**: the observer has been notified (`BatchObserver`), and the writer's offset in the segment advances.
//!   After a crash the offset starts at 0 again and the rows are written a second time.
//! - **Removed**: all rows of a closed segment are stored or set aside, what follows from them is done (`follow_up`), and
//!   the file is deleted.
//! - **Quarantined**: the store rejects the row, and the row without its bodies, for a reason of its data, or this version
//!   cannot read it. It is kept in a `.quarantine` file, which has the format of a segment.
//! - **Damaged**: the bytes up to the next intact record are kept in a `.bad` file. A torn record at the end of a segment
//!   belongs to a call whose response did not end.
//!
//! # Pace
//!
//! The writer picks its pace before each batch (`pacing`): small batches on a low-priority thread while many requests
//! arrive (`Yielding`), large ones at normal priority otherwise (`Normal`). Under a backlog that is large or older than
//! two seconds, and at shutdown, it writes at normal priority regardless of load (`Urgent`), because a starved writer
//! would let the disk fill up.
//!
//! A row can be read from the moment its response has ended. Reads of an organization that has rows in the spool wait
//! for them (`barrier`). The writer then stores everything at once and at normal priority, one time for all readers. If most
//! of it belongs to others, it stores the rows of waiting organizations first (`waiting`).

pub mod barrier;
mod follow_up;
mod gather;
pub mod maintenance;
pub mod pacing;
mod poison;
pub mod query_names;
pub mod quotas;
pub mod spool;
pub mod tail;
mod waiting;
pub mod writer;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use gateway_core::logs::LogRow;
use gateway_store::StoreError;
use gateway_store::logs::Written;

/// Notified around the storage of each batch, always in a task of the main runtime.
pub trait BatchObserver: Send + Sync + 'static {
    /// A write of these rows starts. It may fail and be repeated.
    fn write_started(&self, rows: &Arc<Vec<LogRow>>);

    /// The rows are stored, or counted. They may come again after a crash.
    fn stored(&self, rows: Arc<Vec<LogRow>>, written: Written);

    /// How many stored rows `follow_up` has to look at.
    fn pending(&self) -> usize;

    /// Does what follows from stored rows and may take long. After an error the rows are pending again.
    fn follow_up(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}
