//! `gateway import` and `gateway keys retire-foreign`. Unlike the API, the command reads the environment that a file
//! refers to, because the operator who runs it has set it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use gateway_core::audit::{Chain, Target};
use gateway_core::import::{self, Finding, Import, MAX_SOURCE_BYTES, Plan, Source, Status};
use gateway_store::cluster::invalidations::{self, Invalidation};
use gateway_store::{Part, foreign_keys, orgs};
use serde_json::json;
use uuid::{NoContext, Uuid};

use super::Failure;
use super::operator::operator_entry;
use super::progress::seconds_of;
use super::settings::open;
use crate::app::open_vault;
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::import::{Changes, Importer, OnConflict};

#[derive(Args)]
pub struct ImportOptions {
    /// litellm, litellm-keys, portkey, openrouter or helicone
    source: String,
    /// The file to import
    file: PathBuf,
    /// The slug of the organization
    #[arg(long)]
    org: String,
    /// A file of NAME=VALUE lines that the import may refer to, before the environment
    #[arg(long)]
    env_file: Option<PathBuf>,
    /// Make the import; without it only the plan is shown
    #[arg(long)]
    apply: bool,
    /// What to do about names that exist with other content: fail, skip or replace
    #[arg(long, default_value = "fail")]
    on_conflict: String,
    /// Print the plan, the findings and the changes as JSON
    #[arg(long)]
    json: bool,
}

pub async fn import(config: &Config, options: &ImportOptions) -> Result<String, Failure> {
    let source = Source::parse(&options.source).ok_or_else(|| {
        let known = Source::ALL.map(Source::as_str).join(", ");
        Failure::Other(format!("unknown source '{}': expected {known}", options.source))
    })?;
    let on_conflict = match options.on_conflict.as_str() {
        "fail" => OnConflict::Fail,
        "skip" => OnConflict::Skip,
        "replace" => OnConflict::Replace,
        other => {
            return Err(Failure::Other(format!("--on-conflict {other}: expected fail, skip or replace")));
        }
    };
    let text = read_file(&options.file)?;
    let given = options.env_file.as_deref().map(read_file).transpose()?;
    let given = given.as_deref().map(variables).unwrap_or_default();
    let env = |name: &str| given.get(name).cloned().or_else(|| config::variable(name));
    let mut planned = import::plan(source, &text, &env).map_err(|error| Failure::Other(error.to_string()))?;

    let vault = open_vault(config)?;
    let db = open(config).await?;
    let now = Clock::default().now();
    db.migrate(Part::State, now).await?;
    let org = orgs::find_by_slug(&db, &options.org).await?.ok_or_else(|| unknown_org(&options.org))?;
    let importer = Importer {
        vault: &vault,
        quotas: &config.quotas,
        new_id: &new_id,
        now,
        org: org.id,
        plan: org.plan,
        actor: "operator".to_owned(),
        source,
        on_conflict,
        dry_run: !options.apply,
    };
    // The plan of a large file may take longer than a reader of the service may be used.
    let reader = db.reopen(1);
    let mut tx = importer.begin(if options.apply { &db } else { &reader }).await?;
    let applied = seconds_of(&importing(&planned.plan), importer.apply(&mut tx, &planned)).await;
    let applied = applied.map_err(|problem| Failure::Other(problem.message.into_owned()))?;
    planned.findings.extend(applied.findings);
    let changes = applied.changes;
    if options.apply {
        if let Some(problem) = changes.conflict() {
            return Err(Failure::Other(problem.message.into_owned()));
        }
        let target = Target { kind: "org".into(), id: Some(org.id.to_string()), name: Some(org.name) };
        let summary = json!({"source": source, "created": changes.created, "replaced": changes.replaced});
        tx.record(operator_entry(Chain::Org(org.id), "org.import", target).created(&summary));
        for invalidation in [Invalidation::Org(org.id), Invalidation::OrgKeys(org.id)] {
            invalidations::record(&mut tx, &invalidation).await?;
        }
        seconds_of("writing to the disk", tx.commit()).await?;
    } else {
        drop(tx);
    }
    reader.close().await;
    db.close().await;
    Ok(if options.json {
        as_json(&planned, &changes, options.apply)
    } else {
        as_text(&planned, &changes, options.apply)
    })
}

