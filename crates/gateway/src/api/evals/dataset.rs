//! Runs over the cases of a dataset, with or without a model that is asked first.

use std::collections::HashMap;

use axum::extract::State;
use gateway_core::ids::DatasetId;
use gateway_store::datasets::{self, Edition};
use gateway_store::evals;
use gateway_store::prompts::{self, PromptName};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::runs::{begin, may_run};
use super::view::RunView;
use crate::api::caller::{AppState, Caller, Member};
use crate::api::extract::{Body, PathParam, optional_object};
use crate::api::response::Accepted;
use crate::app::App;
use crate::auth::Identity;
use crate::evals::target::{Prompt, Target};
use crate::problem::{ApiResult, Problem};
use crate::proxy::ask;

/// Cases that one run judges at most.
const MOST_CASES: i64 = 100_000;

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "DatasetEvalRequest")]
pub(super) struct EvalRequest {
    eval_id: i64,
    /// A frozen version; without it, the working copy as it is now.
    #[schemars(range(min = 1))]
    version: Option<i64>,
    /// The model that each input is sent to first. Without it, `metadata.output` or else `expected` is judged.
    #[serde(default, deserialize_with = "optional_object")]
    target: Option<TargetRequest>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "EvalTarget")]
struct TargetRequest {
    provider: String,
    model: String,
    /// Each input is put into this prompt: its fields are variables, and `input` is all of it.
    #[serde(default, deserialize_with = "optional_object")]
    prompt: Option<PromptRequest>,
    /// Sent along, such as `temperature`.
    params: Option<Map<String, Value>>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "EvalTargetPrompt")]
struct PromptRequest {
    namespace: String,
    slug: String,
    /// The latest without it.
    version: Option<i64>,
    /// Values that are the same for all cases.
    variables: Option<HashMap<String, String>>,
}

pub(super) async fn eval_dataset(
    State(app): AppState,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
    Body(request): Body<EvalRequest>,
) -> ApiResult<Accepted<RunView>> {
    let org = caller.org.id;
    let EvalRequest { eval_id, version, target } = request;
    if version.is_some_and(|version| version < 1) {
        return Err(Problem::field("version", "must be a whole number of at least 1"));
    }
    let dataset = datasets::find(&app.services.db, org, id).await?.ok_or_else(Problem::not_found)?;
    let eval = evals::find(&app.services.db, org, eval_id).await?;
    let eval = eval.ok_or_else(|| Problem::field("eval_id", "there is no such eval"))?;
    may_run(&app, &caller, &eval)?;
    let (edition, count) = match version {
        None => (Edition::Working, dataset.case_count),
        Some(number) => {
            let frozen = datasets::find_version(&app.services.db, org, id, number).await?;
            let frozen = frozen.ok_or_else(|| Problem::field("version", "there is no such version"))?;
            (Edition::Frozen(number), frozen.case_count)
        }
    };
    if count > MOST_CASES {
        return Err(Problem::field("version", format!("a run judges at most {MOST_CASES} cases")));
    }
    let target = match target {
        None => None,
        Some(target) => Some(checked_target(&app, &caller, target).await?),
    };
    let kept = target.map(serde_json::to_value).transpose().map_err(Problem::internal)?;
    let made = begin(&app, &caller, &eval, Some((id, version)), kept.as_ref(), async |tx, run| {
        // Held, so that the cases are those of one moment.
        datasets::find_for_update(tx, org, id).await?.ok_or_else(Problem::not_found)?;
        Ok(evals::add_case_items(tx, run, id, edition).await?)
    });
    Ok(Accepted(made.await?.into()))
}

/// The target with the text of its prompt, which may change while the run is under way.
async fn checked_target(app: &App, caller: &Identity, request: TargetRequest) -> ApiResult<Target> {
    let TargetRequest { provider, model, prompt, params } = request;
    if model.trim().is_empty() {
        return Err(Problem::field("target.model", "must not be empty"));
    }
    ask::check(app, caller, &provider, &model).map_err(|mut problem| {
        if problem.message.starts_with("provider: ") {
            problem.message = format!("target.{}", problem.message).into();
        }
        problem
    })?;
    let params = params.unwrap_or_default();
    for name in ["model", "messages", "stream"] {
        if params.contains_key(name) {
            return Err(Problem::field("target.params", format!("{name} is not a parameter")));
        }
    }
    let prompt = match prompt {
        None => None,
        Some(PromptRequest { namespace, slug, version, variables }) => {
            let name = PromptName { namespace: &namespace, slug: &slug };
            let found = prompts::find(&app.services.db, caller.org.id, name, version).await?;
            let found =
                found.ok_or_else(|| Problem::field("target.prompt", "there is no such prompt or version"))?;
            let variables = variables.unwrap_or_default();
            Some(Prompt { namespace, slug, version: found.version, content: found.content, variables })
        }
    };
    Ok(Target { provider, model, prompt, params })
}
