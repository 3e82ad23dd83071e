//! The members of a JSON object in one pass. Nothing is kept or allocated for members that nobody asks for, because a
//! body may have millions of them.

use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Takes the members of an object, in their order.
pub(crate) trait TakeMembers<'b> {
    /// Returns whether the value is needed.
    fn name(&mut self, name: &str) -> bool;
    /// The value of the last name, as it is written.
    fn value(&mut self, value: &'b RawValue);
}

/// None: the body is not a JSON object.
pub(crate) fn visit_members<'b>(body: &'b [u8], members: &mut impl TakeMembers<'b>) -> Option<()> {
    let mut json = serde_json::Deserializer::from_slice(body);
    json.deserialize_map(ObjectVisitor(members)).ok()?;
    json.end().ok()
}

/// Whether the body is a JSON object.
pub(crate) fn is_object(body: &[u8]) -> bool {
    struct Unused;
    impl TakeMembers<'_> for Unused {
        fn name(&mut self, _name: &str) -> bool {
            false
        }

        fn value(&mut self, _value: &RawValue) {}
    }
    visit_members(body, &mut Unused).is_some()
}

struct ObjectVisitor<'m, M>(&'m mut M);

impl<'de, M: TakeMembers<'de>> Visitor<'de> for ObjectVisitor<'_, M> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(is_needed) = map.next_key_seed(NameVisitor(&mut *self.0))? {
            // Read as raw text in any case, because that checks it.
            let value: &'de RawValue = map.next_value()?;
            if is_needed {
                self.0.value(value);
            }
        }
        Ok(())
    }
}

struct NameVisitor<'m, M>(&'m mut M);

impl<'de, M: TakeMembers<'de>> DeserializeSeed<'de> for NameVisitor<'_, M> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, M: TakeMembers<'de>> Visitor<'de> for NameVisitor<'_, M> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(self.0.name(name))
    }
}

/// Some fields of a body, as they are written.
#[derive(Debug, Default)]
pub struct BodyFields<'b> {
    /// Where the values of the names are.
    places: HashMap<String, usize>,
    values: Vec<Option<&'b RawValue>>,
    /// The place of the member that is being read.
    current: usize,
}

impl<'b> BodyFields<'b> {
    /// Reads the fields with these names. Of several with one name, the last counts. A body that is not an object has
    /// no fields.
    pub fn read<'n>(body: &'b [u8], names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut fields = Self::default();
        for (place, name) in names.into_iter().enumerate() {
            fields.places.insert(name.to_owned(), place);
            fields.values.push(None);
        }
        if !fields.places.is_empty() && visit_members(body, &mut fields).is_none() {
            return Self::default();
        }
        fields
    }

    pub fn get(&self, name: &str) -> Option<&'b RawValue> {
        *self.values.get(*self.places.get(name)?)?
    }
}

impl<'b> TakeMembers<'b> for BodyFields<'b> {
    fn name(&mut self, name: &str) -> bool {
        let place = self.places.get(name);
        if let Some(place) = place {
            self.current = *place;
        }
        place.is_some()
    }

    fn value(&mut self, value: &'b RawValue) {
        if let Some(slot) = self.values.get_mut(self.current) {
            *slot = Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::BodyEdits;
    use super::*;

    const NAMES: [&str; 3] = ["model", "a", ""];

    /// The fields as serde reads them.
    fn expected(body: &[u8], name: &str) -> Option<String> {
        let members: HashMap<String, &RawValue> = serde_json::from_slice(body).ok()?;
        Some(members.get(name)?.get().to_owned())
    }

    fn check(body: &[u8]) {
        let fields = BodyFields::read(body, NAMES);
        for name in NAMES {
            let read = fields.get(name).map(|value| value.get().to_owned());
            assert_eq!(read, expected(body, name), "{}", String::from_utf8_lossy(body));
        }
        assert!(fields.get("other").is_none());
    }

    #[test]
    fn the_fields_are_those_of_the_whole_object() {
        for body in [
            &br#" { "a" : [1, "x"] ,"model":"m" } "#[..],
            br#"{"a":1,"b":2,"a":{"a":3}}"#,
            br#"{"\u0061":1,"":null,"b":[{"model":1}]}"#,
            br#"{"a":1}x"#,
            br#"{"a":1,"b":"\q"}"#,
            br#"{"a":1,"\ud800":2}"#,
            br#"{"a":1,"b":01}"#,
            br#"{"a":1,}"#,
            br#"{"a":1"#,
            b"{\"a\":1,\"b\":\"\xff\"}",
            b"{\"a\":1,\"\xff\":2}",
            b"{}",
            b"[]",
            b"null",
            b"",
        ] {
            check(body);
        }
        assert!(BodyFields::read(br#"{"a":1}"#, []).get("a").is_none());
    }

    #[test]
    fn members_of_the_same_name_and_the_order_stay() {
        let (params, defaults) = (json!({"set": 1, "both": 2}), json!({"both": 3, "kept": 4, "new": "\n"}));
        let edits = BodyEdits::new(params.as_object(), defaults.as_object());
        let body = br#" {"x":1, "set":0,"\u0078":[2, 3],"kept":null,"s\u0065t":5,"a\"\/\n":6,"kept":7} "#;
        let edited = edits.apply(body).unwrap();
        assert_eq!(
            String::from_utf8(edited.clone()).unwrap(),
            r#"{"x":1,"x":[2, 3],"kept":null,"a\"/\n":6,"kept":7,"new":"\n","set":1,"both":2}"#
        );
        assert!(edited.len() <= edits.max_length(body.len()));
        let all = edits.apply(b"{}").unwrap();
        assert_eq!(all, br#"{"kept":4,"new":"\n","set":1,"both":2}"#);
        assert!(all.len() <= edits.max_length(2));
    }

    proptest! {
        #[test]
        fn any_text_is_read_like_by_serde(
            body in r#"\{("(model|a|\\u0061|b)?":([0-9]|"x"|\[1\]|\{"a":2\}|tru)?,?){0,5}\}? ?"#,
        ) {
            check(body.as_bytes());
        }

        #[test]
        fn an_edited_body_is_not_longer_than_reserved(names in prop::collection::vec(any::<String>(), 0..6), set in any::<String>()) {
            let body: serde_json::Map<_, _> = names.into_iter().map(|name| (name, json!(1))).collect();
            let body = serde_json::to_vec_pretty(&body).unwrap();
            let edits = BodyEdits::new(json!({set: [1, "x"]}).as_object(), json!({"a": 1}).as_object());
            prop_assert!(edits.apply(&body).unwrap().len() <= edits.max_length(body.len()));
        }
    }
}
