//! What several nodes on one PostgreSQL tell each other: what has changed, who has which number, how much of a limit is
//! used and who may spend how much. SQLite has one process, and none of this.

pub mod changes;
pub mod counts;
pub mod ids;
pub mod leases;

/// The server's clock in milliseconds: leases must not depend on whose clock is right.
const SERVER_NOW: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
