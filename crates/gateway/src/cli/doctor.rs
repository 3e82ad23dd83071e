//! `gateway doctor`: checks what the service needs before it is started, and says what to do about each finding. Nothing
//! is changed.

mod checks;
mod egress;
mod reach;

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::settings::without_secrets;
use super::{Failure, print_line};
use crate::config::{Config, EgressPrivate, RawSettings, SettingsFile};

#[derive(Args)]
pub struct DoctorOptions {
    /// Connect to no provider
    #[arg(long)]
    offline: bool,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    Warning,
    Failed,
}

/// The result of one check.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub verdict: Verdict,
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, message: message.into(), remedy: None }
    }

    pub fn warning(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warning, message: message.into(), remedy: Some(remedy.into()) }
    }

    pub fn failed(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Failed, message: message.into(), remedy: Some(remedy.into()) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warn",
            Verdict::Failed => "FAIL",
        };
        write!(f, "{verdict:<5} {:<12} {}", self.check, self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n      {:<12} -> {remedy}", ""),
            None => Ok(()),
        }
    }
}

/// Runs all checks. Fails if one of them does.
pub async fn run(values: Result<RawSettings, String>, options: &DoctorOptions) -> Result<(), Failure> {
    let mut report = Report { findings: Vec::new(), is_json: options.json };
    match values.and_then(|values| Ok((without_secrets(&values).map_err(|error| error.to_string())?, values)))
    {
        Ok((mut config, values)) => {
            use_generated_key(&mut config, &values);
            for name in &values.unknown_variables {
                let message = format!("{name} is not a setting");
                report.add(Finding::warning(
                    "settings",
                    message,
                    "check its name: gateway --help lists all settings",
                ));
            }
            report.add(Finding::ok(
                "settings",
                format!("all values are valid; {}", origin(values.file.as_ref())),
            ));
            check_all(&mut report, &config, options.offline).await;
        }
        Err(error) => {
            report.add(Finding::failed(
                "settings",
                error,
                "correct the value; `gateway init` writes a file with all defaults",
            ));
        }
    }
    report.finish()
}

/// The master key of the data directory, if there is one: a check must not generate it.
fn use_generated_key(config: &mut Config, values: &RawSettings) {
    if values.get("master_key").trim().is_empty()
        && let Ok(text) = std::fs::read_to_string(config.data_dir.join("master_key"))
    {
        config.master_key = text.trim().to_owned().into();
    }
}

/// Says where the settings are from.
fn origin(file: Option<&SettingsFile>) -> String {
    match file {
        Some(SettingsFile { path, is_named: true }) => format!("they are in {}", path.display()),
        Some(SettingsFile { path, is_named: false }) => {
            format!("they are in {}, which was found there", path.display())
        }
        None => "there is no file, only the environment and defaults".to_owned(),
    }
}

async fn check_all(report: &mut Report, config: &Config, offline: bool) {
    for finding in checks::data_directory(config) {
        report.add(finding);
    }
    report.add(checks::disk(config));
    report.add(checks::clock());
    report.add(checks::database(config).await);
    if let Some(url) = &config.redis_url {
        report.add(checks::redis(url).await);
    }
    for (name, address) in [("listen", Some(config.listen)), ("admin_listen", config.admin_listen)] {
        if let Some(address) = address {
            report.add(reach::port(name, address).await);
        }
    }
    let allows_private = config.egress_private == EgressPrivate::Allow;
    for warning in crate::exposure::warnings(config, allows_private) {
        let (message, remedy) = warning.rsplit_once("; ").unwrap_or((&warning, "see docs/security.md"));
        report.add(Finding::warning("exposure", message, remedy));
    }
    let providers = reach::providers(config, offline).await;
    let mut findings = egress::settings(config);
    if !offline {
        findings.extend(egress::host(config).await);
    }
    for finding in findings.into_iter().chain(providers) {
        report.add(finding);
    }
}

/// Prints findings as they are made, or all at the end as JSON.
struct Report {
    findings: Vec<Finding>,
    is_json: bool,
}

impl Report {
    fn add(&mut self, finding: Finding) {
        if !self.is_json {
            print_line(&finding.to_string());
        }
        self.findings.push(finding);
    }

    fn finish(self) -> Result<(), Failure> {
        if self.is_json {
            print_line(&serde_json::to_string_pretty(&self.findings).unwrap_or_default());
        }
        let count =
            |verdict: Verdict| self.findings.iter().filter(|finding| finding.verdict == verdict).count();
        match count(Verdict::Failed) {
            0 => Ok(()),
            failed => Err(Failure::Other(format!("{failed} of {} checks failed", self.findings.len()))),
        }
    }
}