/// What the plan has, for the line of progress.
fn importing(plan: &Plan) -> String {
    let counts = [
        (plan.providers.len(), "providers"),
        (plan.models.len(), "models"),
        (plan.keys.len(), "keys"),
        (plan.budgets.len() + plan.user_budgets.len(), "budgets"),
        (plan.limits.len(), "limits"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    format!("importing {}", counts.collect::<Vec<_>>().join(", "))
}

/// Ends all imported keys of an organization. The keys themselves stay, and can be rotated into keys of the gateway.
pub async fn retire_foreign(config: &Config, slug: &str) -> Result<String, Failure> {
    let db = open(config).await?;
    db.migrate(Part::State, Clock::default().now()).await?;
    let org = orgs::find_by_slug(&db, slug).await?.ok_or_else(|| unknown_org(slug))?;
    let mut tx = db.begin().await?;
    let retired = foreign_keys::retire(&mut tx, org.id).await?;
    let target = Target { kind: "org".into(), id: Some(org.id.to_string()), name: Some(org.name) };
    let entry = operator_entry(Chain::Org(org.id), "key.retire_foreign", target);
    tx.record(entry.created(&json!({"keys": retired})));
    invalidations::record(&mut tx, &Invalidation::OrgKeys(org.id)).await?;
    tx.commit().await?;
    db.close().await;
    Ok(format!("{retired} imported keys of {slug} no longer authenticate"))
}

fn unknown_org(slug: &str) -> Failure {
    Failure::Other(format!("there is no organization with the slug '{slug}'"))
}

fn new_id() -> Uuid {
    let seconds = u64::try_from(Clock::default().now().unix_seconds()).unwrap_or(0);
    Uuid::new_v7(uuid::Timestamp::from_unix(NoContext, seconds, 0))
}

fn read_file(path: &Path) -> Result<String, Failure> {
    let failed = |why: String| Failure::Other(format!("cannot read {}: {why}", path.display()));
    let length = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if length > MAX_SOURCE_BYTES as u64 {
        return Err(failed(format!("it is longer than {MAX_SOURCE_BYTES} bytes")));
    }
    std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))
}

/// The lines `NAME=VALUE` of an environment file.
fn variables(text: &str) -> HashMap<String, String> {
    let line = |line: &str| {
        let line = line.trim();
        let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
        let value = value.trim();
        let quoted = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
        let is_name = !line.starts_with('#') && !name.trim().is_empty();
        is_name.then(|| (name.trim().to_owned(), quoted.unwrap_or(value).to_owned()))
    };
    text.lines().filter_map(line).collect()
}

fn as_json(planned: &Import, changes: &Changes, applied: bool) -> String {
    let Import { plan, findings } = planned;
    json!({"plan": plan, "findings": findings, "changes": changes, "applied": applied}).to_string()
}

/// Everything that is not exact, one finding in a line, and what changes.
fn as_text(planned: &Import, changes: &Changes, applied: bool) -> String {
    let mut text = String::new();
    let is_exact = |finding: &&Finding| finding.status == Status::Exact;
    for finding in planned.findings.iter().filter(|finding| !is_exact(finding)) {
        let status = match finding.status {
            Status::Exact => "exact",
            Status::Approximate => "approximate",
            Status::Manual => "manual",
            Status::Unsupported => "unsupported",
        };
        let _ = writeln!(text, "{status:<12} {}: {}", finding.path, finding.message);
    }
    let exact = planned.findings.iter().filter(is_exact).count();
    let _ = writeln!(text, "{exact} fields are imported exactly");
    let Changes { created, replaced, unchanged, skipped, conflicts } = changes;
    for (what, named) in [
        ("created", created),
        ("replaced", replaced),
        ("unchanged", unchanged),
        ("skipped", skipped),
        ("in conflict", conflicts),
    ] {
        if !named.is_empty() {
            let _ = writeln!(text, "{what}: {}", named.len());
        }
    }
    text.push_str(if applied { "applied" } else { "nothing was written; add --apply to import" });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_names_what_the_plan_has() {
        let text = "model_list:\n- model_name: a\n  litellm_params: {model: openai/gpt-4o, api_key: sk-1}\n";
        let planned = import::plan(Source::Litellm, text, &|_| None).unwrap();
        let shown = importing(&planned.plan);
        assert!(shown.starts_with("importing ") && shown.contains("1 models"), "{shown}");
        assert!(!shown.contains("keys"), "{shown}");
    }
}
