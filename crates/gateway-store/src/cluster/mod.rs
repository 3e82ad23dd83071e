//! Coordination of several nodes on one PostgreSQL database: cache invalidations, node ids, rate limit counts, budget
//! leases, slices of limits and leases of permits. SQLite has one process and uses none of this.

pub mod budget_leases;
pub mod invalidations;
pub mod limit_permits;
pub mod limit_slices;
pub mod node_ids;
pub mod rate_counts;

/// The server's clock in milliseconds. Leases must not depend on the clocks of the nodes.
const SERVER_NOW: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";

/// A time span as the whole milliseconds that SQL calculates with.
fn millis(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
