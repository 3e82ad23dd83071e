//! Raw settings: defaults, overridden by the TOML file, overridden by the environment. Only names are validated here.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use gateway_core::llm::providers::all;

use super::ConfigError;
use super::settings::{PROVIDER_SETTINGS, SETTINGS, env_name};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingSource {
    Default,
    File,
    Environment,
}

#[derive(Clone, Debug)]
pub struct RawValue {
    pub text: String,
    pub source: SettingSource,
}

/// The file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsFile {
    pub path: PathBuf,
    /// False if nobody named it: it was found where such a file usually is.
    pub is_named: bool,
}

/// Raw values by key; provider settings by provider and key.
#[derive(Clone, Debug, Default)]
pub struct RawSettings {
    pub settings: BTreeMap<&'static str, RawValue>,
    pub providers: BTreeMap<String, BTreeMap<&'static str, RawValue>>,
    /// Variables that start with `GATEWAY_` but name no setting, probably because of a typo.
    pub unknown_variables: Vec<String>,
    pub file: Option<SettingsFile>,
}

impl RawSettings {
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut values = Self::default();
        for setting in SETTINGS {
            values.settings.insert(
                setting.key,
                RawValue { text: setting.default.into(), source: SettingSource::Default },
            );
        }
        if let Some(path) = file {
            values.read_file(path)?;
            values.file = Some(SettingsFile { path: path.to_owned(), is_named: true });
        }
        values.read_environment(environment);
        Ok(values)
    }

    pub fn get(&self, key: &str) -> &str {
        self.settings.get(key).map_or("", |value| value.text.as_str())
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            // Without the line itself, which may have a secret.
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let (line, column) =
                (before.matches('\n').count() + 1, before.rsplit('\n').next().unwrap_or_default());
            let column = column.chars().count() + 1;
            ConfigError(format!(
                "the configuration file {shown} is not valid TOML: line {line}, column {column}"
            ))
        })?;
        for (key, value) in table {
            if key == "providers" {
                self.read_providers(value, path)?;
                continue;
            }
            let setting = SETTINGS
                .iter()
                .find(|setting| setting.key == key)
                .ok_or_else(|| ConfigError(format!("unknown key '{key}' in {shown}")))?;
            let text = scalar(&key, value)?;
            self.settings.insert(setting.key, RawValue { text, source: SettingSource::File });
        }
        Ok(())
    }

    fn read_providers(&mut self, value: toml::Value, path: &Path) -> Result<(), ConfigError> {
        let unknown = |key: &str| ConfigError(format!("unknown key '{key}' in {}", path.display()));
        let toml::Value::Table(providers) = value else {
            return Err(ConfigError("'providers' must be a table such as [providers.openai]".into()));
        };
        for (name, settings) in providers {
            let toml::Value::Table(settings) = settings else {
                return Err(ConfigError(format!("'providers.{name}' must be a table")));
            };
            for (key, value) in settings {
                let full = format!("providers.{name}.{key}");
                let setting = PROVIDER_SETTINGS
                    .iter()
                    .find(|setting| setting.key == key)
                    .ok_or_else(|| unknown(&full))?;
                let value = RawValue { text: scalar(&full, value)?, source: SettingSource::File };
                self.providers.entry(name.clone()).or_default().insert(setting.key, value);
            }
        }
        Ok(())
    }

    fn read_environment(&mut self, environment: impl IntoIterator<Item = (String, String)>) {
        let variables: Vec<(String, String)> = environment.into_iter().collect();
        self.read_common_names(&variables);
        for (name, text) in variables {
            let Some(rest) = name.strip_prefix("GATEWAY_") else { continue };
            let value = RawValue { text, source: SettingSource::Environment };
            if let Some(setting) = SETTINGS.iter().find(|setting| env_name(setting.key) == name) {
                self.settings.insert(setting.key, value);
            } else if let Some((provider, key)) = provider_variable(rest) {
                self.providers.entry(provider).or_default().insert(key, value);
            } else if !matches!(rest, "CONFIG" | "URL" | "KEY") {
                self.unknown_variables.push(name);
            }
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> ConfigError {
    let (shown, remedy) = (path.display(), remedy(error));
    ConfigError(format!("cannot read the configuration file {shown}: {error}{remedy}"))
}

/// What to do about a file that cannot be read.
pub(super) fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ". Run the command as a user who may read it, for an installed package with `sudo -u gateway gateway …`, or \
             name other settings with --config"
        }
        _ => "",
    }
}

/// Reads credentials from their common names, such as `OPENAI_API_KEY`. The provider's own setting has precedence.
impl RawSettings {
    fn read_common_names(&mut self, variables: &[(String, String)]) {
        let find =
            |wanted: &str| variables.iter().find(|(name, text)| name == wanted && !text.trim().is_empty());
        for provider in all() {
            let found = provider.env_keys.iter().find_map(|name| find(name)).map(|(_, text)| text.clone());
            let found = found.or_else(|| if provider.name == "bedrock" { aws_key_pair(find) } else { None });
            if let Some(text) = found {
                let entries = self.providers.entry(provider.name.to_owned()).or_default();
                entries.entry("api_key").or_insert(RawValue { text, source: SettingSource::Environment });
            }
        }
    }
}

/// Joins the two or three variables of an AWS credential into one value.
fn aws_key_pair<'a>(find: impl Fn(&str) -> Option<&'a (String, String)>) -> Option<String> {
    let text = |name: &str| find(name).map(|(_, text)| text.trim());
    let (id, secret) = (text("AWS_ACCESS_KEY_ID")?, text("AWS_SECRET_ACCESS_KEY")?);
    Some(match text("AWS_SESSION_TOKEN") {
        Some(session) => format!("{id}:{secret}:{session}"),
        None => format!("{id}:{secret}"),
    })
}

/// `PROVIDER_AZURE_OPENAI_BASE_URL` -> (`azure-openai`, `base_url`).
fn provider_variable(rest: &str) -> Option<(String, &'static str)> {
    let rest = rest.strip_prefix("PROVIDER_")?;
    PROVIDER_SETTINGS.iter().find_map(|setting| {
        let name = rest.strip_suffix(&format!("_{}", setting.key.to_uppercase()))?;
        (!name.is_empty()).then(|| (name.to_lowercase().replace('_', "-"), setting.key))
    })
}

/// Converts a TOML value to text. Lists are joined with commas, as in the environment.
fn scalar(key: &str, value: toml::Value) -> Result<String, ConfigError> {
    match value {
        toml::Value::String(text) => Ok(text),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(flag) => Ok(flag.to_string()),
        toml::Value::Array(items) => {
            let items = items.into_iter().map(|item| scalar(key, item)).collect::<Result<Vec<_>, _>>()?;
            Ok(items.join(","))
        }
        _ => Err(ConfigError(format!("'{key}' must be a string, a number, a boolean or a list"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_user_is_an_error_with_its_remedy() {
        let denied =
            unreadable(Path::new("/etc/gateway/gateway.toml"), &io::ErrorKind::PermissionDenied.into());
        for part in ["/etc/gateway/gateway.toml", "sudo -u gateway gateway", "--config"] {
            assert!(denied.to_string().contains(part), "{denied}");
        }
        let absent = unreadable(Path::new("absent.toml"), &io::ErrorKind::NotFound.into()).to_string();
        assert!(absent.contains("absent.toml") && !absent.contains("sudo"), "{absent}");
    }
}
