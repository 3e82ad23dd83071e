//! Faults inside a transaction. Where a database can be made to fail by itself, it is, so that the errors and the state
//! of the connection afterwards are real.

use super::{DbCall, Fault, Point};
use crate::db::Dialect;
use crate::{StoreError, Tx};

/// The largest value that SQLite accepts.
const MAX_PAGES: &str = "PRAGMA max_page_count = 4294967294";
/// SQLite does not reduce the limit below the current size, so the file cannot grow any more.
const NO_MORE_PAGES: &str = "PRAGMA max_page_count = 1";
/// The commit of a transaction with a violated deferred constraint fails, and the transaction stays open.
const BREAK_COMMIT: &str = "CREATE TEMP TABLE fault_parent (id INTEGER PRIMARY KEY); \
     CREATE TEMP TABLE fault_child (id INTEGER REFERENCES fault_parent DEFERRABLE INITIALLY DEFERRED); \
     INSERT INTO fault_child VALUES (1)";
const TERMINATE: &str = "SELECT pg_terminate_backend(pg_backend_pid())";
const RAISE_DISK_FULL: &str = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' \
     USING ERRCODE = '53100'; END $$";
const RAISE_IO_ERROR: &str = "DO $$ BEGIN RAISE EXCEPTION 'could not fsync file: Input/output error' \
     USING ERRCODE = '58030'; END $$";

/// What became of a call.
#[derive(Default)]
pub(crate) struct Outcome {
    answer_is_lost: bool,
    commit_is_broken: bool,
}

impl Outcome {
    pub(crate) fn of_commit(self, result: Result<(), StoreError>) -> Result<(), StoreError> {
        match result {
            Ok(()) if self.answer_is_lost => {
                Err(StoreError::Unavailable("injected: the answer of the commit is lost".into()))
            }
            Err(_) if self.commit_is_broken => {
                Err(StoreError::Unavailable("injected: the commit cannot be written to disk".into()))
            }
            result => result,
        }
    }
}

/// Fails a call of a transaction.
pub(crate) async fn within(tx: &mut Tx, call: DbCall) -> Result<Outcome, StoreError> {
    let mut outcome = Outcome::default();
    let Some(fault) = tx.faults.at(Point::Db(call)) else { return Ok(outcome) };
    match (fault, tx.dialect()) {
        (Fault::Delay(time), _) => tokio::time::sleep(time).await,
        (Fault::AnswerLost, _) => outcome.answer_is_lost = true,
        (Fault::LostConnection, Dialect::Postgres) => tx.script(TERMINATE.to_owned()).await?,
        (Fault::DiskFull, Dialect::Postgres) => tx.script(RAISE_DISK_FULL.to_owned()).await?,
        (_, Dialect::Postgres) => tx.script(RAISE_IO_ERROR.to_owned()).await?,
        (_, Dialect::Sqlite) if call == DbCall::Commit => {
            tx.script(BREAK_COMMIT.to_owned()).await?;
            outcome.commit_is_broken = true;
        }
        (Fault::DiskFull, Dialect::Sqlite) => {
            tx.script(NO_MORE_PAGES.to_owned()).await?;
            tx.faults.set_full(true);
        }
        (fault, Dialect::Sqlite) => {
            let error = StoreError::Unavailable(format!("injected at {call:?}: {fault:?}"));
            return tx.finish(Err(error));
        }
    }
    Ok(outcome)
}

/// A disk that was full in an earlier transaction has room again.
pub(crate) async fn at_begin(tx: &mut Tx) -> Result<(), StoreError> {
    if tx.faults.set_full(false) && tx.dialect() == Dialect::Sqlite {
        tx.script(MAX_PAGES.to_owned()).await?;
    }
    Ok(())
}
