//! Integration tests over HTTP against a running gateway, on SQLite and PostgreSQL. One file per area.

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
mod auth;
mod auth_failures;
mod budget_evasion;
mod budget_settlement;
mod budget_status;
mod budgets;
mod cache;
mod cache_purge;
mod cli;
mod cluster;
mod cluster_budgets;
mod cluster_jobs;
mod cluster_outage;
mod cluster_rate_limits;
mod connections;
mod console;
mod data_dir;
mod dataset_files;
mod datasets;
mod delivery_restart;
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
mod fairness;
mod faults;
mod full_disk;
mod fuzz;
mod internal_requests;
mod invites;
mod isolation;
mod jobs;
mod key_scopes;
mod keys;
mod log_damage;
mod log_reads;
mod log_stream;
mod logs;
mod members;
mod memory_budget;
mod metrics;
mod migrations;
mod offboarding;
mod operator;
mod org_deletion;
mod orgs;
mod otel;
mod playground;
mod prompts;
mod providers;
mod proxy_cache;
mod proxy_crash;
mod proxy_encoded;
mod proxy_failure;
mod proxy_forward;
mod proxy_headers;
mod proxy_log;
mod proxy_outage;
mod proxy_prompts;
mod proxy_providers;
mod proxy_scopes;
mod proxy_stream;
mod proxy_uploads;
mod proxy_usage;
mod quotas;
mod rate_limits;
mod request_bodies;
mod response_format;
mod response_types;
mod roles;
mod rotate_master_key;
mod rotation;
mod routing;
mod routing_choice;
mod routing_credentials;
mod routing_health;
mod secrets;
mod sessions;
mod skills;
mod skills_judge;
mod skills_originality;
mod skills_publish;
mod skills_shelf;
mod smoke;
mod stored_data;
mod system;
mod teams;
mod tls;
mod tokens;
mod translation_failures;
mod usage;
mod usage_retention;
mod user_sessions;
mod webhook_delivery;
mod webhooks;
