//! A usage report: the members of one JSON object, borrowed from its text. A report has few members, so a key is found
//! by comparison, which needs neither hashes nor copies of the keys.

use std::borrow::Cow;
use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// The members of a report, in order. A key may occur more than once; its last value counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::llm) struct UsageReport<'a>(Vec<(Text<'a>, Item<'a>)>);

/// The values that reports are read for. Every other one only shows that its key is there.
#[derive(Debug, Clone, PartialEq)]
enum Item<'a> {
    Count(u64),
    Float(f64),
    Text(Text<'a>),
    Object(UsageReport<'a>),
    /// The objects of an array.
    List(Vec<UsageReport<'a>>),
    Other,
}

/// A key or a text. It is borrowed unless it has escapes.
#[derive(Debug, Clone, PartialEq)]
struct Text<'a>(Cow<'a, str>);

impl<'a> UsageReport<'a> {
    /// Reads the JSON text of an object. None for any other value and for invalid JSON.
    pub(super) fn parse(raw: &'a str) -> Option<Self> {
        serde_json::from_str(raw).ok()
    }

    pub(in crate::llm) fn from_map(map: &'a Map<String, Value>) -> Self {
        // A parsed object cannot fail: every kind of value is accepted.
        Self::deserialize(map).unwrap_or_default()
    }

    /// The last value of a key. The number of lookups per report is constant, so all of them together are linear in
    /// the number of members, however many there are.
    fn get(&self, key: &str) -> Option<&Item<'a>> {
        self.0.iter().rev().find(|(name, _)| *name.0 == *key).map(|(_, item)| item)
    }

    pub(super) fn has_any(&self, keys: &[&str]) -> bool {
        self.0.iter().any(|(name, _)| keys.contains(&&*name.0))
    }

    /// A count. Some providers send it as a float (`12.0`), some as null.
    pub(super) fn count(&self, key: &str) -> Option<u64> {
        match *self.get(key)? {
            Item::Count(count) => Some(count),
            Item::Float(float) if float >= 0.0 => format!("{float:.0}").parse().ok(),
            _ => None,
        }
    }

    pub(super) fn first_count(&self, keys: &[&str]) -> Option<u64> {
        keys.iter().find_map(|key| self.count(key))
    }

    /// A count inside one of several nested objects.
    pub(super) fn nested_count(&self, objects: &[&str], key: &str) -> Option<u64> {
        objects.iter().find_map(|object| self.object(object)?.count(key))
    }

    pub(super) fn object(&self, key: &str) -> Option<&UsageReport<'a>> {
        match self.get(key)? {
            Item::Object(report) => Some(report),
            _ => None,
        }
    }

    /// The objects of an array. Its other items are left out.
    pub(super) fn list(&self, key: &str) -> &[UsageReport<'a>] {
        match self.get(key) {
            Some(Item::List(reports)) => reports,
            _ => &[],
        }
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Item::Text(text) => Some(&text.0),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for UsageReport<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReportVisitor)
    }
}

struct ReportVisitor;

impl<'de> Visitor<'de> for ReportVisitor {
    type Value = UsageReport<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Some(first) = map.next_entry()? else { return Ok(UsageReport::default()) };
        // Most reports fit, so that their members are allocated once.
        let mut members = Vec::with_capacity(8);
        members.push(first);
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(UsageReport(members))
    }
}

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

/// Values without a use are parsed as well, not skipped: skipping checks neither numbers, surrogates nor the depth, and
/// a report with any error is not used.
impl<'de> Deserialize<'de> for Item<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Item::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Item::Other)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Item::Count(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(u64::try_from(number).map_or(Item::Other, Item::Count))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Item::Float(number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Item::Text(Text(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Item::Text(Text(Cow::Owned(text.to_owned()))))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        ReportVisitor.visit_map(map).map(Item::Object)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut reports = Vec::new();
        while let Some(item) = items.next_element()? {
            if let Item::Object(report) = item {
                reports.push(report);
            }
        }
        Ok(Item::List(reports))
    }
}
