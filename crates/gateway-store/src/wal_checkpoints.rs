//! Copies the pages of SQLite's write-ahead log to the database file. SQLite would do it within the commit that makes
//! the log too long, and every other writer would wait for the disk. Here it happens beside the writers: they wait only
//! for the few pages that were written meanwhile.

use sqlx::Row as _;
use sqlx::sqlite::{SqlitePool, SqliteRow};

use crate::StoreError;
use crate::connection_shares::ConnectionShares;
use crate::db::{Db, sqlite_writer};

/// A checkpoint is due when this many pages of the log are not in the database file. Batches of log rows change the
/// same pages again and again, so fewer checkpoints write each page fewer times.
const DUE_PAGES: i64 = 4_000;
/// A commit copies the pages itself if the log has this many: it must stay bounded if checkpoints fail.
pub(crate) const MAX_PAGES: &str = "16000";

/// The checkpoints of one SQLite file.
pub struct WalCheckpoints {
    connection: SqlitePool,
    shares: ConnectionShares,
}

impl Db {
    /// None on PostgreSQL.
    pub fn wal_checkpoints(&self) -> Option<WalCheckpoints> {
        let options = (*self.sqlite()?.connect_options()).clone();
        let connection = sqlite_writer().connect_lazy_with(options);
        Some(WalCheckpoints { connection, shares: self.shares.clone() })
    }
}

impl WalCheckpoints {
    /// Makes a checkpoint if one is due; returns whether it did.
    pub async fn run_if_due(&self) -> Result<bool, StoreError> {
        if self.waiting_pages().await? < DUE_PAGES {
            return Ok(false);
        }
        self.copy_pages().await?;
        // The log starts from its beginning only if all of its pages are copied, so nothing may be added meanwhile.
        let _share = self.shares.write().await?;
        self.copy_pages().await?;
        Ok(true)
    }

    /// The pages of the log that are not in the database file. SQLite is asked for them: a program that opens and closes
    /// one of its files loses all locks that SQLite has on it, and the next process to open the database would truncate
    /// the index of the log, which ends this one with SIGBUS.
    async fn waiting_pages(&self) -> Result<i64, StoreError> {
        let found = sqlx::raw_sql("PRAGMA wal_checkpoint(NOOP)").fetch_one(&self.connection).await?;
        let number = |row: &SqliteRow, at: usize| row.try_get::<i64, _>(at);
        Ok(number(&found, 1)?.saturating_sub(number(&found, 2)?))
    }

    /// Waits neither for readers nor for writers. Pages that a reader does not know yet stay in the log.
    async fn copy_pages(&self) -> Result<(), StoreError> {
        sqlx::raw_sql("PRAGMA wal_checkpoint(PASSIVE)").execute(&self.connection).await?;
        Ok(())
    }

    pub async fn close(&self) {
        self.connection.close().await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::row::args;

    async fn write_pages(db: &Db, pages: i64) {
        let mut tx = db.begin().await.unwrap();
        for number in 0..pages {
            // Larger than a page.
            let text = format!("{number:05000}");
            tx.exec("INSERT INTO texts (text) VALUES ($1)", args![text]).await.unwrap();
        }
        tx.commit().await.unwrap();
    }

    #[tokio::test]
    async fn a_long_log_is_copied_and_starts_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.db");
        let db = Db::open(&format!("sqlite://{}", path.display())).await.unwrap();
        let checkpoints = db.wal_checkpoints().unwrap();
        db.exec("CREATE TABLE texts (text TEXT)", vec![]).await.unwrap();
        assert!(!checkpoints.run_if_due().await.unwrap(), "the log is short");
        write_pages(&db, DUE_PAGES).await;
        assert!(checkpoints.waiting_pages().await.unwrap() >= DUE_PAGES, "a commit does not copy them");
        assert!(checkpoints.run_if_due().await.unwrap());
        assert_eq!(checkpoints.waiting_pages().await.unwrap(), 0);
        assert!(std::fs::metadata(&path).unwrap().len() > DUE_PAGES.cast_unsigned() * 4_096);
        let logged = std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
        write_pages(&db, 100).await;
        assert_eq!(
            std::fs::metadata(path.with_extension("db-wal")).unwrap().len(),
            logged,
            "it is written again"
        );
        let waiting = checkpoints.waiting_pages().await.unwrap();
        assert!((100..DUE_PAGES).contains(&waiting), "{waiting}");
        checkpoints.close().await;
    }

    #[tokio::test]
    async fn the_locks_of_sqlite_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&format!("sqlite://{}", dir.path().join("t.db").display())).await.unwrap();
        db.exec("CREATE TABLE texts (text TEXT)", vec![]).await.unwrap();
        let checkpoints = db.wal_checkpoints().unwrap();
        let inode = std::fs::metadata(dir.path().join("t.db-shm")).unwrap().ino();
        // `1: POSIX  ADVISORY  READ 4711 fe:00:1234 128 128`
        let is_locked = || {
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            locks.split_whitespace().any(|word| word.ends_with(&format!(":{inode}")))
        };
        assert!(is_locked(), "SQLite marks the index of the log as used");
        checkpoints.run_if_due().await.unwrap();
        assert!(is_locked(), "another process would take the database for unused");
        checkpoints.close().await;
        assert!(is_locked());
    }
}
