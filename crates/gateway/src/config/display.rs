//! The settings as text for the operator, without secrets.

use secrecy::ExposeSecret as _;

use super::raw::SettingSource;
use super::settings::{PROVIDER_SETTINGS, SETTINGS, Setting};
use super::{Config, RawSettings};

/// The settings as TOML, each with its source. Secrets are masked.
pub fn masked_toml(values: &RawSettings) -> String {
    use std::fmt::Write as _;
    let mut text = match &values.file {
        Some(file) => format!("# file: {}\n\n", file.path.display()),
        None => String::new(),
    };
    for setting in SETTINGS {
        let Some(value) = values.settings.get(setting.key) else { continue };
        let _ = writeln!(text, "# {}", setting.help);
        let _ = writeln!(
            text,
            "{} = {}  # {}\n",
            setting.key,
            masked_value(setting, &value.text),
            source_name(value.source)
        );
    }
    for (name, entries) in &values.providers {
        let _ = writeln!(text, "[providers.{name}]");
        for setting in PROVIDER_SETTINGS {
            if let Some(value) = entries.get(setting.key) {
                let line = masked_value(setting, &value.text);
                let _ = writeln!(text, "{} = {line}  # {}", setting.key, source_name(value.source));
            }
        }
        text.push('\n');
    }
    text
}

fn masked_value(setting: &Setting, text: &str) -> String {
    let masked = match (setting.is_secret, text) {
        (_, "") => String::new(),
        (true, _) => "********".into(),
        (false, text) => mask_password(text),
    };
    toml::Value::String(masked).to_string()
}

/// Masks the password of a URL, also where PostgreSQL accepts it as a query parameter.
fn mask_password(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else {
        return if text.contains('@') { "********".into() } else { text.to_owned() };
    };
    let is_secret = |name: &str| name.contains("password");
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    if url.password().is_none() && !pairs.iter().any(|(name, _)| is_secret(name)) {
        return text.to_owned();
    }
    if url.password().is_some() {
        let _ = url.set_password(Some("********"));
    }
    if !pairs.is_empty() {
        let masked =
            pairs.iter().map(|(name, value)| (name, if is_secret(name) { "********" } else { value }));
        url.query_pairs_mut().clear().extend_pairs(masked);
    }
    url.to_string()
}

fn source_name(source: SettingSource) -> &'static str {
    match source {
        SettingSource::Default => "default",
        SettingSource::File => "file",
        SettingSource::Environment => "environment",
    }
}

/// The database URL without its password, for messages.
pub fn masked_database_url(config: &Config) -> String {
    mask_password(config.database_url.expose_secret())
}
