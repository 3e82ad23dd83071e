//! What a search box needs besides rows: counts of values, values to complete, and the table of fields.

use axum::extract::State;
use gateway_core::ids::{KeyId, OrgId};
use gateway_core::query::{FIELDS, Field, FieldInfo, Kind};
use gateway_core::time::Timestamp;
use gateway_store::logs::{self, Facet, GroupField, LogFilter, LogSearch, Sort, ValueQuery};
use gateway_store::names::names_by_id;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LogParams, search};
use crate::api::caller::{AppState, RowReader};
use crate::api::extract::QueryParams;
use crate::api::response::Json;
use crate::app::App;
use crate::log::query_names::NAMED;
use crate::problem::{ApiResult, Problem};

/// Facets without `fields`.
const DEFAULT_FIELDS: [Field; 9] = [
    Field::Status,
    Field::Error,
    Field::Provider,
    Field::Model,
    Field::App,
    Field::Team,
    Field::Key,
    Field::Source,
    Field::Cache,
];
const MAX_FIELDS: usize = 12;
const DEFAULT_VALUES: i64 = 10;
const MAX_VALUES: i64 = 100;
/// Rows that are looked at for values that only rows have.
const VALUE_ROWS: usize = 5_000;
/// Rows whose metadata is looked at for keys.
const KEY_ROWS: i64 = 200;

