//! Which rows a replay makes again, with what, and what that is expected to cost.

use std::collections::{HashMap, HashSet};

use gateway_core::accounts::check_name;
use gateway_core::logs::{LogRow, LogSource};
use gateway_core::pricing::Price;
use gateway_core::prompts::{PromptReference, VersionSelector};
use gateway_core::replays::{self, Estimate, ReplayPrompt, ReplayTarget};
use gateway_core::time::Timestamp;
use gateway_core::totals::cost_units;
use gateway_store::evals;
use gateway_store::logs::{self, LogFilter};
use gateway_store::prompts::{self, PromptName};
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::evals::check_may_run;
use crate::api::extract::optional_object;
use crate::api::row_selection::{Found, MatchingRows, Wanted, check_one_way, checked_ids, missing_row};
use crate::app::App;
use crate::auth::Identity;
use crate::internal_call;
use crate::jobs::run_replay::ReplayEval;
use crate::problem::{ApiResult, Problem};

const MAX_EVALS: usize = 5;
/// The variables travel in a header.
const MAX_VARIABLES_BYTES: usize = 16 << 10;
const MAX_PARAMS_BYTES: usize = 64 << 10;
const MAX_COST_USD: f64 = 1_000_000.0;

#[derive(Deserialize, JsonSchema)]
pub(super) struct ReplayRequest {
    /// Shown in lists.
    pub name: Option<String>,
    /// Exactly these rows, at most 1000, instead of those that `query` finds.
    log_ids: Option<Vec<i64>>,
    /// The latest proxied chats that match this query, as in `GET /logs`. Default: the latest of all.
    query: Option<String>,
    /// Only rows since this time.
    from: Option<Timestamp>,
    /// Only rows before this time.
    to: Option<Timestamp>,
    /// Number of rows that `query` selects. Values above 1000 are reduced to 1000.
    #[schemars(range(min = 1), extend("default" = 100))]
    limit: Option<i64>,
    /// What is changed. At least one of provider, model, prompt and params is required; the others stay as they were.
    target: TargetRequest,
    /// Evals that judge the answers before and after, at most 5.
    eval_ids: Option<Vec<i64>>,
    /// The replay does not start if its estimate is higher, and stops when its calls have cost this much.
    max_cost_usd: Option<f64>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ReplayTarget")]
struct TargetRequest {
    provider: Option<String>,
    model: Option<String>,
    /// The prompt that is inserted, instead of the one that the request named in `X-Gateway-Prompt`.
    #[serde(default, deserialize_with = "optional_object")]
    prompt: Option<PromptRequest>,
    /// Values for the variables of the prompt. Rows do not have those of their requests, so they are needed for rows with
    /// a prompt, too.
    variables: Option<HashMap<String, String>>,
    /// Fields of the body that are replaced, such as `temperature`.
    params: Option<Map<String, Value>>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ReplayPrompt")]
struct PromptRequest {
    namespace: String,
    slug: String,
    /// A version number or a label, which is resolved when the replay starts. Default: the latest version.
    version: Option<VersionSelector>,
}

impl ReplayRequest {
    /// In storage units.
    pub(super) fn max_cost(&self) -> ApiResult<Option<i64>> {
        let Some(usd) = self.max_cost_usd else { return Ok(None) };
        let amount = Decimal::try_from(usd).ok().filter(|_| usd > 0.0 && usd <= MAX_COST_USD);
        let why = "must be greater than 0 and at most 1000000";
        amount.map(|amount| Some(cost_units(amount))).ok_or_else(|| Problem::field("max_cost_usd", why))
    }
}

pub(super) fn checked_name(name: Option<&str>) -> ApiResult<Option<String>> {
    name.map(|name| check_name(name).map(|()| name.to_owned()).map_err(|why| Problem::field("name", why)))
        .transpose()
}

/// The rows of a replay and what is done with them.
pub(super) struct Selection {
    /// Without bodies, newest first.
    pub rows: Vec<LogRow>,
    /// Rows that were asked for but cannot be replayed.
    pub skipped: usize,
    /// Set if rows before this time were not looked at.
    pub scanned_to: Option<Timestamp>,
    pub estimate: Estimate,
    pub target: ReplayTarget,
    pub evals: Vec<ReplayEval>,
}

impl Selection {
    pub(super) async fn find(app: &App, caller: &Identity, request: ReplayRequest) -> ApiResult<Self> {
        let evals = checked_evals(app, caller, request.eval_ids.as_deref().unwrap_or_default()).await?;
        check_one_way(request.log_ids.as_deref(), request.query.as_deref())?;
        let found = match &request.log_ids {
            Some(ids) => named_rows(app, caller, ids).await?,
            None => matching_rows(app, caller, &request).await?,
        };
        let target = checked_target(app, caller, request.target).await?;
        let field = if request.log_ids.is_some() { "log_ids" } else { "query" };
        found.check_not_empty(field, "replayed")?;
        let Found { rows, skipped, scanned_to, .. } = found;
        check_scopes(caller, &rows, &target)?;
        let estimate = estimate(app, caller, &rows, &target);
        Ok(Self { rows, skipped, scanned_to, estimate, target, evals })
    }
}

async fn named_rows(app: &App, caller: &Identity, ids: &[i64]) -> ApiResult<Found<LogRow>> {
    let ids = checked_ids(ids)?;
    let stored = app.query_logs(caller.org.id).await?;
    let mut rows = logs::find_many(&stored, caller.org.id, &ids, false).await?;
    rows.retain(|row| caller.row_access().includes(row.key_id));
    let known: HashSet<i64> = rows.iter().map(|row| row.id).collect();
    if let Some(id) = ids.iter().find(|id| !known.contains(id)) {
        return Err(missing_row(*id));
    }
    let mut found = Found::default();
    rows.into_iter().rev().for_each(|row| found.add(replays::check(&row).map(|_| row)));
    Ok(found)
}

/// The latest proxied rows that match. Calls of the gateway itself are not replayed unless their ids are given.
async fn matching_rows(app: &App, caller: &Identity, request: &ReplayRequest) -> ApiResult<Found<LogRow>> {
    let wanted = Wanted {
        query: request.query.as_deref(),
        filter: LogFilter { from: request.from, to: request.to, ..LogFilter::default() },
        sources: &[LogSource::Proxy],
        limit: request.limit,
    };
    MatchingRows::new(app, caller, wanted).await?.first_that(|row| replays::check(row).map(|_| ())).await
}

async fn checked_evals(app: &App, caller: &Identity, ids: &[i64]) -> ApiResult<Vec<ReplayEval>> {
    if ids.len() > MAX_EVALS {
        return Err(Problem::field("eval_ids", format!("must have at most {MAX_EVALS} ids")));
    }
    let mut found: Vec<ReplayEval> = Vec::with_capacity(ids.len());
    for id in ids {
        if found.iter().any(|known| known.id == *id) {
            continue;
        }
        let eval = evals::find(&app.services.db, caller.org.id, *id).await?;
        let eval =
            eval.ok_or_else(|| Problem::field("eval_ids", format!("no eval {id} in this organization")))?;
        check_may_run(app, caller, &eval).await?;
        found.push(ReplayEval {
            id: eval.id,
            name: eval.name,
            kind: eval.kind.as_str().to_owned(),
            evaluator: eval.evaluator,
            config: eval.config,
        });
    }
    Ok(found)
}

async fn checked_target(app: &App, caller: &Identity, request: TargetRequest) -> ApiResult<ReplayTarget> {
    let TargetRequest { provider, model, prompt, variables, params } = request;
    for (name, value) in [("target.provider", &provider), ("target.model", &model)] {
        if value.as_ref().is_some_and(|value| value.trim().is_empty()) {
            return Err(Problem::field(name, "must not be empty"));
        }
    }
    let (variables, params) = (variables.unwrap_or_default(), params.unwrap_or_default());
    for name in ["model", "messages", "input", "contents", "stream", "stream_options"] {
        if params.contains_key(name) {
            return Err(Problem::field("target.params", format!("must not contain {name}")));
        }
    }
    let size = |value: Result<String, serde_json::Error>| value.map_or(usize::MAX, |text| text.len());
    if size(serde_json::to_string(&params)) > MAX_PARAMS_BYTES {
        return Err(Problem::field("target.params", format!("must have at most {MAX_PARAMS_BYTES} bytes")));
    }
    if size(serde_json::to_string(&variables)) > MAX_VARIABLES_BYTES {
        let why = format!("must have at most {MAX_VARIABLES_BYTES} bytes");
        return Err(Problem::field("target.variables", why));
    }
    let prompt = match prompt {
        None => None,
        Some(PromptRequest { namespace, slug, version }) => {
            let reference = PromptReference { namespace, slug, version: version.unwrap_or_default() };
            let name = PromptName { namespace: &reference.namespace, slug: &reference.slug };
            let found = prompts::find(&app.services.db, caller.org.id, name, &reference.version).await?;
            let found = found.ok_or_else(|| Problem::field("target.prompt", reference.missing()))?;
            let name = format!("{}/{}", reference.namespace, reference.slug);
            Some(ReplayPrompt { name, version: found.version })
        }
    };
    let target = ReplayTarget { provider, model, prompt, variables, params };
    if target.is_empty() {
        return Err(Problem::field("target", "must have a provider, a model, a prompt or params"));
    }
    Ok(target)
}

/// Checks that the caller may use every model of the replay, because its calls are made by the organization.
fn check_scopes(caller: &Identity, rows: &[LogRow], target: &ReplayTarget) -> ApiResult<()> {
    let pairs: HashSet<_> = rows.iter().map(|row| target.provider_and_model(row)).collect();
    for (provider, model) in pairs {
        // A row without a model fails on its own.
        let Some(model) = model else { continue };
        internal_call::check_allowed(caller, &provider, &model).map_err(|mut problem| {
            if problem.message.starts_with("provider: ") {
                problem.message = format!("target.{}", problem.message).into();
            }
            problem
        })?;
    }
    Ok(())
}

fn estimate(app: &App, caller: &Identity, rows: &[LogRow], target: &ReplayTarget) -> Estimate {
    let mut prices: HashMap<(String, Option<String>), Option<&Price>> = HashMap::new();
    let mut estimate = Estimate::default();
    for row in rows {
        let pair = target.provider_and_model(row);
        let price = *prices.entry(pair).or_insert_with_key(|(provider, model)| {
            model.as_deref().and_then(|model| price_of(app, caller, provider, model))
        });
        estimate.add(row, price);
    }
    estimate
}

/// The price of a model. A named model is priced as its first target.
pub(in crate::api) fn price_of<'a>(
    app: &'a App,
    caller: &Identity,
    provider: &str,
    model: &str,
) -> Option<&'a Price> {
    let prices = &app.proxy.prices;
    let kind =
        |name: &str| caller.org.providers.resolve("provider", name).ok().map(|target| target.kind.name);
    if let Some(kind) = kind(provider) {
        return prices.find(kind, model);
    }
    let (named, star) = caller.org.models.find(model).ok()??;
    let first = named.targets().first()?;
    prices.find(kind(&first.provider)?, &first.model(star))
}
