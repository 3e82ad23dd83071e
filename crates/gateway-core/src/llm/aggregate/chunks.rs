//! Helpers of stream synthesis: texts split into chunks of the size that models send, and encoded events.

use serde_json::Value;

/// The encoded events of a stream.
#[derive(Default)]
pub(super) struct EventBuffer(pub(super) Vec<Vec<u8>>);

impl EventBuffer {
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

/// Splits a text into chunks of a few words. A long text gets larger chunks, because an event costs more than its text.
pub(super) fn text_chunks(text: &str) -> impl Iterator<Item = &str> {
    const MIN_SIZE: usize = 16;
    const MAX_CHUNKS: usize = 256;
    let size = MIN_SIZE.max(text.len().div_ceil(MAX_CHUNKS));
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.ceil_char_boundary(size.min(rest.len()));
        // The space before a word starts the next chunk, as in tokens.
        let word = rest[end..].find(' ').unwrap_or(rest.len() - end);
        if word < MIN_SIZE {
            end += word;
        }
        let (chunk, after) = rest.split_at(end);
        rest = after;
        Some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sentence_is_split_before_spaces() {
        let text = "The quick brown fox jumps over the lazy dog and runs away.";
        let pieces: Vec<&str> = text_chunks(text).collect();
        assert_eq!(pieces, ["The quick brown fox", " jumps over the lazy", " dog and runs away."]);
    }

    proptest! {
        #[test]
        fn chunks_join_to_the_text(text in "(\\PC| |é|日){0,300}") {
            let pieces: Vec<&str> = text_chunks(&text).collect();
            prop_assert_eq!(pieces.concat(), &*text);
            prop_assert!(pieces.len() <= 257 && pieces.iter().all(|piece| !piece.is_empty()));
        }
    }
}
