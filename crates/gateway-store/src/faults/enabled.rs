//! The hooks of tests: an injector decides which call fails and how.

use std::fs::File;
use std::io::{ErrorKind, IoSlice, Result, Write as _};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::{DbCall, DiskCall, KillPoint};
use crate::StoreError;

/// Names the point at which the process dies, as `name` or `name:count` for a later passage.
const KILL_VARIABLE: &str = "TEST_KILL_AT";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    Db(DbCall),
    Disk(DiskCall),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call succeeds after this time.
    Delay(Duration),
    /// The connection to the database breaks before the call.
    LostConnection,
    /// There is no space left.
    DiskFull,
    /// The device reports an error, or does not confirm that the data is on disk.
    IoError,
    /// The commit succeeds, but its answer is lost.
    AnswerLost,
    /// A write to a file stops after this many bytes, as the system call may.
    ShortWrite(usize),
    /// A write to a file stops after this many bytes because the disk is full.
    TornWrite(usize),
}

/// Decides which calls fail. It is asked at each call.
pub trait Injector: Send + Sync {
    fn fault(&self, point: Point) -> Option<Fault>;
}

/// The faults of one database or spool. Clones share the injector.
#[derive(Clone, Default)]
pub struct Faults(Arc<Inner>);

#[derive(Default)]
struct Inner {
    injector: Mutex<Option<Arc<dyn Injector>>>,
    /// The SQLite file may not grow.
    is_full: AtomicBool,
}

impl Faults {
    pub fn set(&self, injector: Option<Arc<dyn Injector>>) {
        *self.0.injector.lock().unwrap_or_else(PoisonError::into_inner) = injector;
    }

    pub(super) fn at(&self, point: Point) -> Option<Fault> {
        let injector = self.0.injector.lock().unwrap_or_else(PoisonError::into_inner).clone();
        injector?.fault(point)
    }

    pub(super) fn set_full(&self, is_full: bool) -> bool {
        self.0.is_full.swap(is_full, Ordering::Relaxed)
    }

    /// Fails a call that has no transaction yet.
    pub(crate) async fn before(&self, call: DbCall) -> std::result::Result<(), StoreError> {
        match self.at(Point::Db(call)) {
            None | Some(Fault::AnswerLost) => Ok(()),
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Some(fault) => Err(StoreError::Unavailable(format!("injected before {call:?}: {fault:?}"))),
        }
    }

    /// Fails a call of the file system.
    pub fn disk(&self, call: DiskCall) -> Result<()> {
        match self.at(Point::Disk(call)) {
            None => Ok(()),
            Some(Fault::Delay(time)) => {
                std::thread::sleep(time);
                Ok(())
            }
            Some(fault) => Err(disk_error(fault)),
        }
    }

    /// Writes as `write_vectored` does, or only a part.
    pub fn write(&self, file: &mut File, parts: &[IoSlice<'_>]) -> Result<usize> {
        let limit = match self.at(Point::Disk(DiskCall::Write)) {
            None => return file.write_vectored(parts),
            Some(Fault::Delay(time)) => {
                std::thread::sleep(time);
                return file.write_vectored(parts);
            }
            Some(Fault::ShortWrite(bytes)) => return file.write(&start(parts, bytes.max(1))),
            Some(Fault::TornWrite(bytes)) => bytes,
            Some(fault) => return Err(disk_error(fault)),
        };
        file.write_all(&start(parts, limit))?;
        Err(ErrorKind::StorageFull.into())
    }
}

fn start(parts: &[IoSlice<'_>], bytes: usize) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).take(bytes).collect()
}

fn disk_error(fault: Fault) -> std::io::Error {
    match fault {
        Fault::DiskFull | Fault::TornWrite(_) => ErrorKind::StorageFull.into(),
        // EIO
        _ => std::io::Error::from_raw_os_error(5),
    }
}

/// Ends the process without any cleanup, as SIGKILL does, if the environment names this point.
pub fn kill_point(point: KillPoint) {
    static TARGET: OnceLock<Option<(String, AtomicI64)>> = OnceLock::new();
    let target = TARGET.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "a setting of tests, not of the program")]
        let value = std::env::var(KILL_VARIABLE).ok()?;
        let (name, count) = value.split_once(':').unwrap_or((&value, "1"));
        Some((name.to_owned(), AtomicI64::new(count.parse().ok()?)))
    });
    if let Some((name, left)) = target
        && name == point.as_str()
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        std::process::abort();
    }
}
