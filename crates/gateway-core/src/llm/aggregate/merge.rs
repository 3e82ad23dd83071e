//! Merging of later events into earlier ones.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::AggregateError;

/// Merges a delta. Texts are appended, except identifiers; other values are replaced. Objects are merged member by
/// member, lists by the `index` of their items. Lists without an index are concatenated.
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

/// Replaces members by later ones. A null never replaces another value.
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

/// A limit that no real response reaches. Items are searched and moved, so a malicious server must not send millions.
const MAX_ITEMS: usize = 1024;

/// The item with this index, inserted if it is missing. The list stays sorted by index.
pub(super) fn indexed<T: Default>(list: &mut Vec<(u64, T)>, index: u64) -> Result<&mut T, AggregateError> {
    let at = match list.binary_search_by_key(&index, |(index, _)| *index) {
        Ok(at) => at,
        Err(_) if list.len() == MAX_ITEMS => return Err(AggregateError::TooLarge),
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

/// Removes a member if it is a text. Any other value stays.
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

/// Removes a member if it is an object.
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

/// Removes a member if it is a list.
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

/// Joins two Base64 texts. Each may be padded, and many decoders reject padding inside a text.
pub(super) fn join_base64(old: &mut String, more: &str) {
    // Only the last group of four letters can be padded, so what is before it stays.
    let last = old.len().saturating_sub(4);
    if old.ends_with('=')
        && old.len().is_multiple_of(4)
        && old.is_char_boundary(last)
        && let (Ok(mut bytes), Ok(rest)) = (STANDARD.decode(&old[last..]), STANDARD.decode(more))
    {
        bytes.extend_from_slice(&rest);
        old.truncate(last);
        STANDARD.encode_string(bytes, old);
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
    const IDENTIFIERS: [&str; 6] = ["id", "type", "role", "format", "object", "call_id"];
    if IDENTIFIERS.contains(&key) {
        if !new.is_empty() {
            *old = new;
        }
    } else if key == "name" {
        // Most providers send a name once, some in parts, and some repeat it in every chunk.
        if *old != new {
            old.push_str(&new);
        }
    } else if key == "data" {
        join_base64(old, &new);
    } else {
        old.push_str(&new);
    }
}

pub(super) fn join_lists(old: &mut Vec<Value>, new: Vec<Value>) {
    for item in new {
        let same = position_of(old, &item).and_then(|at| old.get_mut(at));
        match (same, item) {
            (Some(Value::Object(same)), Value::Object(item)) => delta(same, item),
            (_, item) => old.push(item),
        }
    }
}

/// The place of the latest item that this one continues. An item is mostly at its own index, or was the last one.
fn position_of(old: &[Value], item: &Value) -> Option<usize> {
    const SEARCHED: usize = 64;
    let index = item.get("index")?.as_u64()?;
    let latest = (0..old.len()).rev().take(SEARCHED).find(|at| continues(&old[*at], item));
    let at_its_index =
        || usize::try_from(index).ok().filter(|at| old.get(*at).is_some_and(|old| continues(old, item)));
    latest.or_else(at_its_index)
}

/// Whether an item continues an earlier one. Some providers use index 0 for every call, so ids must match too.
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
