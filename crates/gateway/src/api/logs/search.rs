//! Lists of log rows by a query or in another order than that of time.

use gateway_core::ids::OrgId;
use gateway_core::log_view::LogView;
use gateway_store::logs::{self, LogFilter, LogSearch, Sort, SortKey};

use super::{LogList, LogParams, wait_for_rows, wait_until_stored};
use crate::api::page::{PageParams, encode_cursor, into_views};
use crate::api::query;
use crate::app::App;
use crate::problem::{ApiResult, Problem};

/// A page of rows: in the order of their ids without `query` and `sort`, else as these say.
pub(in crate::api) async fn page_of_rows(
    app: &App,
    org: OrgId,
    params: &LogParams,
    filter: &LogFilter,
    page: &PageParams,
) -> ApiResult<LogList> {
    if params.query.is_none() && params.sort.is_none() {
        let page = page.numeric_page()?;
        wait_for_rows(app, org, filter).await;
        let found = logs::list(&*app.query_logs(org).await?, org, filter, &page).await?;
        let (logs, next_cursor) = into_views(found);
        return Ok(LogList { logs, next_cursor, partial: None, scanned_to: None });
    }
    let sort = params.sort.as_deref().map(parse_sort).transpose()?.unwrap_or_default();
    let page = page.page()?;
    let search = search(app, org, params, filter).await?;
    let stored = app.query_logs(org).await?;
    let found =
        logs::list_matching(&stored, org, &search, sort, (page.limit, page.before.as_deref())).await?;
    Ok(LogList {
        logs: found.entries.into_iter().map(LogView::from).collect(),
        next_cursor: encode_cursor(found.next.as_deref()),
        partial: Some(found.scanned_to.is_some()),
        scanned_to: found.scanned_to,
    })
}

/// What the parameters search for. Waits until the rows that have ended are stored and can be found.
pub(super) async fn search(
    app: &App,
    org: OrgId,
    params: &LogParams,
    filter: &LogFilter,
) -> ApiResult<LogSearch> {
    let query = query::parse(app, org, params.query.as_deref()).await?.unwrap_or_default();
    let search = LogSearch::with_filter(query, filter);
    wait_until_stored(app, org, search.query.has_text()).await;
    Ok(search)
}

/// Reads `latency`, highest first, or `latency:asc`.
pub(super) fn parse_sort(text: &str) -> ApiResult<Sort> {
    let (key, is_ascending) = match text.split_once(':') {
        Some((key, "asc")) => (key, true),
        Some((key, "desc")) => (key, false),
        Some(_) => return Err(sort_problem()),
        None => (text, false),
    };
    let key = match key {
        "time" => SortKey::Time,
        "latency" => SortKey::Latency,
        "cost" => SortKey::Cost,
        "tokens" => SortKey::Tokens,
        _ => return Err(sort_problem()),
    };
    Ok(Sort { key, is_ascending })
}

fn sort_problem() -> Problem {
    Problem::field("sort", "must be time, latency, cost or tokens, with :asc for the lowest first")
}
