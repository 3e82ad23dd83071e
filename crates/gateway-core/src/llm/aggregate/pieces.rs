//! What every replay needs: texts cut into pieces as a model would send them, and events written out.

use serde_json::Value;

/// The events of a stream, as they are to be written.
#[derive(Default)]
pub(super) struct Written(pub(super) Vec<Vec<u8>>);

impl Written {
    /// An event without a name.
    pub(super) fn data(&mut self, data: &Value) {
        self.0.push(format!("data: {data}\n\n").into_bytes());
    }

    pub(super) fn named(&mut self, name: &str, data: &Value) {
        self.0.push(format!("event: {name}\ndata: {data}\n\n").into_bytes());
    }

    /// OpenAI's end marker.
    pub(super) fn done(&mut self) {
        self.0.push(b"data: [DONE]\n\n".to_vec());
    }
}

/// Cuts a text into pieces that together are the text: a few words each, and larger ones when it is long, since an
/// event costs far more than its text.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    const SMALLEST: usize = 16;
    const MOST: usize = 256;
    let size = SMALLEST.max(text.len().div_ceil(MOST));
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.ceil_char_boundary(size.min(rest.len()));
        // The next word begins with its space, as tokens do.
        let word = rest[end..].find(' ').unwrap_or(rest.len() - end);
        if word < SMALLEST {
            end += word;
        }
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sentence_comes_in_several_pieces_that_end_before_spaces() {
        let text = "The quick brown fox jumps over the lazy dog and runs away.";
        let pieces: Vec<&str> = pieces(text).collect();
        assert_eq!(pieces, ["The quick brown fox", " jumps over the lazy", " dog and runs away."]);
    }

    proptest! {
        #[test]
        fn pieces_together_are_the_text(text in "(\\PC| |é|日){0,300}") {
            let pieces: Vec<&str> = pieces(&text).collect();
            prop_assert_eq!(pieces.concat(), &*text);
            prop_assert!(pieces.len() <= 257 && pieces.iter().all(|piece| !piece.is_empty()));
        }
    }
}
