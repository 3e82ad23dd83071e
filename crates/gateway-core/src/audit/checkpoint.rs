//! Signed statements about a chain: checkpoints, and the manifest at the end of an export.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::chain::{BadEntry, Flaw, Position, StoredEntry, genesis};
use super::{Chain, canonical};
use crate::time::{HOUR, Timestamp};

/// New entries after which a checkpoint is made before its hour is over.
const MAX_ENTRIES: i64 = 10_000;

/// The state of a chain at some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditCheckpoint")]
pub struct Checkpoint {
    pub org_id: String,
    pub seq: i64,
    pub hash: String,
    pub at: Timestamp,
}

impl Checkpoint {
    /// What is signed.
    pub fn text(&self) -> String {
        canonical(&json!(self))
    }
}

/// A checkpoint with its Ed25519 signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SignedAuditCheckpoint")]
pub struct SignedCheckpoint {
    #[serde(flatten)]
    pub checkpoint: Checkpoint,
    /// Base64 of the Ed25519 signature of the canonical JSON of `org_id`, `seq`, `hash` and `at`.
    pub signature: String,
    /// One of `GET /audit/keys`.
    pub key_id: String,
}

/// Whether a chain needs its next checkpoint. `last` is the previous one.
pub fn is_due(seq: i64, last: Option<(i64, Timestamp)>, now: Timestamp) -> bool {
    match last {
        None => seq > 0,
        Some((of, at)) => seq > of && (now.0.saturating_sub(at.0) >= HOUR || seq - of >= MAX_ENTRIES),
    }
}

/// The last line of an export in JSON lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub org_id: String,
    pub from_seq: i64,
    pub to_seq: i64,
    pub entries: i64,
    pub first_prev_hash: String,
    pub last_hash: String,
    pub checkpoint: Checkpoint,
    pub signature: String,
    pub key_id: String,
}

/// Why an export cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    #[error("entry {}: {}", .0.seq, explained(.0.why))]
    Entry(BadEntry),
    #[error("line {0} is not an entry of an audit log")]
    Unreadable(usize),
    #[error("the manifest is missing: the export is incomplete")]
    Incomplete,
    #[error("entry {0}: the manifest does not match the entries")]
    Manifest(i64),
}

fn explained(flaw: Flaw) -> &'static str {
    match flaw {
        Flaw::Hash => "its content does not match its hash (hash)",
        Flaw::Link => "it does not continue the entry before it (link)",
        Flaw::Gap => "it is missing, or its number occurs twice (gap)",
        Flaw::Checkpoint => "the signature of the checkpoint is wrong (checkpoint)",
    }
}

/// Checks an export line by line. The signature of its manifest is left to the caller.
#[derive(Debug, Default)]
pub struct ExportCheck {
    lines: usize,
    first: Option<Position>,
    position: Option<Position>,
    manifest: Option<Manifest>,
}

impl ExportCheck {
    pub fn line(&mut self, text: &str) -> Result<(), ExportError> {
        self.lines += 1;
        let unreadable = ExportError::Unreadable(self.lines);
        if text.trim().is_empty() {
            return Ok(());
        }
        let Ok(Value::Object(mut line)) = serde_json::from_str(text) else { return Err(unreadable) };
        if self.manifest.is_some() {
            return Err(unreadable);
        }
        if let Some(manifest) = line.remove("manifest") {
            self.manifest = Some(serde_json::from_value(manifest).map_err(|_| unreadable)?);
            return Ok(());
        }
        let (Some(Value::String(hash)), Some(seq)) =
            (line.remove("hash"), line.get("seq").and_then(Value::as_i64))
        else {
            return Err(unreadable);
        };
        let prev_hash = line.get("prev_hash").and_then(Value::as_str).unwrap_or_default().to_owned();
        let start = || Position { seq: seq - 1, hash: prev_hash.clone() };
        self.first.get_or_insert_with(start);
        let body = canonical(&Value::Object(line));
        let entry = StoredEntry { seq, body: &body, body_seq: seq, prev_hash: &prev_hash, hash: &hash };
        self.position.get_or_insert_with(start).advance(entry).map_err(ExportError::Entry)
    }

