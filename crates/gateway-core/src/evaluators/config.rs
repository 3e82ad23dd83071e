//! Definitions as they are written, and the checks that make evaluators of them.

use rust_decimal::prelude::ToPrimitive as _;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::check::{Check, ExpectedText};
use super::judge::Judge;
use super::similar::{Embedding, Levenshtein};
use super::{ConfigError, Evaluator, EvaluatorKind, Field, Method, catalogue, schema};

/// A config longer than this, as JSON, is refused.
const MAX_CONFIG: usize = 64 << 10;
const MAX_VALUES: usize = 1_000;
const REGEX_BYTES: usize = 1 << 20;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Nothing {}

#[derive(Deserialize, JsonSchema)]
pub(super) struct SchemaConfig {
    /// A JSON Schema. References must lead to places inside it (`#/$defs/…`) and never back to themselves.
    schema: Value,
}

/// Either `value` or `values`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ContainsConfig {
    value: Option<Literal>,
    values: Option<Vec<Literal>>,
    /// With several values: is one of them enough, or must all be there?
    #[serde(default)]
    mode: Mode,
    #[serde(default = "yes")]
    case_sensitive: bool,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Any,
    All,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct ValueConfig {
    value: Literal,
    #[serde(default = "yes")]
    case_sensitive: bool,
}

/// A number or a truth value means its JSON text.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Literal {
    Text(String),
    Number(serde_json::Number),
    Truth(bool),
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct RegexConfig {
    /// In the syntax of the Rust regex crate: matching takes time in proportion to the text.
    pattern: String,
}

