//! Limits per address on sign-up, login and wrong credentials, per account on wrong passwords, and per user on changes
//! of the password. On PostgreSQL all nodes count together.

mod counts;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::ids::UserId;
use gateway_core::limits::LimitStatus;
use gateway_core::time::Timestamp;
use gateway_store::cluster::rate_counts;
use gateway_store::db::Dialect;

use crate::services::Services;
use counts::{
    ATTEMPT_WINDOW, AccountKey, FAILURE_WINDOW, MAX_ACCOUNT_FAILURES, MAX_INSTALL_FAILURES, WindowCounts,
};
pub use counts::{AttemptKind, FailureKind, KNOWN_ADDRESS_AGE, network};

/// The kind of account failures among the attempts of all nodes.
const ACCOUNT_KIND: &str = "account";
/// The same for changes of a password.
const PASSWORD_KIND: &str = "password";
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

pub struct AttemptLimits {
    services: Arc<Services>,
    attempts: WindowCounts<(AttemptKind, IpAddr)>,
    failures: WindowCounts<(FailureKind, IpAddr)>,
    account_failures: WindowCounts<AccountKey>,
    password_changes: WindowCounts<UserId>,
}

impl AttemptLimits {
    pub fn new(services: Arc<Services>) -> Self {
        Self {
            services,
            attempts: WindowCounts::new(ATTEMPT_WINDOW),
            failures: WindowCounts::new(FAILURE_WINDOW),
            account_failures: WindowCounts::new(ATTEMPT_WINDOW),
            password_changes: WindowCounts::new(ATTEMPT_WINDOW),
        }
    }

    /// Counts an attempt from an address on all nodes.
    pub async fn count_attempt(&self, kind: AttemptKind, address: IpAddr) -> LimitStatus {
        let Services { config, clock, .. } = &*self.services;
        let (address, limit, now) = (network(address), config.auth_attempts, clock.now());
        let local = self.attempts.count((kind, address), limit, now);
        self.count_on_all_nodes((kind.as_str(), &address.to_string()), local, limit, now).await
    }

    /// Counts a change of the password of a user on all nodes, because each costs two hashes.
    pub async fn count_password_change(&self, user: UserId) -> LimitStatus {
        let Services { config, clock, .. } = &*self.services;
        let (limit, now) = (config.auth_attempts, clock.now());
        let local = self.password_changes.count(user, limit, now);
        self.count_on_all_nodes((PASSWORD_KIND, &user.to_string()), local, limit, now).await
    }

    /// Adds an attempt, which this node counted and allowed, to the count of all nodes.
    async fn count_on_all_nodes(
        &self,
        (kind, who): (&str, &str),
        local: LimitStatus,
        limit: u64,
        now: Timestamp,
    ) -> LimitStatus {
        let db = &self.services.db;
        if !local.allowed || db.dialect() == Dialect::Sqlite {
            return local;
        }
        let counted = rate_counts::count_attempt(db, kind, who, ATTEMPT_WINDOW, now).await;
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
