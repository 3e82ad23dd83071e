//! How long queries of the query language take on many rows: lists in several orders, counts of values, usage and sessions.

use std::time::Instant;

use gateway_core::logs::LogRow;
use gateway_core::query::{self, Field};
use gateway_core::time::{DAY, Interval};
use gateway_store::Db;
use gateway_store::logs::{self, GroupField, LogSearch, SessionFilter, Sort, SortKey, TimeRange};
use gateway_store::page::Page;

use crate::error::{BenchResult, Context as _, StopFlag};
use crate::queries::words_of;
use crate::stats::Histogram;

const PAGE: i64 = 50;

/// What is asked for.
#[derive(Clone, Copy)]
enum Answer {
    Newest,
    By(SortKey),
    Facets,
    Usage(Option<Field>),
    Series,
    Sessions,
}

/// A query with the values of a row in braces, what it is asked for, and the longest time of 95 in 100 in milliseconds.
const QUERIES: [(&str, Answer, f64); 22] = [
    ("", Answer::Newest, 5.0),
    ("-source:api", Answer::Newest, 50.0),
    ("status:error", Answer::Newest, 50.0),
    ("status:error latency:>2s", Answer::Newest, 50.0),
    ("model:{model}", Answer::Newest, 50.0),
    ("model:{model}* provider:{provider}", Answer::Newest, 50.0),
    ("user:{user} -source:api", Answer::Newest, 50.0),
    ("session:{session}", Answer::Newest, 50.0),
    ("{word}", Answer::Newest, 50.0),
    ("\"the {word}\"", Answer::Newest, 50.0),
    ("the -source:api status:ok", Answer::Newest, 50.0),
    ("latency:>2s cost:>0.01", Answer::Newest, 50.0),
    ("metadata.env:nowhere", Answer::Newest, 50.0),
    ("", Answer::By(SortKey::Latency), 50.0),
    ("status:error", Answer::By(SortKey::Cost), 50.0),
    ("user:{user}", Answer::By(SortKey::Tokens), 50.0),
    ("status:error", Answer::Facets, 50.0),
    ("model:{model}", Answer::Facets, 50.0),
    ("model:{model}", Answer::Usage(Some(Field::User)), 50.0),
    ("status:error", Answer::Usage(Some(Field::Error)), 50.0),
    ("-source:api", Answer::Series, 50.0),
    ("status:error", Answer::Sessions, 50.0),
];

/// Prints the figures. Returns whether the targets are met.
pub(crate) async fn measure(
    logs: &Db,
    sample: &[LogRow],
    repeats: usize,
    stop: &StopFlag,
) -> BenchResult<bool> {
    let mut is_met = true;
    println!("{:<48} {:>9} {:>9} {:>9} {:>8}", "query language", "p50 ms", "p95 ms", "target", "partial");
    for (template, answer, most) in QUERIES {
        let (mut times, mut partial) = (Histogram::new(), 0);
        for number in 0..repeats {
            stop.check()?;
            let Some(row) = sample.get(number * 37 % sample.len().max(1)) else { continue };
            let text = filled(template, row);
            let started = Instant::now();
            partial += usize::from(ask(logs, &text, answer, row).await?);
            times.record(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        let (p50, p95) = (times.quantile(0.5) / 1e6, times.quantile(0.95) / 1e6);
        is_met &= p95 <= most;
        let name = format!("{template} {}", label(answer));
        let missed = if p95 <= most { "" } else { " missed" };
        println!("{name:<48} {p50:>9.2} {p95:>9.2} {most:>9.0} {partial:>3}/{repeats:<4}{missed}");
    }
    Ok(is_met)
}

fn label(answer: Answer) -> String {
    match answer {
        Answer::Newest => String::new(),
        Answer::By(key) => format!("(by {key:?})"),
        Answer::Facets => "(facets)".into(),
        Answer::Usage(group) => format!("(usage by {group:?})"),
        Answer::Series => "(time series)".into(),
        Answer::Sessions => "(sessions)".into(),
    }
}

/// The template with the values of a row.
fn filled(template: &str, row: &LogRow) -> String {
    let quoted = |text: Option<&str>| format!("\"{}\"", text.unwrap_or("x").replace(['"', '\\'], " "));
    template
        .replace("{model}*", &format!("{}*", row.model.as_deref().unwrap_or("gpt")))
        .replace("{model}", &quoted(row.model.as_deref()))
        .replace("{provider}", &quoted(Some(&row.provider)))
        .replace("{user}", &quoted(row.user.as_deref()))
        .replace("{session}", &quoted(row.session_id.as_deref()))
        .replace("{word}", words_of(row).first().map_or("absent", String::as_str))
}

/// Returns whether the answer is partial.
async fn ask(logs: &Db, text: &str, answer: Answer, row: &LogRow) -> BenchResult<bool> {
    let org = row.org_id;
    let query = query::parse(text).context(text)?;
    let search = LogSearch { query, ..LogSearch::default() };
    let range = TimeRange { from: row.created_at.plus(-30 * DAY), to: row.created_at.plus(DAY) };
    let group = |field: Field| GroupField { field, key: None };
    let list = |key: SortKey| Sort { key, is_ascending: false };
    let scanned_to = match answer {
        Answer::Newest => {
            let page = (PAGE, None);
            let found = logs::list_matching(logs, org, &search, list(SortKey::Time), page).await;
            found.context("listing rows")?.scanned_to
        }
        Answer::By(key) => {
            let found = logs::list_matching(logs, org, &search, list(key), (PAGE, None)).await;
            found.context("listing rows")?.scanned_to
        }
        Answer::Facets => {
            let fields = [Field::Status, Field::Model, Field::Provider, Field::App].map(group);
            logs::facets(logs, org, &search, &fields, 10).await.context("counting values")?.scanned_to
        }
        Answer::Usage(field) => {
            let split = (range, None, field.map(group));
            logs::usage_matching(logs, org, &search, split).await.context("reading usage")?.scanned_to
        }
        Answer::Series => {
            let split = (range, Some(Interval::Day), None);
            logs::usage_matching(logs, org, &search, split).await.context("reading usage")?.scanned_to
        }
        Answer::Sessions => {
            let (filter, page) = (SessionFilter::default(), Page { limit: PAGE, before: None });
            let found = logs::list_sessions_matching(logs, org, &search, &filter, &page).await;
            found.context("listing sessions")?.1
        }
    };
    Ok(scanned_to.is_some())
}
