//! The configs of evaluators: their JSON form, and the validation that turns them into evaluators.

use rust_decimal::prelude::ToPrimitive as _;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::check::{Check, ExpectedText};
use super::judge::Judge;
use super::pattern::Pattern;
use super::schema::BoundedSchema;
use super::similar::{Embedding, Levenshtein};
use super::{ConfigError, Evaluator, EvaluatorKind, Field, Method, catalogue};

/// The maximum size of a config as JSON.
const MAX_CONFIG_BYTES: usize = 64 << 10;
const MAX_VALUES: usize = 1_000;

#[derive(Deserialize, JsonSchema)]
pub(super) struct NoConfig {}

#[derive(Deserialize, JsonSchema)]
pub(super) struct SchemaConfig {
    /// A JSON Schema. References must point inside it (`#/$defs/…`) and must not be recursive.
    schema: Value,
}

/// Either `value` or `values`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ContainsConfig {
    value: Option<Literal>,
    values: Option<Vec<Literal>>,
    /// Whether the text must contain any or all of several values.
    #[serde(default)]
    mode: Mode,
    #[serde(default = "default_case_sensitive")]
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
    #[serde(default = "default_case_sensitive")]
    case_sensitive: bool,
}

/// A number or boolean is converted to its JSON text.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Literal {
    Text(String),
    Number(serde_json::Number),
    Bool(bool),
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct RegexConfig {
    /// In the syntax of the Rust regex crate, which matches in linear time. The larger the compiled pattern, the
    /// shorter are the texts that it is matched against.
    pattern: String,
}

/// In characters; at least one of the two.
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
    /// The text to compare with. Defaults to the `expected` value of a dataset's case.
    reference: Option<String>,
    #[serde(default = "default_similarity_threshold")]
    #[schemars(range(min = 0, max = 1))]
    threshold: f64,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct EmbeddingConfig {
    /// The text to compare with. Defaults to the `expected` value of a dataset's case.
    reference: Option<String>,
    #[serde(default = "default_similarity_threshold")]
    #[schemars(range(min = 0, max = 1))]
    threshold: f64,
    /// The provider of the embeddings. Defaults to the one in the settings. `builtin` needs no account.
    provider: Option<String>,
    model: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct JudgeConfig {
    provider: String,
    model: String,
    /// The criteria of a good response, in plain language.
    criteria: String,
    #[serde(default = "default_judge_threshold")]
    #[schemars(range(min = 0, max = 1))]
    threshold: f64,
}

fn default_case_sensitive() -> bool {
    true
}

fn default_similarity_threshold() -> f64 {
    0.8
}

fn default_judge_threshold() -> f64 {
    0.5
}

pub(super) fn parse(kind: &str, name: &str, config: &Value) -> Result<Evaluator, ConfigError> {
    let kinds = EvaluatorKind::ALL.map(EvaluatorKind::as_str).join(", ");
    let kind = EvaluatorKind::parse(kind).ok_or_else(|| {
        ConfigError::field("type", format!("unknown type '{}'; must be one of {kinds}", truncated(kind)))
    })?;
    let known: Vec<&str> =
        catalogue().iter().filter(|known| known.kind == kind).map(|known| known.name).collect();
    if !known.contains(&name) {
        let reason = format!(
            "unknown evaluator '{}' of type {}; must be one of {}",
            truncated(name),
            kind.as_str(),
            known.join(", ")
        );
        return Err(ConfigError::field("evaluator", reason));
    }
    let Value::Object(config) = config else { return Err(ConfigError::field("config", "must be an object")) };
    if Value::Object(config.clone()).to_string().len() > MAX_CONFIG_BYTES {
        return Err(ConfigError::field("config", format!("is longer than {MAX_CONFIG_BYTES} bytes")));
    }
    let mut config = config.clone();
    let field = match config.remove("field") {
        None | Some(Value::Null) => Field { side: super::BodySide::Response, pointer: None },
        Some(Value::String(text)) => {
            text.parse().map_err(|reason: &str| ConfigError::field("config.field", reason))?
        }
        Some(_) => return Err(ConfigError::field("config.field", "must be a string")),
    };
    Ok(Evaluator { field, method: method(name, config)? })
}

fn method(name: &str, config: Map<String, Value>) -> Result<Method, ConfigError> {
    Ok(match name {
        "is_json" => {
            let NoConfig {} = parse_config(config)?;
            Method::Check(Check::IsJson)
        }
        "status_ok" => {
            let NoConfig {} = parse_config(config)?;
            Method::Check(Check::StatusOk)
        }
        "json_schema" => {
            let SchemaConfig { schema } = parse_config(config)?;
            let compiled = BoundedSchema::compile(&schema);
            let compiled = compiled.map_err(|reason| ConfigError::invalid("config.schema", reason))?;
            Method::Check(Check::Schema(Box::new(compiled)))
        }
        "contains" | "not_contains" => {
            let (expected, all) = expected_values(parse_config(config)?)?;
            Method::Check(if name == "contains" {
                Check::Contains { expected, all }
            } else {
                Check::NotContains { forbidden: expected }
            })
        }
        "equals" | "starts_with" | "ends_with" => {
            let ValueConfig { value, case_sensitive } = parse_config(config)?;
            let expected = ExpectedText::new(vec![literal_text(value)], case_sensitive);
            Method::Check(match name {
                "equals" => Check::Equals(expected),
                "starts_with" => Check::StartsWith(expected),
                _ => Check::EndsWith(expected),
            })
        }
        "regex" => {
            let RegexConfig { pattern } = parse_config(config)?;
            let pattern = Pattern::compile(&pattern);
            let pattern = pattern.map_err(|reason| ConfigError::invalid("config.pattern", reason))?;
            Method::Check(Check::Regex(Box::new(pattern)))
        }
        "length" => length(&parse_config(config)?)?,
        "latency" => {
            let LatencyConfig { max_ms } = parse_config(config)?;
            let max_ms = Some(max_ms).filter(|ms| *ms >= 0);
            Method::Check(Check::Latency(
                max_ms.ok_or_else(|| invalid_field("max_ms", "must be at least 0"))?,
            ))
        }
        "cost" => {
            let CostConfig { max_usd } = parse_config(config)?;
            let max = max_usd.to_string().parse::<rust_decimal::Decimal>().ok().and_then(|usd| usd.to_f64());
            let max = max.or_else(|| max_usd.as_f64()).filter(|usd| *usd >= 0.0);
            Method::Check(Check::Cost(max.ok_or_else(|| invalid_field("max_usd", "must be at least 0"))?))
        }
        "levenshtein" => {
            let SimilarityConfig { reference, threshold } = parse_config(config)?;
            Method::Levenshtein(Levenshtein { reference, threshold: checked_threshold(threshold)? })
        }
        "embedding" => {
            let EmbeddingConfig { reference, threshold, provider, model } = parse_config(config)?;
            if provider.as_deref().is_some_and(|provider| provider != "builtin") && model.is_none() {
                return Err(invalid_field("model", "is required with a provider"));
            }
            Method::Embedding(Embedding {
                reference,
                threshold: checked_threshold(threshold)?,
                provider,
                model,
            })
        }
        _ => {
            let JudgeConfig { provider, model, criteria, threshold } = parse_config(config)?;
            for (name, text) in [("provider", &provider), ("model", &model), ("criteria", &criteria)] {
                if text.trim().is_empty() {
                    return Err(invalid_field(name, "must not be empty"));
                }
            }
            Method::Judge(Judge { provider, model, criteria, threshold: checked_threshold(threshold)? })
        }
    })
}

fn length(config: &LengthConfig) -> Result<Method, ConfigError> {
    let LengthConfig { min, max } = *config;
    if min.is_none() && max.is_none() {
        return Err(invalid_field("min", "min or max is required"));
    }
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        return Err(invalid_field("min", "must not be above max"));
    }
    Ok(Method::Check(Check::Length { min: min.unwrap_or(0), max: max.unwrap_or(u64::MAX) }))
}

