//! One interface to SQLite and PostgreSQL. Statements use `$1` placeholders and mean the same on both. Where that is
//! not possible, this module provides a fragment for each dialect.
//!
//! SQLite has one connection for writes and a few for reads (WAL), so a writer never conflicts with another connection
//! of this process. PostgreSQL has two small pools: one for requests and one for background work (`reopen`).
//! Organizations share the connections (`connection_shares`).

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::histogram::{Histogram, HistogramReading};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Connection as _, Executor as _, SqlSafeStr};

use crate::StoreError;
use crate::connection_shares::ConnectionShares;
use crate::faults::{DbCall, Faults};
use crate::org_owners::OrgOwners;
use crate::postgres_connection::PostgresConnection;
use crate::readers::SqliteReaders;
use crate::row::{Arg, Row, postgres_arguments, sqlite_arguments};
use crate::tx::{Connection, Tx};
use crate::wal_checkpoints;

/// Of a process that does not choose, such as a command of the operator.
const POSTGRES_CONNECTIONS: u32 = 10;
const SQLITE_READERS: u32 = 6;
const RESERVED_READERS: u32 = 2;
/// Batches of log rows change the same pages again and again: a cache of 8 MiB keeps them in memory.
const WRITER_CACHE: &str = "-8192";
/// Prepared statements of SQLite's writer: those of a batch for each number of rows (`logs::bulk`), and the others.
const WRITER_STATEMENTS: usize = 256;
/// How long a caller waits for a connection, or for the write lock of SQLite.
pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a statement may take. Without it, a statement on a dead connection would wait until the kernel closes the
/// connection, about 15 minutes later.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(20);
/// The server's side of the same: without these, it continues a statement that nobody waits for, and keeps the locks of
/// a transaction whose client is gone.
const SESSION_SETTINGS: &str = "SET statement_timeout = '20s'; SET idle_in_transaction_session_timeout = '20s'; \
                                SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; \
                                SET tcp_keepalives_count = 3";
/// A connection that does not respond to a ping in this time is dropped.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// Upper bounds of the histogram of waits, in microseconds.
const WAIT_BUCKETS: [u64; 10] =
    [50, 250, 1_000, 5_000, 25_000, 100_000, 250_000, 1_000_000, 2_500_000, 5_000_000];

#[derive(Clone)]
pub struct Db {
    pool: Pool,
    faults: Faults,
    /// How long callers waited for a connection, or for the write lock of SQLite.
    waits: Arc<Histogram>,
    pub(crate) shares: ConnectionShares,
    owners: Arc<OrgOwners>,
}

#[derive(Clone)]
pub(crate) enum Pool {
    Sqlite { write: SqlitePool, read: SqliteReaders },
    Postgres(PgPool),
}

/// A caller that waits for a connection.
struct Waiting<'a> {
    waits: &'a Histogram,
    started: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waits.observe(self.started.elapsed());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The condition that a column is one of the strings in a parameter, which is a JSON list.
    pub(crate) fn in_texts(self, column: &str, parameter: usize) -> String {
        match self {
            Self::Sqlite => format!("{column} IN (SELECT value FROM json_each(${parameter}))"),
            Self::Postgres => {
                format!("{column} IN (SELECT json_array_elements_text(CAST(${parameter} AS JSON)))")
            }
        }
    }

    /// Lets several nodes claim different rows of a queue without waiting for each other. SQLite has one node.
    pub(crate) fn skip_locked(self, alias: &str) -> String {
        match self {
            Self::Sqlite => String::new(),
            Self::Postgres => format!("FOR UPDATE OF {alias} SKIP LOCKED"),
        }
    }
}

impl Db {
    pub(crate) fn new(pool: Pool) -> Self {
        Self::sharing_by(Arc::default(), pool)
    }

    /// A database whose connections are shared between these owners.
    fn sharing_by(owners: Arc<OrgOwners>, pool: Pool) -> Self {
        let shares = match &pool {
            Pool::Sqlite { read, .. } => {
                ConnectionShares::of_sqlite(read.pool.options().get_max_connections(), &owners)
            }
            Pool::Postgres(pool) => {
                ConnectionShares::of_postgres(pool.options().get_max_connections(), &owners)
            }
        };
        let waits = Arc::new(Histogram::new(&WAIT_BUCKETS));
        Self { pool, faults: Faults::default(), waits, shares, owners }
    }

    /// Another handle to a database that belongs to this one.
    fn beside(&self, pool: Pool) -> Self {
        Self::sharing_by(Arc::clone(&self.owners), pool)
    }

