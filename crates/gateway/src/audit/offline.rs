//! `gateway audit verify FILE`: checks an export in JSON lines without a server.

use std::io::{BufRead as _, BufReader, Read};

use gateway_core::audit::checkpoint::{ExportCheck, ExportError, Manifest};

use super::signing::verifies;

/// Checks the entries, and with a public key in base64 also the signature. `done` gets the number of lines so far. Returns what
/// to print.
pub fn verify(file: impl Read, key: Option<&str>, done: &mut dyn FnMut(u64)) -> Result<String, String> {
    let manifest = check(file, done)?;
    let Manifest { from_seq, to_seq, entries, key_id, .. } = &manifest;
    let intact = format!("intact: {entries} entries, {from_seq} to {to_seq}");
    match key {
        None => Ok(format!("{intact}; the signature by key {key_id} was not checked, give --key")),
        Some(key) if verifies(key, &manifest.checkpoint, &manifest.signature) => {
            Ok(format!("{intact}; signed by key {key_id}"))
        }
        Some(_) => Err(format!("entry {to_seq}: the signature of the checkpoint is wrong (checkpoint)")),
    }
}

fn check(file: impl Read, done: &mut dyn FnMut(u64)) -> Result<Manifest, String> {
    let mut check = ExportCheck::default();
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let line = line.map_err(|error| format!("cannot read the file: {error}"))?;
        check.line(&line).map_err(|error: ExportError| error.to_string())?;
        done(number);
    }
    check.finish().map_err(|error| error.to_string())
}
