//! The connections that read a SQLite database. A query that takes too long is interrupted, and so is one whose caller
//! has gone away: SQLite would otherwise execute it to its end, and the next user of the connection would wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sqlx::Sqlite;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePool, SqlitePoolOptions};

use crate::StoreError;
use crate::db::ACQUIRE_TIMEOUT;

/// How many steps of its virtual machine SQLite executes between two checks: a fraction of a millisecond.
const STEPS_PER_CHECK: i32 = 10_000;
/// In KiB, negative as SQLite writes it. The cache of the system holds the pages, too.
const READER_CACHE: &str = "-2000";
const READER_STATEMENTS: usize = 100;

#[derive(Clone)]
pub(crate) struct SqliteReaders {
    pub pool: SqlitePool,
    /// How long a connection may be used. None for threads of low priority, which may take long for a short query.
    limit: Option<Duration>,
}

/// A connection for one query, which is interrupted when the caller is dropped before its end.
pub(crate) struct SqliteReader {
    // Dropped first.
    _cancel: Cancel,
    connection: PoolConnection<Sqlite>,
}

struct Cancel(Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SqliteReaders {
    /// Connections are opened when they are first used.
    pub fn new(options: SqliteConnectOptions, connections: u32, limit: Option<Duration>) -> Self {
        let pool = SqlitePoolOptions::new()
            .max_connections(connections)
            .min_connections(0)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // A file does not hang up. A ping costs as much as a short query.
            .test_before_acquire(false)
            .connect_lazy_with(reader_options(options));
        Self { pool, limit }
    }

    /// A connection for one query.
    pub async fn acquire(&self) -> Result<SqliteReader, StoreError> {
        let is_cancelled = Arc::<AtomicBool>::default();
        let cancel = Cancel(Arc::clone(&is_cancelled));
        let connection = self.connection(is_cancelled).await?;
        Ok(SqliteReader { _cancel: cancel, connection })
    }

    /// A connection for a transaction. Its statements are limited by time only.
    pub async fn acquire_for_transaction(&self) -> Result<PoolConnection<Sqlite>, StoreError> {
        self.connection(Arc::default()).await
    }

    async fn connection(&self, is_cancelled: Arc<AtomicBool>) -> Result<PoolConnection<Sqlite>, StoreError> {
        let mut connection = self.pool.acquire().await?;
        let deadline = self.limit.map(|limit| Instant::now() + limit);
        let may_go_on = move || {
            !is_cancelled.load(Ordering::Relaxed) && deadline.is_none_or(|deadline| Instant::now() < deadline)
        };
        connection.lock_handle().await?.set_progress_handler(STEPS_PER_CHECK, may_go_on);
        Ok(connection)
    }
}

/// The options may be those of the writer, whose cache and statements are larger than a reader needs.
fn reader_options(options: SqliteConnectOptions) -> SqliteConnectOptions {
    let options = options.read_only(true).create_if_missing(false);
    options.pragma("cache_size", READER_CACHE).statement_cache_capacity(READER_STATEMENTS)
}

impl SqliteReader {
    pub fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Db, open_sqlite, sqlite_options};

    const READERS: u32 = 6;
    /// A query that never ends.
    const ENDLESS: &str =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT MAX(i) AS i FROM n";

    #[tokio::test]
    async fn sqlite_interrupts_a_query_that_takes_too_long() {
        let directory = tempfile::tempdir().unwrap();
        let options = sqlite_options(&directory.path().join("gateway.db"));
        let db = Db::new(open_sqlite(options, Duration::from_millis(50)).await.unwrap());
        for _ in 0..READERS + 2 {
            let found = db.opt(ENDLESS, vec![]).await;
            assert!(matches!(found, Err(StoreError::Unavailable(_))));
        }
        // Each use of a connection has the whole time again.
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            db.ping().await.unwrap();
        }
    }

    /// The limit is far away, so only the interruption can free the readers.
    #[tokio::test]
    async fn a_query_whose_caller_went_away_frees_its_reader() {
        let directory = tempfile::tempdir().unwrap();
        let options = sqlite_options(&directory.path().join("gateway.db"));
        let db = Db::new(open_sqlite(options, Duration::from_secs(3_600)).await.unwrap());
        for _ in 0..READERS {
            let query = db.opt(ENDLESS, vec![]);
            assert!(tokio::time::timeout(Duration::from_millis(10), query).await.is_err());
        }
        db.ping().await.unwrap();
    }

    #[tokio::test]
    async fn reserved_connections_do_not_wait_for_the_others() {
        let directory = tempfile::tempdir().unwrap();
        let options = sqlite_options(&directory.path().join("gateway.db"));
        let db = Db::new(open_sqlite(options, Duration::from_secs(2)).await.unwrap());
        let reserved = db.reserve(2);
        assert_eq!((db.readers(), reserved.readers()), (READERS, 2));
        let flood = futures_join((0..READERS * 2).map(|_| db.opt(ENDLESS, vec![])));
        let started = Instant::now();
        let ((), pinged) = tokio::join!(flood, async {
            reserved.ping().await.unwrap();
            started.elapsed()
        });
        assert!(pinged < Duration::from_secs(2), "{pinged:?}");
    }

    async fn futures_join<F: Future>(all: impl Iterator<Item = F>) {
        let mut all: Vec<_> = all.map(Box::pin).collect();
        std::future::poll_fn(|context| {
            all.retain_mut(|one| one.as_mut().poll(context).is_pending());
            if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}
