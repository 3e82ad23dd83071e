//! Typed values out of raw settings, with error messages that name the setting.

use std::str::FromStr;

use super::settings::env_name;
use super::{ConfigError, RawSettings};

pub(super) fn invalid(key: &str, expected: &str) -> ConfigError {
    ConfigError(format!("bad value for {} (or '{key}' in the file): expected {expected}", env_name(key)))
}

pub(super) fn parsed<T: FromStr>(values: &RawSettings, key: &str, expected: &str) -> Result<T, ConfigError> {
    values.get(key).trim().parse().map_err(|_| invalid(key, expected))
}

pub(super) fn optional<T: FromStr>(
    values: &RawSettings,
    key: &str,
    expected: &str,
) -> Result<Option<T>, ConfigError> {
    if values.get(key).trim().is_empty() { Ok(None) } else { parsed(values, key, expected).map(Some) }
}

pub(super) fn integer(values: &RawSettings, key: &str, min: u64, max: u64) -> Result<u64, ConfigError> {
    let expected = format!("a whole number from {min} to {max}");
    let number: u64 = parsed(values, key, &expected)?;
    if (min..=max).contains(&number) { Ok(number) } else { Err(invalid(key, &expected)) }
}

pub(super) fn small_integer(values: &RawSettings, key: &str, min: u32, max: u32) -> Result<u32, ConfigError> {
    integer(values, key, min.into(), max.into()).map(|number| u32::try_from(number).unwrap_or(max))
}

pub(super) fn choice<T: Copy>(
    values: &RawSettings,
    key: &str,
    choices: &[(&str, T)],
) -> Result<T, ConfigError> {
    let text = values.get(key).trim();
    choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        invalid(key, &names.join(" or "))
    })
}

pub(super) fn flag(values: &RawSettings, key: &str) -> Result<bool, ConfigError> {
    choice(values, key, &[("true", true), ("false", false)])
}

pub(super) fn non_empty(values: &RawSettings, key: &str) -> Result<String, ConfigError> {
    let text = values.get(key).trim();
    if text.is_empty() { Err(invalid(key, "a name")) } else { Ok(text.to_owned()) }
}
