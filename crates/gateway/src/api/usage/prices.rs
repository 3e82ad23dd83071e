//! The price table in use.

use axum::extract::State;
use gateway_core::pricing::Price;
use gateway_core::time::Timestamp;
use rust_decimal::prelude::ToPrimitive as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::caller::{AppState, RowReader};
use crate::api::extract::QueryParams;
use crate::api::response::Json;
use crate::problem::ApiResult;

#[derive(Deserialize, JsonSchema)]
pub(super) struct PriceParams {
    provider: Option<String>,
    model: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct PriceList {
    prices: Vec<PriceView>,
    /// The date of the price data: of the built-in prices, or of the operator's file if that is newer.
    as_of: Timestamp,
}

/// USD per million tokens; null if a model has no such rate.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Price")]
struct PriceView {
    provider: String,
    model: String,
    mode: String,
    input_per_mtok: Option<f64>,
    output_per_mtok: Option<f64>,
    cache_read_per_mtok: Option<f64>,
    cache_write_per_mtok: Option<f64>,
    cache_write_1h_per_mtok: Option<f64>,
    reasoning_per_mtok: Option<f64>,
    audio_input_per_mtok: Option<f64>,
    audio_output_per_mtok: Option<f64>,
    input_above_200k_per_mtok: Option<f64>,
    output_above_200k_per_mtok: Option<f64>,
    max_input_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
}

pub(super) async fn prices(
    State(app): AppState,
    _caller: RowReader,
    QueryParams(params): QueryParams<PriceParams>,
) -> ApiResult<Json<PriceList>> {
    let wanted =
        |filter: &Option<String>, value: &str| filter.as_deref().is_none_or(|filter| filter == value);
    let rows = app.proxy.prices.rows().into_iter();
    let prices = rows
        .filter(|(provider, model, _)| wanted(&params.provider, provider) && wanted(&params.model, model))
        .map(|(provider, model, price)| price_view(provider, model, price))
        .collect();
    Ok(Json(PriceList { prices, as_of: app.proxy.prices.as_of() }))
}

fn price_view(provider: &str, model: &str, price: &Price) -> PriceView {
    let Price {
        mode,
        input_per_mtok,
        output_per_mtok,
        cache_read_per_mtok,
        cache_write_per_mtok,
        cache_write_1h_per_mtok,
        reasoning_per_mtok,
        audio_input_per_mtok,
        audio_output_per_mtok,
        input_above_200k_per_mtok,
        output_above_200k_per_mtok,
        max_input_tokens,
        max_output_tokens,
    } = price;
    let number = |rate: &Option<rust_decimal::Decimal>| rate.and_then(|rate| rate.to_f64());
    PriceView {
        provider: provider.to_owned(),
        model: model.to_owned(),
        mode: mode.to_string(),
        input_per_mtok: number(input_per_mtok),
        output_per_mtok: number(output_per_mtok),
        cache_read_per_mtok: number(cache_read_per_mtok),
        cache_write_per_mtok: number(cache_write_per_mtok),
        cache_write_1h_per_mtok: number(cache_write_1h_per_mtok),
        reasoning_per_mtok: number(reasoning_per_mtok),
        audio_input_per_mtok: number(audio_input_per_mtok),
        audio_output_per_mtok: number(audio_output_per_mtok),
        input_above_200k_per_mtok: number(input_above_200k_per_mtok),
        output_above_200k_per_mtok: number(output_above_200k_per_mtok),
        max_input_tokens: *max_input_tokens,
        max_output_tokens: *max_output_tokens,
    }
}
