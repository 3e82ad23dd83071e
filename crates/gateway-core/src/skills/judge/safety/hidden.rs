//! What a person who reads the page does not see, and an agent does.

use super::{Finding, FindingKind};

/// Words that a comment may have before it counts as text; a marker for a formatter has fewer.
const COMMENT_WORDS: usize = 4;
const MARKERS: [&str; 6] = ["markdownlint", "prettier", "vale", "toc", "omit in toc", "spellchecker"];
/// A gap that pushes text out of sight.
const WIDE_GAP: usize = 120;
const TALL_GAP: usize = 40;
/// More of the same says nothing new.
const ENOUGH: usize = 3;
/// A tag is no longer than this.
const TAG: usize = 500;
const HIDING_STYLES: [&str; 8] = [
    "display:none",
    "visibility:hidden",
    "font-size:0",
    "opacity:0",
    "color:white",
    "color:#fff",
    "color:transparent",
    "height:0",
];

pub fn scan(raw: &str, found: &mut Vec<Finding>) {
    invisible(raw, found);
    mixed_scripts(raw, found);
    let visible = without_code(raw);
    comments(&visible, found);
    styles(&visible, found);
    gaps(raw, found);
}

/// Characters without a width, that turn the direction of text, or that only carry data.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

fn invisible(raw: &str, found: &mut Vec<Finding>) {
    let mut before: Option<char> = None;
    let mut noted = 0;
    for (at, c) in raw.char_indices() {
        let after = raw[at + c.len_utf8()..].chars().next();
        let mark_at_start = c == '\u{feff}' && at == 0;
        let escape = c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        if escape || is_invisible(c) && !mark_at_start && !joins(before, c, after) {
            let line = raw[..at].lines().count().max(1);
            let around = raw[..at].rfind('\n').map_or(0, |end| end + 1);
            let passage: String = raw[around..].chars().take(60).collect();
            noted += 1;
            found.push(Finding::new(
                FindingKind::InvisibleCharacters,
                format!("U+{:04X} in line {line}: {passage}", u32::from(c)),
            ));
        }
        if noted == ENOUGH {
            return;
        }
        before = Some(c);
    }
}

/// Joiners have their place between emoji, and between letters of scripts that are written joined.
fn joins(before: Option<char>, c: char, after: Option<char>) -> bool {
    let joined = |c: char| matches!(c, '\u{0600}'..='\u{08ff}' | '\u{0900}'..='\u{0dff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{fb50}'..='\u{fdff}');
    let emoji = |c: char| matches!(c, '\u{2190}'..='\u{2bff}' | '\u{fe0f}' | '\u{1f000}'..='\u{1faff}');
    let (Some(before), Some(after)) = (before, after) else { return false };
    match c {
        '\u{200d}' => emoji(before) && emoji(after) || joined(before) && joined(after),
        '\u{200c}' => joined(before) && joined(after),
        _ => false,
    }
}

/// A word that mixes Latin letters with Cyrillic or Greek ones that look the same.
fn mixed_scripts(raw: &str, found: &mut Vec<Finding>) {
    let foreign = |c: char| matches!(c, '\u{0370}'..='\u{03ff}' | '\u{0400}'..='\u{04ff}');
    for word in raw.split(|c: char| !c.is_alphabetic()) {
        let latin = word.chars().filter(char::is_ascii_alphabetic).count();
        let look_alike = word.chars().any(|c| foreign(c) && super::passages::fold(c) != c);
        if latin >= 2 && look_alike {
            found.push(Finding::new(
                FindingKind::InvisibleCharacters,
                format!("letters of two scripts in one word: {word}"),
            ));
        }
    }
}

/// The text with fenced blocks blanked out: what stands there is shown to the reader as it is.
fn without_code(raw: &str) -> String {
    let mut fenced = false;
    let mut text = String::with_capacity(raw.len());
    for line in raw.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
        if !fenced && !fence {
            text.push_str(&without_spans(line));
        } else {
            text.push('\n');
        }
        fenced ^= fence;
    }
    text
}

fn without_spans(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    // An odd backtick closes nothing, so nothing is taken away.
    if parts.len().is_multiple_of(2) {
        return line.to_owned();
    }
    parts.iter().step_by(2).copied().collect::<Vec<_>>().join(" ")
}

fn comments(text: &str, found: &mut Vec<Finding>) {
    let mut rest = text;
    while let Some(start) = rest.find("<!--") {
        let inner = &rest[start + 4..];
        let (comment, behind) = inner.split_once("-->").unwrap_or((inner, ""));
        note_comment(comment, found);
        rest = behind;
    }
    for line in text.lines() {
        // A link that nothing refers to is not shown either.
        if let Some(comment) =
            line.trim_start().strip_prefix("[//]:").or_else(|| line.trim_start().strip_prefix("[comment]:"))
        {
            note_comment(comment, found);
        }
    }
}

fn note_comment(comment: &str, found: &mut Vec<Finding>) {
    let lower = comment.trim().to_lowercase();
    let marker =
        MARKERS.iter().any(|marker| lower.starts_with(marker)) && lower.split_whitespace().count() <= 6;
    let words = comment.split_whitespace().filter(|word| word.contains(char::is_alphabetic)).count();
    if words >= COMMENT_WORDS && !marker {
        found.push(Finding::new(FindingKind::HtmlComment, comment.trim()));
    }
}

fn styles(text: &str, found: &mut Vec<Finding>) {
    for (start, _) in text.match_indices('<') {
        let near: &str = &text[start..text.floor_char_boundary(start + TAG)];
        let tag = near.split_once('>').map_or("", |(tag, _)| tag);
        if tag.len() < 4 || !tag[1..].starts_with(|c: char| c.is_ascii_alphabetic()) {
            continue;
        }
        let bare: String = tag.to_lowercase().chars().filter(|c| !c.is_whitespace()).collect();
        let styled = bare.contains("style=") && HIDING_STYLES.iter().any(|style| bare.contains(style));
        let attribute = tag.split_whitespace().skip(1).any(|part| part.eq_ignore_ascii_case("hidden"));
        if styled || attribute {
            let behind: String = text[start..].chars().take(120).collect();
            found.push(Finding::new(FindingKind::HiddenText, behind));
        }
    }
}

fn gaps(raw: &str, found: &mut Vec<Finding>) {
    let mut empty = 0;
    for line in raw.lines() {
        if line.trim().is_empty() {
            empty += 1;
            continue;
        }
        let text = line.trim_end();
        let wide = text.len() > WIDE_GAP && text.contains(&" ".repeat(WIDE_GAP));
        if wide || empty >= TALL_GAP {
            found.push(Finding::new(FindingKind::HiddenText, format!("behind a wide gap: {}", line.trim())));
        }
        empty = 0;
    }
}
