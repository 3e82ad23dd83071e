//! Admission: checks the scopes of the caller's key, and that organizations which share the operator's credential do
//! not reach each other's objects; `limits` takes what the request needs of its limits. A request that is rejected here
//! causes no upstream call.

pub mod limits;

use gateway_core::audit::{Chain, Outcome, Target, Via};
use gateway_core::llm::objects::touches_stored_objects;
use gateway_core::llm::paths::{Operation, RequestPath};
use gateway_core::llm::peek::FurtherModels;
use gateway_core::scopes::Scopes;
use http::{Method, StatusCode};

use super::attempt::Attempt;
use super::context::RequestContext;
use super::credentials::has_callers_credential;
use super::plan::{Plan, PlannedModel, RouteTarget};
use crate::audit;
use crate::auth::{Identity, Principal};
use crate::config::OperatorObjects;
use crate::problem::{ApiResult, Problem};
use crate::targets::Account;

/// Returns true if the key's scopes name models. Then a request without a definite model is rejected.
pub fn restricts_models(identity: &Identity) -> bool {
    matches!(&identity.principal, Principal::Key(key) if key.scopes.names_models())
}

/// Every target of the route must be within the scopes of the key.
pub fn check_scopes(context: RequestContext<'_>, plan: &Plan<'_>) -> ApiResult<()> {
    let Principal::Key(key) = &context.identity.principal else { return Ok(()) };
    let lists_models = plan.directives.operation == Operation::Models
        && matches!(context.head.method, Method::GET | Method::HEAD);
    if let Some(what) = further_model_outside(&key.scopes, plan) {
        let why = format!("the key's scopes do not allow {what}");
        let problem = Problem::new(StatusCode::FORBIDDEN, "scope_denied", why);
        record_denial(context, ("scope_denied", "key", &key.id.to_string()), &problem.message);
        return Err(problem);
    }
    if let Some(planned @ PlannedModel { name, .. }) = &plan.model {
        if planned.is_allowed(&key.scopes) {
            return Ok(());
        }
        let why =
            format!("the key's scopes do not allow the model '{name}' with the providers of its targets");
        let problem = Problem::new(StatusCode::FORBIDDEN, "scope_denied", why);
        record_denial(context, ("scope_denied", "key", &key.id.to_string()), &problem.message);
        return Err(problem);
    }
    for target in &plan.targets {
        let provider = &target.provider.name;
        // Some providers use the model in the path, others the one in the body.
        let body_model =
            plan.facts.body_model.as_deref().filter(|_| !target.provider.kind.has_model_in_path());
        let allows_body_model = body_model.is_none_or(|model| key.scopes.allow(provider, Some(model)));
        let is_allowed = (allows_body_model && key.scopes.allow(provider, target.model.as_deref()))
            || (lists_models && key.scopes.allow_provider(provider));
        if !is_allowed {
            let problem = scope_denied(&key.scopes, target);
            record_denial(context, ("scope_denied", "key", &key.id.to_string()), &problem.message);
            return Err(problem);
        }
    }
    Ok(())
}

/// What the scopes do not allow of `models`, from which a provider such as OpenRouter chooses. It is sent to every target.
fn further_model_outside(scopes: &Scopes, plan: &Plan<'_>) -> Option<String> {
    let is_allowed = |model: &String| {
        plan.targets.iter().all(|target| scopes.allow(&target.provider.name, Some(model.as_str())))
    };
    match &plan.facts.further_models {
        FurtherModels::None => None,
        _ if !scopes.names_models() => None,
        FurtherModels::Named(models) => {
            let outside = models.iter().find(|model| !is_allowed(model))?;
            Some(format!("the model '{outside}' in the field models"))
        }
        FurtherModels::Unreadable => Some("the field models, because it is no list of names".to_owned()),
    }
}

/// Records a refused call in the audit log, once in an hour for each target (action, type and id).
fn record_denial(context: RequestContext<'_>, (action, kind, id): (&str, &str, &str), reason: &str) {
    let RequestContext { services, state, identity, .. } = context;
    let org = identity.org.id;
    if !state.audit.is_first_denial(org, format!("{action}/{id}"), context.now()) {
        return;
    }
    let target = Target { kind: kind.into(), id: Some(id.to_owned()), name: None };
    let mut entry = audit::system_entry(services, Chain::Org(org), action, target);
    entry.actor = audit::actor_of(identity, Via::Api);
    (entry.outcome, entry.status) = (Outcome::Denied, Some(StatusCode::FORBIDDEN.as_u16()));
    entry.request_id = context.request_id.to_str().ok().map(str::to_owned);
    state.audit.push(entry.reason(reason));
}

/// Objects that a provider keeps for the operator's account are of all organizations that use its credential, so none
/// of them may read or change them.
pub fn check_objects(context: RequestContext<'_>, plan: &Plan<'_>, path: &RequestPath<'_>) -> ApiResult<()> {
    let refuses = context.services.config.operator_objects == OperatorObjects::Refuse;
    let is_shared = |index: usize| match plan.targets[index].provider.account {
        Account::Own => false,
        Account::OperatorServer => true,
        Account::OperatorCredential => !has_callers_credential(context, &Attempt::new(plan, index)),
    };
    let Some(index) = (0..plan.targets.len()).find(|index| refuses && is_shared(*index)) else {
        return Ok(());
    };
    if !touches_stored_objects(context.head.method.as_str(), path) {
        return Ok(());
    }
    let provider = &plan.targets[index].provider.name;
    let problem = Problem::forbidden(format!(
        "{provider}: this path reads or changes what the provider stores for the operator's account, which all \
         organizations share; store a credential of your own with POST /orgs/:orgId/providers"
    ));
    record_denial(context, ("credential.use_denied", "provider", provider), &problem.message);
    Err(problem)
}

fn scope_denied(scopes: &Scopes, target: &RouteTarget) -> Problem {
    let provider = &target.provider.name;
    let what = match &target.model {
        Some(model) => format!("the model '{model}' of {provider}"),
        None if scopes.names_models() => {
            format!("{provider}: this request names no model that can be checked")
        }
        None => provider.clone(),
    };
    Problem::new(StatusCode::FORBIDDEN, "scope_denied", format!("the key's scopes do not allow {what}"))
}
