//! What several nodes on one PostgreSQL tell each other: what has changed, who has which number, how much of a limit is
//! used and who may spend how much. SQLite has one process, and none of this.

pub mod budget_leases;
pub mod invalidations;
pub mod node_ids;
pub mod rate_counts;

/// The server's clock in milliseconds: leases must not depend on whose clock is right.
const SERVER_NOW: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";

/// A time span as the whole milliseconds that SQL calculates with.
fn millis(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
