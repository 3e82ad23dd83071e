//! What an audit entry adds to a change, and how fast a chain is verified: in the store on SQLite, without a gateway.

use std::time::Instant;

use gateway_core::audit::chain::Position;
use gateway_core::audit::checkpoint::ExportCheck;
use gateway_core::audit::formats::Exported;
use gateway_core::audit::{Actor, ActorType, Chain, Draft, Outcome, Target, Via};
use gateway_core::time::Timestamp;
use gateway_store::audit::{self, Filter};
use gateway_store::{Db, Part};
use serde_json::json;

use crate::cli::AuditOptions;
use crate::error::{BenchError, BenchResult, Context as _, StopFlag};
use crate::process::TempDir;
use crate::stats::Spread;

/// Changes of one measurement.
const CHANGES: u32 = 1_000;
/// Pairs of measurements, without and with the entry.
const ROUNDS: u32 = 6;
/// Entries that one transaction writes before the verification.
const BATCH: u32 = 500;
const PAGE: i64 = 1_000;
/// Microseconds that an entry may add to a change.
const MAX_COST: f64 = 300.0;
/// Entries per second that a verification must reach.
const MIN_RATE: f64 = 50_000.0;

/// Prints the figures. Returns whether both targets are met, or need not be.
pub(crate) fn run(options: &AuditOptions, stop: &StopFlag) -> BenchResult<bool> {
    let parent = options.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = TempDir::create(&parent)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let is_met = runtime.block_on(async {
        let db = Db::open(&format!("sqlite://{}/audit.db", folder.path().display())).await;
        let db = db.context("opening the database")?;
        db.migrate(Part::State, Timestamp(0)).await.context("migrating")?;
        let cost = cost_of_entries(&db, stop).await?;
        let rate = rate_of_verification(&db, options.entries, stop).await?;
        db.close().await;
        Ok::<_, BenchError>(cost <= MAX_COST && rate >= MIN_RATE)
    })?;
    Ok(is_met || !options.strict)
}

/// The time that an entry adds to a change of one row, in microseconds.
async fn cost_of_entries(db: &Db, stop: &StopFlag) -> BenchResult<f64> {
    let sql = "CREATE TABLE changes (id BIGINT PRIMARY KEY, text TEXT NOT NULL)";
    db.exec(sql, Vec::new()).await.context("creating a table")?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        stop.check()?;
        without.push(time_changes(db, round, false).await?);
        with.push(time_changes(db, round, true).await?);
    }
    let added = Spread::of(with.iter().zip(&without).map(|(with, without)| with - without));
    for (name, spread) in
        [("change", Spread::of(without)), ("with entry", Spread::of(with)), ("entry adds", added)]
    {
        if let Some(Spread { median, min, max }) = spread {
            println!("{name:<12} {median:8.1} us (from {min:.1} to {max:.1})");
        }
    }
    Ok(added.map_or(f64::INFINITY, |added| added.median))
}

async fn time_changes(db: &Db, round: u32, is_recorded: bool) -> BenchResult<f64> {
    let started = Instant::now();
    for number in 0..CHANGES {
        let mut tx = db.begin().await.context("beginning a change")?;
        // The text differs each time: SQLite does not write a row that stays the same.
        let sql = "INSERT INTO changes (id, text) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET text = excluded.text";
        let text = format!("text of round {round}, recorded {is_recorded}");
        tx.exec(sql, vec![i64::from(number).into(), text.into()]).await.context("changing a row")?;
        if is_recorded {
            tx.record(entry(round * CHANGES + number)?);
        }
        tx.commit().await.context("committing a change")?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(CHANGES))
}

/// Verified entries per second, in the store.
async fn rate_of_verification(db: &Db, entries: u32, stop: &StopFlag) -> BenchResult<f64> {
    let first = ROUNDS * CHANGES;
    for start in (first..first.max(entries)).step_by(BATCH as usize) {
        stop.check()?;
        let batch = (start..start + BATCH).map(entry).collect::<BenchResult<Vec<_>>>()?;
        audit::write(db, batch).await.context("writing entries")?;
    }
    let upto = audit::last_seq(db, Chain::System).await.context("reading the last entry")?;
    let (mut position, started) = (Position::start(&Chain::System), Instant::now());
    while position.seq < upto {
        let page = audit::verify_page(db, Chain::System, &mut position, upto, PAGE).await;
        page.context("verifying")?.map_err(|bad| format!("entry {} is bad", bad.seq)).context("verifying")?;
    }
    let rate = print_rate("verify", upto, started.elapsed().as_secs_f64());
    check_lines(db, upto, stop).await?;
    Ok(rate)
}

/// The check of an exported file, line by line.
async fn check_lines(db: &Db, upto: i64, stop: &StopFlag) -> BenchResult<()> {
    let (mut check, mut after, mut seconds) = (ExportCheck::default(), 0, 0.0);
    let org_id = Chain::System.to_string();
    while after < upto {
        stop.check()?;
        let page = audit::since(db, Chain::System, &Filter::default(), (after, upto), PAGE).await;
        let found = page.context("reading entries")?.found;
        let lines: Vec<String> = found
            .iter()
            .map(|stored| {
                Exported { org_id: &org_id, entry: &stored.entry, hash: &stored.hash }.jsonl().to_string()
            })
            .collect();
        after = found.last().map_or(upto, |stored| stored.entry.seq);
        let started = Instant::now();
        for line in &lines {
            check.line(line).context("checking a line")?;
        }
        seconds += started.elapsed().as_secs_f64();
    }
    print_rate("verify file", upto, seconds);
    Ok(())
}

fn print_rate(name: &str, entries: i64, seconds: f64) -> f64 {
    let rate = entries as f64 / seconds;
    println!("{name:<12} {rate:8.0} entries/s ({entries} in {seconds:.2} s)");
    rate
}

fn entry(number: u32) -> BenchResult<Draft> {
    let id = format!("0192f0c1-0000-7000-8000-{number:012x}").parse().context("making an id")?;
    let draft = Draft {
        chain: Chain::System,
        id,
        at: Timestamp(1_700_000_000_000 + i64::from(number)),
        node: 1,
        actor: Actor {
            kind: ActorType::User,
            id: Some("0192f0c1-0000-7000-8000-000000000001".into()),
            name: None,
            via: Via::Api,
        },
        action: "key.update".into(),
        target: Target {
            kind: "key".into(),
            id: Some(format!("{number:032x}")),
            name: Some("checkout".into()),
        },
        outcome: Outcome::Success,
        status: Some(200),
        changes: Vec::new(),
        reason: None,
        request_id: Some("0192f0c1-0000-7000-8000-000000000002".into()),
        ip: Some("192.0.2.7".into()),
        user_agent: Some("curl/8.5.0".into()),
    };
    Ok(draft.changed(
        &json!({"name": "checkout", "scopes": ["*"]}),
        &json!({"name": "till", "scopes": ["proxy"]}),
    ))
}
