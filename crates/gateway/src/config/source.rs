//! Where the settings of this process are from: the environment, and a file that is named or found. Commands of the
//! operator find the file of an installed package, so that they work on the data of its service.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{ConfigError, RawSettings};

/// The file of an installed package.
const SYSTEM_FILE: &str = "/etc/gateway/gateway.toml";
/// What an installation in the working directory has: the file that `gateway init` writes, and the default data directory.
const OWN_FILE: &str = "gateway.toml";
const OWN_DATA: &str = "data";

/// Who reads the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// `gateway serve`. The service of an installed package is told its file.
    Service,
    /// Any other command.
    Command,
}

/// Reads the settings of this process: a file and the environment. The file is the one named by `--config`, or else by
/// `GATEWAY_CONFIG`, or else one that is found.
#[expect(clippy::disallowed_methods, reason = "the only place that reads the environment")]
pub fn load_raw(file: Option<&Path>, reader: Reader) -> Result<RawSettings, ConfigError> {
    let named = std::env::var_os("GATEWAY_CONFIG").map(PathBuf::from);
    let mut variables = Vec::new();
    for (name, value) in std::env::vars_os() {
        // A variable that is not UTF-8 matters only if it is a setting. The message must not show its value.
        let Ok(name) = name.into_string() else { continue };
        match value.into_string() {
            Ok(value) => variables.push((name, value)),
            Err(_) if name.starts_with("GATEWAY_") => {
                return Err(ConfigError(format!("bad value for {name}: expected UTF-8 text")));
            }
            Err(_) => {}
        }
    }
    if let Some(file) = file.or(named.as_deref()) {
        return RawSettings::load(Some(file), variables);
    }
    let found = found(reader, Path::new("."), Path::new(SYSTEM_FILE), names_data(&variables));
    let mut values = RawSettings::load(found.as_deref(), variables)?;
    if let Some(file) = &mut values.file {
        file.is_named = false;
    }
    Ok(values)
}

/// Whether the environment says where the data is.
fn names_data(variables: &[(String, String)]) -> bool {
    variables.iter().any(|(name, value)| {
        matches!(name.as_str(), "GATEWAY_DATA_DIR" | "GATEWAY_DATABASE_URL") && !value.trim().is_empty()
    })
}

/// The file that nobody named: that of the working directory, or else that of the system, unless the data is somewhere
/// else by the environment or in the working directory.
fn found(reader: Reader, here: &Path, system: &Path, names_data: bool) -> Option<PathBuf> {
    let own = here.join(OWN_FILE);
    if own.is_file() && is_trusted(&own) {
        return Some(own);
    }
    let data = here.join(OWN_DATA);
    let is_elsewhere = names_data || (data.is_dir() && is_trusted(&data));
    // A file that this user cannot see is an error of the reader, not a reason to work elsewhere.
    (reader == Reader::Command && !is_elsewhere && system.try_exists().unwrap_or(true))
        .then(|| system.to_owned())
}

/// In a directory that everybody can write to, others could leave a file for any user who runs a command there.
fn is_trusted(path: &Path) -> bool {
    let owner = std::fs::metadata(path).map(|found| found.uid());
    owner.is_ok_and(|owner| owner == 0 || owner == rustix::process::geteuid().as_raw())
}

/// A variable of the environment that an imported file refers to.
#[expect(clippy::disallowed_methods, reason = "the only place that reads the environment")]
pub fn variable(name: &str) -> Option<String> {
    // A name with `=` or NUL cannot be set.
    if name.is_empty() || name.contains(['=', '\0']) {
        return None;
    }
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_find_the_file_of_the_package_and_the_service_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let (here, system) = (directory.path().join("here"), directory.path().join("etc/gateway.toml"));
        std::fs::create_dir(&here).unwrap();
        let find = |reader, names_data| found(reader, &here, &system, names_data);
        assert_eq!(find(Reader::Command, false), None, "there is no package");

        std::fs::create_dir(directory.path().join("etc")).unwrap();
        std::fs::write(&system, "").unwrap();
        assert_eq!(find(Reader::Command, false), Some(system.clone()));
        assert_eq!(find(Reader::Service, false), None);
        assert_eq!(find(Reader::Command, true), None, "the environment says where the data is");
    }

    #[test]
    fn an_installation_in_the_working_directory_wins() {
        let directory = tempfile::tempdir().unwrap();
        let (here, system) = (directory.path().join("here"), directory.path().join("gateway.toml"));
        std::fs::create_dir_all(here.join("data")).unwrap();
        std::fs::write(&system, "").unwrap();
        assert_eq!(found(Reader::Command, &here, &system, false), None, "it has data");
        let own = here.join("gateway.toml");
        std::fs::write(&own, "").unwrap();
        for reader in [Reader::Command, Reader::Service] {
            for names_data in [false, true] {
                assert_eq!(found(reader, &here, &system, names_data), Some(own.clone()));
            }
        }
    }

    #[test]
    fn only_a_variable_with_a_value_says_where_the_data_is() {
        let names = |name: &str, value: &str| names_data(&[(name.to_owned(), value.to_owned())]);
        assert!(
            names("GATEWAY_DATA_DIR", "/srv/gateway") && names("GATEWAY_DATABASE_URL", "postgres://db/x")
        );
        assert!(!names("GATEWAY_DATA_DIR", " ") && !names("GATEWAY_LISTEN", "127.0.0.1:1"));
    }
}
