//! The two databases behind one face. Statements use `$1` placeholders and mean the same on both; where they
//! cannot, the branch on the dialect lives here.
//!
//! SQLite has one connection that writes and a few that read (WAL), so a writer never meets a lock held by
//! another of our connections. PostgreSQL has one small pool.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Postgres, SqlSafeStr, Sqlite, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::StoreError;
use crate::row::{Arg, List, Row, postgres_arguments, postgres_lists, sqlite_arguments};

const POSTGRES_CONNECTIONS: u32 = 10;
const SQLITE_READERS: u32 = 4;
/// Batches of log rows touch the same pages again and again: fewer checkpoints write them fewer times, and 8 MiB of them
/// stay in memory.
const WAL_PAGES: &str = "4000";
const WRITER_CACHE: &str = "-8192";
/// How long a caller waits for a connection before the database counts as away.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a statement may take. A server that is gone without a word would otherwise be waited for until the kernel
/// gives the connection up, a quarter of an hour later.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(20);
/// The same in the other direction: without them the server would keep the locks of a transaction whose client is gone.
const SESSION_SETTINGS: &str = "SET idle_in_transaction_session_timeout = '20s'; SET tcp_keepalives_idle = 30; \
                                SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3";
/// A connection that does not answer in this time when it is given back is thrown away.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub struct Db(Pool);

#[derive(Clone)]
enum Pool {
    Sqlite { write: SqlitePool, read: SqlitePool, turn: Turn },
    Postgres(PgPool),
}

/// Whose turn it is to write to a file, in the order in which they came: SQLite's own lock goes to whoever looks first.
type Turn = Arc<Mutex<()>>;

/// A transaction. Dropped without `commit`, it leaves no trace.
pub struct Tx {
    open: Open,
    /// Given back after the transaction.
    _turn: Option<OwnedMutexGuard<()>>,
}

enum Open {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The condition that a column is one of the texts in a parameter, which is a JSON list of them.
    pub(crate) fn in_texts(self, column: &str, parameter: usize) -> String {
        match self {
            Self::Sqlite => format!("{column} IN (SELECT value FROM json_each(${parameter}))"),
            Self::Postgres => {
                format!("{column} IN (SELECT json_array_elements_text(CAST(${parameter} AS JSON)))")
            }
        }
    }

    /// What lets several nodes take different rows of one queue without waiting for each other. SQLite has one node.
    pub(crate) fn skip_locked(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => "FOR UPDATE OF d SKIP LOCKED",
        }
    }
}

