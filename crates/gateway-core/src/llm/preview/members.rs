//! The members of a body or a message that can have or lead to a text.

use std::fmt::Formatter;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json::{object_members, unescape};

const MEMBERS: [&str; 10] =
    ["messages", "input", "contents", "prompt", "message", "content", "inputText", "texts", "role", "parts"];

/// The members of an object that can have or lead to a text, not parsed. Of members with one name it is the last.
#[derive(Default)]
pub(super) struct Members<'a>([Option<&'a str>; MEMBERS.len()]);

impl<'a> Members<'a> {
    pub fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The members of an object that is a part of a parsed text, so that it need not be parsed again. Another value
    /// has none.
    pub fn of_valid(text: &'a str) -> Self {
        let mut found = Self::default();
        for (name, value) in object_members(text.as_bytes()) {
            if let Some(position) = position_of(&text[name]) {
                found.0[position] = Some(&text[value]);
            }
        }
        found
    }

    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0[MEMBERS.iter().position(|known| *known == name)?]
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut found = Members::default();
                while let Some(MemberName(position)) = map.next_key()? {
                    match position {
                        Some(position) => found.0[position] = Some(map.next_value::<&RawValue>()?.get()),
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

/// The position in `MEMBERS` of a name as it is written.
fn position_of(raw: &str) -> Option<usize> {
    let unescaped = if raw.contains('\\') { Some(unescape(raw.as_bytes())?) } else { None };
    let name = unescaped.as_deref().unwrap_or(raw);
    MEMBERS.iter().position(|known| *known == name)
}

/// The position of a name in `MEMBERS`.
struct MemberName(Option<usize>);

impl<'de> Deserialize<'de> for MemberName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl Visitor<'_> for NameVisitor {
            type Value = MemberName;

            fn expecting(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a name")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(MemberName(MEMBERS.iter().position(|known| *known == name)))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = String> {
        let scalar = prop_oneof![
            Just("null".to_owned()),
            any::<f32>().prop_filter("JSON has none", |n| n.is_finite()).prop_map(|n| n.to_string()),
            any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        ];
        scalar.prop_recursive(3, 12, 3, |inner| {
            let name = prop_oneof![
                prop::sample::select(&MEMBERS[..]).prop_map(|name| format!("\"{name}\"")),
                Just(r#""cont\u0065nt""#.to_owned()),
                any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
            ];
            let space = prop::sample::select(&["", " ", "\n\t"][..]);
            let member = (name, space, inner.clone())
                .prop_map(|(name, space, value)| format!("{space}{name}{space}:{space}{value}{space}"));
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
                prop::collection::vec(member, 0..5).prop_map(|members| format!("{{{}}}", members.join(","))),
            ]
        })
    }

    proptest! {
        #[test]
        fn members_of_a_valid_text_are_those_that_a_parser_finds(text in value()) {
            let parsed = Members::parse(&text).unwrap_or_default();
            prop_assert_eq!(Members::of_valid(&text).0, parsed.0, "{}", text);
        }
    }
}
