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

mod log_stream;
mod logs;
mod metrics;
mod sessions;
mod smoke;
mod usage;