/// The values of `contains` and `not_contains`, and whether all of them must occur.
fn expected_values(config: ContainsConfig) -> Result<(ExpectedText, bool), ConfigError> {
    let ContainsConfig { value, values, mode, case_sensitive } = config;
    let values = match (value, values) {
        (Some(value), None) => vec![value],
        (None, Some(values)) => values,
        (Some(_), Some(_)) => return Err(invalid_field("value", "give value or values, not both")),
        (None, None) => return Err(invalid_field("value", "value or values is required")),
    };
    if values.is_empty() || values.len() > MAX_VALUES {
        return Err(invalid_field("values", format!("must have 1 to {MAX_VALUES} values")));
    }
    let values: Vec<String> = values.into_iter().map(literal_text).collect();
    if values.iter().any(String::is_empty) {
        return Err(invalid_field("value", "must not be empty, because every text contains the empty text"));
    }
    Ok((ExpectedText::new(values, case_sensitive), mode == Mode::All))
}

fn literal_text(value: Literal) -> String {
    match value {
        Literal::Text(text) => text,
        Literal::Number(number) => number.to_string(),
        Literal::Bool(flag) => flag.to_string(),
    }
}

fn checked_threshold(threshold: f64) -> Result<f64, ConfigError> {
    if (0.0..=1.0).contains(&threshold) {
        Ok(threshold)
    } else {
        Err(invalid_field("threshold", "must be between 0 and 1"))
    }
}

fn invalid_field(name: &str, reason: impl Into<String>) -> ConfigError {
    ConfigError::field(format!("config.{name}"), reason)
}

/// Parses a config. The error names the unknown or invalid field.
fn parse_config<T: DeserializeOwned + JsonSchema>(config: Map<String, Value>) -> Result<T, ConfigError> {
    let schema = schemars::schema_for!(T);
    let known = schema.get("properties").and_then(Value::as_object);
    if let Some(name) = config.keys().find(|name| !known.is_some_and(|known| known.contains_key(*name))) {
        let names: Vec<&str> =
            known.into_iter().flatten().map(|(name, _)| name.as_str()).chain(["field"]).collect();
        let reason = format!("unknown field; must be one of {}", names.join(", "));
        return Err(invalid_field(&truncated(name), reason));
    }
    for (name, value) in &config {
        // Each field is parsed alone first, so that the error can name it.
        let single = Map::from_iter([(name.clone(), value.clone())]);
        if let Err(error) = serde_json::from_value::<T>(Value::Object(single))
            && !error.to_string().starts_with("missing field")
        {
            return Err(invalid_field(name, error.to_string()));
        }
    }
    serde_json::from_value(Value::Object(config)).map_err(|error| {
        let text = error.to_string();
        match text.split('`').nth(1).filter(|_| text.starts_with("missing field")) {
            Some(name) => invalid_field(name, "is required"),
            None => ConfigError::field("config", text),
        }
    })
}

fn truncated(text: &str) -> String {
    text.chars().take(64).collect()
}
