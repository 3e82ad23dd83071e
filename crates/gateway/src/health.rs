//! The health check behind `/healthz`.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::proxy::state::ProxyState;
use crate::services::Services;

/// A store that does not respond within this time counts as down.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Serialize, JsonSchema)]
pub struct Health {
    /// `ok`, or `degraded` when a component that the service needs is down.
    pub status: Status,
    /// Each backing store by name.
    pub components: BTreeMap<&'static str, Component>,
}

#[derive(Serialize, JsonSchema)]
pub struct Component {
    pub status: Status,
}

#[derive(Serialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    Degraded,
    Down,
}

impl Health {
    pub fn is_ok(&self) -> bool {
        self.status == Status::Ok
    }
}

pub async fn check(services: &Services, proxy: &ProxyState) -> Health {
    let component = |is_up: bool| Component { status: if is_up { Status::Ok } else { Status::Down } };
    let database = matches!(tokio::time::timeout(PING_TIMEOUT, services.db.ping()).await, Ok(Ok(())));
    let spool = proxy.spool.is_healthy();
    let mut components = BTreeMap::from([("database", component(database)), ("log_spool", component(spool))]);
    // Reported but not required: without Redis each node continues on its own.
    if let Some(redis) = &proxy.redis {
        components.insert("redis", component(redis.ping(PING_TIMEOUT).await));
    }
    Health { status: if database && spool { Status::Ok } else { Status::Degraded }, components }
}
