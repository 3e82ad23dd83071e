//! How values of later events join those of earlier ones.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::AggregateError;

/// Joins a delta: texts are appended, except those that name something; other values are replaced by later ones,
/// objects are joined member by member, lists by the `index` of their items or, without one, end to end.
pub(super) fn delta(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match into.get_mut(&key) {
            None => {
                into.insert(key, value);
            }
            Some(old) => join(old, value, &key),
        }
    }
}

/// Takes over every member that says something; a null only fills a gap.
pub(super) fn latest(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match into.get_mut(&key) {
            Some(old) if !value.is_null() => *old = value,
            Some(_) => {}
            None => {
                into.insert(key, value);
            }
        }
    }
}

/// Far more items than any answer has. Items are searched for and moved, so a server that means ill must not be able to
/// send millions of them.
const MOST: usize = 1024;

/// The item of this index, made when it is the first of it. The list stays in the order of the indexes.
pub(super) fn indexed<T: Default>(list: &mut Vec<(u64, T)>, index: u64) -> Result<&mut T, AggregateError> {
    let at = match list.binary_search_by_key(&index, |(index, _)| *index) {
        Ok(at) => at,
        Err(_) if list.len() == MOST => return Err(AggregateError::TooLarge),
        Err(at) => {
            list.insert(at, (index, T::default()));
            at
        }
    };
    Ok(&mut list[at].1)
}

pub(super) fn index_of(item: &Map<String, Value>, key: &str) -> Option<u64> {
    item.get(key).and_then(Value::as_u64)
}

/// Takes a member out if it is a text; anything else stays where it is.
pub(super) fn take_text(object: &mut Map<String, Value>, key: &str) -> Option<String> {
    match object.get_mut(key)? {
        Value::String(text) => {
            let text = std::mem::take(text);
            object.remove(key);
            Some(text)
        }
        _ => None,
    }
}

/// Takes a member out if it is an object.
pub(super) fn take_object(object: &mut Map<String, Value>, key: &str) -> Option<Map<String, Value>> {
    match object.get_mut(key)? {
        Value::Object(inner) => {
            let inner = std::mem::take(inner);
            object.remove(key);
            Some(inner)
        }
        _ => None,
    }
}

/// Takes a member out if it is a list.
pub(super) fn take_list(object: &mut Map<String, Value>, key: &str) -> Option<Vec<Value>> {
    match object.get_mut(key)? {
        Value::Array(list) => {
            let list = std::mem::take(list);
            object.remove(key);
            Some(list)
        }
        _ => None,
    }
}

/// Joins two texts of base64. Each may have been encoded for itself, and padding inside a text is an error to many.
pub(super) fn join_base64(old: &mut String, more: &str) {
    if old.ends_with('=')
        && let (Ok(mut bytes), Ok(rest)) = (STANDARD.decode(&*old), STANDARD.decode(more))
    {
        bytes.extend_from_slice(&rest);
        *old = STANDARD.encode(bytes);
    } else {
        old.push_str(more);
    }
}

fn join(old: &mut Value, new: Value, key: &str) {
    match (old, new) {
        (_, Value::Null) => {}
        (Value::String(old), Value::String(new)) => join_texts(old, new, key),
        (Value::Object(old), Value::Object(new)) => delta(old, new),
        (Value::Array(old), Value::Array(new)) => join_lists(old, new),
        (old, new) => *old = new,
    }
}

fn join_texts(old: &mut String, new: String, key: &str) {
    const NAMES: [&str; 6] = ["id", "type", "role", "format", "object", "call_id"];
    if NAMES.contains(&key) {
        if !new.is_empty() {
            *old = new;
        }
    } else if key == "name" {
        // Most send a name once, some in pieces, and some whole in every chunk.
        if *old != new {
            old.push_str(&new);
        }
    } else if key == "data" {
        join_base64(old, &new);
    } else {
        old.push_str(&new);
    }
}

fn join_lists(old: &mut Vec<Value>, new: Vec<Value>) {
    for item in new {
        let same = old.iter_mut().rev().take(MOST).find(|old| continues(old, &item));
        match (same, item) {
            (Some(Value::Object(same)), Value::Object(item)) => delta(same, item),
            (_, item) => old.push(item),
        }
    }
}

/// Whether a list's item goes on with an earlier one. Some providers number every call 0; their ids tell them apart.
fn continues(old: &Value, item: &Value) -> bool {
    let index = |item: &Value| item.get("index").and_then(Value::as_u64);
    index(item).is_some()
        && index(old) == index(item)
        && match (id_of(old), id_of(item)) {
            (Some(old), Some(new)) => old == new,
            _ => true,
        }
}

fn id_of(item: &Value) -> Option<&str> {
    item.get("id").and_then(Value::as_str).filter(|id| !id.is_empty())
}
