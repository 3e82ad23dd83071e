//! Pages of lists. The cursor is the position and the length of the list that it belongs to, and says nothing about an
//! era or a node: a list that has changed begins again.

/// Entries of a page.
pub const PAGE_SIZE: usize = 200;
/// Bytes of a page. One entry is on it however large it is, so that the next page comes nearer.
pub const PAGE_BYTES: usize = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(pub usize);

impl Cursor {
    /// `None` if the text is no cursor.
    pub fn parse(text: &str) -> Option<Self> {
        text.strip_prefix("p").and_then(|number| number.parse().ok()).map(Self)
    }

    pub fn text(self) -> String {
        format!("p{}", self.0)
    }
}

/// The entries from a position on, and the cursor of the next page. `bytes` is the size of an entry.
pub fn page<T>(mut entries: Vec<T>, from: Cursor, bytes: impl Fn(&T) -> usize) -> (Vec<T>, Option<String>) {
    let from = from.0.min(entries.len());
    let mut rest = entries.split_off(from);
    let mut sum: usize = 0;
    let fits = |entry: &&T| {
        sum = sum.saturating_add(bytes(entry));
        sum <= PAGE_BYTES
    };
    let shown = rest.iter().take(PAGE_SIZE).take_while(fits).count().max(1);
    let has_more = rest.len() > shown;
    rest.truncate(shown);
    (rest, has_more.then(|| Cursor(from + shown).text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_and_the_last_one_has_no_cursor() {
        let all: Vec<usize> = (0..450).collect();
        let (mut seen, mut at) = (Vec::new(), Cursor(0));
        loop {
            let (shown, next) = page(all.clone(), at, |_| 1);
            seen.extend(shown);
            let Some(next) = next else { break };
            at = Cursor::parse(&next).unwrap();
        }
        assert_eq!(seen, all);
        assert_eq!(page(all, Cursor(9_999), |_| 1), (vec![], None));
        assert!(Cursor::parse("x").is_none() && Cursor::parse("p-1").is_none());
    }

    #[test]
    fn a_page_ends_before_it_is_too_large_but_has_one_entry() {
        let sizes = vec![PAGE_BYTES / 2, PAGE_BYTES / 2, 1, PAGE_BYTES + 1, 1];
        let pages = [(0, 2, Some("p2")), (2, 1, Some("p3")), (3, 1, Some("p4")), (4, 1, None)];
        for (from, shown, next) in pages {
            let (entries, cursor) = page(sizes.clone(), Cursor(from), |size| *size);
            assert_eq!((entries.len(), cursor.as_deref()), (shown, next), "from {from}");
        }
    }
}
