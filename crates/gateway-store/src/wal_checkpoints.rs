//! Copies the pages of SQLite's write-ahead log to the database file. SQLite would do it within the commit that makes
//! the log too long, and every other writer would wait for the disk. Here it happens beside the writers: they wait only
//! for the few pages that were written meanwhile.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sqlx::sqlite::SqlitePool;

use crate::StoreError;
use crate::connection_shares::ConnectionShares;
use crate::db::{Db, sqlite_writer};

/// A checkpoint is due when this many pages of the log are not in the database file. Batches of log rows change the
/// same pages again and again, so fewer checkpoints write each page fewer times.
const DUE_PAGES: u32 = 4_000;
/// A commit copies the pages itself if the log has this many: it must stay bounded if checkpoints fail.
pub(crate) const MAX_PAGES: &str = "16000";

/// Where the index of the log has the number of pages in the log, and the number of those that are in the database file
/// as well. Both have the byte order of the machine (<https://www.sqlite.org/walformat.html>).
const LOGGED_AT: usize = 16;
const COPIED_AT: usize = 96;
const HEADER: usize = 100;

/// The checkpoints of one SQLite file.
pub struct WalCheckpoints {
    connection: SqlitePool,
    shares: ConnectionShares,
    index: PathBuf,
}

impl Db {
    /// None on PostgreSQL.
    pub fn wal_checkpoints(&self) -> Option<WalCheckpoints> {
        let options = (*self.sqlite()?.connect_options()).clone();
        let mut index = options.get_filename().as_os_str().to_owned();
        index.push("-shm");
        let connection = sqlite_writer().connect_lazy_with(options);
        Some(WalCheckpoints { connection, shares: self.shares.clone(), index: index.into() })
    }
}

impl WalCheckpoints {
    /// Makes a checkpoint if one is due; returns whether it did.
    pub async fn run_if_due(&self) -> Result<bool, StoreError> {
        let index = self.index.clone();
        let waiting = tokio::task::spawn_blocking(move || waiting_pages(&index)).await;
        if !waiting.is_ok_and(|pages| pages.is_ok_and(|pages| pages >= DUE_PAGES)) {
            return Ok(false);
        }
        self.copy_pages().await?;
        // The log starts from its beginning only if all of its pages are copied, so nothing may be added meanwhile.
        let _share = self.shares.write().await?;
        self.copy_pages().await?;
        Ok(true)
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

/// The pages of the log that are not in the database file.
fn waiting_pages(index: &Path) -> std::io::Result<u32> {
    let mut header = [0; HEADER];
    File::open(index)?.read_exact(&mut header)?;
    let number = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&header[at..at + 4]);
        u32::from_ne_bytes(bytes)
    };
    Ok(number(LOGGED_AT).saturating_sub(number(COPIED_AT)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::args;

    async fn write_pages(db: &Db, pages: usize) {
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
        write_pages(&db, DUE_PAGES as usize).await;
        assert!(waiting_pages(&checkpoints.index).unwrap() >= DUE_PAGES, "a commit does not copy them");
        assert!(checkpoints.run_if_due().await.unwrap());
        assert_eq!(waiting_pages(&checkpoints.index).unwrap(), 0);
        assert!(std::fs::metadata(&path).unwrap().len() > u64::from(DUE_PAGES) * 4_096);
        let logged = std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
        write_pages(&db, 100).await;
        assert_eq!(
            std::fs::metadata(path.with_extension("db-wal")).unwrap().len(),
            logged,
            "it is written again"
        );
        let waiting = waiting_pages(&checkpoints.index).unwrap();
        assert!((100..DUE_PAGES).contains(&waiting), "{waiting}");
        checkpoints.close().await;
    }
}
