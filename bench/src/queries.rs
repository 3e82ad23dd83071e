//! How long the queries of the log take on many rows: lists, filters, search, single rows, sessions and usage, in the store
//! alone.

use std::time::Instant;

use gateway_core::ids::{KeyId, OrgId};
use gateway_core::logs::LogRow;
use gateway_core::time::{DAY, Timestamp};
use gateway_store::Db;
use gateway_store::logs::{self, LogFilter, SessionFilter, TimeRange, UsageFilter, UsageGroup, UsageQuery};
use gateway_store::page::Page;

use crate::cli::{CorpusChoice, QueriesOptions};
use crate::error::{BenchResult, Context as _, StopFlag};
use crate::process::TempDir;
use crate::query_language;
use crate::rows::{Database, Source, store};
use crate::stats::Histogram;

/// Rows that are stored at once.
const BATCH: usize = 1_000;
/// Rows of which the queries know the values.
const SAMPLE_EVERY: usize = 997;
const PAGE: i64 = 50;

/// Prints the figures. Returns whether the targets are met, or need not be.
pub(crate) fn run(options: &QueriesOptions, stop: &StopFlag) -> BenchResult<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let parent = options.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = TempDir::create(&parent)?;
    let database = Database::of(options.postgres.as_deref(), folder.path());
    let is_met = runtime.block_on(async {
        let logs = database.open().await?;
        let sample = fill(&logs, options.rows, stop).await?;
        let is_met = measure(&logs, &sample, options.repeats, stop).await?;
        Ok::<_, crate::error::BenchError>(
            query_language::measure(&logs, &sample, options.repeats, stop).await? && is_met,
        )
    })?;
    Ok(is_met || !options.strict)
}

/// Stores the rows. Returns some of them.
async fn fill(logs: &Db, rows: usize, stop: &StopFlag) -> BenchResult<Vec<LogRow>> {
    let mut source = Source::new(0, CorpusChoice::Ordinary);
    let (mut sample, started) = (Vec::new(), Instant::now());
    for stored in (0..rows).step_by(BATCH) {
        stop.check()?;
        let batch = source.rows(BATCH);
        sample.extend(batch.iter().skip(stored % SAMPLE_EVERY).take(1).cloned());
        store(std::slice::from_ref(logs), vec![batch], BATCH).await?;
        while logs::merge_runs(logs).await.context("merging")? {}
    }
    eprintln!("stored {rows} rows in {:.0} s", started.elapsed().as_secs_f64());
    Ok(sample)
}

/// A kind of query and the longest time of 95 in 100, in milliseconds.
#[derive(Clone, Copy)]
enum Query {
    Newest,
    Model,
    Key,
    Status,
    User,
    Session,
    OneWord,
    TwoWords,
    FrequentWord,
    Row,
    Sessions,
    Usage,
}

impl Query {
    const ALL: [(Self, &'static str, f64); 12] = [
        (Self::Newest, "newest page", 5.0),
        (Self::Model, "by model", 50.0),
        (Self::Key, "by key", 50.0),
        (Self::Status, "by status", 50.0),
        (Self::User, "by user", 50.0),
        (Self::Session, "by session", 50.0),
        (Self::OneWord, "a rare word", 50.0),
        (Self::TwoWords, "two words", 50.0),
        (Self::FrequentWord, "a frequent word", 50.0),
        (Self::Row, "one row with bodies", 5.0),
        (Self::Sessions, "sessions", 20.0),
        (Self::Usage, "usage by model", 50.0),
    ];
}

async fn measure(logs: &Db, sample: &[LogRow], repeats: usize, stop: &StopFlag) -> BenchResult<bool> {
    let mut is_met = true;
    println!("{:<22} {:>9} {:>9} {:>9}", "query", "p50 ms", "p95 ms", "target");
    for (query, name, most) in Query::ALL {
        let mut times = Histogram::new();
        for number in 0..repeats {
            stop.check()?;
            let Some(row) = sample.get(number * 37 % sample.len().max(1)) else { continue };
            let started = Instant::now();
            ask(logs, query, row).await?;
            times.record(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        let (p50, p95) = (times.quantile(0.5) / 1e6, times.quantile(0.95) / 1e6);
        is_met &= p95 <= most;
        println!("{name:<22} {p50:>9.2} {p95:>9.2} {most:>9.0}{}", if p95 <= most { "" } else { " missed" });
    }
    Ok(is_met)
}

async fn ask(logs: &Db, query: Query, row: &LogRow) -> BenchResult<()> {
    let (org, page) = (row.org_id, Page { limit: PAGE, before: None });
    let mut filter = LogFilter::default();
    match query {
        Query::Row => {
            logs::find(logs, org, row.id).await.context("reading a row")?;
            return Ok(());
        }
        Query::Sessions => {
            logs::list_sessions(logs, org, &SessionFilter::default(), &page)
                .await
                .context("listing sessions")?;
            return Ok(());
        }
        Query::Usage => return usage(logs, org, row.created_at).await,
        Query::Newest => {}
        Query::Model => filter.model.clone_from(&row.model),
        Query::Key => filter.key_id = row.key_id.or(Some(KeyId(org.0))),
        Query::Status => filter.status = Some((500, 599)),
        Query::User => filter.user.clone_from(&row.user),
        Query::Session => filter.session_id.clone_from(&row.session_id),
        Query::OneWord => filter.words = words_of(row).into_iter().take(1).collect(),
        Query::TwoWords => filter.words = words_of(row).into_iter().take(2).collect(),
        Query::FrequentWord => filter.words = vec!["the".into()],
    }
    logs::list(logs, org, &filter, &page).await.context("listing rows")?;
    Ok(())
}

async fn usage(logs: &Db, org: OrgId, at: Timestamp) -> BenchResult<()> {
    let filter = UsageFilter::default();
    let range = TimeRange { from: at.plus(-30 * DAY), to: at.plus(DAY) };
    let query = UsageQuery { filter: &filter, range, interval: None, group: Some(UsageGroup::Model) };
    logs::usage(logs, org, &query).await.context("reading usage")?;
    Ok(())
}

/// The longest words of a row's answer, which are rare.
pub(crate) fn words_of(row: &LogRow) -> Vec<String> {
    let text = String::from_utf8_lossy(&row.response).to_lowercase();
    let mut words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.len() < 20)
        .map(str::to_owned)
        .collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    words.dedup();
    words
}
