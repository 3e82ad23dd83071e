//! Transactions. A connection is used again only if the end of its transaction is known: after a failed BEGIN, COMMIT or
//! ROLLBACK, or a statement that was given up half way, it is closed. SQLite ends a transaction by itself when the disk
//! is full, and a connection that is believed to be inside of one would fail for ever.

use gateway_core::audit::Draft;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, SqlSafeStr, Sqlite};
use tokio::runtime::Handle;

use crate::connection_shares::Share;
use crate::db::{ACQUIRE_TIMEOUT, Dialect, PING_TIMEOUT, with_timeout};
use crate::faults::{self, DbCall, Faults};
use crate::postgres_connection::PostgresConnection;
use crate::row::{Arg, List, Row, postgres_arguments, postgres_lists, sqlite_arguments};
use crate::{Db, StoreError, audit};

/// A connection that a transaction has taken out of its pool.
pub(crate) enum Connection {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PostgresConnection),
}

/// A transaction, which is rolled back when dropped without `commit`.
pub struct Tx {
    /// Taken out at the end.
    connection: Option<Connection>,
    state: State,
    /// Released when the transaction has ended.
    share: Option<Share>,
    /// Audit entries of the change, which `commit` appends.
    entries: Vec<Draft>,
    /// How many of them were appended.
    appended: u64,
    pub(crate) faults: Faults,
}

impl Db {
    /// Begins a transaction that only reads, all of it as of its first statement. It locks nothing, so that no change
    /// waits for it; statements that change or lock something fail in it.
    pub async fn begin_read(&self) -> Result<Tx, StoreError> {
        let share = self.shares.read().await?;
        let mut tx = self.begin_snapshot().await?;
        tx.share = share;
        Ok(tx)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// A statement failed. SQLite may have rolled back already; PostgreSQL accepts only ROLLBACK.
    Failed,
    /// A statement has not been answered, or the database could not execute it.
    Unknown,
}

impl Tx {
    pub(crate) async fn begin(
        connection: Connection,
        sql: &'static str,
        share: Option<Share>,
    ) -> Result<Self, StoreError> {
        let mut tx = Self {
            connection: Some(connection),
            state: State::Unknown,
            share,
            entries: Vec::new(),
            appended: 0,
            faults: Faults::default(),
        };
        tx.connection()?.control(sql).await?;
        tx.state = State::Open;
        Ok(tx)
    }

    /// Injects the faults of the database.
    pub(crate) async fn set_faults(&mut self, faults: &Faults) -> Result<(), StoreError> {
        self.faults.clone_from(faults);
        faults::at_begin(self).await
    }

    pub async fn all(&mut self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<Vec<Row>, StoreError> {
        faults::within(self, DbCall::Statement).await?;
        let done = self.start()?.all(sql, args).await;
        self.finish(done)
    }

    pub async fn opt(&mut self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<Option<Row>, StoreError> {
        Ok(self.all(sql, args).await?.into_iter().next())
    }

    /// Executes a statement; returns the number of affected rows.
    pub async fn exec(&mut self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<u64, StoreError> {
        faults::within(self, DbCall::Statement).await?;
        let done = self.start()?.exec(sql, args).await;
        self.finish(done)
    }

    /// Executes a statement with an array for each parameter. PostgreSQL only.
    pub(crate) async fn exec_lists(
        &mut self,
        sql: impl SqlSafeStr,
        lists: Vec<List>,
    ) -> Result<(), StoreError> {
        faults::within(self, DbCall::Statement).await?;
        let done = self.start()?.exec_lists(sql, lists).await;
        self.finish(done)
    }

    /// Executes several statements without parameters, such as a migration.
    pub(crate) async fn script(&mut self, sql: String) -> Result<(), StoreError> {
        let done = self.start()?.script(sql).await;
        self.finish(done)
    }

    /// Lets the statements of this transaction run as long as they need. They must use `script`.
    pub(crate) async fn lift_timeout(&mut self) -> Result<(), StoreError> {
        match self.dialect() {
            Dialect::Sqlite => Ok(()),
            Dialect::Postgres => self.script("SET LOCAL statement_timeout = 0".into()).await,
        }
    }

    pub fn dialect(&self) -> Dialect {
        match self.connection {
            Some(Connection::Postgres(_)) => Dialect::Postgres,
            Some(Connection::Sqlite(_)) | None => Dialect::Sqlite,
        }
    }

    /// Adds an entry to the audit log together with the change. `commit` appends it, because the head of the chain must
    /// be the last row that a transaction locks.
    pub fn record(&mut self, entry: Draft) {
        self.entries.push(entry);
    }

    pub(crate) fn take_entries(&mut self) -> Vec<Draft> {
        self.appended += self.entries.len() as u64;
        std::mem::take(&mut self.entries)
    }

    pub async fn commit(mut self) -> Result<(), StoreError> {
        if !self.entries.is_empty() {
            audit::append(&mut self).await?;
        }
        let outcome = faults::within(&mut self, DbCall::Commit).await?;
        let committed = self.start()?.control("COMMIT").await;
        if committed.is_ok() {
            // Back to the pool.
            self.connection = None;
            audit::count_written(self.appended);
        }
        outcome.of_commit(committed)
    }

    /// Until `finish`, the state of the connection is unknown: the caller may be cancelled at any time. After a failed
    /// statement nothing else is executed, because SQLite may be outside of the transaction.
    fn start(&mut self) -> Result<&mut Connection, StoreError> {
        if self.state != State::Open {
            return Err(StoreError::Other("an earlier statement of the transaction failed".into()));
        }
        self.state = State::Unknown;
        self.connection()
    }

    pub(crate) fn finish<T>(&mut self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        self.state = match done {
            Ok(_) => State::Open,
            Err(StoreError::Unavailable(_)) => State::Unknown,
            Err(_) => State::Failed,
        };
        done
    }

    fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        self.connection.as_mut().ok_or_else(|| StoreError::Other("the transaction has ended".into()))
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let (state, share) = (self.state, self.share.take());
        match Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    connection.roll_back(state).await;
                    drop(share);
                });
            }
            Err(_) => connection.abandon(),
        }
    }
}

