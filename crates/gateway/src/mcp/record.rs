//! The log record of a call: opened before the call, with what it may cost held in the budgets, and closed when it ends
//! or is dropped.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use gateway_core::budget::Charge;
use gateway_core::logs::{BodyStorage, LogLevel, LogRow, LogSource, MAX_BODY_BYTES};
use gateway_core::mcp::{Members, RpcError};
use gateway_core::time::Timestamp;
use gateway_core::totals::cost_units;
use http::StatusCode;
use rust_decimal::Decimal;
use serde_json::json;
use serde_json::value::RawValue;

use super::Mcp;
use super::reply::Outcome;
use super::serve::Context;
use crate::auth::{Identity, Principal};
use crate::budgets::{Reservation as BudgetReservation, charge_of};
use crate::memory::Reservation;
use crate::problem::ApiResult;
use crate::proxy::budget::refused;

/// The requests that have rows. Lists are only counted.
const RECORDED: [&str; 4] = ["tools/call", "prompts/get", "resources/read", "skills/get"];
/// Of a text that the caller chose.
const MAX_NAME_CHARS: usize = 256;

pub struct Record {
    mcp: Arc<Mcp>,
    identity: Identity,
    row: Option<LogRow>,
    started: Instant,
    price: Option<Decimal>,
    /// The server has got the request.
    is_sent: AtomicBool,
    log_bodies: bool,
    budget: Option<BudgetReservation>,
    /// Of the copies of the bodies.
    memory: Reservation,
}

/// What a row has of a result.
#[derive(Debug, Clone)]
pub struct Logged {
    is_error: bool,
    body: Vec<u8>,
    storage: BodyStorage,
}

impl Logged {
    pub fn of(result: &RawValue, log_bodies: bool) -> Self {
        let (body, storage) =
            if log_bodies { cut(without_blobs(result).get()) } else { (Vec::new(), BodyStorage::Off) };
        Self { is_error: is_error(result), body, storage }
    }
}

/// What a call is about.
pub struct Subject<'a> {
    /// The server. Empty if the request names none that there is.
    pub server: &'a str,
    /// What the call costs if it is answered, or sent and then given up.
    pub price: Option<Decimal>,
    pub method: &'a str,
    pub name: Option<&'a str>,
    pub params: &'a Members,
}

impl Record {
    /// Holds what the call may cost. `None` if such requests are not recorded.
    pub async fn open(mcp: &Arc<Mcp>, context: &Context, subject: Subject<'_>) -> ApiResult<Option<Self>> {
        let Subject { server, price, method, name, params } = subject;
        if !RECORDED.contains(&method) {
            return Ok(None);
        }
        let services = &mcp.services;
        let identity = context.identity.clone();
        let created_at = services.clock.now();
        let user = end_user(context);
        let budget = match (&identity.org.budgets, price) {
            (Some(budgets), Some(price)) => {
                let charge = Charge { cost: cost_units(price).into(), is_unpriced: false };
                let reserved =
                    mcp.proxy.budgets.reserve(budgets, identity.spender(), user.as_deref(), charge).await;
                reserved.map_err(refused)?
            }
            _ => None,
        };
        let is_logged = services.config.log_bodies && identity.org.settings.log_bodies;
        let log_bodies = is_logged && !context.tags.without_bodies;
        let mut memory = identity.org.memory.open();
        let (request, request_stored) = match params.get("arguments") {
            Some(arguments) => copy(log_bodies, arguments.get(), &mut memory),
            None => copy(log_bodies, &without_meta(params), &mut memory),
        };
        let row = LogRow {
            request,
            request_stored,
            user,
            provider: if server.is_empty() { "mcp".into() } else { format!("mcp:{server}") },
            operation: Some(method.to_owned()),
            tool: name.map(|name| name.chars().take(MAX_NAME_CHARS).collect()),
            ..empty_row(services.ids.next_log_id(created_at), created_at, context)
        };
        let started = Instant::now();
        let mcp = Arc::clone(mcp);
        let is_sent = AtomicBool::new(false);
        Ok(Some(Self { mcp, identity, row: Some(row), started, price, is_sent, log_bodies, budget, memory }))
    }

    pub fn log_bodies(&self) -> bool {
        self.log_bodies
    }

    /// Whether the server has got the request. Then the call costs its price also if nobody waits for the answer.
    pub fn mark_sent(&self, is_sent: bool) {
        self.is_sent.store(is_sent, Ordering::Relaxed);
    }

    /// What a call costs whose answer did not come in time, or was not waited for.
    fn price_if_sent(&self) -> Option<Decimal> {
        self.price.filter(|_| self.is_sent.load(Ordering::Relaxed))
    }

    /// The call has ended.
    pub fn close(&mut self, outcome: &Outcome) {
        let Some(mut row) = self.row.take() else { return };
        match &outcome.result {
            Ok(result) => {
                let logged = outcome.logged.clone();
                let logged = logged.unwrap_or_else(|| Logged::of(result, self.log_bodies));
                row.status = if outcome.code.is_none() && logged.is_error {
                    422
                } else {
                    outcome.code.map_or(200, |_| 401)
                };
                row.error_code = outcome.code.map(ToOwned::to_owned);
                row.cost_usd = self.price.filter(|_| outcome.code.is_none());
                self.memory.charge(logged.body.len());
                (row.response, row.response_stored) = (logged.body, logged.storage);
            }
            Err(error) => {
                let status = outcome.status.as_u16();
                row.status = if status < 400 { 400 } else { status };
                row.error_code = Some(outcome.code.unwrap_or("bad_request").to_owned());
                row.cost_usd = self.price_if_sent().filter(|_| is_without_answer(outcome.status));
                (row.response, row.response_stored) =
                    copy(self.log_bodies, &error_text(error), &mut self.memory);
            }
        }
        row.level = match row.status {
            500.. => LogLevel::Error,
            400.. => LogLevel::Warn,
            _ => LogLevel::Info,
        };
        self.write(row);
    }

