//! The two secrets that the service requires. A single node generates them once and stores them in the data directory.
//! Nodes that share a database must share them too, so the operator has to set them.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use secrecy::SecretString;

use super::parse::invalid;
use super::{ConfigError, RawSettings};

pub(super) fn load(
    values: &RawSettings,
    data_dir: &Path,
    is_shared: bool,
) -> Result<(SecretString, SecretString), ConfigError> {
    let token_secret = configured_or_stored(values, "token_secret", data_dir, is_shared)?;
    let master_key = configured_or_stored(values, "master_key", data_dir, is_shared)?;
    if token_secret.len() < 32 {
        return Err(invalid(
            "token_secret",
            "at least 32 characters, for example from `openssl rand -hex 32`",
        ));
    }
    if master_key.len() != 64 || !master_key.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(invalid("master_key", "64 hex digits, for example from `openssl rand -hex 32`"));
    }
    Ok((token_secret.into(), master_key.into()))
}

fn configured_or_stored(
    values: &RawSettings,
    key: &str,
    data_dir: &Path,
    is_shared: bool,
) -> Result<String, ConfigError> {
    let configured = values.get(key).trim();
    if !configured.is_empty() {
        return Ok(configured.to_owned());
    }
    if is_shared {
        return Err(ConfigError(format!(
            "{} must be set when the database is PostgreSQL, because every node must use the same one \
             (generate one with `openssl rand -hex 32`)",
            super::env_name(key)
        )));
    }
    load_or_generate(&data_dir.join(key)).map_err(|error| {
        ConfigError(format!(
            "cannot store a generated secret in {}: {error}. Set GATEWAY_DATA_DIR to a writable directory",
            data_dir.display()
        ))
    })
}

/// Reads the secret, or generates it. The file is created atomically and readable by its owner only.
fn load_or_generate(path: &Path) -> std::io::Result<String> {
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
    // Linking fails if another process was faster; then its secret is used.
    let linked = std::fs::hard_link(&temporary, path);
    std::fs::remove_file(&temporary)?;
    match linked {
        Ok(()) => Ok(secret),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => std::fs::read_to_string(path),
        Err(error) => Err(error),
    }
}
