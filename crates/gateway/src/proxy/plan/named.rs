//! The plan of a named model: its targets for the request, adapted like those of headers.

use std::sync::Arc;

use gateway_core::models::ModelTarget;
use gateway_core::scopes::Scopes;

use super::{Plan, PlannedModel, RouteTarget, StreamMode};
use crate::problem::{ApiResult, Problem};
use crate::proxy::context::RequestContext;
use crate::proxy::directives::Directives;
use crate::proxy::facts::RequestFacts;
use crate::proxy::named_model::NamedModel;

impl<'a> Plan<'a> {
    /// The targets of a named model. One that cannot be called, because its provider is gone or has no endpoint for the
    /// request, is left out if there are others.
    pub fn of_model(
        context: RequestContext<'_>,
        directives: &'a Directives,
        facts: RequestFacts,
        named: NamedModel,
    ) -> ApiResult<Self> {
        let mut plan = Self {
            directives,
            facts,
            stream_mode: StreamMode::of(directives),
            targets: Vec::with_capacity(named.selection.targets.len()),
            model: None,
            is_bound: false,
        };
        let mut refused = None;
        for (place, target) in named.selection.targets.iter().enumerate() {
            match plan.model_target(context, target, named.star()) {
                Ok(found) => plan.targets.push(RouteTarget { place, ..found }),
                Err(problem) => refused = refused.or(Some(problem)),
            }
        }
        if plan.targets.first().is_none_or(RouteTarget::is_reserved) {
            return Err(refused.unwrap_or_else(|| Problem::internal("a named model selected no target")));
        }
        let watches_refusals =
            plan.targets.iter().flat_map(|target| &target.spec).any(|spec| spec.watches_refusals());
        let NamedModel { name, model, selection, parts, is_single, .. } = named;
        plan.model = Some(PlannedModel { name, model, parts, is_single, selection, watches_refusals });
        plan.find_usage_refusals(context);
        Ok(plan)
    }

    fn model_target(
        &self,
        context: RequestContext<'_>,
        spec: &Arc<ModelTarget>,
        star: Option<&str>,
    ) -> ApiResult<RouteTarget> {
        let field = "model";
        let provider = context.resolve_provider(field, &spec.provider)?;
        let model = spec.model(star);
        let adaptation = self.adapt_request(&provider, Some(&model), field)?;
        let Directives { max_retries, timeout, .. } = *self.directives;
        Ok(RouteTarget {
            max_retries: max_retries.or(spec.retries).unwrap_or_default(),
            timeout: spec.timeout.map_or(timeout, |own| own.min(timeout)),
            spec: Some(Arc::clone(spec)),
            // The caller does not know which provider it is, so its credential goes to none.
            is_named: false,
            ..RouteTarget::new(self.directives, provider, Some(model), adaptation)
        })
    }
}

impl PlannedModel {
    /// Whether the scopes of a key allow the model, or each of the parts that a request asks for in its place.
    pub fn is_allowed(&self, scopes: &Scopes) -> bool {
        if !self.parts.is_empty() {
            return self.parts.iter().all(|part| part.is_allowed(scopes));
        }
        scopes.allow_named(&self.name, self.model.targets().iter().map(|target| target.provider.as_str()))
    }
}
