//! Splits the file into sentences and commands and normalizes them for matching: lower case, look-alike letters
//! replaced, invisible characters removed, lines of a paragraph joined.

use super::hidden::is_invisible;

/// Longer passages are split, because the cost of matching grows faster than the length.
const MAX_PASSAGE_BYTES: usize = 2_000;
const OVERLAP_BYTES: usize = 200;

#[derive(Debug, PartialEq, Eq)]
pub struct Passage {
    pub text: String,
    /// A command or another line of code.
    pub code: bool,
}

pub fn passages(raw: &str) -> Vec<Passage> {
    let mut found = Vec::new();
    let mut paragraph = String::new();
    let mut command = String::new();
    let mut fenced = false;
    for line in raw.lines() {
        let bare = line.trim();
        if bare.starts_with("```") || bare.starts_with("~~~") {
            end_paragraph(&mut paragraph, &mut found);
            fenced = !fenced;
            continue;
        }
        if fenced {
            command.push_str(bare.trim_end_matches('\\'));
            command.push(' ');
            if !bare.ends_with('\\') {
                push(&command, true, &mut found);
                command.clear();
            }
            continue;
        }
        let starts_anew = bare.starts_with(['#', '-', '*', '+', '>', '|'])
            || bare.starts_with(|c: char| c.is_ascii_digit());
        if bare.is_empty() || starts_anew {
            end_paragraph(&mut paragraph, &mut found);
        }
        paragraph.push_str(bare);
        paragraph.push(' ');
    }
    push(&command, true, &mut found);
    end_paragraph(&mut paragraph, &mut found);
    found
}

fn end_paragraph(paragraph: &mut String, found: &mut Vec<Passage>) {
    let mut sentence = String::new();
    let mut letters = paragraph.chars().peekable();
    while let Some(c) = letters.next() {
        sentence.push(c);
        let ends = matches!(c, '.' | '!' | '?') && letters.peek().is_none_or(|next| next.is_whitespace());
        if ends || matches!(c, '。' | '！' | '？') {
            push(&sentence, false, found);
            sentence.clear();
        }
    }
    push(&sentence, false, found);
    paragraph.clear();
}

fn push(text: &str, code: bool, found: &mut Vec<Passage>) {
    let text = normalize(text);
    let mut rest = text.as_str();
    // The pieces overlap, so that a phrase at a boundary is still found.
    while rest.len() > MAX_PASSAGE_BYTES {
        let end = rest.floor_char_boundary(MAX_PASSAGE_BYTES);
        found.push(Passage { text: rest[..end].to_owned(), code });
        rest = &rest[rest.floor_char_boundary(MAX_PASSAGE_BYTES - OVERLAP_BYTES)..];
    }
    if !rest.is_empty() {
        found.push(Passage { text: rest.to_owned(), code });
    }
}

/// Also removes `*`: emphasis in the middle of a word would hide it from the search, but not from a reader.
fn normalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !is_invisible(*c) && *c != '*') {
        let c = if c.is_whitespace() { ' ' } else { latin_look_alike(c) };
        if c == ' ' && out.ends_with(' ') {
            continue;
        }
        out.extend(c.to_lowercase());
    }
    out.trim().to_owned()
}

/// The Latin letter that a character looks like, or the character itself.
pub fn latin_look_alike(c: char) -> char {
    const PAIRS: [(&str, &str); 2] = [
        ("асеорхуікјѕԁһԛАВЕКМНОРСТХІЅЈ", "aceopxyikjsdhqABEKMHOPCTXISJ"),
        ("αοερτυνικΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "aoeptuvikABEZHIKMNOPTYX"),
    ];
    if let fullwidth @ '\u{ff01}'..='\u{ff5e}' = c {
        return char::from_u32(u32::from(fullwidth) - 0xfee0).unwrap_or(c);
    }
    for (from, to) in PAIRS {
        if let Some(at) = from.chars().position(|known| known == c) {
            return to.chars().nth(at).unwrap_or(c);
        }
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_run_over_lines_and_commands_over_backslashes() {
        let raw = "One two\nthree. Four\n- Five\n```sh\ncurl \\\n  -d x\nls\n```\n";
        let texts: Vec<_> = passages(raw).into_iter().map(|p| (p.text, p.code)).collect();
        let expected = [
            ("one two three.", false),
            ("four", false),
            ("- five", false),
            ("curl -d x", true),
            ("ls", true),
        ];
        assert_eq!(texts, expected.map(|(text, code)| (text.to_owned(), code)));
    }

    #[test]
    fn look_alikes_become_latin_letters() {
        assert_eq!(normalize("Іgn\u{200b}оre **all**"), "ignore all");
        assert_eq!(normalize("ｉｇｎｏｒｅ"), "ignore");
    }
}
