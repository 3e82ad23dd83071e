//! Migrations one after the other, each named with its duration: those of large tables take a while.

use std::io::Write as _;
use std::time::{Duration, Instant};

use gateway_core::time::Timestamp;
use gateway_store::{Db, Part, SchemaState, StoreError};
use secrecy::ExposeSecret as _;

use super::Failure;
use super::settings::has_no_database;
use crate::app::open_vault;
use crate::clock::Clock;
use crate::config::Config;
use crate::rotate_master_key;
use crate::services::StartError;

/// Connections of the start, before the service opens its own.
const CONNECTIONS: u32 = 2;

/// Is told of each step when it begins, and again with its duration.
pub type Report<'a> = &'a mut dyn FnMut(&Step, Option<Duration>);

/// Migrations in one transaction.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub part: &'static str,
    /// The schema's version afterwards.
    pub version: i64,
    pub name: String,
}

/// Runs what is missing in both parts.
pub async fn run(db: &Db, logs: &Db, now: Timestamp, report: Report<'_>) -> Result<(), StoreError> {
    for (part, db) in [(Part::State, db), (Part::Logs, logs)] {
        for step in steps(part, &db.schema(part).await?) {
            report(&step, None);
            let started = Instant::now();
            db.migrate_to(part, step.version, now).await?;
            report(&step, Some(started.elapsed()));
        }
    }
    Ok(())
}

/// Each migration is a transaction of its own. They are one together in a new database, where none takes long, and where
/// nodes of the present version cannot go on: then the schema must not be seen half-way.
fn steps(part: Part, state: &SchemaState) -> Vec<Step> {
    let part = part_name(part);
    let SchemaState { version, known, oldest_after, pending, .. } = state;
    if pending.is_empty() {
        return Vec::new();
    }
    if *version == 0 {
        let name = format!("{} migrations of a new database", pending.len());
        return vec![Step { part, version: *known, name }];
    }
    if version < oldest_after {
        return vec![Step { part, version: *known, name: pending.join(", ") }];
    }
    let numbered = (version + 1..).zip(pending);
    numbered.map(|(version, name)| Step { part, version, name: (*name).to_owned() }).collect()
}

pub fn part_name(part: Part) -> &'static str {
    match part {
        Part::State => "state",
        Part::Logs => "logs",
    }
}

/// For `gateway migrate`: a line for each step, which is complete when the step is.
pub fn print(step: &Step, took: Option<Duration>) {
    let mut stderr = std::io::stderr().lock();
    let _ = match took {
        None => write!(stderr, "  {} {}: {} … ", step.part, step.version, step.name),
        Some(took) => writeln!(stderr, "{} ms", took.as_millis()),
    };
}

/// For `gateway serve`: a line in the log before and after each step, then the check of the master key. A database that
/// does not exist yet is left to the start of the service.
pub async fn before_start(config: &Config) -> Result<(), Failure> {
    if has_no_database(config) {
        return Ok(());
    }
    let db = Db::open_with(config.database_url.expose_secret(), CONNECTIONS).await?;
    let logs = db.open_logs().await?;
    let prepared = match run(&db, &logs, Clock::default().now(), &mut log).await {
        Ok(()) => check_master_key(config, &db, &logs).await,
        Err(error) => Err(error.into()),
    };
    // One pool on PostgreSQL, so both are closed at the end.
    logs.close().await;
    db.close().await;
    Ok(prepared?)
}

/// A node with another key could not use what is stored, and the others not what it stores.
async fn check_master_key(config: &Config, db: &Db, logs: &Db) -> Result<(), StartError> {
    let sample = rotate_master_key::sample(db, logs, &open_vault(config)?).await?;
    if sample.is_other_key() {
        return Err(StartError::OtherMasterKey(sample.unreadable));
    }
    if sample.unreadable > 0 {
        let (unreadable, tried) = (sample.unreadable, sample.unreadable + sample.readable);
        tracing::warn!(
            unreadable,
            tried,
            "the master key does not decrypt some of the stored secrets: store them anew, or add the key that encrypted \
             them to GATEWAY_MASTER_KEYS_ACCEPTED"
        );
    }
    Ok(())
}

fn log(step: &Step, took: Option<Duration>) {
    let Step { part, version, name } = step;
    match took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)) {
        None => tracing::info!(part, version, migration = name, "migrating the schema"),
        Some(took_ms) => tracing::info!(part, version, migration = name, took_ms, "migrated the schema"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(version: i64, oldest_after: i64, pending: &[&'static str]) -> Vec<(i64, String)> {
        let known = version + i64::try_from(pending.len()).unwrap();
        let state = SchemaState { version, known, oldest: None, oldest_after, pending: pending.to_vec() };
        steps(Part::Logs, &state).into_iter().map(|step| (step.version, step.name)).collect()
    }

    #[test]
    fn migrations_run_one_by_one_where_other_nodes_can_go_on() {
        assert_eq!(found(9, 3, &["a", "b"]), [(10, "a".to_owned()), (11, "b".to_owned())]);
        assert_eq!(found(9, 3, &[]), []);
    }

    #[test]
    fn a_new_database_and_one_that_others_cannot_use_meanwhile_are_migrated_at_once() {
        assert_eq!(found(0, 3, &["a", "b"]), [(2, "2 migrations of a new database".to_owned())]);
        assert_eq!(found(2, 3, &["a", "b"]), [(4, "a, b".to_owned())]);
    }
}
