//! The settings of a command: where they are from, and whether the data that they name is there. Only `serve` and `migrate`
//! begin an installation: other commands must not leave an empty one in the wrong place.

use std::io::{ErrorKind, Write as _};
use std::path::Path;

use gateway_store::Db;
use secrecy::ExposeSecret as _;

use super::Failure;
use crate::config::{self, Config, ConfigError, RawSettings, RawValue, Reader, SettingSource};
use crate::data_dir;

/// Reads the settings. A file that nobody named is told, because the command works on the data of its installation.
pub fn read(file: Option<&Path>) -> Result<RawSettings, ConfigError> {
    let values = config::load_raw(file, Reader::Command)?;
    if let Some(found) = values.file.as_ref().filter(|found| !found.is_named) {
        let _ = writeln!(std::io::stderr(), "gateway: using the settings in {}", found.path.display());
    }
    Ok(values)
}

/// The settings of an installation that exists.
pub fn of_installation(file: Option<&Path>) -> Result<Config, Failure> {
    let values = read(file)?;
    let config = without_secrets(&values)?;
    if !config.is_shared() {
        for path in [database_file(&config), Some(config.data_dir.as_path())].into_iter().flatten() {
            must_exist(path)?;
        }
    }
    Ok(Config::validate(&values)?)
}

fn must_exist(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    // SQLite would create the file, and a secret would be generated.
    let why = match path.metadata() {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            format!("this user may not read {shown}; run the command as its owner")
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            format!(
                "{shown} does not exist: no gateway has run with these settings. Use those of the installation"
            )
        }
        Err(error) => format!("cannot use {shown}: {error}. Use the settings of the installation"),
    };
    Err(Failure::Other(format!(
        "{why}: for an installed package with `sudo -u gateway gateway …`, otherwise with --config, GATEWAY_CONFIG or \
         GATEWAY_DATA_DIR"
    )))
}

/// The database of a single node.
fn database_file(config: &Config) -> Option<&Path> {
    config.database_url.expose_secret().strip_prefix("sqlite://").map(Path::new)
}

/// Whether there is no database yet. A server is asked only when it is opened.
pub fn has_no_database(config: &Config) -> bool {
    database_file(config).is_some_and(|path| !path.exists())
}

/// Validates the settings. Secrets that are not set are neither generated nor read.
pub fn without_secrets(values: &RawSettings) -> Result<Config, ConfigError> {
    let mut values = values.clone();
    let url = values.get("database_url").trim();
    if url.is_empty() || url.starts_with("sqlite://") {
        for key in ["token_secret", "master_key"] {
            if values.get(key).trim().is_empty() {
                let text = "0".repeat(64);
                values.settings.insert(key, RawValue { text, source: SettingSource::Default });
            }
        }
    }
    Config::validate(&values)
}

/// Opens the database of an installation.
pub async fn open(config: &Config) -> Result<Db, Failure> {
    // With PostgreSQL a command needs no data directory.
    if config.data_dir.exists() {
        data_dir::create(config)?;
    }
    Ok(Db::open(config.database_url.expose_secret()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_exist_is_named_with_the_ways_to_the_installation() {
        let directory = tempfile::tempdir().unwrap();
        assert!(must_exist(directory.path()).is_ok());
        let Err(Failure::Other(text)) = must_exist(&directory.path().join("gateway.db")) else {
            panic!("it does not exist");
        };
        for part in ["gateway.db does not exist", "sudo -u gateway", "--config", "GATEWAY_DATA_DIR"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn validation_generates_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let variables = [("GATEWAY_DATA_DIR".to_owned(), data.display().to_string())];
        let values = RawSettings::load(None, variables).unwrap();
        let config = without_secrets(&values).unwrap();
        assert!(has_no_database(&config) && !data.exists());
    }
}
