//! Keyset pagination: newest first, resumed after the last id of the previous page. Ids are ordered by time, so that no
//! row is skipped or repeated while others are added.

use gateway_core::time::Timestamp;

use crate::StoreError;
use crate::row::Row;

/// The size of a page of rows that may be large.
const MAX_BYTES: i64 = 8 << 20;

/// A requested page.
#[derive(Debug, Clone)]
pub struct Page {
    pub limit: i64,
    /// Return only rows older than this id.
    pub before: Option<String>,
}

impl Page {
    /// One row more than requested, to know whether another page follows.
    pub(crate) fn fetch(&self) -> i64 {
        self.limit + 1
    }

    /// The page with fewer rows if they are large, but with one at least. `sizes`: the `size` of each row, in their order.
    pub(crate) fn bounded(&self, sizes: &[Row]) -> Result<Self, StoreError> {
        self.bounded_within(sizes, |_| Ok(()))
    }

    /// The same if there is room for the rows: `take_room` is given their bytes before they are read.
    pub(crate) fn bounded_within<E: From<StoreError>>(
        &self,
        sizes: &[Row],
        take_room: impl FnOnce(i64) -> Result<(), E>,
    ) -> Result<Self, E> {
        let (mut limit, mut bytes) = (0, 0_i64);
        for row in sizes {
            let with_this = bytes.saturating_add(row.get("size")?);
            if limit > 0 && with_this > MAX_BYTES {
                break;
            }
            (limit, bytes) = (limit + 1, with_this);
        }
        take_room(bytes)?;
        Ok(Self { limit, before: self.before.clone() })
    }

    /// The cursor as a number, for lists with numeric ids.
    pub(crate) fn number_cursor(&self) -> Option<i64> {
        self.before.as_deref().and_then(|before| before.parse().ok())
    }

    /// The cursor of a row whose id is not ordered by time: its time and its id or name.
    pub(crate) fn encode_time_cursor(time: Timestamp, name: impl std::fmt::Display) -> String {
        format!("{}.{name}", time.0)
    }

    /// Decodes such a cursor. An invalid cursor precedes all rows, so that the page is empty.
    pub(crate) fn time_cursor(&self) -> (Option<i64>, Option<String>) {
        let Some(before) = &self.before else { return (None, None) };
        let decoded =
            before.split_once('.').and_then(|(time, name)| Some((time.parse().ok()?, name.to_owned())));
        let (time, name) = decoded.unwrap_or((i64::MIN, String::new()));
        (Some(time), Some(name))
    }

    /// Removes the extra row and sets the cursor of the next page, if there is one.
    pub(crate) fn cut<T>(&self, mut rows: Vec<T>, id: impl Fn(&T) -> String) -> Paged<T> {
        let more = i64::try_from(rows.len()).is_ok_and(|found| found > self.limit);
        if more {
            rows.truncate(usize::try_from(self.limit).unwrap_or(usize::MAX));
        }
        let next = if more { rows.last().map(id) } else { None };
        Paged { rows, next }
    }
}

#[derive(Debug)]
pub struct Paged<T> {
    pub rows: Vec<T>,
    pub next: Option<String>,
}
