//! The two secrets that the service requires. A single node generates them once and stores them in the data directory.
//! Nodes that share a database must share them too, so the operator has to set them.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use secrecy::SecretString;

use super::parse::invalid;
use super::raw::remedy;
use super::{ConfigError, RawSettings};

pub(super) struct Secrets {
    pub token_secret: SecretString,
    pub token_secrets_accepted: Vec<SecretString>,
    pub master_key: SecretString,
    pub master_keys_accepted: Vec<SecretString>,
}

impl Secrets {
    pub fn load(values: &RawSettings, data_dir: &Path, is_shared: bool) -> Result<Self, ConfigError> {
        let secret = |key| configured_or_stored(values, key, data_dir, is_shared);
        Ok(Self {
            token_secret: checked_token_secret("token_secret", secret("token_secret")?)?,
            token_secrets_accepted: accepted(values, data_dir, "token_secret", checked_token_secret)?,
            master_key: checked_master_key("master_key", secret("master_key")?)?,
            master_keys_accepted: accepted(values, data_dir, "master_key", checked_master_key)?,
        })
    }
}

fn checked_token_secret(key: &str, text: String) -> Result<SecretString, ConfigError> {
    if text.len() < 32 {
        return Err(invalid(key, "at least 32 characters, for example from `openssl rand -hex 32`"));
    }
    Ok(text.into())
}

fn checked_master_key(key: &str, text: String) -> Result<SecretString, ConfigError> {
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(invalid(key, "64 hex digits, for example from `openssl rand -hex 32`"));
    }
    Ok(text.into())
}

/// The secrets of `<key>s_accepted`, and the one in the file `<key>.previous` of the data directory: the operator renames
/// a generated secret, and the next start generates another.
fn accepted(
    values: &RawSettings,
    data_dir: &Path,
    key: &str,
    check: impl Fn(&str, String) -> Result<SecretString, ConfigError>,
) -> Result<Vec<SecretString>, ConfigError> {
    let setting = format!("{key}s_accepted");
    let listed = values.get(&setting).split(',').map(str::trim).filter(|text| !text.is_empty());
    let mut secrets = listed.map(|text| check(&setting, text.to_owned())).collect::<Result<Vec<_>, _>>()?;
    let path = data_dir.join(format!("{key}.previous"));
    match std::fs::read_to_string(&path) {
        Ok(text) => secrets.push(check(key, text.trim().to_owned())?),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
        Err(error) => {
            let (shown, remedy) = (path.display(), remedy(&error));
            return Err(ConfigError(format!("cannot read {shown}: {error}{remedy}")));
        }
    }
    Ok(secrets)
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
