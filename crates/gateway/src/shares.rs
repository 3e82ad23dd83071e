//! What each organization may use of resources that all share, besides computation (`compute`).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use gateway_core::time::{MINUTE, Timestamp};
use gateway_store::fair_slots::{FairSlots, SlotLimits};

use crate::log::tail::LogTails;

/// Imports that are stored at the same time. Their transactions take turns with those of all other writers.
const IMPORTS: SlotLimits = SlotLimits { slots: 2, per_org: 1, waiting_per_org: 8 };
/// An organization verifies its audit log once at a time. A second request is refused at once, and others do not wait.
const VERIFICATIONS: SlotLimits = SlotLimits { slots: 1_000, per_org: 1, waiting_per_org: 0 };
/// Open streams of audit logs.
const AUDIT_STREAMS: SlotLimits = SlotLimits { slots: 10_000, per_org: 10, waiting_per_org: 0 };
/// Concurrent queries of log rows, sessions, usage and audit entries by one organization.
const QUERIES_PER_ORG: usize = 2;
const WAITING_QUERIES_PER_ORG: usize = 32;
/// How long a query waits for one of the organization's other queries to end.
pub const QUERY_MAX_WAIT: Duration = Duration::from_secs(5);

/// The least time between updates of the database's statistics, in milliseconds.
const ANALYSIS_INTERVAL: i64 = MINUTE;

pub struct Shares {
    pub imports: Arc<FairSlots>,
    /// Queries that may take long. All together leave a third of the connections for everything else.
    pub queries: Arc<FairSlots>,
    pub verifications: Arc<FairSlots>,
    pub audit_streams: Arc<FairSlots>,
    pub log_tails: Arc<LogTails>,
    /// When an import last updated the database's statistics, in milliseconds.
    analyzed_at: AtomicI64,
}

impl Shares {
    /// `readers` is the number of connections that queries may use at the same time.
    pub fn new(readers: u32) -> Self {
        let readers = usize::try_from(readers).unwrap_or(usize::MAX);
        let queries = SlotLimits {
            slots: (readers * 2 / 3).max(1),
            per_org: QUERIES_PER_ORG,
            waiting_per_org: WAITING_QUERIES_PER_ORG,
        };
        Self {
            imports: FairSlots::new(IMPORTS),
            queries: FairSlots::new(queries),
            verifications: FairSlots::new(VERIFICATIONS),
            audit_streams: FairSlots::new(AUDIT_STREAMS),
            log_tails: Arc::default(),
            analyzed_at: AtomicI64::new(0),
        }
    }

    /// Whether an import may update the database's statistics. They concern the data of all organizations, so many
    /// imports update them no more often than one.
    pub fn may_analyze(&self, now: Timestamp) -> bool {
        let before = self.analyzed_at.load(Ordering::Relaxed);
        (now.0 - before).abs() >= ANALYSIS_INTERVAL
            && self.analyzed_at.compare_exchange(before, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
