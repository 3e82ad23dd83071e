//! State of the node that is read when metrics are scraped.

use gateway_core::histogram::HistogramReading;
use gateway_store::fair_slots::SlotStats;

use super::exposition::{Exposition, Kind, Unit};

#[derive(Debug, Default)]
pub struct NodeState {
    pub uptime_seconds: u64,
    pub spool: SpoolState,
    pub cache_bytes: u64,
    pub memory_bytes: u64,
    pub memory_refusals: u64,
    pub calls: u64,
    pub calls_refused: u64,
    pub connections: u64,
    pub connections_refused: [(&'static str, u64); 2],
    pub connections_closed: [(&'static str, u64); 3],
    /// Circuit breakers of targets that failed or are part of a route, by state.
    pub breakers: [(&'static str, u64); 3],
    pub breakers_opened: u64,
    /// Computation that tenants cause.
    pub compute: SlotStats,
    /// Queries of log rows, sessions and usage.
    pub queries: SlotStats,
    pub audit_entries: u64,
    /// Since the checkpoints of all audit logs were last brought up to date, in seconds.
    pub audit_checkpoint_age: u64,
    /// By name of the pool.
    pub database_waits: Vec<(&'static str, HistogramReading)>,
    /// None: the database did not answer.
    pub queues: Option<[(&'static str, QueueState); 3]>,
    /// None: the database did not answer.
    pub log_database_bytes: Option<u64>,
    /// None: no Redis is configured.
    pub redis_is_up: Option<bool>,
    pub nodes: u64,
}

#[derive(Debug, Default)]
pub struct SpoolState {
    pub bytes: u64,
    pub limit_bytes: u64,
    pub oldest_seconds: f64,
    pub is_writable: bool,
    pub rows_appended: u64,
    pub bodies_shed: u64,
    pub rows_shed: u64,
    pub rows_stored: u64,
    pub body_bytes: u64,
    pub compressed_bytes: u64,
    pub rows_over_quota: u64,
    pub bodies_over_quota: u64,
    pub rows_quarantined: u64,
    pub damage: u64,
}

/// Items that are due.
#[derive(Debug, Default, Clone, Copy)]
pub struct QueueState {
    pub items: u64,
    pub oldest_seconds: f64,
}

impl NodeState {
    pub fn write(&self, out: &mut Exposition) {
        let gauges = [
            ("gateway_uptime_seconds", "How long the process has been running.", self.uptime_seconds),
            ("gateway_cache_bytes", "Size of the response cache in memory.", self.cache_bytes),
            ("gateway_memory_bytes", "Memory reserved for bodies that are held.", self.memory_bytes),
            ("gateway_calls", "Calls in progress.", self.calls),
            ("gateway_connections", "Open client connections.", self.connections),
            (
                "gateway_compute_waiting",
                "Pieces of computation that wait for a thread.",
                self.compute.waiting,
            ),
            ("gateway_queries_waiting", "Queries that wait for their turn.", self.queries.waiting),
            (
                "gateway_audit_last_checkpoint_seconds",
                "Time since the checkpoints of all audit logs were last brought up to date.",
                self.audit_checkpoint_age,
            ),
            ("gateway_nodes", "Nodes on the same database that this node knows of.", self.nodes),
        ];
        for (name, help, value) in gauges {
            out.single(name, Kind::Gauge, help, value);
        }
        let counters = [
            (
                "gateway_memory_refusals",
                "Bodies that were not held for lack of memory.",
                self.memory_refusals,
            ),
            (
                "gateway_calls_refused",
                "Calls that were refused because their organization had too many in progress.",
                self.calls_refused,
            ),
            ("gateway_compute_started", "Pieces of computation that were started.", self.compute.granted),
            ("gateway_compute_refused", "Pieces of computation that were refused.", self.compute.refused),
            ("gateway_audit_entries", "Audit entries written.", self.audit_entries),
            ("gateway_queries_refused", "Queries that were refused with overloaded.", self.queries.refused),
            ("gateway_breakers_opened", "Times that a circuit breaker opened.", self.breakers_opened),
            (
                "gateway_compute_wait_ms",
                "Deprecated, use gateway_compute_wait_seconds_total. Time that computation has waited for a thread.",
                self.compute.waited_ms,
            ),
        ];
        for (name, help, value) in counters {
            out.single(name, Kind::Counter, help, value);
        }
        out.single(
            "gateway_compute_wait_seconds",
            Kind::Counter,
            "Time that computation has waited for a thread.",
            seconds(self.compute.waited_ms),
        );
        self.write_by_reason(out);
        self.spool.write(out);
        self.write_stores(out);
    }

    fn write_by_reason(&self, out: &mut Exposition) {
        let mut family = out.family(
            "gateway_connections_refused",
            Kind::Counter,
            "Client connections that were refused, by the limit that was reached.",
        );
        for (reason, count) in self.connections_refused {
            family.sample(&[("reason", reason)], count);
        }
        let mut family = out.family(
            "gateway_connections_closed",
            Kind::Counter,
            "Client connections that the gateway closed, by reason.",
        );
        for (reason, count) in self.connections_closed {
            family.sample(&[("reason", reason)], count);
        }
        let mut family = out.family(
            "gateway_breakers",
            Kind::Gauge,
            "Circuit breakers of targets that failed or are part of a route, by state.",
        );
        for (state, count) in self.breakers {
            family.sample(&[("state", state)], count);
        }
    }

    fn write_stores(&self, out: &mut Exposition) {
        let mut family = out.family(
            "gateway_database_wait_seconds",
            Kind::Histogram,
            "Time that callers waited for a connection to the database, or for the write lock of SQLite, by pool.",
        );
        for (pool, reading) in &self.database_waits {
            family.histogram(&[("pool", pool)], reading, Unit::Seconds, &[]);
        }
        out.single(
            "gateway_database_up",
            Kind::Gauge,
            "Whether the database answered this scrape.",
            u8::from(self.queues.is_some()),
        );
        let mut family =
            out.family("gateway_redis_up", Kind::Gauge, "Whether Redis is connected. Absent without Redis.");
        if let Some(is_up) = self.redis_is_up {
            family.sample(&[], u8::from(is_up));
        }
        let mut family = out.family(
            "gateway_log_database_bytes",
            Kind::Gauge,
            "Size of the log database with its indexes. On PostgreSQL all nodes share it.",
        );
        if let Some(bytes) = self.log_database_bytes {
            family.sample(&[], bytes);
        }
        let queues = self.queues.as_ref().map_or(&[][..], |queues| queues);
        let mut family = out.family(
            "gateway_queue_items",
            Kind::Gauge,
            "Items of a queue that are due and not taken, counted up to 10000. All nodes share the queues.",
        );
        for (queue, state) in queues {
            family.sample(&[("queue", queue)], state.items);
        }
        let mut family = out.family(
            "gateway_queue_oldest_seconds",
            Kind::Gauge,
            "For how long the oldest due item of a queue has waited.",
        );
        for (queue, state) in queues {
            family.sample(&[("queue", queue)], state.oldest_seconds);
        }
    }
}

impl SpoolState {
    fn write(&self, out: &mut Exposition) {
        let gauges = [
            ("gateway_log_spool_bytes", "Log rows on disk that are not stored yet.", self.bytes),
            (
                "gateway_log_spool_limit_bytes",
                "Size of the spool above which bodies are dropped; above twice of it, rows.",
                self.limit_bytes,
            ),
            (
                "gateway_log_spool_writable",
                "Whether the disk accepted the latest log row.",
                u64::from(self.is_writable),
            ),
        ];
        for (name, help, value) in gauges {
            out.single(name, Kind::Gauge, help, value);
        }
        out.single(
            "gateway_log_spool_oldest_seconds",
            Kind::Gauge,
            "No log row has waited for longer than this to be stored.",
            self.oldest_seconds,
        );
        let counters = [
            ("gateway_log_rows_appended", "Log rows appended to the spool.", self.rows_appended),
            ("gateway_log_rows_stored", "Log rows that this node stored.", self.rows_stored),
            ("gateway_log_body_bytes", "Bodies that this node stored, before compression.", self.body_bytes),
            (
                "gateway_log_body_compressed_bytes",
                "Bodies that this node stored, after compression.",
                self.compressed_bytes,
            ),
            ("gateway_log_bodies_shed", "Log rows whose bodies were dropped.", self.bodies_shed),
            ("gateway_log_rows_shed", "Log rows that were dropped.", self.rows_shed),
            (
                "gateway_log_rows_over_quota",
                "Log rows beyond a quota, which were counted but not stored.",
                self.rows_over_quota,
            ),
            (
                "gateway_log_bodies_over_quota",
                "Log rows whose bodies are beyond a quota and were not stored.",
                self.bodies_over_quota,
            ),
            ("gateway_log_rows_quarantined", "Log rows that cannot be stored.", self.rows_quarantined),
            ("gateway_log_spool_damage", "Damaged places found in the spool.", self.damage),
        ];
        for (name, help, value) in counters {
            out.single(name, Kind::Counter, help, value);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time in milliseconds")]
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1_000.0
}
