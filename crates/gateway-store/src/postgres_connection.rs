//! A connection of a pool to PostgreSQL that returns to the pool within a time limit.
//!
//! sqlx pings a connection that returns, and waits for the response without a limit. If the network fails in this moment
//! without closing the connection, its slot in the pool is lost, and a small pool is soon out of connections until the
//! process ends. `return_to_pool` is hidden in the documentation of sqlx; no other call bounds that ping.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{Error, Postgres};
use tokio::runtime::Handle;

use crate::db::PING_TIMEOUT;

/// A connection that was taken out of its pool. A drop returns it.
pub(crate) struct PostgresConnection(PoolConnection<Postgres>);

impl PostgresConnection {
    pub(crate) async fn acquire(pool: &PgPool) -> Result<Self, Error> {
        pool.acquire().await.map(Self)
    }

    /// Closes the connection without waiting for the server, which may not respond. The pool opens another one.
    pub(crate) fn close(mut self) {
        // A future that is dropped before it runs closes the connection and frees its slot in the pool.
        drop(self.0.return_to_pool());
    }
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        let returned = self.0.return_to_pool();
        // Without a runtime the connection is closed.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(tokio::time::timeout(2 * PING_TIMEOUT, returned));
        }
    }
}

impl Deref for PostgresConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for PostgresConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}
