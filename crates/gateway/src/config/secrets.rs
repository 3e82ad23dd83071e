//! The two secrets that the service cannot do without. On a single node they are made once and kept beside the
//! data; nodes that share a database must share them, so there they have to be given.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use secrecy::SecretString;

use super::{ConfigError, Values, bad};

pub(super) fn load(
    values: &Values,
    data_dir: &Path,
    shared: bool,
) -> Result<(SecretString, SecretString), ConfigError> {
    let token_secret = given_or_kept(values, "token_secret", data_dir, shared)?;
    let master_key = given_or_kept(values, "master_key", data_dir, shared)?;
    if token_secret.len() < 32 {
        return Err(bad("token_secret", "at least 32 characters, for example from `openssl rand -hex 32`"));
    }
    if master_key.len() != 64 || !master_key.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(bad("master_key", "64 hex digits, for example from `openssl rand -hex 32`"));
    }
    Ok((token_secret.into(), master_key.into()))
}

fn given_or_kept(values: &Values, key: &str, data_dir: &Path, shared: bool) -> Result<String, ConfigError> {
    let given = values.get(key).trim();
    if !given.is_empty() {
        return Ok(given.to_owned());
    }
    if shared {
        return Err(ConfigError(format!(
            "{} must be set when the database is PostgreSQL, because every node must use the same one \
             (make one with `openssl rand -hex 32`)",
            super::env_name(key)
        )));
    }
    kept(&data_dir.join(key)).map_err(|error| {
        ConfigError(format!(
            "cannot keep a generated secret in {}: {error}. Set GATEWAY_DATA_DIR to a directory that can be written",
            data_dir.display()
        ))
    })
}

/// Reads the file, or makes it: readable by its owner only, and never half written.
fn kept(path: &Path) -> std::io::Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => return Ok(text.trim().to_owned()),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| std::io::Error::other(error.to_string()))?;
    let secret = hex::encode(random);
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(secret.as_bytes())?;
    file.sync_all()?;
    // Linking fails when another process was faster; then its secret is the one.
    let linked = std::fs::hard_link(&temporary, path);
    std::fs::remove_file(&temporary)?;
    match linked {
        Ok(()) => Ok(secret),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => std::fs::read_to_string(path),
        Err(error) => Err(error),
    }
}