    /// The manifest, if all entries that it promises were there.
    pub fn finish(self) -> Result<Manifest, ExportError> {
        let manifest = self.manifest.ok_or(ExportError::Incomplete)?;
        let empty = Position { seq: manifest.from_seq - 1, hash: manifest.first_prev_hash.clone() };
        let first = self.first.unwrap_or_else(|| empty.clone());
        let last = self.position.unwrap_or(empty);
        let starts_right = first.seq > 0
            || manifest.org_id.parse().map(Chain::Org).is_ok_and(|chain| genesis(&chain) == first.hash);
        if !starts_right {
            return Err(ExportError::Entry(BadEntry { seq: 1, why: Flaw::Link }));
        }
        if (manifest.from_seq, &manifest.first_prev_hash) != (first.seq + 1, &first.hash) {
            return Err(ExportError::Manifest(first.seq + 1));
        }
        let promised = (manifest.to_seq, &manifest.last_hash, manifest.entries);
        let stated = (manifest.checkpoint.seq, &manifest.checkpoint.hash);
        if promised != (last.seq, &last.hash, last.seq - first.seq) || stated != (last.seq, &last.hash) {
            return Err(ExportError::Manifest(last.seq));
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::chain::entry_hash;

    const ORG: &str = "0192f0c1-2345-7abc-8def-0123456789ab";

    fn export(length: i64) -> Vec<String> {
        let chain = Chain::Org(ORG.parse().unwrap());
        let mut position = Position::start(&chain);
        let first_prev_hash = position.hash.clone();
        let mut lines = Vec::new();
        for seq in 1..=length {
            let mut entry = json!({"seq": seq, "prev_hash": position.hash, "n": 1e21});
            let hash = entry_hash(&position.hash, &canonical(&entry)).unwrap();
            entry["hash"] = hash.clone().into();
            lines.push(entry.to_string());
            position = Position { seq, hash };
        }
        let hash = position.hash;
        let checkpoint = Checkpoint { org_id: ORG.into(), seq: length, hash: hash.clone(), at: Timestamp(0) };
        let manifest = Manifest {
            org_id: ORG.into(),
            from_seq: 1,
            to_seq: length,
            entries: length,
            first_prev_hash,
            last_hash: hash,
            checkpoint,
            signature: String::new(),
            key_id: String::new(),
        };
        lines.push(json!({"manifest": manifest}).to_string());
        lines
    }

    fn check(lines: &[String]) -> Result<Manifest, ExportError> {
        let mut check = ExportCheck::default();
        for line in lines {
            check.line(line)?;
        }
        check.finish()
    }

    #[test]
    fn an_export_is_checked_up_to_its_manifest() {
        let lines = export(4);
        assert_eq!(check(&lines).unwrap().to_seq, 4);
        assert_eq!(check(&export(0)).unwrap().entries, 0);
        assert_eq!(check(&lines[4..]), Err(ExportError::Manifest(0)));
        assert_eq!(check(&lines[..4]), Err(ExportError::Incomplete));
        let without = |index: usize| {
            let mut lines = lines.clone();
            lines.remove(index);
            lines
        };
        assert_eq!(check(&without(1)), Err(ExportError::Entry(BadEntry { seq: 2, why: Flaw::Gap })));
        assert_eq!(check(&without(0)), Err(ExportError::Manifest(2)));
        assert_eq!(check(&without(3)), Err(ExportError::Manifest(3)));
        let mut changed = lines.clone();
        changed[2] = changed[2].replace("1e+21", "2");
        assert_eq!(check(&changed), Err(ExportError::Entry(BadEntry { seq: 3, why: Flaw::Hash })));
        let mut junk = lines;
        junk[1] = "[]".into();
        assert_eq!(check(&junk), Err(ExportError::Unreadable(2)));
    }

    #[test]
    fn a_checkpoint_is_due_hourly_and_after_many_entries() {
        let now = Timestamp(10 * HOUR);
        assert!(is_due(1, None, now) && !is_due(0, None, now));
        assert!(!is_due(5, Some((4, now.plus(1 - HOUR))), now));
        assert!(is_due(5, Some((4, now.plus(-HOUR))), now));
        assert!(!is_due(4, Some((4, now.plus(-HOUR))), now));
        assert!(is_due(MAX_ENTRIES + 4, Some((4, now)), now));
    }
}
