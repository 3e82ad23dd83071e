//! Log rows: written in batches, read back one by one, in pages or added up, and removed when their time is over.
//! They live in a part of the store of their own. A row's place in time is its id, everywhere.

pub(crate) mod bulk;
mod fulltext;
mod hour_index;
mod otel_ids;
mod partitions;
mod read;
mod rollup;
mod sessions;
mod spend;
mod sweep;
mod usage;
mod write;

pub use fulltext::index_pending;
pub use read::{LogEntry, LogFilter, existing_ids, find, find_many, list, list_after};
pub use sessions::{Session, SessionFilter, find as find_session, list as list_sessions};
pub use spend::{DaySpend, SpendSnapshot};
pub use sweep::sweep;
pub use usage::{
    ModelUsage, TimeRange, Usage, UsageFilter, UsageGroup, usage, usage_by_model_and_status, user_seen,
};
pub use write::{MAX_INLINE_INDEXED, preview, write_batch};
