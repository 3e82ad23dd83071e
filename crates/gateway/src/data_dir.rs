//! The data directory. It has secrets and request bodies, so only its owner may read what is in it.

use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use secrecy::ExposeSecret as _;

use crate::config::Config;
use crate::services::StartError;

const OTHERS: u32 = 0o077;
/// What the gateway writes into the data directory. The database may be elsewhere.
const ENTRIES: [&str; 5] =
    ["token_secret", "token_secret.previous", "master_key", "master_key.previous", "spool"];

/// Creates the data directory with access for its owner only. Files of an earlier version, or copied from a backup,
/// lose the access of others. A directory that already exists may have other purposes, so it is only reported.
pub fn create(config: &Config) -> Result<(), StartError> {
    let directory = &config.data_dir;
    let unusable = |error| StartError::DataDir { path: directory.display().to_string(), error };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(unusable)?;
    if mode_of(directory).is_some_and(|mode| mode & OTHERS != 0) {
        tracing::warn!(
            path = %directory.display(),
            "other users have access to the data directory; remove it with chmod 700"
        );
    }
    for entry in ENTRIES.map(|name| directory.join(name)).into_iter().chain(database_files(config)) {
        restrict(&entry);
    }
    Ok(())
}

/// Both SQLite files, each with its journal.
fn database_files(config: &Config) -> Vec<PathBuf> {
    let url = config.database_url.expose_secret();
    let Some(state) = url.strip_prefix("sqlite://").map(PathBuf::from) else { return Vec::new() };
    let logs = state.with_extension("logs.db");
    let with_suffix = |file: &Path, suffix: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let journals = ["", "-wal", "-shm"];
    [state, logs].iter().flat_map(|file| journals.map(|suffix| with_suffix(file, suffix))).collect()
}

/// Removes the access of others to a file, or to a directory and everything in it.
fn restrict(path: &Path) {
    let Some(mode) = mode_of(path) else { return };
    if mode & OTHERS != 0 {
        let restricted = std::fs::Permissions::from_mode(mode & !OTHERS & 0o7777);
        if let Err(error) = std::fs::set_permissions(path, restricted) {
            tracing::warn!(path = %path.display(), %error, "other users have access to this file");
        }
    }
    if path.is_dir()
        && let Ok(entries) = std::fs::read_dir(path)
    {
        for entry in entries.flatten() {
            restrict(&entry.path());
        }
    }
}

/// The permissions of a file. `None` if there is none, or if it is a symbolic link, which is not followed.
fn mode_of(path: &Path) -> Option<u32> {
    let found = std::fs::symlink_metadata(path).ok()?;
    (!found.is_symlink()).then(|| found.permissions().mode())
}
