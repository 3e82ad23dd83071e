//! What the request path of the proxy uses. Shared by all worker threads.

use std::sync::Arc;

use gateway_core::pricing::PriceTable;
use gateway_store::redis::RedisClient;
use tokio::sync::broadcast;

use super::Worker;
use super::prompt_cache::PromptCaches;
use super::target_health::TargetHealth;
use crate::audit::AuditQueue;
use crate::auth::Access;
use crate::auth::tokens::Tokens;
use crate::budgets::Budgets;
use crate::cache::Cache;
use crate::limits::Limits;
use crate::log::spool::Spool;
use crate::log::tail::StoredRow;
use crate::metrics::Metrics;
use crate::prompts::Prompts;
use crate::targets::OperatorProviders;

pub struct ProxyState {
    pub access: Arc<Access>,
    pub audit: Arc<AuditQueue>,
    pub budgets: Budgets,
    pub limits: Limits,
    /// The built-in providers as the operator configured them.
    pub providers: Arc<OperatorProviders>,
    /// For calls to providers that are not made by a worker thread.
    pub worker: Worker,
    pub prices: PriceTable,
    pub health: TargetHealth,
    pub prompt_caches: PromptCaches,
    /// Shared by the nodes, when configured.
    pub redis: Option<Arc<RedisClient>>,
    pub cache: Arc<Cache>,
    pub spool: Arc<Spool>,
    pub metrics: Metrics,
    pub prompts: Arc<Prompts>,
    /// Session tokens, which are never sent to a provider.
    pub tokens: Arc<Tokens>,
    /// Publishes each row that the log writer has stored.
    pub tail: broadcast::Sender<StoredRow>,
}
