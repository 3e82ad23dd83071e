//! How much one transaction changes of what may have very many rows, so that other writers of SQLite wait only briefly:
//! so many rows, and so many bytes, because a large row takes many pages.

use crate::StoreError;
use crate::row::Row;

pub(crate) const MAX_ROWS: usize = 1_000;
const MAX_BYTES: i64 = 4 << 20;

/// Rows, and their bytes as far as they may be many.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    pub rows: usize,
    bytes: i64,
}

impl Slice {
    /// As many of the first rows as one transaction may change, at least one. `sizes` has the `size` of each row.
    pub fn of(sizes: &[Row]) -> Result<Self, StoreError> {
        let sizes = sizes.iter().map(|row| row.get("size")).collect::<Result<Vec<i64>, StoreError>>()?;
        Ok(Self::of_sizes(&sizes))
    }

    fn of_sizes(sizes: &[i64]) -> Self {
        let mut slice = Self::default();
        for size in sizes {
            let more = slice.plus(Self { rows: 1, bytes: *size });
            if slice.rows > 0 && more.is_too_large() {
                break;
            }
            slice = more;
        }
        slice
    }

    pub fn plus(self, other: Self) -> Self {
        Self { rows: self.rows + other.rows, bytes: self.bytes.saturating_add(other.bytes) }
    }

    pub fn is_too_large(self) -> bool {
        self.rows > MAX_ROWS || self.bytes > MAX_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_bounded_by_rows_and_by_bytes() {
        let rows = |sizes: &[i64]| Slice::of_sizes(sizes).rows;
        assert_eq!(rows(&[]), 0);
        assert_eq!(rows(&[0; MAX_ROWS]), MAX_ROWS);
        assert_eq!(rows(&[1; MAX_ROWS + 1]), MAX_ROWS);
        assert_eq!(rows(&[MAX_BYTES - 1, 1, 1]), 2);
        assert_eq!(rows(&[2 * MAX_BYTES, 1]), 1, "a larger one alone");
        assert!(!Slice::of_sizes(&[1; MAX_ROWS]).is_too_large());
        assert!(Slice::of_sizes(&[MAX_BYTES + 1]).is_too_large());
        assert!(Slice::of_sizes(&[1; MAX_ROWS]).plus(Slice::of_sizes(&[0])).is_too_large());
    }
}