    /// Who owns the organizations, as far as they were loaded. All handles to the databases of a process have the same.
    pub fn owners(&self) -> &Arc<OrgOwners> {
        &self.owners
    }

    /// The faults that tests inject into this database.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Opens `sqlite://path` or `postgres://…`. Does not change the schema: see `migrate`.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(url, POSTGRES_CONNECTIONS).await
    }

    /// Opens a database with at most this many connections to PostgreSQL.
    pub async fn open_with(url: &str, connections: u32) -> Result<Self, StoreError> {
        if let Some(path) = url.strip_prefix("sqlite://") {
            // An answered change, such as a revoked key, must survive a power cut: every commit is synced.
            let options = sqlite_options(Path::new(path)).synchronous(SqliteSynchronous::Full);
            open_sqlite(options, STATEMENT_TIMEOUT).await.map(Db::new)
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            open_postgres(url, connections).await.map(Db::new)
        } else {
            Err(StoreError::Open("the database URL must start with sqlite:// or postgres://".into()))
        }
    }

    /// Opens the database of log rows. On SQLite it is a second file next to this one, so that a batch of rows never
    /// delays other writes. On PostgreSQL it is the same database.
    pub async fn open_logs(&self) -> Result<Self, StoreError> {
        match &self.pool {
            Pool::Postgres(pool) => Ok(self.beside(Pool::Postgres(pool.clone()))),
            Pool::Sqlite { write, .. } => {
                let state = write.connect_options();
                let file = state.get_filename().with_extension("logs.db");
                // Synced at checkpoints only: a power cut may lose the latest rows, but never damages the file.
                let options = sqlite_options(&file).synchronous(SqliteSynchronous::Normal);
                open_sqlite(options, STATEMENT_TIMEOUT).await.map(|pool| self.beside(pool))
            }
        }
    }

    /// Opens the same database with separate connections, at most this many to PostgreSQL, for callers that must not wait
    /// for the queries of others. They only read. With 0 connections, those of this one.
    pub fn reserve(&self, connections: u32) -> Self {
        match &self.pool {
            _ if connections == 0 && self.dialect() == Dialect::Postgres => self.clone(),
            Pool::Postgres(pool) => {
                let options = (*pool.connect_options()).clone();
                let pool = Pool::Postgres(postgres_pool(connections).connect_lazy_with(options));
                Self { faults: self.faults.clone(), ..self.beside(pool) }
            }
            Pool::Sqlite { write, .. } => {
                let options = (*write.connect_options()).clone();
                let read = SqliteReaders::new(options, RESERVED_READERS, Some(STATEMENT_TIMEOUT));
                let pool = Pool::Sqlite { write: write.clone(), read };
                Self { faults: self.faults.clone(), shares: self.shares.clone(), ..self.beside(pool) }
            }
        }
    }

    /// How long callers of this handle and its clones waited for a connection.
    pub fn waits(&self) -> HistogramReading {
        self.waits.read()
    }

    /// Measures how long a connection is waited for, until it is dropped.
    fn waiting(&self) -> Waiting<'_> {
        Waiting { waits: &self.waits, started: Instant::now() }
    }

    /// The connections that queries may use at the same time.
    pub fn readers(&self) -> u32 {
        match &self.pool {
            Pool::Sqlite { read, .. } => read.pool.options().get_max_connections(),
            Pool::Postgres(pool) => pool.options().get_max_connections(),
        }
    }

    /// Opens the same database with separate connections, at most this many to PostgreSQL. SQLite connections run on
    /// their own threads, which inherit the scheduling class of the thread that opens them. PostgreSQL connections
    /// belong to the runtime that opens them. Work that holds all of these does not delay work on the others.
    /// They are opened when they are first used: a thread of low priority may take long to open one.
    pub fn reopen(&self, connections: u32) -> Self {
        match &self.pool {
            Pool::Postgres(pool) => {
                let options = (*pool.connect_options()).clone();
                self.beside(Pool::Postgres(postgres_pool(connections).connect_lazy_with(options)))
            }
            Pool::Sqlite { write, .. } => {
                let options = (*write.connect_options()).clone();
                let write = sqlite_writer().connect_lazy_with(options.clone());
                // Without a limit: a thread of low priority may take long for a short query.
                let read = SqliteReaders::new(options, SQLITE_READERS, None);
                Self { shares: self.shares.clone(), ..self.beside(Pool::Sqlite { write, read }) }
            }
        }
    }

    pub fn dialect(&self) -> Dialect {
        match &self.pool {
            Pool::Sqlite { .. } => Dialect::Sqlite,
            Pool::Postgres(_) => Dialect::Postgres,
        }
    }

    /// All rows of a query.
    pub async fn all(&self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<Vec<Row>, StoreError> {
        self.faults.before(DbCall::Read).await?;
        match &self.pool {
            Pool::Sqlite { read, .. } => {
                let query = sqlx::query_with(sql, sqlite_arguments(args)?);
                let waiting = self.waiting();
                let _share = self.shares.read().await?;
                let mut reader = read.acquire().await?;
                drop(waiting);
                let rows = query.fetch_all(reader.connection()).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Pool::Postgres(pool) => {
                let query = sqlx::query_with(sql, postgres_arguments(args)?);
                let waiting = self.waiting();
                let _share = self.shares.read().await?;
                // Boxed, because the future of a connection is large.
                let rows = with_timeout(Box::pin(async move {
                    let mut connection = PostgresConnection::acquire(pool).await?;
                    drop(waiting);
                    query.fetch_all(&mut *connection).await
                }));
                let rows = rows.await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// The first row of a query, if there is one.
    pub async fn opt(&self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<Option<Row>, StoreError> {
        self.faults.before(DbCall::Read).await?;
        match &self.pool {
            Pool::Sqlite { read, .. } => {
                let query = sqlx::query_with(sql, sqlite_arguments(args)?);
                let waiting = self.waiting();
                let _share = self.shares.read().await?;
                let mut reader = read.acquire().await?;
                drop(waiting);
                let row = query.fetch_optional(reader.connection()).await?;
                Ok(row.map(Row::Sqlite))
            }
            Pool::Postgres(pool) => {
                let query = sqlx::query_with(sql, postgres_arguments(args)?);
                let waiting = self.waiting();
                let _share = self.shares.read().await?;
                let row = with_timeout(Box::pin(async move {
                    let mut connection = PostgresConnection::acquire(pool).await?;
                    drop(waiting);
                    query.fetch_optional(&mut *connection).await
                }));
                let row = row.await?;
                Ok(row.map(Row::Postgres))
            }
        }
    }

    /// Executes one statement in its own transaction; returns the number of affected rows.
    pub async fn exec(&self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let touched = tx.exec(sql, args).await?;
        tx.commit().await?;
        Ok(touched)
    }

    /// Begins a write transaction. On SQLite it holds the write lock, so it cannot fail half way because of another
    /// writer.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        self.faults.before(DbCall::Begin).await?;
        let waiting = self.waiting();
        let share = self.shares.write().await?;
        let (connection, sql) = match &self.pool {
            Pool::Sqlite { write, .. } => (Connection::Sqlite(write.acquire().await?), "BEGIN IMMEDIATE"),
            Pool::Postgres(pool) => {
                (Connection::Postgres(with_timeout(PostgresConnection::acquire(pool)).await?), "BEGIN")
            }
        };
        drop(waiting);
        let mut tx = Tx::begin(connection, sql, share).await?;
        tx.set_faults(&self.faults).await?;
        Ok(tx)
    }

    /// Begins a read-only transaction on a snapshot, which the first statement takes. It holds no lock.
    pub(crate) async fn begin_snapshot(&self) -> Result<Tx, StoreError> {
        self.faults.before(DbCall::Read).await?;
        let waiting = self.waiting();
        match &self.pool {
            Pool::Sqlite { read, .. } => {
                let connection = read.acquire_for_transaction().await?;
                drop(waiting);
                Tx::begin(Connection::Sqlite(connection), "BEGIN", None).await
            }
            Pool::Postgres(pool) => {
                let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                let connection = with_timeout(PostgresConnection::acquire(pool)).await?;
                drop(waiting);
                Tx::begin(Connection::Postgres(connection), sql, None).await
            }
        }
    }

    /// Updates PostgreSQL's statistics of a table after a bulk insert. With stale statistics, the planner takes the
    /// table for a small one and sorts all rows instead of using an index. SQLite uses the index anyway.
    pub(crate) async fn analyze(&self, table: &'static str) -> Result<(), StoreError> {
        if self.dialect() == Dialect::Sqlite {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        tx.lift_timeout().await?;
        tx.script(format!("ANALYZE {table}")).await?;
        tx.commit().await
    }

    /// The connection of SQLite's writer.
    pub(crate) fn sqlite(&self) -> Option<&SqlitePool> {
        match &self.pool {
            Pool::Sqlite { write, .. } => Some(write),
            Pool::Postgres(_) => None,
        }
    }

    /// The pool, for features that only PostgreSQL has.
    pub(crate) fn postgres(&self) -> Option<&PgPool> {
        match &self.pool {
            Pool::Sqlite { .. } => None,
            Pool::Postgres(pool) => Some(pool),
        }
    }

    /// Checks that the database can be read.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.opt("SELECT 1 AS one", Vec::new()).await.map(|_| ())
    }

    /// Checks that the database answers, over a connection of its own: those of the pool may all be in use. A refusal is
    /// an answer too, unless it says that the database is starting or stopping, or that a proxy does not reach it.
    pub async fn reach(&self) -> Result<(), StoreError> {
        let Pool::Postgres(pool) = &self.pool else { return self.ping().await };
        self.faults.before(DbCall::Read).await?;
        let options = pool.connect_options();
        let asked: Result<(), sqlx::Error> = async {
            let mut connection = PgConnection::connect_with(&options).await?;
            connection.execute("SELECT 1").await?;
            // Dropped without a graceful close, which could block.
            Ok(())
        }
        .await;
        let is_gone = |code: &str| code.starts_with("08") || code.starts_with("57");
        match asked {
            Err(sqlx::Error::Database(error)) if error.code().is_none_or(|code| !is_gone(&code)) => Ok(()),
            asked => asked.map_err(StoreError::from),
        }
    }

    pub async fn close(&self) {
        match &self.pool {
            Pool::Sqlite { write, read, .. } => {
                read.pool.close().await;
                write.close().await;
            }
            Pool::Postgres(pool) => pool.close().await,
        }
    }
}

/// Applies the statement timeout.
pub(crate) async fn with_timeout<T>(
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(STATEMENT_TIMEOUT, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(StoreError::timed_out("the statement took too long")),
    }
}

pub(crate) fn sqlite_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(ACQUIRE_TIMEOUT)
        .foreign_keys(true)
}

pub(crate) async fn open_sqlite(
    options: SqliteConnectOptions,
    query_limit: Duration,
) -> Result<Pool, StoreError> {
    let shown = options.get_filename().display().to_string();
    let write = sqlite_writer()
        .connect_with(
            options
                .clone()
                .pragma("wal_autocheckpoint", wal_checkpoints::MAX_PAGES)
                .pragma("cache_size", WRITER_CACHE)
                .statement_cache_capacity(WRITER_STATEMENTS),
        )
        .await
        .map_err(|error| StoreError::Open(format!("cannot open the database file {shown}: {error}")))?;
    let read = SqliteReaders::new(options, SQLITE_READERS, Some(query_limit));
    Ok(Pool::Sqlite { write, read })
}

pub(crate) fn sqlite_writer() -> SqlitePoolOptions {
    let options = SqlitePoolOptions::new().max_connections(1).acquire_timeout(ACQUIRE_TIMEOUT);
    options.test_before_acquire(false).idle_timeout(None).max_lifetime(None)
}

async fn open_postgres(url: &str, connections: u32) -> Result<Pool, StoreError> {
    let options = PgConnectOptions::from_str(url)
        // Without the library's message, which may repeat parts of the URL.
        .map_err(|_| {
            StoreError::Open("GATEWAY_DATABASE_URL is invalid: check its host, port and parameters".into())
        })?
        .application_name("gateway");
    let address = format!("{}:{}", options.get_host(), options.get_port());
    let pool = postgres_pool(connections).connect_with(options).await.map_err(|error| {
        let why = match error {
            // The pool retries until its timeout and then reports only the timeout.
            sqlx::Error::PoolTimedOut => "it refuses connections or does not respond".to_owned(),
            // Without the line of the server's source code.
            sqlx::Error::Database(error) => error.message().to_owned(),
            error => error.to_string(),
        };
        StoreError::Open(format!(
            "cannot connect to PostgreSQL at {address}: {why}; check GATEWAY_DATABASE_URL"
        ))
    })?;
    Ok(Pool::Postgres(pool))
}

/// An error drops the connection without a graceful close, which could block as well.
async fn is_alive(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let ping = tokio::time::timeout(PING_TIMEOUT, connection.ping()).await;
    ping.map_err(|_| sqlx::Error::PoolTimedOut)?.map(|()| true)
}

fn postgres_pool(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .after_connect(|connection, _| {
            Box::pin(async move { connection.execute(SESSION_SETTINGS).await.map(|_| ()) })
        })
        // Instead of sqlx's own ping, which has no limit: after an outage each dead connection would use up the whole
        // time that a caller waits. With a limit, the caller gets a new connection.
        .test_before_acquire(false)
        .before_acquire(|connection, _| Box::pin(is_alive(connection)))
        .after_release(|connection, _| Box::pin(is_alive(connection)))
}
