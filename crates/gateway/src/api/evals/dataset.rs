//! Runs over the cases of a dataset, with or without a target model that is called first.

use std::collections::HashMap;

use gateway_core::ids::{DatasetId, OrgId};
use gateway_core::logs::PromptVersionRef;
use gateway_core::prompts::{PromptReference, VersionSelector};
use gateway_store::datasets::{self, Edition};
use gateway_store::evals;
use gateway_store::prompts::{self, PromptName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::runs::check_may_run;
use super::start::{NewItems, RunInput, start_run};
use super::view::RunView;
use crate::api::audited::Audited;
use crate::api::caller::{Caller, Member};
use crate::api::extract::{Body, PathParam, optional_object};
use crate::api::response::Accepted;
use crate::app::App;
use crate::auth::Identity;
use crate::evals::target::{Prompt, Target};
use crate::internal_call;
use crate::problem::{ApiResult, Problem};

/// Cases of one run.
const MAX_CASES: i64 = 100_000;
/// They are stored with the run, and a page has many runs.
const MAX_PARAMS_BYTES: usize = 64 << 10;
const MAX_VARIABLES_BYTES: usize = 64 << 10;
const MAX_MODEL_BYTES: usize = 1_024;

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "DatasetEvalRequest")]
pub(super) struct EvalRequest {
    eval_id: i64,
    /// A frozen version. Default: the current working copy.
    #[schemars(range(min = 1))]
    version: Option<i64>,
    /// The model that each input is sent to first. Without it, `metadata.output` or `expected` is judged.
    #[serde(default, deserialize_with = "optional_object")]
    target: Option<TargetRequest>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "EvalTarget")]
pub(super) struct TargetRequest {
    provider: String,
    model: String,
    /// The prompt that is sent before each input as the system message, or as the user message if it takes in the whole
    /// input. Fields of the input are variables, and `input` is the whole input.
    #[serde(default, deserialize_with = "optional_object")]
    prompt: Option<PromptRequest>,
    /// Parameters of the request, such as `temperature`; at most 64 KiB as JSON.
    params: Option<Map<String, Value>>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "EvalTargetPrompt")]
struct PromptRequest {
    namespace: String,
    slug: String,
    /// A version number or a label, which is resolved when the run starts. Default: the latest version.
    version: Option<VersionSelector>,
    /// Values that are used for all cases; at most 64 KiB as JSON.
    variables: Option<HashMap<String, String>>,
}

pub(super) async fn eval_dataset(
    app: Audited,
    caller: Caller<Member>,
    PathParam(id): PathParam<DatasetId>,
    Body(request): Body<EvalRequest>,
) -> ApiResult<Accepted<RunView>> {
    let org = caller.org.id;
    let EvalRequest { eval_id, version, target } = request;
    let (edition, _) = edition(&app, org, id, version).await?;
    let eval = evals::find(&app.services.db, org, eval_id).await?;
    let eval = eval.ok_or_else(|| Problem::field("eval_id", "no such eval in this organization"))?;
    check_may_run(&app, &caller, &eval).await?;
    let target = match target {
        None => None,
        Some(target) => Some(checked_target(&app, &caller, target).await?),
    };
    let prompt = target.as_ref().and_then(|target| target.prompt.as_ref()).map(|prompt| PromptVersionRef {
        name: format!("{}/{}", prompt.namespace, prompt.slug),
        version: prompt.version,
    });
    let target = target.map(serde_json::to_value).transpose().map_err(Problem::internal)?;
    let input = RunInput { dataset: Some((id, version)), target: target.as_ref(), prompt: prompt.as_ref() };
    let run = start_run(&app, &caller, &eval, input, NewItems::Cases(id, edition)).await?;
    Ok(Accepted(run.into()))
}

/// The edition of a dataset and the number of its cases.
pub(super) async fn edition(
    app: &App,
    org: OrgId,
    id: DatasetId,
    version: Option<i64>,
) -> ApiResult<(Edition, i64)> {
    if version.is_some_and(|version| version < 1) {
        return Err(Problem::field("version", "must be a whole number of at least 1"));
    }
    let dataset = datasets::find(&app.services.db, org, id).await?.ok_or_else(Problem::not_found)?;
    let (edition, count) = match version {
        None => (Edition::Working, dataset.case_count),
        Some(number) => {
            let frozen = datasets::find_version(&app.services.db, org, id, number).await?;
            let frozen =
                frozen.ok_or_else(|| Problem::field("version", "no such version of this dataset"))?;
            (Edition::Frozen(number), frozen.case_count)
        }
    };
    if count > MAX_CASES {
        return Err(Problem::field(
            "version",
            format!("has {count} cases; a run can judge at most {MAX_CASES}"),
        ));
    }
    Ok((edition, count))
}

/// The target with the text of its prompt, so that later versions of the prompt do not affect the run.
pub(super) async fn checked_target(
    app: &App,
    caller: &Identity,
    request: TargetRequest,
) -> ApiResult<Target> {
    let TargetRequest { provider, model, prompt, params } = request;
    if model.trim().is_empty() {
        return Err(Problem::field("target.model", "must not be empty"));
    }
    if model.len() > MAX_MODEL_BYTES {
        return Err(Problem::field("target.model", format!("must have at most {MAX_MODEL_BYTES} bytes")));
    }
    internal_call::check_allowed(caller, &provider, &model).map_err(|mut problem| {
        if problem.message.starts_with("provider: ") {
            problem.message = format!("target.{}", problem.message).into();
        }
        problem
    })?;
    let params = params.unwrap_or_default();
    for name in ["model", "messages", "stream"] {
        if params.contains_key(name) {
            return Err(Problem::field("target.params", format!("must not contain {name}")));
        }
    }
    check_json_size("target.params", &params, MAX_PARAMS_BYTES)?;
    let prompt = match prompt {
        None => None,
        Some(PromptRequest { namespace, slug, version, variables }) => {
            let variables = variables.unwrap_or_default();
            check_json_size("target.prompt.variables", &variables, MAX_VARIABLES_BYTES)?;
            let reference = PromptReference { namespace, slug, version: version.unwrap_or_default() };
            let name = PromptName { namespace: &reference.namespace, slug: &reference.slug };
            let found = prompts::find(&app.services.db, caller.org.id, name, &reference.version).await?;
            let found = found.ok_or_else(|| Problem::field("target.prompt", reference.missing()))?;
            let PromptReference { namespace, slug, version: _ } = reference;
            Some(Prompt { namespace, slug, version: found.version, content: found.content, variables })
        }
    };
    Ok(Target { provider, model, prompt, params })
}

fn check_json_size(field: &str, value: &impl Serialize, max: usize) -> ApiResult<()> {
    if serde_json::to_string(value).map_or(usize::MAX, |text| text.len()) > max {
        return Err(Problem::field(field, format!("must have at most {max} bytes as JSON")));
    }
    Ok(())
}
