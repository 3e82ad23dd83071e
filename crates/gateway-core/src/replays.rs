//! Replays: what is sent when a logged request is made again with another model, provider or prompt, what it is expected
//! to cost, and the sums of what happened before and after.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::llm::paths::{Operation, RequestPath};
use crate::llm::usage::Usage;
use crate::logs::{BodyStorage, LogRow, LogSource, PromptVersionRef};
use crate::pricing::{Price, cost};
use crate::totals::cost_units;

/// What is changed in the requests. What is not given stays as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayTarget {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Instead of the prompt that the request named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<ReplayPrompt>,
    /// Values of the prompt's variables. Log rows do not have those of the original request.
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    pub variables: HashMap<String, String>,
    /// Parameters of the body, such as `temperature`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
}

/// A prompt as `namespace/slug`, and its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayPrompt {
    pub name: String,
    pub version: i64,
}

impl ReplayTarget {
    pub fn is_empty(&self) -> bool {
        *self == Self { variables: self.variables.clone(), ..Self::default() }
    }

    /// The provider and the model that a row is sent to.
    pub fn provider_and_model(&self, row: &LogRow) -> (String, Option<String>) {
        let provider = self.provider.clone().unwrap_or_else(|| row.provider.clone());
        (provider, self.model.clone().or_else(|| row.model.clone()))
    }

    /// The prompt of the new request: the given one, else that of the row.
    fn prompt_of(&self, row: &LogRow) -> Option<PromptVersionRef> {
        let given = self.prompt.as_ref();
        given
            .map(|prompt| PromptVersionRef { name: prompt.name.clone(), version: prompt.version })
            .or_else(|| row.prompt.clone())
    }
}

/// Which endpoint takes the request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayEndpoint {
    Chat,
    Responses,
    Messages,
    GenerateContent,
}

/// Why a row cannot be replayed, as far as the row without its bodies tells. The endpoint otherwise.
pub fn check(row: &LogRow) -> Result<ReplayEndpoint, &'static str> {
    if matches!(row.source, LogSource::Otel | LogSource::Mcp) {
        return Err("the row is not a call that the gateway made");
    }
    let endpoint = match RequestPath::parse(&row.path).operation() {
        Operation::Chat => ReplayEndpoint::Chat,
        Operation::Responses => ReplayEndpoint::Responses,
        Operation::Messages => ReplayEndpoint::Messages,
        Operation::GenerateContent => ReplayEndpoint::GenerateContent,
        _ => return Err("only chats can be replayed"),
    };
    match row.request_stored {
        BodyStorage::Full => Ok(endpoint),
        BodyStorage::Truncated => Err("the stored request is truncated"),
        BodyStorage::Off => Err("the request was not stored"),
    }
}

/// A request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayRequest {
    pub endpoint: ReplayEndpoint,
    pub provider: String,
    pub model: String,
    /// In the format of the row, without `stream`.
    pub body: Map<String, Value>,
    pub prompt: Option<PromptVersionRef>,
}

/// The request that a row with its bodies becomes.
pub fn prepare(row: &LogRow, target: &ReplayTarget) -> Result<ReplayRequest, String> {
    let endpoint = check(row)?;
    let (provider, model) = target.provider_and_model(row);
    let model = model.ok_or("the row has no model; name one in target.model")?;
    if endpoint == ReplayEndpoint::GenerateContent && !model.bytes().all(is_path_byte) {
        return Err(format!("the model '{model}' cannot be named in the path of a Gemini request"));
    }
    let Ok(Value::Object(mut body)) = serde_json::from_slice(&row.request) else {
        return Err("the stored request is not a JSON object".into());
    };
    for name in ["stream", "stream_options"] {
        body.remove(name);
    }
    body.extend(target.params.clone());
    if endpoint != ReplayEndpoint::GenerateContent {
        body.insert("model".into(), model.as_str().into());
    }
    Ok(ReplayRequest { endpoint, provider, model, body, prompt: target.prompt_of(row) })
}

fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// What is expected of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    pub rows: i64,
    pub input_tokens: i64,
    pub output_tokens: i64,
    /// In storage units, of the rows with a price.
    pub cost: i64,
    /// Rows whose new cost is unknown: the model has no price, or the row has no token counts.
    pub unpriced: i64,
    /// What the same rows cost before, in storage units.
    pub cost_before: i64,
}

impl Estimate {
    /// Adds a row: as many tokens as before, at the price of the new model.
    pub fn add(&mut self, row: &LogRow, price: Option<&Price>) {
        self.rows += 1;
        self.cost_before = self.cost_before.saturating_add(row.cost_usd.map_or(0, cost_units));
        let tokens = row.tokens.unwrap_or_default();
        self.input_tokens = self.input_tokens.saturating_add(tokens.prompt);
        self.output_tokens = self.output_tokens.saturating_add(tokens.completion);
        let count = |tokens: i64| u64::try_from(tokens).unwrap_or(0);
        let usage =
            Usage { input: count(tokens.prompt), output: count(tokens.completion), ..Usage::default() };
        match price.filter(|_| row.tokens.is_some()).and_then(|price| cost(price, &usage)) {
            Some(cost) => self.cost = self.cost.saturating_add(cost_units(cost)),
            None => self.unpriced += 1,
        }
    }
}

/// What one call took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallFigures {
    pub provider: String,
    pub model: Option<String>,
    pub status: i64,
    /// In storage units; none if it is unknown.
    pub cost: Option<i64>,
    pub latency_ms: i64,
    pub input_tokens: Option<i64>,
    pub output_tokens: Option<i64>,
}

impl CallFigures {
    pub fn of(row: &LogRow) -> Self {
        Self {
            provider: row.provider.clone(),
            model: row.model.clone(),
            status: row.status.into(),
            cost: row.cost_usd.map(cost_units),
            latency_ms: row.latency_ms,
            input_tokens: row.tokens.map(|tokens| tokens.prompt),
            output_tokens: row.tokens.map(|tokens| tokens.completion),
        }
    }
}

/// The sums of one side of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SideTotals {
    pub calls: i64,
    /// Calls with a status of 400 or more.
    pub errors: i64,
    /// In storage units, of the calls with a known cost.
    pub cost: i64,
    pub unpriced: i64,
    pub input_tokens: i64,
    pub output_tokens: i64,
    pub p50_ms: Option<i64>,
    pub p95_ms: Option<i64>,
}

impl SideTotals {
    pub fn of<'a>(calls: impl Iterator<Item = &'a CallFigures>) -> Self {
        let (mut totals, mut latencies) = (Self::default(), Vec::new());
        for call in calls {
            totals.calls += 1;
            totals.errors += i64::from(call.status >= 400);
            totals.cost = totals.cost.saturating_add(call.cost.unwrap_or(0));
            totals.unpriced += i64::from(call.cost.is_none());
            totals.input_tokens = totals.input_tokens.saturating_add(call.input_tokens.unwrap_or(0));
            totals.output_tokens = totals.output_tokens.saturating_add(call.output_tokens.unwrap_or(0));
            latencies.push(call.latency_ms);
        }
        latencies.sort_unstable();
        (totals.p50_ms, totals.p95_ms) = (percentile(&latencies, 50), percentile(&latencies, 95));
        totals
    }
}

/// The smallest value that so many percent of the sorted values do not exceed.
fn percentile(sorted: &[i64], percent: usize) -> Option<i64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests;
