//! References to prompts: `namespace/slug`, optionally followed by `@` and a version number or a label.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use super::check_name;

/// The labels that one prompt can have.
pub const MAX_LABELS: i64 = 20;

/// Means the latest version wherever a version can be given, so that no label can have this name.
const LATEST: &str = "latest";
const EXPECTED: &str = "must be a version number of at least 1, or a label such as production";

/// Which version of a prompt is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum VersionSelector {
    #[default]
    Latest,
    Number(i64),
    /// The version that the label points to.
    Label(String),
}

impl FromStr for VersionSelector {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if text == LATEST {
            return Ok(Self::Latest);
        }
        if let Some(version) = parse_version(text) {
            return Ok(Self::Number(version));
        }
        check_label(text).map_err(|_| EXPECTED)?;
        Ok(Self::Label(text.to_owned()))
    }
}

/// A number, or a text with a number or a label.
impl<'de> Deserialize<'de> for VersionSelector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SelectorVisitor;

        impl Visitor<'_> for SelectorVisitor {
            type Value = VersionSelector;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a version number or a label")
            }

            fn visit_i64<E: Error>(self, version: i64) -> Result<Self::Value, E> {
                if version >= 1 { Ok(VersionSelector::Number(version)) } else { Err(E::custom(EXPECTED)) }
            }

            fn visit_u64<E: Error>(self, version: u64) -> Result<Self::Value, E> {
                i64::try_from(version)
                    .map_err(|_| E::custom(EXPECTED))
                    .and_then(|version| self.visit_i64(version))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(SelectorVisitor)
    }
}

impl JsonSchema for VersionSelector {
    fn schema_name() -> Cow<'static, str> {
        "PromptVersionSelector".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["integer", "string"]})
    }
}

/// Labels begin with a letter and do not look like a version: `^[a-z][a-z0-9._-]{0,63}$`, but neither `latest` nor `v`
/// with a number.
pub fn check_label(label: &str) -> Result<(), &'static str> {
    if check_name(label).is_err() || !label.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(
            "must be 1 to 64 lowercase letters, digits, dots, underscores or hyphens, and begin with a letter",
        );
    }
    if label == LATEST {
        return Err("must not be latest, which is always the latest version");
    }
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if label.strip_prefix('v').is_some_and(is_number) {
        return Err(
            "must not look like a version number; name what the version is used for, such as production",
        );
    }
    Ok(())
}

/// Parses a version: plain digits, at least 1.
pub fn parse_version(text: &str) -> Option<i64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|version| digits && *version >= 1)
}

/// A reference to a prompt: `namespace/slug`, optionally followed by `@version` or `@label`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PromptReference {
    pub namespace: String,
    pub slug: String,
    pub version: VersionSelector,
}

impl PromptReference {
    /// What is missing if there is no such prompt, for an error message.
    pub fn missing(&self) -> String {
        match &self.version {
            VersionSelector::Latest => "there is no such prompt in this organization".into(),
            VersionSelector::Number(version) => {
                format!("there is no such prompt in this organization, or it has no version {version}")
            }
            VersionSelector::Label(label) => {
                format!("there is no such prompt in this organization, or it has no label {label}")
            }
        }
    }
}

impl FromStr for PromptReference {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "must be namespace/slug, namespace/slug@version or namespace/slug@label, such as support/greeting@production";
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, version.parse().map_err(|_| EXPECTED)?),
            None => (text, VersionSelector::Latest),
        };
        let (namespace, slug) = name.split_once('/').ok_or(EXPECTED)?;
        check_name(namespace).and_then(|()| check_name(slug)).map_err(|_| EXPECTED)?;
        Ok(Self { namespace: namespace.into(), slug: slug.into(), version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_has_a_version_or_a_label() {
        let reference =
            |version| PromptReference { namespace: "support".into(), slug: "greeting".into(), version };
        for (text, version) in [
            ("support/greeting", VersionSelector::Latest),
            ("support/greeting@latest", VersionSelector::Latest),
            ("support/greeting@12", VersionSelector::Number(12)),
            ("support/greeting@production", VersionSelector::Label("production".into())),
            ("support/greeting@b2.eu-west_1", VersionSelector::Label("b2.eu-west_1".into())),
        ] {
            assert_eq!(text.parse(), Ok(reference(version)), "{text}");
        }
        for bad in [
            "",
            "support",
            "support/",
            "/x",
            "a/b/c",
            "a/b@",
            "a/b@0",
            "a/b@-1",
            "a/b@+1",
            "a/b@1x",
            "A/b",
            "a/b@1@2",
            "a/b@v1",
            "a/b@V1",
            "a/b@Production",
            "a/b@-x",
            "a/b@99999999999999999999",
        ] {
            assert!(bad.parse::<PromptReference>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_label_does_not_look_like_a_version() {
        for good in ["production", "p", "v", "vip", "v1-eu", "a.b_c-d", &"a".repeat(64)] {
            assert!(check_label(good).is_ok(), "{good}");
        }
        for bad in ["", "1", "12", "1a", "v1", "v12", "v1.2", "latest", "Production", "a b", "a@b", "-a", "ü"]
        {
            assert!(check_label(bad).is_err(), "{bad}");
        }
        assert!(check_label(&"a".repeat(65)).is_err());
        // Whatever is a label is not a number, and the other way round.
        for text in ["production", "v", "3", "latest"] {
            let selected: VersionSelector = text.parse().unwrap();
            assert_eq!(matches!(selected, VersionSelector::Label(_)), check_label(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_version_in_json_is_a_number_or_a_text() {
        let read = |json: &str| serde_json::from_str::<VersionSelector>(json);
        assert_eq!(read("3").unwrap(), VersionSelector::Number(3));
        assert_eq!(read("\"3\"").unwrap(), VersionSelector::Number(3));
        assert_eq!(read("\"latest\"").unwrap(), VersionSelector::Latest);
        assert_eq!(read("\"staging\"").unwrap(), VersionSelector::Label("staging".into()));
        for bad in ["0", "-1", "1.5", "\"\"", "\"0\"", "\"v2\"", "true", "[]", "{}", "99999999999999999999"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
