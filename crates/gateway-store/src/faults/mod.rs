//! Places at which tests inject faults below the store and below the spool, and named points at which they kill the
//! process. In a build without the feature `testing` every hook is empty.

#[cfg(not(feature = "testing"))]
mod disabled;
#[cfg(feature = "testing")]
mod enabled;
#[cfg(feature = "testing")]
mod sql;

#[cfg(not(feature = "testing"))]
pub use disabled::{Faults, kill_point};
#[cfg(not(feature = "testing"))]
pub(crate) use disabled::{at_begin, within};
#[cfg(feature = "testing")]
pub use enabled::{Fault, Faults, Injector, Point, kill_point};
#[cfg(feature = "testing")]
pub(crate) use sql::{at_begin, within};

/// A call of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DbCall {
    /// The begin of a write transaction.
    Begin,
    /// A statement outside of a transaction, or the begin of a snapshot.
    Read,
    /// A statement of a transaction.
    Statement,
    Commit,
}

/// A call of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskCall {
    Create,
    Write,
    Read,
    List,
    Remove,
}

macro_rules! kill_points {
    ($($name:ident = $text:literal,)*) => {
        /// A step of the writer, the deliveries, the exports, the evals, the budgets or a change of the master key after
        /// which the process may die.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum KillPoint {
            $($name,)*
        }

        impl KillPoint {
            pub const ALL: &'static [KillPoint] = &[$(KillPoint::$name,)*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(KillPoint::$name => $text,)*
                }
            }
        }
    };
}

kill_points! {
    RowSpooled = "row_spooled",
    BatchAnnounced = "batch_announced",
    RowsInserted = "rows_inserted",
    BatchWritten = "batch_written",
    BatchCommitted = "batch_committed",
    BatchObserved = "batch_observed",
    SegmentStored = "segment_stored",
    SegmentRemoved = "segment_removed",
    EventRecorded = "event_recorded",
    DeliveryClaimed = "delivery_claimed",
    DeliveryPosted = "delivery_posted",
    DeliveryRecorded = "delivery_recorded",
    ExportClaimed = "export_claimed",
    ExportSent = "export_sent",
    ExportRecorded = "export_recorded",
    JobClaimed = "job_claimed",
    JobFinished = "job_finished",
    RunStarted = "run_started",
    ItemsJudged = "items_judged",
    ItemsRecorded = "items_recorded",
    RunFinished = "run_finished",
    RowsSampled = "rows_sampled",
    LiveRowsJudged = "live_rows_judged",
    LiveRowsRecorded = "live_rows_recorded",
    VerdictsQueued = "verdicts_queued",
    SkillJudged = "skill_judged",
    SkillRecorded = "skill_recorded",
    BudgetCommitted = "budget_committed",
    BudgetAlertWritten = "budget_alert_written",
    BudgetAlertCommitted = "budget_alert_committed",
    LeasePlanned = "lease_planned",
    LeaseCommitted = "lease_committed",
    LeaseReturned = "lease_returned",
    SecretReplaced = "secret_replaced",
}
