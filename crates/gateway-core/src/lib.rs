//! The rules of the product as pure types and functions. Nothing here waits, reads a clock, generates random numbers or
//! does I/O, so every rule can be tested with a table.

pub mod access;
pub mod accounts;
pub mod audit;
pub mod breaker;
pub mod budget;
pub mod cache;
pub mod datasets;
pub mod egress;
pub mod embed;
pub mod evaluators;
pub mod events;
pub mod exports;
pub mod failover;
pub mod fair_queue;
pub mod ids;
pub mod json;
pub mod limits;
pub mod llm;
pub mod log_view;
pub mod logs;
pub mod memory;
pub mod otlp;
pub mod pricing;
pub mod prompts;
pub mod quotas;
pub mod route;
pub mod scopes;
pub mod search_terms;
pub mod signing;
pub mod skills;
pub mod statuses;
pub mod time;
pub mod totals;
pub mod verdicts;
pub mod webhooks;
