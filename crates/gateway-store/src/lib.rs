//! Everything that is kept. The only crate that knows SQL and Redis: one set of statements and migrations serves SQLite
//! and PostgreSQL. It decides nothing: ids and times are made by the caller, rules live in `gateway-core`, and every
//! finder of tenant data takes the organization first.

pub mod db;
pub mod error;
mod migrate;
mod row;

pub mod accounts;
pub mod apps;
pub mod budgets;
pub mod cluster;
pub mod datasets;
pub mod deliveries;
pub mod evals;
pub mod events;
pub mod exports;
pub mod jobs;
pub mod keys;
pub mod logs;
pub mod members;
pub mod names;
pub mod orgs;
pub mod page;
pub mod playground;
pub mod prompts;
pub mod providers;
pub mod redis;
pub mod rubrics;
pub mod skills;
pub mod teams;
#[cfg(feature = "testing")]
pub mod testing;
pub mod verdicts;
pub mod webhooks;

pub use db::{Db, Tx};
pub use error::StoreError;
pub use migrate::{Migrated, Part};
