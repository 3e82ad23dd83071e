//! Commands of daily work against a running gateway: keys, organizations, log rows and usage.

use std::io::Write as _;

use clap::{Args, Subcommand};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::remote::{Remote, pretty};
use super::table::{Column, column, table};
use super::{Failure, print_line};

const KEYS: [Column; 6] = [
    column("id", "/id"),
    column("name", "/name"),
    column("key", "/key_prefix"),
    column("scopes", "/scopes"),
    column("last used", "/last_used_at"),
    column("revoked", "/revoked_at"),
];
const ORGS: [Column; 5] = [
    column("id", "/id"),
    column("slug", "/slug"),
    column("name", "/name"),
    column("plan", "/plan"),
    column("role", "/role"),
];
const MEMBERS: [Column; 4] = [
    column("id", "/user_id"),
    column("email", "/email"),
    column("name", "/display_name"),
    column("role", "/role"),
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
        #[arg(long, default_value_t = 50)]
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
            let listed = remote.get("/keys", &[("limit", Some(limit.to_string()))]).await?;
            print_line(&remote.show(&listed, "keys", &KEYS));
        }
        KeyCommand::Create { name, scopes, app } => {
            let body = json!({"name": name, "scopes": scopes, "app_id": app});
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

#[derive(Subcommand)]
pub enum OrgCommand {
    /// List the organizations that the key or token belongs to
    List,
    /// List the members of an organization
    Members {
        /// The id of the organization; default: the one of the key
        id: Option<String>,
    },
}

pub async fn orgs(remote: &Remote, command: OrgCommand) -> Result<(), Failure> {
    match command {
        OrgCommand::List => {
            let listed = remote.get("/orgs", &[]).await?;
            print_line(&remote.show(&listed, "orgs", &ORGS));
        }
        OrgCommand::Members { id } => {
            let id = if let Some(id) = id {
                id
            } else {
                let listed = remote.get("/orgs", &[]).await?;
                listed["orgs"][0]["id"].as_str().unwrap_or_default().to_owned()
            };
            let listed = remote.get(&format!("/orgs/{}/members", segment(&id)), &[]).await?;
            print_line(&remote.show(&listed, "members", &MEMBERS));
        }
    }
    Ok(())
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
}

impl LogFilter {
    fn query(self) -> Vec<(&'static str, Option<String>)> {
        let Self { provider, model, status, user, session, key_id, search } = self;
        vec![
            ("provider", provider),
            ("model", model),
            ("status", status),
            ("user", user),
            ("session_id", session),
            ("key_id", key_id),
            ("q", search),
        ]
    }
}

#[derive(Subcommand)]
pub enum LogCommand {
    /// List requests, newest first
    List {
        #[command(flatten)]
        filter: LogFilter,
        #[arg(long, default_value_t = 20)]
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
            let mut query = filter.query();
            query.push(("limit", Some(limit.to_string())));
            let listed = remote.get("/logs", &query).await?;
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

/// An id as a path segment.
fn segment(id: &str) -> String {
    percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC)
        .to_string()
        .replace("%2D", "-")
}
