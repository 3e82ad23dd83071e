//! Persistence. The only crate that uses SQL and Redis: one set of statements and migrations serves SQLite and
//! PostgreSQL. It contains no rules: callers pass ids and times, rules are in `gateway-core`, and every query of tenant
//! data takes the organization as its first parameter.

pub mod connection_shares;
pub mod db;
pub mod error;
mod leases;
mod migrate;
mod postgres_connection;
mod readers;
mod row;
mod slices;
mod table;
mod tx;

pub mod accounts;
pub mod alerts;
pub mod apps;
pub mod audit;
pub mod budgets;
pub mod cache_purges;
pub mod cluster;
pub mod datasets;
pub mod deliveries;
pub mod evals;
pub mod events;
pub mod exports;
pub mod fair_slots;
pub mod faults;
pub mod foreign_keys;
pub mod invites;
pub mod jobs;
pub mod keys;
pub mod limits;
pub mod logs;
pub mod mcp_approved_tools;
pub mod mcp_connections;
pub mod mcp_servers;
pub mod members;
pub mod models;
pub mod names;
pub mod org_owners;
pub mod org_purges;
pub mod orgs;
pub mod page;
pub mod partial_deletion;
pub mod playground;
pub mod prompt_cache_pauses;
pub mod prompts;
pub mod providers;
pub mod queues;
pub mod quotas;
pub mod redis;
pub mod replays;
pub mod rubrics;
pub mod sealed;
pub mod sign_ins;
pub mod skills;
pub mod teams;
#[cfg(feature = "testing")]
pub mod testing;
pub mod user_budgets;
pub mod user_sessions;
pub mod verdicts;
pub mod versioned;
pub mod views;
mod wal_checkpoints;
pub mod webhooks;

pub use db::Db;
pub use error::StoreError;
pub use leases::Lease;
pub use migrate::{Migrated, Part, SchemaState};
pub use tx::Tx;
