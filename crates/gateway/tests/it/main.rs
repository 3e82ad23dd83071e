//! Tests over HTTP against what `gateway serve` starts, on SQLite and on PostgreSQL. One file per area.

#![allow(clippy::disallowed_methods, reason = "tests start tasks and read their environment directly")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must fail"
)]

mod support;
mod upstream;

mod accounts;
mod apps;
mod ask;
mod auth;
mod bodies;
mod budget_ends;
mod budget_reads;
mod budgets;
mod cache;
mod cli;
mod console;
mod dataset_files;
mod datasets;
mod deploy;
mod docs;
mod eval_crash;
mod eval_live;
mod eval_results;
mod eval_runs;
mod evals;
mod export_delivery;
mod export_outage;
mod export_verdicts;
mod exports;
mod isolation;
mod jobs;
mod keys;
mod limits;
mod log_stream;
mod logs;
mod members;
mod metrics;
mod migrations;
mod nodes;
mod nodes_budgets;
mod nodes_jobs;
mod nodes_limits;
mod nodes_outage;
mod orgs;
mod otel;
mod outgoing_restart;
mod playground;
mod prompts;
mod providers;
mod proxy_cache;
mod proxy_crash;
mod proxy_failure;
mod proxy_forward;
mod proxy_headers;
mod proxy_log;
mod proxy_outage;
mod proxy_prompts;
mod proxy_route;
mod proxy_scopes;
mod proxy_stream;
mod proxy_usage;
mod reshape;
mod roles;
mod rotation;
mod routing;
mod routing_choice;
mod routing_health;
mod sessions;
mod skills;
mod skills_judge;
mod skills_publish;
mod skills_shelf;
mod smoke;
mod stored_data;
mod system;
mod teams;
mod tokens;
mod usage;
mod webhook_delivery;
mod webhooks;