#[derive(Deserialize, JsonSchema)]
pub(super) struct FacetParams {
    /// Fields to count, separated by commas, such as `model,user,metadata.env`. At most 12.
    fields: Option<String>,
    /// Values of each field, at most 100. Default: 10.
    limit: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct FacetList {
    /// How many rows match.
    rows: i64,
    facets: Vec<FacetView>,
    /// There were too many rows to count: only those since `scanned_to` are.
    partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    scanned_to: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Facet")]
struct FacetView {
    field: String,
    /// The most frequent first.
    values: Vec<FacetValueView>,
    /// Values that are not listed, and the rows that have them.
    other_values: i64,
    other_rows: i64,
    /// Rows without a value.
    missing: i64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FacetValue")]
struct FacetValueView {
    value: String,
    /// The name of the resource, if the value is an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    rows: i64,
}

pub(super) async fn facets(
    State(app): AppState,
    caller: RowReader,
    QueryParams(params): QueryParams<LogParams>,
    QueryParams(wanted): QueryParams<FacetParams>,
) -> ApiResult<Json<FacetList>> {
    let org = caller.org.id;
    let filter = params.filter(caller.row_access())?;
    let fields = match &wanted.fields {
        None => DEFAULT_FIELDS.map(|field| GroupField { field, key: None }).to_vec(),
        Some(names) => names.split(',').map(|name| group_field("fields", name)).collect::<ApiResult<_>>()?,
    };
    if fields.len() > MAX_FIELDS {
        return Err(Problem::field("fields", format!("at most {MAX_FIELDS} fields are counted at once")));
    }
    let limit = match wanted.limit.unwrap_or(DEFAULT_VALUES) {
        limit @ 1..=MAX_VALUES => usize::try_from(limit).unwrap_or_default(),
        _ => return Err(Problem::field("limit", format!("must be from 1 to {MAX_VALUES}"))),
    };
    let search = search::search(&app, org, &params, &filter).await?;
    let found = logs::facets(&*app.query_logs(org).await?, org, &search, &fields, limit).await?;
    let mut facets = Vec::new();
    for facet in found.facets {
        facets.push(view(&app, org, facet).await?);
    }
    Ok(Json(FacetList {
        rows: found.rows,
        facets,
        partial: found.scanned_to.is_some(),
        scanned_to: found.scanned_to,
    }))
}

async fn view(app: &App, org: OrgId, facet: Facet) -> ApiResult<FacetView> {
    let Facet { field, values, other_values, other_rows, missing } = facet;
    let named = NAMED.iter().find(|(named, _)| *named == field.field).filter(|_| !values.is_empty());
    let names = match named {
        Some((_, resource)) => names_by_id(&app.services.db, org, *resource).await?,
        None => std::collections::HashMap::new(),
    };
    let values = values.into_iter().map(|value| FacetValueView {
        name: names.get(&value.value).cloned(),
        value: shown(field.field, value.value),
        rows: value.rows,
    });
    Ok(FacetView { field: field_name(&field), values: values.collect(), other_values, other_rows, missing })
}

/// Booleans are numbers in the store.
fn shown(field: Field, value: String) -> String {
    match (field.kind(), value.as_str()) {
        (Kind::Boolean, "0") => "false".into(),
        (Kind::Boolean, _) => "true".into(),
        _ => value,
    }
}

fn field_name(field: &GroupField) -> String {
    let name = field.field.info().name;
    field.key.as_ref().map_or_else(|| name.to_owned(), |key| format!("{name}.{key}"))
}

/// A field by which rows can be counted.
pub(in crate::api) fn group_field(parameter: &str, name: &str) -> ApiResult<GroupField> {
    let found = Field::parse(name.trim()).filter(|(field, _)| field.info().is_group);
    let (field, key) = found.ok_or_else(|| {
        let names = FIELDS.iter().filter(|line| line.is_group).map(|line| line.name);
        let names: Vec<&str> = names.collect();
        Problem::field(
            parameter,
            format!("rows cannot be counted by {name:?}; use one of {}", names.join(", ")),
        )
    })?;
    Ok(GroupField { field, key: key.map(str::to_owned) })
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct ValueParams {
    /// A field such as `model` or `metadata.env`; `metadata` lists the keys of metadata.
    field: String,
    /// What the values begin with.
    prefix: Option<String>,
    /// At most 100. Default: 10.
    limit: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ValueList {
    field: String,
    /// In alphabetical order. Put values with blanks, commas or quotes in quotes.
    values: Vec<String>,
}

pub(super) async fn values(
    State(app): AppState,
    caller: RowReader,
    QueryParams(params): QueryParams<ValueParams>,
) -> ApiResult<Json<ValueList>> {
    let ValueParams { field: name, prefix, limit } = params;
    let limit = limit.unwrap_or(DEFAULT_VALUES);
    if !(1..=MAX_VALUES).contains(&limit) {
        return Err(Problem::field("limit", format!("must be from 1 to {MAX_VALUES}")));
    }
    let made_by = caller.row_access().restrict(None);
    let wanted = Wanted { org: caller.org.id, made_by, prefix: prefix.unwrap_or_default(), limit };
    let mut values = if name == "metadata" {
        wanted.metadata_keys(&app).await?
    } else {
        let (field, key) = Field::parse(&name).ok_or_else(|| {
            Problem::field("field", "is not a field of the query language; GET /logs/fields lists them")
        })?;
        wanted.values(&app, field, key).await?
    };
    values.retain(|value| value.starts_with(&wanted.prefix));
    values.sort_unstable();
    values.dedup();
    values.truncate(usize::try_from(limit).unwrap_or_default());
    Ok(Json(ValueList { field: name, values }))
}

/// Whose values are wanted.
struct Wanted {
    org: OrgId,
    made_by: Option<KeyId>,
    prefix: String,
    limit: i64,
}

impl Wanted {
    async fn values(&self, app: &App, field: Field, key: Option<&str>) -> ApiResult<Vec<String>> {
        let fixed = |values: &[&str]| Ok(values.iter().map(|value| (*value).to_owned()).collect());
        match field.kind() {
            Kind::Choice(choices) => return fixed(choices),
            Kind::Boolean => return fixed(&["true", "false"]),
            Kind::Status => return fixed(&["error", "ok", "2xx", "4xx", "5xx", "429"]),
            Kind::Number | Kind::Duration | Kind::Money | Kind::Time => return Ok(Vec::new()),
            Kind::Text | Kind::Name => {}
        }
        match field {
            Field::Key | Field::App | Field::Team => self.names(app, field).await,
            Field::Provider | Field::Model | Field::User | Field::Prompt => {
                self.stored(app, field, &self.prefix).await
            }
            _ => self.in_rows(app, field, key).await,
        }
    }

    async fn stored(&self, app: &App, field: Field, prefix: &str) -> ApiResult<Vec<String>> {
        let wanted =
            ValueQuery { field, prefix: prefix.to_owned(), made_by: self.made_by, limit: self.limit };
        Ok(logs::field_values(&*app.query_logs(self.org).await?, self.org, &wanted).await?)
    }

    /// The names of resources. A key that reads only its own rows gets those that it has used.
    async fn names(&self, app: &App, field: Field) -> ApiResult<Vec<String>> {
        let Some((_, resource)) = NAMED.iter().find(|(named, _)| *named == field) else {
            return Ok(Vec::new());
        };
        let mut names = names_by_id(&app.services.db, self.org, *resource).await?;
        if self.made_by.is_some() {
            let used = self.stored(app, field, "").await?;
            names.retain(|id, _| used.contains(id));
        }
        Ok(names.into_values().collect())
    }

    /// Values of the newest rows.
    async fn in_rows(&self, app: &App, field: Field, key: Option<&str>) -> ApiResult<Vec<String>> {
        let field = GroupField { field, key: key.map(str::to_owned) };
        let stored = app.query_logs(self.org).await?;
        let limit = usize::try_from(MAX_VALUES).unwrap_or_default();
        let found = logs::facets(&stored, self.org, &self.newest(), &[field], limit).await?;
        Ok(found.facets.into_iter().flat_map(|facet| facet.values).map(|value| value.value).collect())
    }

    async fn metadata_keys(&self, app: &App) -> ApiResult<Vec<String>> {
        let stored = app.query_logs(self.org).await?;
        let page = (KEY_ROWS, None);
        let found = logs::list_matching(&stored, self.org, &self.newest(), Sort::default(), page).await?;
        let keys = found.entries.iter().flat_map(|entry| entry.row.metadata.keys());
        let keys = keys.filter(|key| Field::parse(&format!("metadata.{key}")).is_some());
        Ok(keys.cloned().collect())
    }

    fn newest(&self) -> LogSearch {
        let filter = LogFilter { key_id: self.made_by, ..LogFilter::default() };
        LogSearch {
            max_rows: Some(VALUE_ROWS),
            ..LogSearch::with_filter(gateway_core::query::Query::default(), &filter)
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct FieldList {
    fields: Vec<FieldView>,
    /// What lists can be sorted by.
    sort: Vec<&'static str>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "QueryField")]
struct FieldView {
    name: &'static str,
    /// `text`, `name`, `choice`, `status`, `number`, `duration`, `money`, `boolean` or `time`.
    r#type: &'static str,
    description: &'static str,
    example: &'static str,
    /// What a value looks like; the values of a choice.
    values: Vec<String>,
    /// Rows can be counted by it in `/logs/facets`.
    facet: bool,
}

pub(super) async fn fields(_: RowReader) -> ApiResult<Json<FieldList>> {
    let fields = FIELDS.iter().map(|line| {
        let FieldInfo { field: _, name, kind, description, example, is_group } = *line;
        FieldView {
            name,
            r#type: kind.name(),
            description,
            example,
            values: kind.expected(),
            facet: is_group,
        }
    });
    Ok(Json(FieldList { fields: fields.collect(), sort: vec!["time", "latency", "cost", "tokens"] }))
}
