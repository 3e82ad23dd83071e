//! Commands of daily work against a running gateway: keys, log rows and usage.

use std::io::Write as _;

use clap::{Args, Subcommand};
use gateway_core::time::{DAY, HOUR, Timestamp};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::remote::{MAX_ITEMS, Remote, pretty, segment};
use super::table::{Column, column, table};
use super::{Failure, print_line};
use crate::clock::Clock;

const KEYS: [Column; 7] = [
    column("id", "/id"),
    column("name", "/name"),
    column("key", "/key_prefix"),
    column("scopes", "/scopes"),
    column("last used", "/last_used_at"),
    column("expires", "/expires_at"),
    column("revoked", "/revoked_at"),
];
const LOGS: [Column; 9] = [
    column("id", "/id"),
    column("time", "/created_at"),
    column("status", "/status"),
    column("provider", "/provider"),
    column("model", "/model"),
    column("tokens", "/total_tokens"),
    column("cost usd", "/cost_usd"),
    column("ms", "/latency_ms"),
    column("error", "/error_code"),
];
const USAGE: [Column; 7] = [
    column("name", "/name"),
    column("requests", "/requests"),
    column("errors", "/errors"),
    column("tokens", "/total_tokens"),
    column("cost usd", "/cost_usd"),
    column("p50 ms", "/p50_ms"),
    column("p95 ms", "/p95_ms"),
];

#[derive(Subcommand)]
pub enum KeyCommand {
    /// List the keys of the organization
    List {
        #[arg(long, default_value_t = 50, value_parser = items())]
        limit: u32,
    },
    /// Create a key; it is printed once
    Create {
        name: String,
        /// proxy, read, provider:NAME, model:NAME or *; may be repeated
        #[arg(long = "scope", default_value = "proxy")]
        scopes: Vec<String>,
        /// The id of the application that uses it
        #[arg(long)]
        app: Option<String>,
        /// When it stops working: a time such as 2027-01-31T00:00:00Z, or from now on 90d or 12h; default: never
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
    },
    /// Revoke a key at once
    Revoke { id: String },
    /// Replace a key; the old one stays valid for a while
    Rotate {
        id: String,
        #[arg(long)]
        overlap_hours: Option<u32>,
    },
}

pub async fn keys(remote: &Remote, command: KeyCommand) -> Result<(), Failure> {
    let path = |id: &str| format!("/keys/{}", segment(id));
    let created = |made: &Value| {
        let raw = made["raw_key"].as_str().unwrap_or_default();
        print_line(&remote.show_one(made, || raw.to_owned()));
    };
    match command {
        KeyCommand::List { limit } => {
            let listed = remote.list("/keys", "keys", &[], limit).await?;
            print_line(&remote.show(&listed, "keys", &KEYS));
        }
        KeyCommand::Create { name, scopes, app, expires } => {
            let expires = expires.as_deref().map(|text| expiry(text, Clock::default().now())).transpose()?;
            let body = json!({"name": name, "scopes": scopes, "app_id": app, "expires_at": expires});
            created(&remote.call(Method::POST, "/keys", Some(&body)).await?);
        }
        KeyCommand::Revoke { id } => {
            let revoked = remote.call(Method::DELETE, &path(&id), None).await?;
            print_line(&remote.show_one(&revoked, || format!("{id} is revoked")));
        }
        KeyCommand::Rotate { id, overlap_hours } => {
            let body = overlap_hours.map_or(json!({}), |hours| json!({"overlap_hours": hours}));
            let rotated = remote.call(Method::POST, &format!("{}/rotate", path(&id)), Some(&body)).await?;
            created(&rotated);
        }
    }
    Ok(())
}

/// When a key stops working: a time, or hours or days from now on.
fn expiry(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    let unit = match text.as_bytes().last() {
        Some(b'h') => HOUR,
        Some(b'd') => DAY,
        _ => 0,
    };
    let count = text.get(..text.len().saturating_sub(1)).and_then(|digits| digits.parse::<u32>().ok());
    let after = count.filter(|_| unit > 0).and_then(|count| unit.checked_mul(i64::from(count)));
    after.map(|span| now.plus(span)).map_or_else(|| text.parse(), Ok).map_err(|error| {
        Failure::Other(format!("--expires {text}: {error}, and no number of days or hours such as 90d"))
    })
}

/// How many items a command may list.
pub fn items() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(MAX_ITEMS))
}

