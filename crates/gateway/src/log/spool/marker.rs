//! The marker with which every record's `meta` begins. It is random and known to this spool only, so no body contains
//! it: the record behind a damaged one is found by searching for it, and no caller can forge a record in a body.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use memchr::memmem;
use uuid::Uuid;

const FILE: &str = "marker";
const HEX_DIGITS: usize = 32;
/// Precedes the marker, which is no JSON for that reason.
const FIRST: u8 = 0;
const LENGTH: usize = 1 + HEX_DIGITS / 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    bytes: [u8; LENGTH],
    /// As earlier versions wrote it: an object with one field, without its closing bracket.
    json: Vec<u8>,
}

impl Marker {
    /// The marker of the spool in this directory, which is made if there is none.
    pub fn open(directory: &Path) -> Self {
        let path = directory.join(FILE);
        let text = std::fs::read_to_string(&path).ok().filter(|text| text.len() == HEX_DIGITS);
        if let Some(marker) = text.and_then(|text| Uuid::try_parse(&text).ok()) {
            return Self::of(marker);
        }
        let marker = Uuid::new_v4();
        if let Err(error) = save(&path, &marker.simple().to_string()) {
            // A full disk must not keep the service from starting. The marker serves this process.
            tracing::warn!(%error, "cannot save the marker of the log spool");
        }
        Self::of(marker)
    }

    pub(super) fn of(marker: Uuid) -> Self {
        let mut bytes = [FIRST; LENGTH];
        bytes[1..].copy_from_slice(marker.as_bytes());
        Self { bytes, json: format!(r#"{{"mark":"{}""#, marker.simple()).into_bytes() }
    }

    /// What records begin with.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What follows the marker, whichever it is. `None` in records of earlier versions.
    pub fn skip(meta: &[u8]) -> Option<&[u8]> {
        let (marker, row) = meta.split_at_checked(LENGTH)?;
        (marker[0] == FIRST).then_some(row)
    }

    #[cfg(test)]
    pub(super) fn json(&self) -> &[u8] {
        &self.json
    }

    /// How this segment is marked. A segment is written by one version.
    pub fn in_segment(&self, segment: &[u8]) -> Option<&[u8]> {
        [&self.bytes[..], &self.json].into_iter().find(|mark| memmem::find(segment, mark).is_some())
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
