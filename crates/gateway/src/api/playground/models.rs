//! Providers for the playground: whether they are configured, and their models with prices.

use std::collections::BTreeMap;

use axum::extract::State;
use gateway_core::llm::providers::{Auth, all};
use gateway_core::llm::sandbox;
use gateway_store::providers::{self, Provider};
use rust_decimal::prelude::ToPrimitive as _;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::caller::{AppState, Caller, Viewer};
use crate::api::response::Json;
use crate::app::App;
use crate::problem::ApiResult;
use crate::targets::Target;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlaygroundProviderList")]
pub(super) struct ProviderList {
    providers: Vec<ProviderView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlaygroundProvider")]
struct ProviderView {
    name: String,
    /// The built-in provider, or the one whose wire format a custom provider uses.
    kind: &'static str,
    /// Whether it has a URL, and a credential if it requires one.
    configured: bool,
    models: Vec<ModelView>,
}

/// Prices are in USD per million tokens.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlaygroundModel")]
struct ModelView {
    id: String,
    /// Maximum number of input tokens.
    context: Option<u64>,
    input_per_mtok: Option<f64>,
    output_per_mtok: Option<f64>,
}

pub(super) async fn providers(State(app): AppState, caller: Caller<Viewer>) -> ApiResult<Json<ProviderList>> {
    let stored = providers::list(&app.services.db, caller.org.id).await?;
    let stored: BTreeMap<&str, &Provider> =
        stored.iter().map(|provider| (provider.name.as_str(), provider)).collect();
    let built_in = all().iter().filter_map(|kind| caller.org.providers.find(kind.name));
    let built_in = built_in.filter(|target| !caller.org.providers.own().contains_key(&target.name));
    let mut views: Vec<ProviderView> = built_in
        .chain(caller.org.providers.own().values())
        .map(|target| view(&app, target, stored.get(target.name.as_str()).copied()))
        .collect();
    views.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Json(ProviderList { providers: views }))
}

fn view(app: &App, target: &Target, stored: Option<&Provider>) -> ProviderView {
    ProviderView {
        name: target.name.clone(),
        kind: target.kind.name,
        configured: is_configured(app, target, stored),
        models: models(app, target, stored.map_or(&[], |stored| &stored.models)),
    }
}

/// A provider without authentication counts as configured only if its URL was set.
fn is_configured(app: &App, target: &Target, stored: Option<&Provider>) -> bool {
    if target.is_sandbox() {
        return true;
    }
    let settings = app.services.config.providers.get(target.kind.name);
    let has_own_url = stored.is_some_and(|stored| stored.base_url.is_some())
        || settings.is_some_and(|settings| settings.base_url.is_some());
    let has_credential = !target.credentials.is_empty() || !target.headers.is_empty();
    target.base.is_some() && (has_credential || (matches!(target.auth, Auth::None) && has_own_url))
}

/// The models that the organization listed, or else the models with a price.
fn models(app: &App, target: &Target, own: &[String]) -> Vec<ModelView> {
    let model = |id: &str| {
        let price = app.proxy.prices.find(target.kind.name, id);
        let usd = |rate: Option<rust_decimal::Decimal>| rate.and_then(|rate| rate.to_f64());
        ModelView {
            id: id.to_owned(),
            context: price.and_then(|price| price.max_input_tokens),
            input_per_mtok: usd(price.and_then(|price| price.input_per_mtok)),
            output_per_mtok: usd(price.and_then(|price| price.output_per_mtok)),
        }
    };
    if !own.is_empty() {
        return own.iter().map(|id| model(id)).collect();
    }
    if target.is_sandbox() {
        return sandbox::MODELS.iter().map(|id| model(id)).collect();
    }
    let rows = app.proxy.prices.rows().into_iter().filter(|(provider, _, price)| {
        *provider == target.kind.name && matches!(&*price.mode, "chat" | "responses" | "completion" | "")
    });
    rows.map(|(_, id, _)| model(id)).collect()
}
