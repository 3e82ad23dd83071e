//! Cases from log rows: of given ones, or of the latest that match a query.

use std::collections::HashSet;

use gateway_core::datasets::from_log::case_from_log;
use gateway_core::datasets::{Case, CaseContent};
use gateway_core::ids::DatasetId;
use gateway_core::logs::{BodyStorage, LogRow, LogSource};
use gateway_core::time::Timestamp;
use gateway_store::logs::{self, LogFilter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cases::add_all;
use crate::api::audited::Audited;
use crate::api::caller::{Caller, Member};
use crate::api::extract::{Body, PathParam};
use crate::api::response::Created;
use crate::api::row_selection::{Found, MatchingRows, Wanted, check_one_way, missing_row};
use crate::app::App;
use crate::auth::Identity;
use crate::compute::WaitLimits;
use crate::jobs::live_evals::is_trace;
use crate::jobs::run_eval::reserve_batch;
use crate::memory::Reservation;
use crate::problem::{ApiResult, Problem};

const MAX_LOG_IDS: usize = 200;
/// Bodies are held together with what is read from them.
const HELD_PER_BODY_BYTE: i64 = 2;
/// A case is held until it is stored, and in the answer.
const HELD_PER_CASE_BYTE: usize = 3;

#[derive(Deserialize, JsonSchema)]
pub(super) struct FromLogs {
    /// Exactly these rows, up to 200; duplicates count once. Each of them must be usable.
    log_ids: Option<Vec<i64>>,
    /// Instead of `log_ids`: the latest calls of models by clients that match this query, as in `GET /logs`. Rows that
    /// cannot become cases are skipped.
    query: Option<String>,
    /// Only rows since this time.
    from: Option<Timestamp>,
    /// Only rows before this time.
    to: Option<Timestamp>,
    /// Number of cases that `query` makes. Values above 1000 are reduced to 1000.
    #[schemars(range(min = 1), extend("default" = 100))]
    limit: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct MadeCases {
    cases: Vec<Case>,
    #[serde(flatten)]
    selection: Option<CaseSelection>,
}

/// Only with `query`.
#[derive(Serialize, JsonSchema)]
struct CaseSelection {
    /// Rows that match but cannot become cases.
    skipped: usize,
    /// Too many rows had to be looked at: only those since `scanned_to` were.
    partial: bool,
    scanned_to: Option<Timestamp>,
}

/// The input is the request of the log row; its response is in `metadata.output`.
pub(super) async fn from_logs(
    app: Audited,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
    Body(request): Body<FromLogs>,
) -> ApiResult<Created<MadeCases>> {
    let org = caller.org.id;
    check_one_way(request.log_ids.as_deref(), request.query.as_deref())?;
    let is_empty = request.from.is_none() && request.to.is_none() && request.limit.is_none();
    if request.log_ids.is_none() && request.query.is_none() && is_empty {
        return Err(Problem::field("log_ids", "is required, unless query selects the rows"));
    }
    super::dataset(&app, org, id).await?;
    if let Some(ids) = request.log_ids {
        let contents = named(&app, &caller, &ids).await?;
        let cases = add_all(&app, org, id, contents).await?;
        return Ok(Created(MadeCases { cases, selection: None }));
    }
    let mut memory = caller.org.memory.reserve(0)?;
    let found = matching(&app, &caller, &request, &mut memory).await?;
    found.check_not_empty("query", "a case")?;
    let Found { rows, skipped, scanned_to, .. } = found;
    let cases = add_all(&app, org, id, rows).await?;
    let selection = CaseSelection { skipped, partial: scanned_to.is_some(), scanned_to };
    Ok(Created(MadeCases { cases, selection: Some(selection) }))
}

async fn named(app: &App, caller: &Identity, ids: &[i64]) -> ApiResult<Vec<CaseContent>> {
    if !(1..=MAX_LOG_IDS).contains(&ids.len()) {
        return Err(Problem::field("log_ids", format!("must have 1 to {MAX_LOG_IDS} ids of log rows")));
    }
    let (mut seen, mut contents) = (HashSet::new(), Vec::new());
    let stored = app.query_logs(caller.org.id).await?;
    for id in ids.iter().copied().filter(|id| seen.insert(*id)) {
        let entry = logs::find(&stored, caller.org.id, id).await?;
        let entry = entry.filter(|entry| caller.row_access().includes(entry.row.key_id));
        let content = case_from_log(&entry.ok_or_else(|| missing_row(id))?.row);
        contents.push(content.map_err(|why| Problem::field("log_ids", format!("log row {id}: {why}")))?);
    }
    Ok(contents)
}

/// The memory of the cases is reserved until they are stored.
async fn matching(
    app: &App,
    caller: &Identity,
    request: &FromLogs,
    memory: &mut Reservation,
) -> ApiResult<Found<CaseContent>> {
    let wanted = Wanted {
        query: request.query.as_deref(),
        filter: LogFilter { from: request.from, to: request.to, ..LogFilter::default() },
        sources: &[LogSource::Proxy, LogSource::Otel],
        limit: request.limit,
    };
    let mut pages = MatchingRows::new(app, caller, wanted).await?;
    let (mut found, max) = (Found::default(), pages.max());
    while found.rows.len() < max
        && let Some(page) = pages.next().await?
    {
        // Most rows that do not fit are known by their columns.
        let mut ids = Vec::with_capacity(page.len());
        for row in &page {
            match check(row) {
                Ok(()) => ids.push(row.id),
                Err(why) => found.add(Err(why)),
            }
        }
        let sizes = logs::body_sizes(pages.stored(), &ids).await?;
        let sizes: Vec<i64> = ids.iter().map(|id| sizes.get(id).copied().unwrap_or(0)).collect();
        let (mut rest, mut sizes) = (ids.as_slice(), sizes.as_slice());
        while !rest.is_empty() && found.rows.len() < max {
            let next = &sizes[..sizes.len().min(max - found.rows.len())];
            let (count, held) = reserve_batch(&caller.org.memory, next, HELD_PER_BODY_BYTE)?;
            let (batch, later) = rest.split_at(usize::try_from(count).unwrap_or(1));
            (rest, sizes) = (later, &sizes[batch.len()..]);
            let mut rows = logs::find_many(pages.stored(), caller.org.id, batch, true).await?;
            rows.reverse();
            let converting = move |_: &_| {
                let _held = held;
                rows.iter().map(case_from_log).collect::<Vec<_>>()
            };
            for content in app.services.compute.run(caller.org.id, WaitLimits::REQUEST, converting).await? {
                if let Ok(CaseContent { input, expected, metadata }) = &content {
                    let bytes = input.len() + expected.len() + metadata.len();
                    memory.grow(bytes.saturating_mul(HELD_PER_CASE_BYTE))?;
                }
                found.add(content);
            }
        }
    }
    found.scanned_to = pages.scanned_to(found.rows.len());
    Ok(found)
}

fn check(row: &LogRow) -> Result<(), &'static str> {
    match row.request_stored {
        _ if !is_trace(row) => Err("it is not a model call with an answer to judge"),
        BodyStorage::Off => Err("its request was not stored"),
        BodyStorage::Full | BodyStorage::Truncated => Ok(()),
    }
}
