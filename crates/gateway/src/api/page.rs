//! Pagination: `limit` and an opaque `cursor` in the request, `next_cursor` in the response.

use std::num::IntErrorKind;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use gateway_store::page::{Page, Paged};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::problem::{ApiResult, Problem};

pub const DEFAULT_LIMIT: i64 = 50;
pub const MAX_LIMIT: i64 = 200;

/// The query parameters of every list.
#[derive(Deserialize, JsonSchema)]
pub struct PageParams {
    /// Maximum number of items. Values above 200 are reduced to 200.
    #[serde(default, deserialize_with = "deserialize_limit")]
    #[schemars(range(min = 1), extend("default" = 50))]
    limit: Option<i64>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl PageParams {
    /// A page of a list whose cursors are texts, such as UUIDs.
    pub fn page(&self) -> ApiResult<Page> {
        let before = self.cursor.as_deref().map(decode_cursor).transpose()?;
        Ok(Page { limit: self.checked_limit()?, before })
    }

    /// A page of a list whose cursors are integers.
    pub fn numeric_page(&self) -> ApiResult<Page> {
        let before = self.cursor.as_deref().map(decode_cursor).transpose()?;
        if before.as_ref().is_some_and(|before| before.parse::<i64>().is_err()) {
            return Err(invalid_cursor());
        }
        Ok(Page { limit: self.checked_limit()?, before })
    }

    fn checked_limit(&self) -> ApiResult<i64> {
        match self.limit {
            None => Ok(DEFAULT_LIMIT),
            Some(limit) if limit >= 1 => Ok(limit.min(MAX_LIMIT)),
            Some(_) => Err(Problem::field("limit", "must be a whole number of at least 1")),
        }
    }
}

/// Splits a page of rows into the views of the rows and the cursor of the next page.
pub fn into_views<R, V: From<R>>(paged: Paged<R>) -> (Vec<V>, Option<String>) {
    let next_cursor = encode_cursor(paged.next.as_deref());
    (paged.rows.into_iter().map(Into::into).collect(), next_cursor)
}

/// The same for views that can fail to be made.
pub fn try_into_views<R, V: TryFrom<R, Error = Problem>>(
    paged: Paged<R>,
) -> ApiResult<(Vec<V>, Option<String>)> {
    let next_cursor = encode_cursor(paged.next.as_deref());
    Ok((paged.rows.into_iter().map(TryInto::try_into).collect::<ApiResult<_>>()?, next_cursor))
}

pub fn encode_cursor(next: Option<&str>) -> Option<String> {
    next.map(|id| BASE64.encode(id))
}

/// Integers that overflow i64 are clamped to the maximum.
fn deserialize_limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| match text.parse::<i64>() {
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(i64::MAX),
        parsed => parsed.map_err(|_| D::Error::custom("must be a whole number of at least 1")),
    })
    .transpose()
}

fn decode_cursor(cursor: &str) -> ApiResult<String> {
    let bytes = BASE64.decode(cursor).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|text| !text.contains('\0'));
    text.ok_or_else(invalid_cursor)
}

fn invalid_cursor() -> Problem {
    Problem::field("cursor", "is not valid for this list; use the next_cursor of the previous page")
}