impl Db {
    /// Opens `sqlite://path` or `postgres://…`. Does not touch the schema: see `migrate`.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        if let Some(path) = url.strip_prefix("sqlite://") {
            open_sqlite(Path::new(path), Turn::default()).await.map(Db)
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            open_postgres(url).await.map(Db)
        } else {
            Err(StoreError::Open("the database URL must start with sqlite:// or postgres://".into()))
        }
    }

    /// Where log rows are kept: on SQLite in a file of their own beside this one, so that a batch of rows never holds
    /// up a signup; on PostgreSQL in the same database.
    pub async fn open_logs(&self) -> Result<Self, StoreError> {
        match &self.0 {
            Pool::Postgres(pool) => Ok(Self(Pool::Postgres(pool.clone()))),
            Pool::Sqlite { write, .. } => {
                let state = write.connect_options();
                let file = state.get_filename().with_extension("logs.db");
                open_sqlite(&file, Turn::default()).await.map(Db)
            }
        }
    }

    /// The same database over connections of its own. Those of SQLite are threads, which take after the one that opens them.
    pub async fn reopen(&self) -> Result<Self, StoreError> {
        match &self.0 {
            Pool::Postgres(pool) => Ok(Self(Pool::Postgres(pool.clone()))),
            Pool::Sqlite { write, turn, .. } => {
                open_sqlite(write.connect_options().get_filename(), Arc::clone(turn)).await.map(Db)
            }
        }
    }

    pub fn dialect(&self) -> Dialect {
        match &self.0 {
            Pool::Sqlite { .. } => Dialect::Sqlite,
            Pool::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Every row of a reading statement.
    pub async fn all(&self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<Vec<Row>, StoreError> {
        match &self.0 {
            Pool::Sqlite { read, .. } => {
                let rows = sqlx::query_with(sql, sqlite_arguments(args)?).fetch_all(read).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Pool::Postgres(pool) => {
                let rows = in_time(sqlx::query_with(sql, postgres_arguments(args)?).fetch_all(pool)).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// The first row of a reading statement, if there is one.
    pub async fn opt(&self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<Option<Row>, StoreError> {
        match &self.0 {
            Pool::Sqlite { read, .. } => {
                let row = sqlx::query_with(sql, sqlite_arguments(args)?).fetch_optional(read).await?;
                Ok(row.map(Row::Sqlite))
            }
            Pool::Postgres(pool) => {
                let row =
                    in_time(sqlx::query_with(sql, postgres_arguments(args)?).fetch_optional(pool)).await?;
                Ok(row.map(Row::Postgres))
            }
        }
    }

    /// A single writing statement in a transaction of its own; answers how many rows it touched.
    pub async fn exec(&self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let touched = tx.exec(sql, args).await?;
        tx.commit().await?;
        Ok(touched)
    }

    /// A writing transaction. On SQLite it is the only one while it lasts, so it cannot fail half way for a lock.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        let (open, turn) = match &self.0 {
            Pool::Sqlite { write, turn, .. } => {
                let turn = tokio::time::timeout(ACQUIRE_TIMEOUT, Arc::clone(turn).lock_owned());
                let turn = turn.await.map_err(|_| StoreError::Unavailable("others are writing".into()))?;
                (Open::Sqlite(write.begin_with("BEGIN IMMEDIATE").await?), Some(turn))
            }
            Pool::Postgres(pool) => (Open::Postgres(in_time(pool.begin()).await?), None),
        };
        Ok(Tx { open, _turn: turn })
    }

    /// A read-only transaction whose statements all see the database as it was at the first of them. It takes no lock.
    pub(crate) async fn begin_snapshot(&self) -> Result<Tx, StoreError> {
        let open = match &self.0 {
            Pool::Sqlite { read, .. } => Open::Sqlite(read.begin().await?),
            Pool::Postgres(pool) => {
                let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                Open::Postgres(in_time(pool.begin_with(sql)).await?)
            }
        };
        Ok(Tx { open, _turn: None })
    }

    /// Has PostgreSQL look again at a table into which much was written at once. Until it does, it takes the table for a
    /// small one and sorts all of it where it should go by an index. SQLite goes by the index anyway.
    pub(crate) async fn analyze(&self, table: &'static str) -> Result<(), StoreError> {
        if self.dialect() == Dialect::Sqlite {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        tx.script(format!("ANALYZE {table}")).await?;
        tx.commit().await
    }

    /// The pool, for what only PostgreSQL can do.
    pub(crate) fn postgres(&self) -> Option<&PgPool> {
        match &self.0 {
            Pool::Sqlite { .. } => None,
            Pool::Postgres(pool) => Some(pool),
        }
    }

    /// Can the database be read right now?
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.opt("SELECT 1 AS one", Vec::new()).await.map(|_| ())
    }

    pub async fn close(&self) {
        match &self.0 {
            Pool::Sqlite { write, read, .. } => {
                read.close().await;
                write.close().await;
            }
            Pool::Postgres(pool) => pool.close().await,
        }
    }
}

impl Tx {
    pub async fn all(&mut self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<Vec<Row>, StoreError> {
        match &mut self.open {
            Open::Sqlite(tx) => {
                let rows = sqlx::query_with(sql, sqlite_arguments(args)?).fetch_all(&mut **tx).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Open::Postgres(tx) => {
                let query = sqlx::query_with(sql, postgres_arguments(args)?);
                let rows = in_time(query.fetch_all(&mut **tx)).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    pub async fn opt(&mut self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<Option<Row>, StoreError> {
        Ok(self.all(sql, args).await?.into_iter().next())
    }

    pub async fn exec(&mut self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<u64, StoreError> {
        match &mut self.open {
            Open::Sqlite(tx) => {
                let done = sqlx::query_with(sql, sqlite_arguments(args)?).execute(&mut **tx).await?;
                Ok(done.rows_affected())
            }
            Open::Postgres(tx) => {
                let done =
                    in_time(sqlx::query_with(sql, postgres_arguments(args)?).execute(&mut **tx)).await?;
                Ok(done.rows_affected())
            }
        }
    }

    /// A statement with a list for each parameter, which only PostgreSQL understands.
    pub(crate) async fn exec_lists(
        &mut self,
        sql: impl SqlSafeStr,
        lists: Vec<List>,
    ) -> Result<(), StoreError> {
        match &mut self.open {
            Open::Sqlite(_) => Err(StoreError::Other("SQLite has no lists".into())),
            Open::Postgres(tx) => {
                let query = sqlx::query_with(sql, postgres_lists(lists)?);
                in_time(query.execute(&mut **tx)).await.map(|_| ())
            }
        }
    }

    /// Several statements without parameters, as migrations are written.
    pub(crate) async fn script(&mut self, sql: String) -> Result<(), StoreError> {
        match &mut self.open {
            Open::Sqlite(tx) => sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut **tx).await.map(|_| ())?,
            Open::Postgres(tx) => sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut **tx).await.map(|_| ())?,
        }
        Ok(())
    }

    pub fn dialect(&self) -> Dialect {
        match self.open {
            Open::Sqlite(_) => Dialect::Sqlite,
            Open::Postgres(_) => Dialect::Postgres,
        }
    }

    pub async fn commit(self) -> Result<(), StoreError> {
        match self.open {
            Open::Sqlite(tx) => tx.commit().await?,
            Open::Postgres(tx) => in_time(tx.commit()).await?,
        }
        Ok(())
    }
}

/// A statement on PostgreSQL, which is given up when no answer comes.
async fn in_time<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
    match tokio::time::timeout(STATEMENT_TIMEOUT, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(StoreError::Unavailable("it does not answer".into())),
    }
}

async fn open_sqlite(path: &Path, turn: Turn) -> Result<Pool, StoreError> {
    let shown = path.display();
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(ACQUIRE_TIMEOUT)
        .foreign_keys(true);
    let write = SqlitePoolOptions::new()
        .max_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_with(
            options.clone().pragma("wal_autocheckpoint", WAL_PAGES).pragma("cache_size", WRITER_CACHE),
        )
        .await
        .map_err(|error| StoreError::Open(format!("cannot open the database file {shown}: {error}")))?;
    let read = SqlitePoolOptions::new()
        .max_connections(SQLITE_READERS)
        .min_connections(0)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_lazy_with(options.read_only(true).create_if_missing(false));
    Ok(Pool::Sqlite { write, read, turn })
}

async fn open_postgres(url: &str) -> Result<Pool, StoreError> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|error| StoreError::Open(format!("the database URL cannot be read: {error}")))?
        .application_name("gateway");
    let place = format!("{}:{}", options.get_host(), options.get_port());
    let pool = PgPoolOptions::new()
        .max_connections(POSTGRES_CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .after_connect(|connection, _| {
            Box::pin(async move { connection.execute(SESSION_SETTINGS).await.map(|_| ()) })
        })
        .after_release(|connection, _| {
            Box::pin(async move {
                let answered = tokio::time::timeout(RELEASE_TIMEOUT, connection.ping()).await;
                // An error has the connection closed without a farewell, which could be waited for too.
                answered.map_err(|_| sqlx::Error::PoolTimedOut)?.map(|()| true)
            })
        })
        .connect_with(options)
        .await
        .map_err(|error| {
            let why = match error {
                // The pool tries again until its time is over, and then says only that.
                sqlx::Error::PoolTimedOut => "it refuses connections or does not answer".to_owned(),
                error => error.to_string(),
            };
            StoreError::Open(format!("cannot connect to PostgreSQL at {place}: {why}"))
        })?;
    Ok(Pool::Postgres(pool))
}
