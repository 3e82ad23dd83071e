//! Is the service healthy? Asked by `/healthz`, by load balancers and by people.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;

/// A store that does not answer in this time is down.
const PATIENCE: Duration = Duration::from_secs(2);

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

pub async fn check(app: &App) -> Health {
    let up = |up: bool| Component { status: if up { Status::Ok } else { Status::Down } };
    let database = matches!(tokio::time::timeout(PATIENCE, app.services.db.ping()).await, Ok(Ok(())));
    let spool = app.proxy.spool.is_healthy();
    let mut components = BTreeMap::from([("database", up(database)), ("log_spool", up(spool))]);
    // Shown, but not needed: without Redis each node goes on alone.
    if let Some(shared) = &app.proxy.redis {
        components.insert("redis", up(shared.ping(PATIENCE).await));
    }
    Health { status: if database && spool { Status::Ok } else { Status::Degraded }, components }
}
