//! The marker with which every record's `meta` begins. It is random and known to this spool only, so no body contains
//! it: the record behind a damaged one is found by searching for it, and no caller can forge a record in a body.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use memchr::memmem;

const FILE: &str = "marker";
const HEX_DIGITS: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker(Vec<u8>);

impl Marker {
    /// The marker of the spool in this directory, which is made if there is none.
    pub fn open(directory: &Path) -> Self {
        let path = directory.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) if text.len() == HEX_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                Self::of(&text)
            }
            _ => {
                let text = uuid::Uuid::new_v4().simple().to_string();
                if let Err(error) = save(&path, &text) {
                    // A full disk must not keep the service from starting. The marker serves this process.
                    tracing::warn!(%error, "cannot save the marker of the log spool");
                }
                Self::of(&text)
            }
        }
    }

    pub(super) fn of(text: &str) -> Self {
        Self(format!(r#"{{"mark":"{text}""#).into_bytes())
    }

    /// An object with one field, without its closing bracket.
    pub fn json(&self) -> &[u8] {
        &self.0
    }

    pub fn find(&self, bytes: &[u8]) -> Option<usize> {
        memmem::find(bytes, &self.0)
    }
}

/// A half written file would be replaced at the next start, and its records would lose their marker.
fn save(path: &Path, text: &str) -> std::io::Result<()> {
    let draft = path.with_extension("new");
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(draft, path)
}
