//! Log rows: written in batches, read back one by one, in pages or added up, and removed when their time is over.
//! They live in a part of the store of their own. A row's place in time is its id, everywhere.

mod arrivals;
pub(crate) mod bulk;
mod hours;
mod partitions;
mod read;
mod rollup;
mod sessions;
mod spend;
mod sweep;
mod usage;
mod words;
mod write;

pub use read::{Entry, LogFilter, find, known, list, list_after, of_ids};
pub use sessions::{Session, SessionFilter, find as find_session, list as list_sessions};
pub use spend::{DaySpend, spend_of, spend_of_all};
pub use sweep::sweep;
pub use usage::{Group, ModelUsage, Span, Usage, UsageFilter, by_model_and_status, usage, user_seen};
pub use words::index_pending;
pub use write::{INDEXED_AT_ONCE, preview, write_batch};
