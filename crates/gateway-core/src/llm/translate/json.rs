//! Takes typed fields out of JSON objects. A taken field is removed, so that the remaining fields are the ones
//! without a counterpart in the model. A `null` field counts as absent.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Number, Value};

use super::super::chat::{ProviderError, StreamEvent, TranslationError};

type Object = Map<String, Value>;

pub(super) fn take_value(object: &mut Object, key: &str) -> Option<Value> {
    object.shift_remove(key).filter(|value| !value.is_null())
}

pub(super) fn take_string(object: &mut Object, key: &str) -> Result<Option<String>, TranslationError> {
    match take_value(object, key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(TranslationError::malformed(key, "must be a string")),
    }
}

pub(super) fn require_string(object: &mut Object, key: &str) -> Result<String, TranslationError> {
    take_string(object, key)?.ok_or_else(|| TranslationError::malformed(key, "is required"))
}

pub(super) fn take_number(object: &mut Object, key: &str) -> Result<Option<Number>, TranslationError> {
    match take_value(object, key) {
        None => Ok(None),
        Some(Value::Number(number)) => Ok(Some(number)),
        Some(_) => Err(TranslationError::malformed(key, "must be a number")),
    }
}

pub(super) fn take_u64(object: &mut Object, key: &str) -> Result<Option<u64>, TranslationError> {
    match take_value(object, key) {
        None => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(TranslationError::malformed(key, "must be a non-negative integer")),
        },
    }
}

pub(super) fn take_bool(object: &mut Object, key: &str) -> Result<Option<bool>, TranslationError> {
    match take_value(object, key) {
        None => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(value)),
        Some(_) => Err(TranslationError::malformed(key, "must be a boolean")),
    }
}

pub(super) fn take_array(object: &mut Object, key: &str) -> Result<Option<Vec<Value>>, TranslationError> {
    match take_value(object, key) {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(_) => Err(TranslationError::malformed(key, "must be an array")),
    }
}

pub(super) fn take_object(object: &mut Object, key: &str) -> Result<Option<Object>, TranslationError> {
    match take_value(object, key) {
        None => Ok(None),
        Some(Value::Object(inner)) => Ok(Some(inner)),
        Some(_) => Err(TranslationError::malformed(key, "must be an object")),
    }
}

/// Converts an array element to an object.
pub(super) fn into_object(value: Value, field: &str) -> Result<Object, TranslationError> {
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(TranslationError::malformed(field, "must be an object")),
    }
}

pub(super) fn into_strings(list: Vec<Value>, field: &str) -> Result<Vec<String>, TranslationError> {
    let text = |value| match value {
        Value::String(text) => Ok(text),
        _ => Err(TranslationError::malformed(field, "must contain only strings")),
    };
    list.into_iter().map(text).collect()
}

/// Prefixes the field that an error names with the path of its parent.
pub(super) fn at_path<T>(
    path: impl FnOnce() -> String,
    result: Result<T, TranslationError>,
) -> Result<T, TranslationError> {
    result.map_err(|error| match error {
        TranslationError::Malformed { field, message } => {
            let path = path();
            let field = if field.is_empty() { path } else { format!("{path}.{field}") };
            TranslationError::Malformed { field, message }
        }
        unsupported @ TranslationError::Unsupported { .. } => unsupported,
    })
}

/// Inserts a field if there is a value.
pub(super) fn insert_some(object: &mut Object, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object.insert(key.to_owned(), value.into());
    }
}

/// Returns a string field, or `""` if it is absent or of another type.
pub(super) fn str_field<'a>(object: &'a Object, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Parses one event of a stream. An event of unknown structure is skipped. Truncated or invalid JSON means that part of
/// the response is lost, so it becomes an error event.
pub(super) fn parse_event<T: DeserializeOwned>(data: &[u8], out: &mut Vec<StreamEvent>) -> Option<T> {
    match serde_json::from_slice(data) {
        Ok(event) => Some(event),
        Err(error) => {
            if !error.is_data() && data.trim_ascii_start().starts_with(b"{") {
                out.push(StreamEvent::Error(ProviderError {
                    status: 502,
                    code: "provider_error".to_owned(),
                    message: "the provider sent a stream event that is not valid JSON".to_owned(),
                }));
            }
            None
        }
    }
}

/// Deserializes a field leniently: a value of the wrong type counts as absent. Some providers send wrong types.
pub(super) fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}
