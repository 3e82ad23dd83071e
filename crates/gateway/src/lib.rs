//! The application: HTTP, authentication, the management API and the command line.

pub mod admin;
pub mod api;
pub mod app;
pub mod auth;
mod background;
pub mod budgets;
pub mod cache;
pub mod cli;
pub mod clock;
pub mod config;
pub mod console;
pub mod evals;
pub mod health;
pub mod jobs;
pub mod log;
pub mod metrics;
pub mod nodes;
mod outgoing;
mod patience;
pub mod problem;
pub mod prompts;
pub mod proxy;
pub mod server;
mod telemetry;
pub mod vault;