impl Connection {
    async fn all(&mut self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Sqlite(connection) => {
                let rows =
                    sqlx::query_with(sql, sqlite_arguments(args)?).fetch_all(&mut **connection).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(connection) => {
                let query = sqlx::query_with(sql, postgres_arguments(args)?);
                let rows = with_timeout(query.fetch_all(&mut **connection)).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    async fn exec(&mut self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(connection) => {
                let query = sqlx::query_with(sql, sqlite_arguments(args)?);
                Ok(query.execute(&mut **connection).await?.rows_affected())
            }
            Self::Postgres(connection) => {
                let query = sqlx::query_with(sql, postgres_arguments(args)?);
                Ok(with_timeout(query.execute(&mut **connection)).await?.rows_affected())
            }
        }
    }

    async fn exec_lists(&mut self, sql: impl SqlSafeStr, lists: Vec<List>) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(_) => Err(StoreError::Other("SQLite has no array parameters".into())),
            Self::Postgres(connection) => {
                let query = sqlx::query_with(sql, postgres_lists(lists)?);
                with_timeout(query.execute(&mut **connection)).await.map(|_| ())
            }
        }
    }

    async fn script(&mut self, sql: String) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(connection) => {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut **connection).await?;
            }
            Self::Postgres(connection) => {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut **connection).await?;
            }
        }
        Ok(())
    }

    /// Begins or ends a transaction.
    async fn control(&mut self, sql: &'static str) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(connection) => {
                sqlx::raw_sql(sql).execute(&mut **connection).await?;
            }
            Self::Postgres(connection) => {
                with_timeout(sqlx::raw_sql(sql).execute(&mut **connection)).await?;
            }
        }
        Ok(())
    }

    /// Rolls back and returns the connection to its pool, or closes it if that is not possible.
    async fn roll_back(mut self, state: State) {
        let is_usable = state != State::Unknown
            && matches!(tokio::time::timeout(PING_TIMEOUT, self.control("ROLLBACK")).await, Ok(Ok(())));
        if !is_usable {
            self.close().await;
        }
    }

    /// Closes the connection, which rolls back. The pool opens another one.
    async fn close(self) {
        match self {
            // Waits until the file is closed, because the next writer waits for its lock.
            Self::Sqlite(connection) => {
                let _ = tokio::time::timeout(ACQUIRE_TIMEOUT, connection.close()).await;
            }
            // Does not wait: the server may not respond.
            Self::Postgres(connection) => connection.close(),
        }
    }

    /// Closes the connection without a runtime.
    fn abandon(self) {
        match self {
            Self::Sqlite(connection) => drop(connection.detach()),
            Self::Postgres(connection) => connection.close(),
        }
    }
}

#[cfg(test)]
mod tests;