#[derive(Args)]
pub struct LogFilter {
    #[arg(long)]
    provider: Option<String>,
    #[arg(long)]
    model: Option<String>,
    /// A status such as 429, or a class such as 4xx
    #[arg(long)]
    status: Option<String>,
    /// The end user
    #[arg(long)]
    user: Option<String>,
    #[arg(long)]
    session: Option<String>,
    /// The id of a key
    #[arg(long)]
    key_id: Option<String>,
    /// Words that the bodies must have
    #[arg(long)]
    search: Option<String>,
    /// Start, as 2026-11-01T00:00:00Z
    #[arg(long)]
    from: Option<String>,
    /// End; rows at this time are not listed
    #[arg(long)]
    to: Option<String>,
    /// A query such as 'status:error latency:>2s model:gpt-4o*'; docs/query.md has the fields
    #[arg(long)]
    query: Option<String>,
    /// time, latency, cost or tokens, the highest first; latency:asc for the lowest first [default: time]
    #[arg(long)]
    sort: Option<String>,
}

impl LogFilter {
    fn query(self) -> Vec<(&'static str, Option<String>)> {
        let Self { provider, model, status, user, session, key_id, search, from, to, query, sort } = self;
        vec![
            ("provider", provider),
            ("model", model),
            ("status", status),
            ("user", user),
            ("session_id", session),
            ("key_id", key_id),
            ("q", search),
            ("from", from),
            ("to", to),
            ("query", query),
            ("sort", sort),
        ]
    }
}

#[derive(Subcommand)]
pub enum LogCommand {
    /// List requests, the newest first
    List {
        #[command(flatten)]
        filter: Box<LogFilter>,
        #[arg(long, default_value_t = 20, value_parser = items())]
        limit: u32,
    },
    /// Print one request with its bodies as JSON
    Show { id: i64 },
    /// Print new requests as they end, one line each; Ctrl-C ends it
    Follow,
}

pub async fn logs(remote: &Remote, command: LogCommand) -> Result<(), Failure> {
    match command {
        LogCommand::List { filter, limit } => {
            let listed = remote.list("/logs", "logs", &filter.query(), limit).await?;
            print_line(&remote.show(&listed, "logs", &LOGS));
        }
        LogCommand::Show { id } => {
            print_line(&pretty(&remote.get(&format!("/logs/{id}"), &[]).await?));
        }
        LogCommand::Follow => follow(remote).await?,
    }
    Ok(())
}

async fn follow(remote: &Remote) -> Result<(), Failure> {
    let mut body = remote.open("/logs/stream").await?;
    let mut pending = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::Other(format!("the stream ended: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        pending.extend_from_slice(&data);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let Some(event) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else { continue };
            let Ok(row) = serde_json::from_slice::<Value>(event) else { continue };
            let shown = remote.show_one(&row, || {
                let lines = table(&LOGS, std::slice::from_ref(&row));
                lines.lines().last().unwrap_or_default().to_owned()
            });
            if writeln!(std::io::stdout(), "{shown}").is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[derive(Args)]
pub struct UsageOptions {
    /// Break the sums down by provider, model, key, team, app, user or prompt
    #[arg(long)]
    by: Option<String>,
    /// Start, as 2026-11-01T00:00:00Z; default: 30 days ago
    #[arg(long)]
    from: Option<String>,
    /// End; default: now
    #[arg(long)]
    to: Option<String>,
}

pub async fn usage(remote: &Remote, options: UsageOptions) -> Result<(), Failure> {
    let UsageOptions { by, from, to } = options;
    let range = [("from", from), ("to", to)];
    if by.is_some() {
        let query: Vec<_> = range.into_iter().chain([("by", by)]).collect();
        let broken_down = remote.get("/usage/breakdown", &query).await?;
        print_line(&remote.show(&broken_down, "rows", &USAGE));
        return Ok(());
    }
    let mut sums = remote.get("/usage/summary", &range).await?;
    let text = remote.show_one(&sums.clone(), || {
        sums["name"] = json!("all");
        table(&USAGE, std::slice::from_ref(&sums))
    });
    print_line(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_expires_at_a_time_or_after_days_or_hours() {
        let now = Timestamp(1_000);
        let at = |text: &str| expiry(text, now).ok();
        assert_eq!((at("90d"), at("12h")), (Some(now.plus(90 * DAY)), Some(now.plus(12 * HOUR))));
        assert_eq!(at("1970-01-01T00:00:05Z"), Some(Timestamp(5_000)));
        for wrong in ["soon", "90", "d", "-1d", "", "9é"] {
            let Err(Failure::Other(text)) = expiry(wrong, now) else { panic!("{wrong} is no time") };
            assert!(text.contains("--expires") && text.contains("90d"), "{text}");
        }
    }
}
