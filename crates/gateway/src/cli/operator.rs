//! Commands of the operator. Each leaves an entry in the audit log of the installation.

use std::io::Write as _;
use std::time::Duration;

use gateway_core::access::Plan;
use gateway_core::accounts::normalise_email;
use gateway_core::audit::{Actor, Chain, Draft, Outcome, Target};
use gateway_core::ids::AuditId;
use gateway_core::time::HOUR;
use gateway_store::cluster::invalidations::{self, Invalidation};
use gateway_store::{Db, Part, accounts, audit, orgs, sign_ins};
use serde_json::json;
use uuid::{NoContext, Uuid};

use super::migrations::Step;
use super::progress::Progress;
use super::settings::open;
use super::{Failure, migrations};
use crate::app::open_vault;
use crate::audit::signing::SigningKey;
use crate::auth::passwords::new_reset_token;
use crate::clock::Clock;
use crate::config::Config;
use crate::data_dir;
use crate::rotate_master_key::{self, Rotation};
use crate::services::migrate_all;

/// Migrates the schema; returns its versions.
pub async fn migrate(config: &Config) -> Result<(i64, i64), Failure> {
    if !config.is_shared() {
        data_dir::create(config)?;
    }
    let db = open(config).await?;
    let log_rows = db.open_logs().await?;
    say_pending(&db, &log_rows).await?;
    let mut is_line_open = false;
    let mut report = |step: &Step, took: Option<Duration>| {
        is_line_open = took.is_none();
        migrations::print(step, took);
    };
    if let Err(error) = migrations::run(&db, &log_rows, Clock::default().now(), &mut report).await {
        if is_line_open {
            let _ = writeln!(std::io::stderr(), "failed");
        }
        return Err(error.into());
    }
    // Also looks at a schema that is newer.
    migrate_all(&db, Clock::default().now()).await?;
    let (state, logs) = (Part::State.version(), Part::Logs.version());
    let target = Target { kind: "schema".into(), id: None, name: None };
    let entry = operator_entry(Chain::System, "operator.migrate", target);
    audit::write(&db, vec![entry.created(&json!({"state": state, "logs": logs}))]).await?;
    log_rows.close().await;
    db.close().await;
    Ok((state, logs))
}

/// Large tables take a while, so the migrations are named before they run.
async fn say_pending(db: &Db, logs: &Db) -> Result<(), Failure> {
    let parts = [db.schema(Part::State).await?, logs.schema(Part::Logs).await?];
    let pending: Vec<&str> = parts.into_iter().flat_map(|part| part.pending).collect();
    if !pending.is_empty() {
        let _ = writeln!(std::io::stderr(), "running {} migrations: {}", pending.len(), pending.join(", "));
    }
    Ok(())
}

pub async fn set_plan(config: &Config, slug: &str, plan: Plan) -> Result<(), Failure> {
    let db = open(config).await?;
    db.migrate(Part::State, Clock::default().now()).await?;
    let mut tx = db.begin().await?;
    let changed = orgs::set_plan(&mut tx, slug, plan, Clock::default().now()).await?;
    if let Some(org) = changed {
        invalidations::record(&mut tx, &Invalidation::OrgAll(org)).await?;
        // The organization sees who changed its plan, and the installation what its operator did.
        for (chain, action) in [(Chain::Org(org), "org.plan"), (Chain::System, "operator.set_plan")] {
            let target =
                Target { kind: "org".into(), id: Some(org.to_string()), name: Some(slug.to_owned()) };
            tx.record(operator_entry(chain, action, target).created(&json!({"plan": plan})));
        }
    }
    tx.commit().await?;
    db.close().await;
    changed
        .map(|_| ())
        .ok_or_else(|| Failure::Other(format!("there is no organization with the slug '{slug}'")))
}

pub fn operator_entry(chain: Chain, action: &str, target: Target) -> Draft {
    let at = Clock::default().now();
    let seconds = u64::try_from(at.unix_seconds()).unwrap_or(0);
    Draft {
        chain,
        id: AuditId(Uuid::new_v7(uuid::Timestamp::from_unix(NoContext, seconds, 0))),
        at,
        node: 0,
        actor: Actor::OPERATOR,
        action: action.to_owned(),
        target,
        outcome: Outcome::Success,
        status: None,
        changes: Vec::new(),
        reason: None,
        request_id: None,
        ip: None,
        user_agent: None,
    }
}

pub async fn rotate_audit_key(config: &Config) -> Result<String, Failure> {
    let vault = open_vault(config)?;
    let db = open(config).await?;
    let logs = migrate_all(&db, Clock::default().now()).await?;
    let (_, key) = SigningKey::generate(&vault, Clock::default().now())
        .map_err(|error| Failure::Other(error.to_string()))?;
    let known = audit::keys(&db).await?.len();
    if !audit::insert_key(&db, &key, known).await? {
        return Err(Failure::Other("another key was added at the same time; run the command again".into()));
    }
    let target = Target { kind: "audit_key".into(), id: Some(key.id.clone()), name: None };
    audit::write(&db, vec![operator_entry(Chain::System, "operator.rotate_audit_key", target)]).await?;
    logs.close().await;
    db.close().await;
    Ok(key.id)
}

pub async fn rotate_master_key(config: &Config) -> Result<Rotation, Failure> {
    let vault = open_vault(config)?;
    let db = open(config).await?;
    let logs = migrate_all(&db, Clock::default().now()).await?;
    let mut progress = Progress::new("secrets read");
    let rotation = rotate_master_key::run(&db, &logs, &vault, &mut |done| progress.at(done)).await?;
    drop(progress);
    let target = Target { kind: "master_key".into(), id: None, name: None };
    let mut tx = db.begin().await?;
    tx.record(operator_entry(Chain::System, "operator.rotate_master_key", target));
    tx.commit().await?;
    logs.close().await;
    db.close().await;
    Ok(rotation)
}

/// Stores the hash of a new token for a password reset and returns the token.
pub async fn reset_password(config: &Config, email: &str) -> Result<String, Failure> {
    let unknown = || Failure::Other(format!("there is no account with the email '{email}'"));
    let normalised = normalise_email(email).map_err(|_| unknown())?;
    let (token, hash) =
        new_reset_token().ok_or_else(|| Failure::Other("the system has no random numbers".into()))?;
    let db = open(config).await?;
    let now = Clock::default().now();
    db.migrate(Part::State, now).await?;
    let user = accounts::find_by_email(&db, &normalised).await?;
    if let Some(user) = &user {
        let mut tx = db.begin().await?;
        sign_ins::insert_reset(&mut tx, user.id, &hash, now.plus(HOUR)).await?;
        let target =
            Target { kind: "user".into(), id: Some(user.id.to_string()), name: Some(user.email.clone()) };
        tx.record(operator_entry(Chain::System, "operator.reset_password", target));
        tx.commit().await?;
    }
    db.close().await;
    user.map(|_| token).ok_or_else(unknown)
}
