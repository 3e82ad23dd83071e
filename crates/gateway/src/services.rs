//! The services that every part of the application uses: settings, clock, databases, encryption, ids and tasks.

use std::time::Instant;

use gateway_core::time::Timestamp;
use gateway_store::{Db, Part, StoreError};

use crate::calls_in_progress::CallsInProgress;
use crate::clock::Clock;
use crate::compute::ComputePool;
use crate::config::{Config, ConfigError};
use crate::egress::Egress;
use crate::ids::Ids;
use crate::memory::MemoryBudget;
use crate::tasks::Tasks;
use crate::vault::Vault;

pub struct Services {
    pub config: Config,
    pub clock: Clock,
    /// Accounts, keys and everything else but log rows.
    pub db: Db,
    /// The same over connections of its own: checking a credential never waits for other queries.
    pub db_authentication: Db,
    /// Log rows and usage.
    pub logs: Db,
    /// The same database over the connections of background work, whose threads have low priority.
    pub logs_low_priority: Db,
    pub vault: Vault,
    pub egress: Egress,
    pub ids: Ids,
    pub tasks: Tasks,
    /// For bodies that are held.
    pub memory: MemoryBudget,
    pub calls: CallsInProgress,
    /// For computation that tenants cause.
    pub compute: ComputePool,
    pub started: Instant,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("cannot use the data directory {path}: {error}. Set GATEWAY_DATA_DIR to a writable directory")]
    DataDir { path: String, error: std::io::Error },
    #[error(
        "another gateway process is using the data directory {0}: stop it, or set GATEWAY_DATA_DIR to another directory"
    )]
    DataDirInUse(String),
    #[error(
        "the master key decrypts none of the stored secrets ({0} were tried), so it is not the key that encrypted them. \
         Set GATEWAY_MASTER_KEY to that key or add it to GATEWAY_MASTER_KEYS_ACCEPTED; a generated one is the file \
         master_key of the data directory at that time. If it is lost: docs/operations.md, \"A lost master key\""
    )]
    OtherMasterKey(usize),
    #[error("cannot listen on {address}: {why}")]
    Listen { address: String, why: String },
    #[error("cannot use the TLS certificate: {0}")]
    Tls(String),
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Crypto(&'static str),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error(
        "the maximum of 31 nodes already uses this database: stop one, or wait 30 s for the lease of a killed node to expire"
    )]
    TooManyNodes,
}

impl Services {
    /// Closes the databases.
    pub async fn close(&self) {
        self.logs_low_priority.close().await;
        self.logs.close().await;
        self.db_authentication.close().await;
        self.db.close().await;
    }
}

/// Migrates both parts of the database and returns the one with the log rows.
pub async fn migrate_all(db: &Db, now: Timestamp) -> Result<Db, StoreError> {
    let logs = db.open_logs().await?;
    for (part, db) in [(Part::State, db), (Part::Logs, &logs)] {
        let migrated = db.migrate(part, now).await?;
        let gateway_store::Migrated { from, to } = migrated;
        if to > part.version() {
            tracing::warn!(?part, schema = to, "the schema is newer than this version; it stays compatible");
        } else if from != to {
            tracing::info!(?part, from, to, "schema migrated");
        }
    }
    Ok(logs)
}
