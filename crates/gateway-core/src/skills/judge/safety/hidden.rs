//! Finds text that an agent reads but a person who views the rendered page does not see.

use super::{Finding, FindingKind};

/// A comment with at least this many words counts as text; formatter markers have fewer.
const MIN_COMMENT_WORDS: usize = 4;
const FORMATTER_MARKERS: [&str; 6] =
    ["markdownlint", "prettier", "vale", "toc", "omit in toc", "spellchecker"];
/// Gaps that push text out of view: spaces in a line, and empty lines.
const WIDE_GAP: usize = 120;
const TALL_GAP: usize = 40;
/// Further invisible characters are not reported.
const MAX_INVISIBLE_FINDINGS: usize = 3;
/// How far a tag is searched for its end.
const MAX_TAG_BYTES: usize = 500;
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

/// Whether the character has no width, changes the text direction, or only carries data.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

fn invisible(raw: &str, found: &mut Vec<Finding>) {
    let mut before: Option<char> = None;
    let mut reported = 0;
    for (at, c) in raw.char_indices() {
        let after = raw[at + c.len_utf8()..].chars().next();
        let byte_order_mark = c == '\u{feff}' && at == 0;
        let control = c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        if control || is_invisible(c) && !byte_order_mark && !is_valid_joiner(before, c, after) {
            let line = raw[..at].lines().count().max(1);
            let around = raw[..at].rfind('\n').map_or(0, |end| end + 1);
            let passage: String = raw[around..].chars().take(60).collect();
            reported += 1;
            found.push(Finding::new(
                FindingKind::InvisibleCharacters,
                format!("U+{:04X} in line {line}: {passage}", u32::from(c)),
            ));
        }
        if reported == MAX_INVISIBLE_FINDINGS {
            return;
        }
        before = Some(c);
    }
}

/// Joiners are legitimate between emoji, and between letters of scripts with joined writing.
fn is_valid_joiner(before: Option<char>, c: char, after: Option<char>) -> bool {
    let joined = |c: char| matches!(c, '\u{0600}'..='\u{08ff}' | '\u{0900}'..='\u{0dff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{fb50}'..='\u{fdff}');
    let emoji = |c: char| matches!(c, '\u{2190}'..='\u{2bff}' | '\u{fe0f}' | '\u{1f000}'..='\u{1faff}');
    let (Some(before), Some(after)) = (before, after) else { return false };
    match c {
        '\u{200d}' => emoji(before) && emoji(after) || joined(before) && joined(after),
        '\u{200c}' => joined(before) && joined(after),
        _ => false,
    }
}

/// Finds words that mix Latin letters with Cyrillic or Greek look-alikes.
fn mixed_scripts(raw: &str, found: &mut Vec<Finding>) {
    let foreign = |c: char| matches!(c, '\u{0370}'..='\u{03ff}' | '\u{0400}'..='\u{04ff}');
    for word in raw.split(|c: char| !c.is_alphabetic()) {
        let latin = word.chars().filter(char::is_ascii_alphabetic).count();
        let look_alike = word.chars().any(|c| foreign(c) && super::passages::latin_look_alike(c) != c);
        if latin >= 2 && look_alike {
            found.push(Finding::new(
                FindingKind::InvisibleCharacters,
                format!("letters of two scripts in one word: {word}"),
            ));
        }
    }
}

/// The text without fenced blocks and code spans, which a reader sees verbatim.
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
    // With an unbalanced backtick there is no code span to remove.
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
        report_comment(comment, found);
        rest = behind;
    }
    for line in text.lines() {
        // An unused link definition is not rendered either.
        if let Some(comment) =
            line.trim_start().strip_prefix("[//]:").or_else(|| line.trim_start().strip_prefix("[comment]:"))
        {
            report_comment(comment, found);
        }
    }
}

fn report_comment(comment: &str, found: &mut Vec<Finding>) {
    let lower = comment.trim().to_lowercase();
    let marker = FORMATTER_MARKERS.iter().any(|marker| lower.starts_with(marker))
        && lower.split_whitespace().count() <= 6;
    let words = comment.split_whitespace().filter(|word| word.contains(char::is_alphabetic)).count();
    if words >= MIN_COMMENT_WORDS && !marker {
        found.push(Finding::new(FindingKind::HtmlComment, comment.trim()));
    }
}

fn styles(text: &str, found: &mut Vec<Finding>) {
    for (start, _) in text.match_indices('<') {
        let window: &str = &text[start..text.floor_char_boundary(start + MAX_TAG_BYTES)];
        let tag = window.split_once('>').map_or("", |(tag, _)| tag);
        if tag.len() < 4 || !tag[1..].starts_with(|c: char| c.is_ascii_alphabetic()) {
            continue;
        }
        let bare: String = tag.to_lowercase().chars().filter(|c| !c.is_whitespace()).collect();
        let styled = bare.contains("style=") && HIDING_STYLES.iter().any(|style| bare.contains(style));
        let attribute = tag.split_whitespace().skip(1).any(|part| part.eq_ignore_ascii_case("hidden"));
        if styled || attribute {
            let passage: String = text[start..].chars().take(120).collect();
            found.push(Finding::new(FindingKind::HiddenText, passage));
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
