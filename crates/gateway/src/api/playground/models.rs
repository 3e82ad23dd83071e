//! Providers for the playground: whether they are configured, and their models with prices.

use axum::extract::State;
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
    /// Models whose circuit breaker is open on the node that answers, at most 20: they failed repeatedly, and routes with
    /// several targets skip them for now.
    open_breakers: Vec<String>,
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

const MAX_OPEN_BREAKERS: usize = 20;

/// The modes of models that answer to messages.
const MODES: [&str; 3] = ["chat", "responses", "completion"];

pub(super) async fn providers(State(app): AppState, caller: Caller<Viewer>) -> ApiResult<Json<ProviderList>> {
    let open = app.proxy.health.open_targets(caller.org.id);
    let providers = caller.org.providers.all().into_iter().map(|target| view(&app, target, &open)).collect();
    Ok(Json(ProviderList { providers }))
}

fn view(app: &App, target: &Target, open: &[(String, Option<String>)]) -> ProviderView {
    let prices = &app.proxy.prices;
    let model = |id: &str| {
        let price = prices.find(target.kind.name, id);
        let usd = |rate: Option<rust_decimal::Decimal>| rate.and_then(|rate| rate.to_f64());
        ModelView {
            id: id.to_owned(),
            context: price.and_then(|price| price.max_input_tokens),
            input_per_mtok: usd(price.and_then(|price| price.input_per_mtok)),
            output_per_mtok: usd(price.and_then(|price| price.output_per_mtok)),
        }
    };
    let open = open.iter().filter(|(provider, _)| *provider == target.name);
    let open = open.map(|(_, model)| model.clone().unwrap_or_else(|| "*".to_owned()));
    ProviderView {
        name: target.name.clone(),
        kind: target.kind.name,
        configured: target.is_ready(),
        open_breakers: open.take(MAX_OPEN_BREAKERS).collect(),
        models: target.known_models(prices, &MODES).into_iter().map(model).collect(),
    }
}
