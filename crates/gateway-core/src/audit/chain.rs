//! The hash chain of an organization's entries. Each entry contains the hash of the one before it, so that none can be
//! changed, removed or inserted without a trace in all later ones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Chain;

const GENESIS: &[u8] = b"gateway-audit-v1";

/// The `prev_hash` of the first entry, in hex.
pub fn genesis(chain: &Chain) -> String {
    let mut hash = Sha256::new();
    hash.update(GENESIS);
    hash.update(chain.to_string());
    hex::encode(hash.finalize())
}

/// The hash of an entry in hex: SHA-256 of the previous hash (32 bytes) and the canonical text of the entry without its
/// hash. `None` if the previous hash is not one.
pub fn entry_hash(prev_hash: &str, canonical: &str) -> Option<String> {
    let mut previous = [0; 32];
    hex::decode_to_slice(prev_hash, &mut previous).ok()?;
    let mut hash = Sha256::new();
    hash.update(previous);
    hash.update(canonical);
    Some(hex::encode(hash.finalize()))
}

/// The place in a chain up to which everything is known: the last entry's number and hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub seq: i64,
    pub hash: String,
}

impl Position {
    /// Before the first entry.
    pub fn start(chain: &Chain) -> Self {
        Self { seq: 0, hash: genesis(chain) }
    }
}

/// What is wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "AuditFlaw")]
pub enum Flaw {
    /// Its content does not match its hash.
    Hash,
    /// It does not continue the entry before it.
    Link,
    /// It is missing, or its number occurs twice.
    Gap,
    /// A signed checkpoint says otherwise.
    Checkpoint,
}

/// The first entry that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AuditBadEntry")]
pub struct BadEntry {
    pub seq: i64,
    pub why: Flaw,
}

/// An entry as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct StoredEntry<'a> {
    pub seq: i64,
    /// The canonical text without the hash.
    pub body: &'a str,
    /// What `body` says.
    pub body_seq: i64,
    pub prev_hash: &'a str,
    pub hash: &'a str,
}

impl Position {
    /// Checks the next entry and moves to it.
    pub fn advance(&mut self, entry: StoredEntry<'_>) -> Result<(), BadEntry> {
        let expected = self.seq + 1;
        if entry.seq != expected {
            return Err(BadEntry { seq: expected.min(entry.seq), why: Flaw::Gap });
        }
        let bad = |why| Err(BadEntry { seq: expected, why });
        if entry.prev_hash != self.hash {
            return bad(Flaw::Link);
        }
        if entry.body_seq != expected
            || entry_hash(entry.prev_hash, entry.body).as_deref() != Some(entry.hash)
        {
            return bad(Flaw::Hash);
        }
        *self = Self { seq: expected, hash: entry.hash.to_owned() };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    struct Row {
        seq: i64,
        body: String,
        prev_hash: String,
        hash: String,
    }

    fn chain(length: i64) -> Vec<Row> {
        let mut position = Position::start(&Chain::System);
        (1..=length)
            .map(|seq| {
                let body = format!("{{\"seq\":{seq}}}");
                let hash = entry_hash(&position.hash, &body).unwrap();
                let prev_hash = std::mem::replace(&mut position.hash, hash.clone());
                Row { seq, body, prev_hash, hash }
            })
            .collect()
    }

    fn check(rows: &[Row]) -> Result<Position, BadEntry> {
        let mut position = Position::start(&Chain::System);
        for row in rows {
            let body_seq = row.body.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
            let Row { seq, body, prev_hash, hash } = row;
            position.advance(StoredEntry { seq: *seq, body, body_seq, prev_hash, hash })?;
        }
        Ok(position)
    }

    #[test]
    fn the_first_hash_depends_on_the_organization() {
        // python3 -c 'import hashlib; print(hashlib.sha256(b"gateway-audit-v1system").hexdigest())'
        let expected = hex::encode(Sha256::digest(b"gateway-audit-v1system"));
        assert_eq!(genesis(&Chain::System), expected);
        assert_eq!(entry_hash("zz", "{}"), None);
    }

    proptest! {
        #[test]
        fn every_change_is_found_at_its_place(length in 2..12_i64, place in 0..12_usize, kind in 0..5) {
            let mut rows = chain(length);
            prop_assert_eq!(check(&rows).unwrap().seq, length);
            let place = place % (rows.len() - 1);
            let seq = rows[place].seq;
            let (expected, why) = match kind {
                0 => { rows[place].body.push(' '); (seq, Flaw::Hash) }
                1 => { rows.remove(place); (seq, Flaw::Gap) }
                2 => { let copy = rows[place].clone(); rows.insert(place, copy); (seq, Flaw::Gap) }
                3 => {
                    // The contents change places, the numbers stay.
                    let (a, b) = (rows[place].clone(), rows[place + 1].clone());
                    rows[place] = Row { seq: a.seq, ..b };
                    rows[place + 1] = Row { seq: seq + 1, ..a };
                    (seq, Flaw::Link)
                }
                _ => {
                    // Rewritten with a matching hash: the next entry does not continue it.
                    rows[place].body = format!("{{\"seq\":{seq},\"x\":\"y\"}}");
                    rows[place].hash = entry_hash(&rows[place].prev_hash, &rows[place].body).unwrap();
                    (seq + 1, Flaw::Link)
                }
            };
            prop_assert_eq!(check(&rows), Err(BadEntry { seq: expected, why }));
        }
    }
}
