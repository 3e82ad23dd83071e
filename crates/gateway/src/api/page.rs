//! Lists in pages: `limit` and an opaque `cursor` in, `next_cursor` out.

use std::num::IntErrorKind;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use gateway_store::page::Page;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::problem::{Outcome, Problem};

pub const DEFAULT: i64 = 50;
pub const MAXIMUM: i64 = 200;

/// The two parameters that every list takes.
#[derive(Deserialize, JsonSchema)]
pub struct PageParams {
    /// How many at most; above 200 it is cut to 200.
    #[serde(default, deserialize_with = "saturating")]
    #[schemars(range(min = 1), extend("default" = 50))]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

impl PageParams {
    /// For lists that take other parameters besides.
    pub fn of(limit: Option<i64>, cursor: Option<String>) -> Self {
        Self { limit, cursor }
    }

    /// A page of a list whose cursors are numbers.
    pub fn numbered(&self) -> Outcome<Page> {
        numbered(self.limit, self.cursor.as_deref())
    }

    pub fn page(&self) -> Outcome<Page> {
        Ok(Page {
            limit: checked_limit(self.limit)?,
            before: self.cursor.as_deref().map(decode).transpose()?,
        })
    }
}

/// A page of a list whose cursors are numbers.
pub fn numbered(limit: Option<i64>, cursor: Option<&str>) -> Outcome<Page> {
    let before = cursor.map(decode).transpose()?;
    if before.as_ref().is_some_and(|before| before.parse::<i64>().is_err()) {
        return Err(unknown_cursor());
    }
    Ok(Page { limit: checked_limit(limit)?, before })
}

/// The asked-for limit, cut to the maximum.
pub fn checked_limit(limit: Option<i64>) -> Outcome<i64> {
    match limit {
        None => Ok(DEFAULT),
        Some(limit) if limit >= 1 => Ok(limit.min(MAXIMUM)),
        Some(_) => Err(Problem::field("limit", "must be a whole number of at least 1")),
    }
}

/// A whole number too large for us is above the maximum, and no worse than any other that is.
pub(super) fn saturating<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| match text.parse::<i64>() {
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(i64::MAX),
        parsed => parsed.map_err(|_| D::Error::custom("must be a whole number of at least 1")),
    })
    .transpose()
}

pub fn encode(next: Option<&str>) -> Option<String> {
    next.map(|id| BASE64.encode(id))
}

fn decode(cursor: &str) -> Outcome<String> {
    let bytes = BASE64.decode(cursor).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|text| !text.contains('\0'));
    text.ok_or_else(unknown_cursor)
}

fn unknown_cursor() -> Problem {
    Problem::field("cursor", "is not one that this list gave out")
}
