//! Limits per address on sign-up, login and wrong credentials, and per account on wrong passwords. On PostgreSQL all nodes
//! count together.

mod counts;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::limits::LimitStatus;
use gateway_store::cluster::rate_counts;
use gateway_store::db::Dialect;

use crate::services::Services;
use counts::{
    ATTEMPT_WINDOW, AccountKey, FAILURE_WINDOW, MAX_ACCOUNT_FAILURES, MAX_INSTALL_FAILURES, WindowCounts,
};
pub use counts::{AttemptKind, FailureKind, KNOWN_ADDRESS_AGE, network};

/// The kind of account failures among the attempts of all nodes.
const ACCOUNT_KIND: &str = "account";
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

pub struct AttemptLimits {
    services: Arc<Services>,
    attempts: WindowCounts<(AttemptKind, IpAddr)>,
    failures: WindowCounts<(FailureKind, IpAddr)>,
    account_failures: WindowCounts<AccountKey>,
}

impl AttemptLimits {
    pub fn new(services: Arc<Services>) -> Self {
        Self {
            services,
            attempts: WindowCounts::new(ATTEMPT_WINDOW),
            failures: WindowCounts::new(FAILURE_WINDOW),
            account_failures: WindowCounts::new(ATTEMPT_WINDOW),
        }
    }

    /// Counts an attempt from an address on all nodes.
    pub async fn count_attempt(&self, kind: AttemptKind, address: IpAddr) -> LimitStatus {
        let Services { config, clock, db, .. } = &*self.services;
        let (limit, now) = (config.auth_attempts, clock.now());
        let local = self.attempts.count((kind, network(address)), limit, now);
        if !local.allowed || db.dialect() == Dialect::Sqlite {
            return local;
        }
        let address = network(address).to_string();
        let counted = rate_counts::count_attempt(db, kind.as_str(), &address, ATTEMPT_WINDOW, now).await;
        // Without the database the attempt fails anyway.
        counted.map_or(local, |(began, attempts)| {
            LimitStatus::new(limit, attempts.max(0).cast_unsigned(), began.plus(ATTEMPT_WINDOW))
        })
    }

    /// Counts a password check of an account as failed, on all nodes. It is counted before the check, so that concurrent
    /// attempts cannot exceed the limit; `forgive_account` takes it back after any other result.
    pub async fn count_account_failure(&self, email: &str) -> LimitStatus {
        let Services { clock, db, .. } = &*self.services;
        let (account, now) = (AccountKey::of(email), clock.now());
        let local = self.account_failures.count(account, MAX_ACCOUNT_FAILURES, now);
        if db.dialect() == Dialect::Sqlite {
            return local;
        }
        let counted =
            rate_counts::count_attempt(db, ACCOUNT_KIND, &account.to_hex(), ATTEMPT_WINDOW, now).await;
        counted.map_or(local, |(began, failures)| {
            let failures = failures.max(0).cast_unsigned();
            LimitStatus::new(MAX_ACCOUNT_FAILURES, failures, began.plus(ATTEMPT_WINDOW))
        })
    }

    /// The password check did not fail.
    pub async fn forgive_account(&self, email: &str) {
        let account = AccountKey::of(email);
        self.account_failures.uncount(account);
        let db = &self.services.db;
        if db.dialect() == Dialect::Postgres
            && let Err(error) = rate_counts::uncount_attempt(db, ACCOUNT_KIND, &account.to_hex()).await
        {
            tracing::debug!(%error, "cannot take back the count of a password check");
        }
    }

    /// Counts a failure of an address on this node. Other nodes are not asked, because that would cost what the limit
    /// is to save.
    pub fn count_failure(&self, kind: FailureKind, address: IpAddr) -> LimitStatus {
        self.failures.count((kind, network(address)), self.max_failures(kind), self.services.clock.now())
    }

    fn max_failures(&self, kind: FailureKind) -> u64 {
        match kind {
            FailureKind::Request | FailureKind::KeyLookup => self.services.config.auth_failures,
            FailureKind::InstallToken => MAX_INSTALL_FAILURES,
        }
    }

    /// Whether one more failure of the address would be allowed.
    pub fn peek_failure(&self, kind: FailureKind, address: IpAddr) -> LimitStatus {
        self.failures.peek((kind, network(address)), self.max_failures(kind), self.services.clock.now())
    }

    /// Removes old counts of all nodes until the service stops. Only for PostgreSQL.
    pub async fn run(self: Arc<Self>) {
        let Services { clock, db, tasks, .. } = &*self.services;
        loop {
            tokio::select! {
                () = tasks.drained() => return,
                () = tokio::time::sleep(SWEEP_INTERVAL) => {}
            }
            if let Err(error) = rate_counts::sweep_attempts(db, clock.now().plus(-ATTEMPT_WINDOW)).await {
                tracing::debug!(%error, "cannot remove old counts of attempts; retrying later");
            }
        }
    }
}
