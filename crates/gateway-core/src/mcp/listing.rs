//! Pages of lists. The cursor is the position and the length of the list that it belongs to, and says nothing about an
//! era or a node: a list that has changed begins again.

/// Entries of a page.
pub const PAGE_SIZE: usize = 200;

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

/// The entries from a position on, and the cursor of the next page.
pub fn page<T>(mut entries: Vec<T>, from: Cursor) -> (Vec<T>, Option<String>) {
    let from = from.0.min(entries.len());
    let rest = entries.split_off(from);
    let has_more = rest.len() > PAGE_SIZE;
    let shown = rest.into_iter().take(PAGE_SIZE).collect();
    (shown, has_more.then(|| Cursor(from + PAGE_SIZE).text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_and_the_last_one_has_no_cursor() {
        let all: Vec<usize> = (0..450).collect();
        let (mut seen, mut at) = (Vec::new(), Cursor(0));
        loop {
            let (shown, next) = page(all.clone(), at);
            seen.extend(shown);
            let Some(next) = next else { break };
            at = Cursor::parse(&next).unwrap();
        }
        assert_eq!(seen, all);
        assert_eq!(page(all, Cursor(9_999)), (vec![], None));
        assert!(Cursor::parse("x").is_none() && Cursor::parse("p-1").is_none());
    }
}