/// In characters; one of the two at least.
#[derive(Deserialize, JsonSchema)]
pub(super) struct LengthConfig {
    min: Option<u64>,
    max: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct LatencyConfig {
    #[schemars(range(min = 0))]
    max_ms: i64,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct CostConfig {
    #[schemars(range(min = 0))]
    max_usd: serde_json::Number,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct SimilarityConfig {
    /// What the text is compared with; without it, the `expected` of a dataset's case.
    reference: Option<String>,
    #[serde(default = "similar")]
    #[schemars(range(min = 0, max = 1))]
    threshold: f64,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct EmbeddingConfig {
    /// What the text is compared with; without it, the `expected` of a dataset's case.
    reference: Option<String>,
    #[serde(default = "similar")]
    #[schemars(range(min = 0, max = 1))]
    threshold: f64,
    /// Who embeds; without it, the provider of the settings. `builtin` needs no account.
    provider: Option<String>,
    model: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct JudgeConfig {
    provider: String,
    model: String,
    /// What makes a good answer, in words.
    criteria: String,
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    threshold: f64,
}

fn yes() -> bool {
    true
}

fn similar() -> f64 {
    0.8
}

fn half() -> f64 {
    0.5
}

pub(super) fn read(kind: &str, name: &str, config: &Value) -> Result<Evaluator, ConfigError> {
    let kinds = EvaluatorKind::ALL.map(EvaluatorKind::as_str).join(", ");
    let kind = EvaluatorKind::parse(kind).ok_or_else(|| {
        ConfigError::field("type", format!("unknown type '{}'; known are {kinds}", short(kind)))
    })?;
    let known: Vec<&str> =
        catalogue().iter().filter(|known| known.kind == kind).map(|known| known.name).collect();
    if !known.contains(&name) {
        let why = format!(
            "unknown evaluator '{}' of type {}; known are {}",
            short(name),
            kind.as_str(),
            known.join(", ")
        );
        return Err(ConfigError::field("evaluator", why));
    }
    let Value::Object(config) = config else { return Err(ConfigError::field("config", "must be an object")) };
    if Value::Object(config.clone()).to_string().len() > MAX_CONFIG {
        return Err(ConfigError::field("config", format!("is longer than {MAX_CONFIG} bytes")));
    }
    let mut config = config.clone();
    let field = match config.remove("field") {
        None | Some(Value::Null) => Field { side: super::BodySide::Response, pointer: None },
        Some(Value::String(text)) => {
            text.parse().map_err(|why: &str| ConfigError::field("config.field", why))?
        }
        Some(_) => return Err(ConfigError::field("config.field", "must be a string")),
    };
    Ok(Evaluator { field, how: how(name, config)? })
}

fn how(name: &str, config: Map<String, Value>) -> Result<Method, ConfigError> {
    Ok(match name {
        "is_json" => {
            let Nothing {} = parsed(config)?;
            Method::Check(Check::IsJson)
        }
        "status_ok" => {
            let Nothing {} = parsed(config)?;
            Method::Check(Check::StatusOk)
        }
        "json_schema" => {
            let SchemaConfig { schema } = parsed(config)?;
            let validator =
                schema::compile(&schema).map_err(|why| ConfigError::meaningless("config.schema", why))?;
            Method::Check(Check::Schema(Box::new(validator)))
        }
        "contains" | "not_contains" => {
            let (wanted, all) = several(parsed(config)?)?;
            Method::Check(if name == "contains" {
                Check::Contains { wanted, all }
            } else {
                Check::NotContains { unwanted: wanted }
            })
        }
        "equals" | "starts_with" | "ends_with" => {
            let ValueConfig { value, case_sensitive } = parsed(config)?;
            let wanted = ExpectedText::new(vec![literal(value)], case_sensitive);
            Method::Check(match name {
                "equals" => Check::Equals(wanted),
                "starts_with" => Check::StartsWith(wanted),
                _ => Check::EndsWith(wanted),
            })
        }
        "regex" => {
            let RegexConfig { pattern } = parsed(config)?;
            let compiled = regex::RegexBuilder::new(&pattern).size_limit(REGEX_BYTES).build();
            let regex =
                compiled.map_err(|error| ConfigError::meaningless("config.pattern", error.to_string()))?;
            Method::Check(Check::Regex(Box::new(regex)))
        }
        "length" => length(&parsed(config)?)?,
        "latency" => {
            let LatencyConfig { max_ms } = parsed(config)?;
            let why = "must be a number of at least 0";
            Method::Check(Check::Latency(
                Some(max_ms).filter(|ms| *ms >= 0).ok_or_else(|| wrong("max_ms", why))?,
            ))
        }
        "cost" => {
            let CostConfig { max_usd } = parsed(config)?;
            let max = max_usd.to_string().parse::<rust_decimal::Decimal>().ok().and_then(|usd| usd.to_f64());
            let max = max.or_else(|| max_usd.as_f64()).filter(|usd| *usd >= 0.0);
            Method::Check(Check::Cost(max.ok_or_else(|| wrong("max_usd", "must be a number of at least 0"))?))
        }
        "levenshtein" => {
            let SimilarityConfig { reference, threshold } = parsed(config)?;
            Method::Levenshtein(Levenshtein { reference, threshold: share(threshold)? })
        }
        "embedding" => {
            let EmbeddingConfig { reference, threshold, provider, model } = parsed(config)?;
            if provider.as_deref().is_some_and(|provider| provider != "builtin") && model.is_none() {
                return Err(wrong("model", "is needed with a provider"));
            }
            Method::Embedding(Embedding { reference, threshold: share(threshold)?, provider, model })
        }
        _ => {
            let JudgeConfig { provider, model, criteria, threshold } = parsed(config)?;
            for (name, text) in [("provider", &provider), ("model", &model), ("criteria", &criteria)] {
                if text.trim().is_empty() {
                    return Err(wrong(name, "must not be empty"));
                }
            }
            Method::Judge(Judge { provider, model, criteria, threshold: share(threshold)? })
        }
    })
}

fn length(config: &LengthConfig) -> Result<Method, ConfigError> {
    let LengthConfig { min, max } = *config;
    if min.is_none() && max.is_none() {
        return Err(wrong("min", "min or max is needed"));
    }
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        return Err(wrong("min", "must not be above max"));
    }
    Ok(Method::Check(Check::Length { min: min.unwrap_or(0), max: max.unwrap_or(u64::MAX) }))
}

/// The values of `contains` and its opposite, and whether all of them are meant.
fn several(config: ContainsConfig) -> Result<(ExpectedText, bool), ConfigError> {
    let ContainsConfig { value, values, mode, case_sensitive } = config;
    let values = match (value, values) {
        (Some(value), None) => vec![value],
        (None, Some(values)) => values,
        (Some(_), Some(_)) => return Err(wrong("value", "give value or values, not both")),
        (None, None) => return Err(wrong("value", "is needed (or values)")),
    };
    if values.is_empty() || values.len() > MAX_VALUES {
        return Err(wrong("values", format!("must hold 1 to {MAX_VALUES} values")));
    }
    let values: Vec<String> = values.into_iter().map(literal).collect();
    if values.iter().any(String::is_empty) {
        return Err(wrong("value", "must not be empty: every text contains nothing"));
    }
    Ok((ExpectedText::new(values, case_sensitive), mode == Mode::All))
}

fn literal(value: Literal) -> String {
    match value {
        Literal::Text(text) => text,
        Literal::Number(number) => number.to_string(),
        Literal::Truth(truth) => truth.to_string(),
    }
}

fn share(threshold: f64) -> Result<f64, ConfigError> {
    if (0.0..=1.0).contains(&threshold) { Ok(threshold) } else { Err(wrong("threshold", "must be 0 to 1")) }
}

fn wrong(name: &str, why: impl Into<String>) -> ConfigError {
    ConfigError::field(format!("config.{name}"), why)
}

/// Reads a config; a part that the evaluator does not know is named.
fn parsed<T: DeserializeOwned + JsonSchema>(config: Map<String, Value>) -> Result<T, ConfigError> {
    let schema = schemars::schema_for!(T);
    let known = schema.get("properties").and_then(Value::as_object);
    if let Some(name) = config.keys().find(|name| !known.is_some_and(|known| known.contains_key(*name))) {
        let names: Vec<&str> =
            known.into_iter().flatten().map(|(name, _)| name.as_str()).chain(["field"]).collect();
        let why = format!("is unknown to this evaluator, which takes {}", names.join(", "));
        return Err(wrong(&short(name), why));
    }
    for (name, value) in &config {
        // One by one, so that the wrong one is named.
        let alone = Map::from_iter([(name.clone(), value.clone())]);
        if let Err(error) = serde_json::from_value::<T>(Value::Object(alone))
            && !error.to_string().starts_with("missing field")
        {
            return Err(wrong(name, error.to_string()));
        }
    }
    serde_json::from_value(Value::Object(config)).map_err(|error| {
        let text = error.to_string();
        match text.split('`').nth(1).filter(|_| text.starts_with("missing field")) {
            Some(name) => wrong(name, "is needed"),
            None => ConfigError::field("config", text),
        }
    })
}

fn short(text: &str) -> String {
    text.chars().take(64).collect()
}