    fn write(&mut self, mut row: LogRow) {
        let proxy = &self.mcp.proxy;
        row.latency_ms = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        proxy.metrics.count(proxy.worker.lane, &row);
        if let Some(budget) = &mut self.budget {
            // Before the append: the log writer must find the cost committed when it stores the row.
            budget.commit(row.id, charge_of(&row), self.mcp.services.clock.now());
        }
        debug_assert_eq!(row.org_id, self.identity.org.id);
        proxy.spool.append(proxy.worker.lane, row);
    }
}

/// The caller went away, or cancelled the call.
impl Drop for Record {
    fn drop(&mut self) {
        if let Some(mut row) = self.row.take() {
            (row.status, row.level) = (499, LogLevel::Warn);
            row.error_code = Some("client_closed".into());
            row.cost_usd = self.price_if_sent();
            self.write(row);
        }
    }
}

/// The user whose budgets apply. A member is the end user of its own calls.
fn end_user(context: &Context) -> Option<String> {
    context.tags.user.clone().or_else(|| match &context.identity.principal {
        Principal::User { id, .. } => Some(id.to_string()),
        Principal::Key(_) | Principal::Org => None,
    })
}

fn empty_row(id: i64, created_at: Timestamp, context: &Context) -> LogRow {
    let (key_id, app_id, team_id) = match &context.identity.principal {
        Principal::Key(key) => (Some(key.id), key.app_id, key.team_id),
        Principal::User { team_id, .. } => (None, None, *team_id),
        Principal::Org => (None, None, None),
    };
    let header =
        |name: &str| context.headers.get(name).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned);
    let session = || header("x-claude-code-session-id").filter(|id| (1..=256).contains(&id.len()));
    LogRow {
        request_id: context.request_id.clone(),
        path: context.path.clone(),
        key_id,
        app_id,
        team_id,
        session_id: context.tags.session.clone().or_else(session),
        metadata: context.tags.metadata.clone(),
        traceparent: header("traceparent")
            .or_else(|| context.traceparent.clone())
            .filter(|text| text.len() <= 256),
        ..LogRow::new(id, context.identity.org.id, created_at, LogSource::Mcp)
    }
}

/// The part of a body that the row stores.
fn copy(is_enabled: bool, text: &str, memory: &mut Reservation) -> (Vec<u8>, BodyStorage) {
    if !is_enabled {
        return (Vec::new(), BodyStorage::Off);
    }
    let (bytes, storage) = cut(text);
    memory.charge(bytes.len());
    (bytes, storage)
}

fn cut(text: &str) -> (Vec<u8>, BodyStorage) {
    let kept = text.len().min(MAX_BODY_BYTES);
    let storage = if kept < text.len() { BodyStorage::Truncated } else { BodyStorage::Full };
    (text.as_bytes()[..kept].to_vec(), storage)
}

fn without_meta(params: &Members) -> String {
    let mut own = params.clone();
    own.remove("_meta");
    gateway_core::mcp::raw(&own).get().to_owned()
}

fn error_text(error: &RpcError) -> String {
    json!({"error": error}).to_string()
}

fn is_error(result: &RawValue) -> bool {
    Members::from_raw(result).is_some_and(|members| members.get("isError").map(RawValue::get) == Some("true"))
}

/// Images, sounds and other files are replaced by their length.
fn without_blobs(result: &RawValue) -> Box<RawValue> {
    let Some(mut members) = Members::from_raw(result) else { return result.to_owned() };
    for list in ["content", "contents"] {
        let short = members.get(list).and_then(short_items);
        if let Some(short) = short {
            members.set(list, &short);
        }
    }
    gateway_core::mcp::raw(&members)
}

/// Only one item at a time is parsed: the members of many small ones take a multiple of their text.
fn short_items(items: &RawValue) -> Option<Box<RawValue>> {
    let items: Vec<&RawValue> = serde_json::from_str(items.get()).ok()?;
    Some(gateway_core::mcp::raw(&items.into_iter().map(short_item).collect::<Vec<_>>()))
}

fn short_item(item: &RawValue) -> Cow<'_, RawValue> {
    match Members::from_raw(item) {
        Some(members) if ["data", "blob", "resource"].iter().any(|name| members.get(name).is_some()) => {
            Cow::Owned(gateway_core::mcp::raw(&without_blob(members)))
        }
        _ => Cow::Borrowed(item),
    }
}

fn without_blob(mut item: Members) -> Members {
    for name in ["data", "blob"] {
        if let Some(length) = item.get(name).map(|blob| blob.get().len().saturating_sub(2)) {
            item.set(name, &format!("{length} characters of base64"));
        }
    }
    if let Some(resource) = item.members("resource") {
        item.set("resource", &without_blob(resource));
    }
    item
}

/// The answer did not come in time, or there was no room to read it: the server may have done what was asked.
fn is_without_answer(status: StatusCode) -> bool {
    matches!(status, StatusCode::GATEWAY_TIMEOUT | StatusCode::SERVICE_UNAVAILABLE)
}
