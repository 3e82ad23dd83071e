//! Completing a JSON text that was cut off, so that a parser can read what is left of it.

use super::{closable_length, string_end};

/// A parser reads no deeper text anyway.
const MAX_DEPTH: usize = 128;

struct Level {
    closer: u8,
    at_key: bool,
}

/// Completes a JSON text that was cut off. An open string is closed where it ends, any other incomplete value is
/// dropped, and the open brackets are closed. Returns None if nothing of the text can be kept, or if it is nested too
/// deeply. The time is linear in the length of the text.
pub fn complete_truncated(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut levels: Vec<Level> = Vec::new();
    // The text up to here is complete apart from the open brackets.
    let mut end = 0;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let is_key = levels.last().is_some_and(|level| level.at_key);
                match string_end(bytes, at) {
                    Some(string) => at = string.at + 1,
                    None if is_key => break,
                    None => {
                        let cut = at + closable_length(&bytes[at..]);
                        return Some(closed(&text[..cut], "\"", &levels));
                    }
                }
                if !is_key {
                    end = at;
                }
            }
            b'{' | b'[' => {
                let closer = if *byte == b'{' { b'}' } else { b']' };
                if levels.len() == MAX_DEPTH {
                    return None;
                }
                levels.push(Level { closer, at_key: *byte == b'{' });
                end = at;
            }
            b'}' | b']' => {
                levels.pop()?;
                end = at;
            }
            b',' => {
                // Only the comma behind it shows that a number or a literal is complete.
                end = at - 1;
                if let Some(level) = levels.last_mut() {
                    level.at_key = level.closer == b'}';
                }
            }
            b':' => {
                if let Some(level) = levels.last_mut() {
                    level.at_key = false;
                }
            }
            _ => {}
        }
    }
    (end > 0).then(|| closed(&text[..end], "", &levels))
}

fn closed(text: &str, quote: &str, levels: &[Level]) -> String {
    let closers = levels.iter().rev().map(|level| char::from(level.closer));
    let mut completed = [text, quote].concat();
    completed.extend(closers);
    completed
}
