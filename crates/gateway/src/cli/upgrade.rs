//! `gateway upgrade-check`: what the start of this version would change in the database, and whether nodes of other
//! versions can go on. Nothing is changed.

use std::fmt::Write as _;

use gateway_store::{Db, Part, SchemaState};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::Failure;
use super::migrations::part_name;
use super::settings::has_no_database;
use crate::config::{Config, masked_database_url};

/// The report, as text or JSON.
pub async fn check(config: &Config, is_json: bool) -> Result<String, Failure> {
    let shown = masked_database_url(config);
    let is_new = has_no_database(config);
    let states = if is_new { Vec::new() } else { read(config.database_url.expose_secret()).await? };
    let usable = states.iter().all(|(_, state)| state.is_usable());
    if is_json {
        let parts: Vec<Value> = states.iter().map(|(part, state)| json_of(*part, state)).collect();
        let value = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "database": shown,
            "exists": !is_new,
            "usable": usable,
            "parts": parts,
        });
        return Ok(serde_json::to_string_pretty(&value).unwrap_or_default());
    }
    if is_new {
        return Ok(format!(
            "{shown} does not exist yet: there is nothing to upgrade\n  if the data is elsewhere, name the settings of \
             the installation with --config, GATEWAY_CONFIG or GATEWAY_DATA_DIR"
        ));
    }
    let text = text(&shown, &states);
    if usable { Ok(text) } else { Err(Failure::Other(text)) }
}

async fn read(url: &str) -> Result<Vec<(Part, SchemaState)>, Failure> {
    let db = Db::open(url).await?;
    let logs = db.open_logs().await?;
    let states =
        vec![(Part::State, db.schema(Part::State).await?), (Part::Logs, logs.schema(Part::Logs).await?)];
    logs.close().await;
    db.close().await;
    Ok(states)
}

fn json_of(part: Part, state: &SchemaState) -> Value {
    json!({
        "part": part_name(part),
        "schema": state.version,
        "known": state.known,
        "pending": state.pending,
        "oldest_after": state.oldest_after,
    })
}

fn text(shown: &str, states: &[(Part, SchemaState)]) -> String {
    let mut text = format!("gateway {} with {shown}\n", env!("CARGO_PKG_VERSION"));
    for (part, state) in states {
        let (name, version, known) = (part_name(*part), state.version, state.known);
        let _ = match () {
            () if !state.is_usable() => {
                writeln!(
                    text,
                    "  {name}: schema {version} is newer than {known} and cannot be used; run a later version"
                )
            }
            () if version > known => {
                writeln!(
                    text,
                    "  {name}: schema {version} is newer than {known}, and this version can use it"
                )
            }
            () if state.pending.is_empty() => writeln!(text, "  {name}: schema {version} is up to date"),
            () => {
                let pending = state.pending.join(", ");
                let _ = writeln!(text, "  {name}: schema {version} becomes {known}: {pending}");
                let can_go_on =
                    if version >= state.oldest_after { "can go on" } else { "must be stopped first" };
                writeln!(text, "  {name}: nodes of the version before {can_go_on} during the upgrade")
            }
        };
    }
    text.push_str("  make a backup before the upgrade: docs/operations.md");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(version: i64, pending: &[&'static str]) -> SchemaState {
        let known = Part::Logs.version();
        SchemaState { version, known, oldest: None, oldest_after: 3, pending: pending.to_vec() }
    }

    #[test]
    fn the_report_names_migrations_and_who_can_go_on() {
        let known = Part::Logs.version();
        let report = |state| text("db", &[(Part::Logs, state)]);
        assert!(report(state(known, &[])).contains("is up to date"));
        let behind = report(state(known - 1, &["word_runs"]));
        assert!(behind.contains("word_runs") && behind.contains("can go on"), "{behind}");
        assert!(report(state(2, &["a", "b"])).contains("must be stopped first"));
        let newer = SchemaState { oldest: Some(known), ..state(known + 1, &[]) };
        assert!(report(newer).contains("can use it"));
        assert!(report(state(known + 1, &[])).contains("cannot be used"));
    }
}
