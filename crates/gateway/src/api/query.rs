//! The `query` parameter: parsed, with the names of keys, applications, teams and members replaced by their ids.

use gateway_core::ids::OrgId;
use gateway_core::query::{self, Field, Query, QueryError};
use gateway_store::names::{NamedResource, names_by_id};

use crate::app::App;
use crate::problem::{ApiResult, Problem};

/// The fields whose values are names of resources.
pub(super) const NAMED: [(Field, NamedResource); 4] = [
    (Field::Key, NamedResource::Keys),
    (Field::App, NamedResource::Apps),
    (Field::Team, NamedResource::Teams),
    (Field::User, NamedResource::Members),
];

/// Parses a query of an organization. `None` without one.
pub(super) async fn parse(app: &App, org: OrgId, text: Option<&str>) -> ApiResult<Option<Query>> {
    let Some(text) = text else { return Ok(None) };
    let mut query = query::parse(text).map_err(query_problem)?;
    for (field, resource) in NAMED {
        if query.uses(field) {
            query.resolve(field, &names_by_id(&app.services.db, org, resource).await?);
        }
    }
    Ok(Some(query))
}

/// 400 with the place of the error in the query.
fn query_problem(error: QueryError) -> Problem {
    let mut problem = Problem::field("query", &error);
    let QueryError { position, length, message: _, expected } = error;
    problem.extra.insert("position".into(), position.into());
    problem.extra.insert("length".into(), length.into());
    problem.extra.insert("expected".into(), expected.into());
    problem
}
