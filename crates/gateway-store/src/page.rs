//! Keyset pages: newest first, resumed behind the last id that was seen. Ids are time-ordered, so no row is
//! skipped or shown twice while others are added.

use gateway_core::time::Timestamp;

/// One page that is asked for.
#[derive(Debug, Clone)]
pub struct Page {
    pub limit: i64,
    /// Rows older than this id.
    pub before: Option<String>,
}

impl Page {
    /// One row more than asked for, to know whether another page follows.
    pub(crate) fn fetch(&self) -> i64 {
        self.limit + 1
    }

    /// The place of a row in a list by time whose rows have no time-ordered id of their own.
    pub(crate) fn in_time(time: Timestamp, name: impl std::fmt::Display) -> String {
        format!("{}.{name}", time.0)
    }

    /// Reads such a place back. One that is none of ours lies before all time, so that nothing follows.
    pub(crate) fn before_in_time(&self) -> (Option<i64>, Option<String>) {
        let Some(before) = &self.before else { return (None, None) };
        let place =
            before.split_once('.').and_then(|(time, name)| Some((time.parse().ok()?, name.to_owned())));
        let (time, name) = place.unwrap_or((i64::MIN, String::new()));
        (Some(time), Some(name))
    }

    /// Cuts the extra row off; answers the cursor of the next page when there is one.
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
