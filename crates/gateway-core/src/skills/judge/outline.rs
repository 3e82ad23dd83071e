//! Splits a Markdown text into headings, list items, code and prose, as far as the judge needs to distinguish them.

/// A line by its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    Heading(&'a str),
    /// An item of a numbered list.
    Step(&'a str),
    /// An item of a bulleted list.
    Item(&'a str),
    /// A line inside a fence, without the fence itself, or of an indented block.
    Code(&'a str),
    Prose(&'a str),
}

#[derive(Debug, Default)]
pub struct Outline<'a> {
    pub lines: Vec<Line<'a>>,
    /// Fenced blocks that are not empty, and indented blocks.
    pub code_blocks: usize,
    /// Texts between single backticks.
    pub spans: Vec<&'a str>,
    /// Words outside code blocks.
    pub words: usize,
}

impl<'a> Outline<'a> {
    pub fn parse(text: &'a str) -> Self {
        let mut outline = Self::default();
        let mut fence: Option<&str> = None;
        let mut filled = false;
        // After a blank line, text that is indented is code, unless it continues an item of a list.
        let (mut after_blank, mut indented) = (true, false);
        for line in text.lines() {
            let bare = line.trim();
            let is_code = fence.is_none()
                && !bare.is_empty()
                && (line.starts_with("    ") || line.starts_with('\t'))
                && (indented || after_blank && !outline.is_in_list());
            if is_code {
                outline.code_blocks += usize::from(!indented);
                outline.lines.push(Line::Code(line));
                (indented, after_blank) = (true, false);
                continue;
            }
            indented &= bare.is_empty();
            after_blank = bare.is_empty();
            let marker = ["```", "~~~"].into_iter().find(|marker| bare.starts_with(marker));
            match (fence, marker) {
                (None, Some(marker)) => {
                    fence = Some(marker);
                    filled = false;
                }
                (Some(open), Some(marker)) if open == marker => {
                    outline.code_blocks += usize::from(filled);
                    fence = None;
                }
                (Some(_), _) => {
                    filled |= !bare.is_empty();
                    outline.lines.push(Line::Code(line));
                }
                (None, None) if bare.is_empty() => {}
                (None, None) => outline.text_line(bare),
            }
        }
        outline.code_blocks += usize::from(fence.is_some() && filled);
        outline
    }

    fn is_in_list(&self) -> bool {
        matches!(self.lines.last(), Some(Line::Step(_) | Line::Item(_)))
    }

    fn text_line(&mut self, bare: &'a str) {
        let line = classify(bare);
        self.words += bare.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
        self.spans.extend(bare.split('`').skip(1).step_by(2).filter(|span| !span.trim().is_empty()));
        self.lines.push(line);
    }

    pub fn headings(&self) -> impl Iterator<Item = &'a str> {
        self.lines.iter().filter_map(|line| if let Line::Heading(text) = line { Some(*text) } else { None })
    }

    pub fn steps(&self) -> Vec<&'a str> {
        self.lines
            .iter()
            .filter_map(|line| if let Line::Step(text) = line { Some(*text) } else { None })
            .collect()
    }

    pub fn items(&self) -> Vec<&'a str> {
        self.lines
            .iter()
            .filter_map(|line| if let Line::Item(text) = line { Some(*text) } else { None })
            .collect()
    }

    /// All lines except code.
    pub fn texts(&self) -> impl Iterator<Item = &'a str> {
        self.lines.iter().filter_map(|line| match line {
            Line::Heading(text) | Line::Step(text) | Line::Item(text) | Line::Prose(text) => Some(*text),
            Line::Code(_) => None,
        })
    }

    /// The first line of text that contains one of the phrases.
    pub fn first_with(&self, phrases: &[&str]) -> Option<&'a str> {
        self.texts().find(|text| has_any(text, phrases))
    }
}

fn classify(bare: &str) -> Line<'_> {
    if let Some(rest) = bare.strip_prefix('#') {
        return Line::Heading(rest.trim_start_matches('#').trim());
    }
    if let Some(rest) =
        bare.strip_prefix("- ").or_else(|| bare.strip_prefix("* ")).or_else(|| bare.strip_prefix("+ "))
    {
        return Line::Item(rest);
    }
    let digits = bare.bytes().take_while(u8::is_ascii_digit).count();
    if (1..=3).contains(&digits)
        && let Some(rest) = bare[digits..].strip_prefix(". ").or_else(|| bare[digits..].strip_prefix(") "))
    {
        return Line::Step(rest);
    }
    Line::Prose(bare)
}

/// Whether the text contains one of the phrases, as whole words and ignoring case.
pub fn has_any(text: &str, phrases: &[&str]) -> bool {
    let text = text.to_lowercase();
    phrases.iter().any(|phrase| has_phrase(&text, phrase))
}

/// Like `has_any`, for one phrase and a text that is already in lower case.
pub fn has_phrase(text: &str, phrase: &str) -> bool {
    let is_boundary = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    let starts_with_word = phrase.chars().next().is_some_and(char::is_alphanumeric);
    let ends_with_word = phrase.chars().next_back().is_some_and(char::is_alphanumeric);
    text.match_indices(phrase).any(|(at, found)| {
        (!starts_with_word || is_boundary(text[..at].chars().next_back()))
            && (!ends_with_word || is_boundary(text[at + found.len()..].chars().next()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_steps_items_and_code_are_distinguished() {
        let text = "# Title\n\nSome `code` here.\n1. One\n2) Two\n- Item\n```sh\n# no heading\n1. no step\n```\n~~~\n\n~~~\n";
        let outline = Outline::parse(text);
        assert_eq!(outline.headings().collect::<Vec<_>>(), ["Title"]);
        assert_eq!((outline.steps(), outline.items()), (vec!["One", "Two"], vec!["Item"]));
        assert_eq!((outline.code_blocks, outline.spans.as_slice()), (1, &["code"][..]));
        assert_eq!(outline.words, 9);
    }

    #[test]
    fn an_indented_block_is_code_outside_of_lists() {
        let text = "Run it:\n\n    refund --full\n\n    echo done\n\nThen:\n    goes on\n1. Step\n\n    of the step\n";
        let outline = Outline::parse(text);
        assert_eq!(outline.code_blocks, 1);
        assert_eq!(
            outline.texts().collect::<Vec<_>>(),
            ["Run it:", "Then:", "goes on", "Step", "of the step"]
        );
    }

    #[test]
    fn a_phrase_is_found_as_whole_words_only() {
        assert!(has_any("Use when asked", &["use when"]));
        assert!(!has_any("Because whenever", &["use when", "use"]));
        assert!(has_any("run .env now", &[".env"]));
    }
}
