//! What cannot be stored is kept in files beside the segments: damaged bytes of a segment (`.bad`), and records that
//! the store rejects or that this version cannot read (`.quarantine`). Each kind is bounded in size; the oldest files
//! are removed first.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The size of all files of one kind.
const MAX_BYTES: u64 = 64 << 20;
/// A larger quarantine file is followed by another.
const FILE_BYTES: u64 = 8 << 20;

const BAD: &str = "bad";
const QUARANTINE: &str = "quarantine";

pub struct SetAside {
    directory: PathBuf,
    max_bytes: u64,
    damaged: AtomicU64,
    quarantined: AtomicU64,
    has_quarantine: AtomicBool,
}

impl SetAside {
    pub fn open(directory: &Path) -> std::io::Result<Self> {
        let set_aside = Self {
            directory: directory.to_owned(),
            max_bytes: MAX_BYTES,
            damaged: AtomicU64::new(0),
            quarantined: AtomicU64::new(0),
            has_quarantine: AtomicBool::new(false),
        };
        set_aside.look_again()?;
        Ok(set_aside)
    }

    /// The number of damaged places found since the start.
    pub fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// The number of rows put into quarantine since the start.
    pub fn quarantined(&self) -> u64 {
        self.quarantined.load(Ordering::Relaxed)
    }

    /// Whether there are rows in quarantine, also of an earlier process.
    pub fn has_quarantine(&self) -> bool {
        self.has_quarantine.load(Ordering::Relaxed)
    }

    /// Notices that the operator has removed the files.
    pub fn look_again(&self) -> std::io::Result<()> {
        self.has_quarantine.store(!self.files(QUARANTINE)?.is_empty(), Ordering::Relaxed);
        Ok(())
    }

    /// Keeps damaged bytes of a segment. If the disk is full they are dropped: nothing can be read from them.
    pub fn keep_damaged(&self, segment: &Path, offset: u64, bytes: &[u8]) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        let name = segment.file_stem().unwrap_or_default().to_string_lossy();
        let path = self.directory.join(format!("{name}-{offset:010}.{BAD}"));
        let kept = append(&path, bytes).and_then(|()| self.prune(BAD));
        tracing::error!(
            segment = %segment.display(), offset, bytes = bytes.len(), kept = kept.is_ok(),
            "a part of the log spool is damaged; the rows behind it are read"
        );
    }

    /// Keeps a whole record that cannot be stored.
    pub fn quarantine(&self, record: &[u8], reason: &str) -> std::io::Result<()> {
        let files = self.files(QUARANTINE)?;
        let path = match files.last() {
            Some((path, size)) if size + record.len() as u64 <= FILE_BYTES => path.clone(),
            Some((path, _)) => self.quarantine_path(number(path).unwrap_or(0) + 1),
            None => self.quarantine_path(0),
        };
        append(&path, record)?;
        self.quarantined.fetch_add(1, Ordering::Relaxed);
        self.has_quarantine.store(true, Ordering::Relaxed);
        tracing::error!(%reason, file = %path.display(), "a log row cannot be stored and was put into quarantine");
        self.prune(QUARANTINE)
    }

    fn quarantine_path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:016}.{QUARANTINE}"))
    }

    /// The files of a kind and their sizes, oldest first.
    fn files(&self, kind: &str) -> std::io::Result<Vec<(PathBuf, u64)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == kind) {
                let size = path.metadata()?.len();
                found.push((path, size));
            }
        }
        found.sort();
        Ok(found)
    }

    fn prune(&self, kind: &str) -> std::io::Result<()> {
        let files = self.files(kind)?;
        let mut total: u64 = files.iter().map(|(_, size)| size).sum();
        // The newest file stays.
        for (path, size) in files.iter().take(files.len().saturating_sub(1)) {
            if total <= self.max_bytes {
                break;
            }
            std::fs::remove_file(path)?;
            total -= size;
        }
        Ok(())
    }
}

fn append(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(bytes)
}

fn number(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_bounded_and_the_oldest_go_first() {
        let directory = tempfile::tempdir().unwrap();
        let set_aside = SetAside { max_bytes: 1_000, ..SetAside::open(directory.path()).unwrap() };
        for offset in 0..20 {
            set_aside.keep_damaged(Path::new("0000000000000001.seg"), offset, &[0; 100]);
        }
        let files = set_aside.files(BAD).unwrap();
        assert_eq!((files.len(), set_aside.damaged()), (10, 20));
        assert!(files[0].0.ends_with("0000000000000001-0000000010.bad"));
        assert!(!set_aside.has_quarantine());
    }

    #[test]
    fn quarantine_is_seen_until_its_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let set_aside = SetAside::open(directory.path()).unwrap();
        set_aside.quarantine(b"one", "refused").unwrap();
        set_aside.quarantine(b"two", "refused").unwrap();
        let path = directory.path().join("0000000000000000.quarantine");
        assert_eq!(std::fs::read(&path).unwrap(), b"onetwo");
        let reopened = SetAside::open(directory.path()).unwrap();
        assert!(reopened.has_quarantine());
        assert_eq!((set_aside.quarantined(), reopened.quarantined()), (2, 0));
        std::fs::remove_file(path).unwrap();
        reopened.look_again().unwrap();
        assert!(!reopened.has_quarantine());
    }
}
