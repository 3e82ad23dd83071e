//! `gateway init`: a configuration file in which every setting is named and explained.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use crate::config::{SETTINGS, env_name};

#[derive(Args)]
pub struct InitOptions {
    /// The file to write
    #[arg(default_value = "gateway.toml")]
    file: PathBuf,
    /// Replace a file that exists
    #[arg(long)]
    force: bool,
}

/// Writes the file. Returns what to do next.
pub fn run(options: &InitOptions) -> Result<String, Failure> {
    let InitOptions { file, force } = options;
    let failed = |error: std::io::Error| {
        let why = match error.kind() {
            std::io::ErrorKind::AlreadyExists => "it exists; --force replaces it".to_owned(),
            _ => error.to_string(),
        };
        Failure::Other(format!("cannot write {}: {why}", file.display()))
    };
    let mut opened = std::fs::OpenOptions::new();
    opened.write(true);
    // It will have credentials. The umask keeps others from reading it.
    let opened = if *force { opened.create(true).truncate(true) } else { opened.create_new(true) };
    opened.open(file).and_then(|mut opened| opened.write_all(text().as_bytes())).map_err(failed)?;
    Ok(next_steps(file))
}

fn next_steps(file: &Path) -> String {
    let file = file.display();
    format!(
        "{file} has every setting with its default; remove the # of those that you change\n\n  \
         gateway doctor --config {file}   check the settings and what they need\n  \
         gateway serve --config {file}    run the service"
    )
}

/// The settings as commented TOML.
fn text() -> String {
    let mut text = String::from(
        "# Settings of the gateway. Every line shows the default; remove the # to change it.\n\
         # A variable of the environment, such as GATEWAY_LISTEN, takes precedence over this file.\n\n",
    );
    for setting in SETTINGS {
        let value = if setting.is_secret { "" } else { setting.default };
        let _ = writeln!(text, "# {} ({})", setting.help, env_name(setting.key));
        let _ = writeln!(text, "# {} = {}\n", setting.key, toml::Value::from(value));
    }
    text.push_str(
        "# Providers of the operator, for all organizations. Organizations can also store credentials of their own.\n\
         # [providers.openai]\n# api_key = \"sk-…\"\n#\n\
         # [providers.ollama]\n# base_url = \"http://127.0.0.1:11434\"\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, RawSettings};

    #[test]
    fn the_file_is_valid_as_it_is_and_with_all_defaults_uncommented() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gateway.toml");
        let load = |text: &str| {
            std::fs::write(&file, text).unwrap();
            RawSettings::load(Some(&file), Vec::new()).unwrap()
        };
        assert!(load(&text()).providers.is_empty());
        let is_setting =
            |line: &str| SETTINGS.iter().any(|setting| line.starts_with(&format!("# {} =", setting.key)));
        let text = text();
        let lines = text.lines().filter(|line| is_setting(line)).map(|line| line.trim_start_matches("# "));
        let uncommented = lines.collect::<Vec<_>>().join("\n");
        assert_eq!(uncommented.lines().count(), SETTINGS.len());
        let mut values = load(&uncommented);
        values.settings.get_mut("data_dir").unwrap().text = directory.path().display().to_string();
        assert!(Config::validate(&values).is_ok());
    }
}
