//! What each organization may use of resources that all share, besides computation (`compute`).

use std::sync::Arc;
use std::time::Duration;

use crate::fair_slots::{FairSlots, SlotLimits};
use crate::log::tail::LogTails;

/// Imports that are stored at the same time. Their transactions take turns with those of all other writers.
const IMPORTS: SlotLimits = SlotLimits { slots: 2, per_org: 1, waiting_per_org: 8 };
/// Concurrent queries of log rows, sessions and usage by one organization.
const QUERIES_PER_ORG: usize = 2;
const WAITING_QUERIES_PER_ORG: usize = 32;
/// How long a query waits for one of the organization's other queries to end.
pub const QUERY_PATIENCE: Duration = Duration::from_secs(5);

pub struct Shares {
    pub imports: Arc<FairSlots>,
    /// Queries that may take long. All together leave a third of the connections for everything else.
    pub queries: Arc<FairSlots>,
    pub log_tails: Arc<LogTails>,
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
        Self { imports: FairSlots::new(IMPORTS), queries: FairSlots::new(queries), log_tails: Arc::default() }
    }
}
