//! Log rows: written in batches, read one by one, in pages or as usage totals, and deleted after their retention. They
//! are in a separate part of the store. The id of a row contains its time, so ranges of time are ranges of ids.

mod batches;
pub(crate) mod bodies;
pub(crate) mod bulk;
mod closed_days;
mod columns;
mod days;
mod fold;
mod fulltext;
mod hour_index;
mod otel_ids;
mod own;
mod partitions;
mod purge;
mod query;
mod read;
mod rollup;
mod sessions;
mod spend;
mod sweep;
mod texts;
mod usage;
mod usage_plan;
mod user_spend;
mod words;
mod write;

pub use batches::{Batches, batches_after, last_batch};
pub use closed_days::close_days;
pub use days::{BatchLimits, DayQuota, LineLimits, StoredDay};
pub use fulltext::{index_pending, index_pending_of};
pub use own::OwnRows;
pub use purge::{mark_deleted, purge_slice};
pub use query::{
    Facet, FacetValue, Facets, GroupField, LogSearch, MatchingUsage, SearchPage, Sort, SortKey, ValueQuery,
    facets, field_values, list_matching, list_sessions_matching, retain_matching, usage_matching,
};
pub use read::{
    LogEntry, LogFilter, body_sizes, existing_ids, find, find_many, list, list_after, list_these,
};
pub use sessions::{Session, SessionFilter, find as find_session, list as list_sessions};
pub use spend::{DaySpend, SpendSnapshot};
pub use sweep::sweep;
pub use texts::{BatchTexts, preview};
pub use usage::{
    ModelUsage, TimeRange, Usage, UsageFilter, UsageGroup, UsageQuery, usage, usage_by_model_and_status,
    user_seen,
};
pub use user_spend::UserDay;
pub use words::merge_runs;
pub use write::{
    BodyBytes, Written, check_writable, write_batch, write_batch_within, write_exclusively, write_prepared,
};
