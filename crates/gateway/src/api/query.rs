//! The `query` parameter: parsed, with the names of keys, applications, teams and members replaced by their ids.

use gateway_core::ids::OrgId;
use gateway_core::query::{self, Query, QueryError};

use crate::app::App;
use crate::log::query_names;
use crate::problem::{ApiResult, Problem};

/// Parses a query of an organization. `None` without one.
pub(super) async fn parse(app: &App, org: OrgId, text: Option<&str>) -> ApiResult<Option<Query>> {
    let Some(text) = text else { return Ok(None) };
    let mut query = query::parse(text).map_err(query_problem)?;
    query_names::resolve(&app.services.db, org, &mut query).await?;
    Ok(Some(query))
}

/// 400 with the place of the error in the query.
pub(super) fn query_problem(error: QueryError) -> Problem {
    let mut problem = Problem::field("query", &error);
    let QueryError { position, length, message: _, expected } = error;
    problem.extra.insert("position".into(), position.into());
    problem.extra.insert("length".into(), length.into());
    problem.extra.insert("expected".into(), expected.into());
    problem
}
