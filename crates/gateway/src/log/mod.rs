//! The log: rows are appended to a spool on disk before their response ends, and moved from there to the store.

pub mod ids;
pub mod spool;
mod tempo;
pub mod upkeep;
pub mod writer;
