//! Selected top-level fields of JSON bodies of any size, in bounded memory. Nothing is validated: the few values that
//! are kept are parsed afterwards.

use crate::json::{StringScanner, ValueSkipper, is_space};

/// A selected value. It is incomplete if it exceeds its limit or the body ends inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldValue<K> {
    key: K,
    bytes: Vec<u8>,
    is_complete: bool,
}

/// The selected values of one object. `K` names the selected keys.
#[derive(Debug, Clone)]
pub(super) struct Fields<K>(Vec<FieldValue<K>>);

impl<K: Copy + PartialEq> Fields<K> {
    /// The value of a key, if it is complete.
    pub(super) fn get(&self, key: K) -> Option<&[u8]> {
        self.0.iter().find(|value| value.key == key && value.is_complete).map(|value| &*value.bytes)
    }

    /// The value of a key, complete or not.
    pub(super) fn prefix(&self, key: K) -> Option<&[u8]> {
        self.0.iter().find(|value| value.key == key).map(|value| &*value.bytes)
    }

    fn last(&mut self) -> Option<&mut FieldValue<K>> {
        self.0.last_mut()
    }
}

/// Names a key if it is selected, and says how many bytes of its value are kept.
pub(super) type FieldSelection<K> = fn(&[u8]) -> Option<(K, usize)>;

/// Reads a JSON body in chunks and keeps the selected top-level values. The objects of an array, and objects that
/// follow each other, are reported one by one, so streams in these two forms need no other reader.
#[derive(Debug, Clone)]
pub(super) struct FieldReader<K> {
    select: FieldSelection<K>,
    state: State,
    open_arrays: usize,
    object_count: usize,
    key: Vec<u8>,
    /// How many bytes of the current value are kept.
    limit: usize,
    fields: Fields<K>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Outside,
    Skipping(ValueSkipper),
    BeforeKey,
    InKey(StringScanner),
    BeforeValue,
    InValue(ValueSkipper),
}

const MAX_KEY_LENGTH: usize = 64;

impl<K: Copy + PartialEq> FieldReader<K> {
    pub(super) fn new(select: FieldSelection<K>) -> Self {
        FieldReader {
            select,
            state: State::Outside,
            open_arrays: 0,
            object_count: 0,
            // The longest key that is kept, so that keys never grow it.
            key: Vec::with_capacity(MAX_KEY_LENGTH + 1),
            limit: 0,
            fields: Fields(Vec::new()),
        }
    }

    /// Whether the body is complete if it ends here.
    pub(super) fn is_complete(&self) -> bool {
        self.object_count > 0 && self.open_arrays == 0 && matches!(self.state, State::Outside)
    }

    /// The fields of the object that is still open.
    pub(super) fn open_object(&self) -> Option<&Fields<K>> {
        (!matches!(self.state, State::Outside | State::Skipping(_))).then_some(&self.fields)
    }

    /// Calls `visit` for each object that this chunk completes.
    pub(super) fn feed(&mut self, chunk: &[u8], mut visit: impl FnMut(&Fields<K>)) {
        let mut at = 0;
        while at < chunk.len() {
            let rest = &chunk[at..];
            at += match self.state {
                State::Outside => self.outside(rest[0]),
                State::Skipping(mut skipper) => {
                    let end = skipper.feed(rest);
                    self.state = if end.is_some() { State::Outside } else { State::Skipping(skipper) };
                    end.unwrap_or(rest.len())
                }
                State::BeforeKey => {
                    match rest[0] {
                        b'"' => {
                            self.key.clear();
                            self.state = State::InKey(StringScanner::default());
                        }
                        b'}' => {
                            visit(&self.fields);
                            self.fields.0.clear();
                            self.object_count += 1;
                            self.state = State::Outside;
                        }
                        _ => {}
                    }
                    1
                }
                State::InKey(text) => self.in_key(rest, text),
                State::BeforeValue if rest[0] == b':' || is_space(rest[0]) => 1,
                State::BeforeValue => self.start_value(rest),
                State::InValue(skipper) => self.in_value(rest, 0, skipper),
            };
        }
    }

    fn outside(&mut self, byte: u8) -> usize {
        match byte {
            b'{' => self.state = State::BeforeKey,
            b'"' => self.state = State::Skipping(ValueSkipper::new(byte)),
            b'[' => self.open_arrays += 1,
            b']' => self.open_arrays = self.open_arrays.saturating_sub(1),
            _ => {}
        }
        1
    }

    fn in_key(&mut self, rest: &[u8], mut text: StringScanner) -> usize {
        let end = text.feed(rest);
        let part = &rest[..end.map_or(rest.len(), |end| end - 1)];
        let room = (MAX_KEY_LENGTH + 1).saturating_sub(self.key.len());
        self.key.extend_from_slice(&part[..part.len().min(room)]);
        self.state = if end.is_some() { State::BeforeValue } else { State::InKey(text) };
        end.unwrap_or(rest.len())
    }

    /// Reads a value from its first byte on.
    fn start_value(&mut self, rest: &[u8]) -> usize {
        self.limit = 0;
        if let Some((key, limit)) = (self.select)(&self.key) {
            self.fields.0.retain(|value| value.key != key);
            self.fields.0.push(FieldValue { key, bytes: Vec::new(), is_complete: false });
            self.limit = limit;
        }
        self.in_value(rest, 1, ValueSkipper::new(rest[0]))
    }

    /// Keeps the next bytes of a value. The skipper has seen the first `seen` of them.
    fn in_value(&mut self, rest: &[u8], seen: usize, mut skipper: ValueSkipper) -> usize {
        let end = skipper.feed(&rest[seen..]).map(|end| seen + end);
        let used = end.unwrap_or(rest.len());
        if self.limit > 0
            && let Some(value) = self.fields.last()
        {
            let kept = used.min(self.limit - value.bytes.len());
            value.bytes.extend_from_slice(&rest[..kept]);
            value.is_complete = end.is_some() && kept == used;
            if kept < used {
                // The value stays incomplete, whatever follows.
                self.limit = 0;
            }
        }
        self.state = if end.is_some() { State::BeforeKey } else { State::InValue(skipper) };
        used
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Value = FieldValue<&'static str>;

    fn select(key: &[u8]) -> Option<(&'static str, usize)> {
        let selected = [("usage", 64), ("model", 64), ("n", 64), ("long", 8)];
        selected.into_iter().find(|(name, _)| name.as_bytes() == key)
    }

    fn objects(chunks: &[&[u8]]) -> (Vec<Vec<Value>>, bool) {
        let mut reader = FieldReader::new(select);
        let mut all = Vec::new();
        for chunk in chunks {
            reader.feed(chunk, |fields| all.push(fields.0.clone()));
        }
        if let Some(fields) = reader.open_object() {
            all.push(fields.0.clone());
        }
        (all, reader.is_complete())
    }

    fn value(key: &'static str, text: &str, is_complete: bool) -> Value {
        FieldValue { key, bytes: text.as_bytes().to_vec(), is_complete }
    }

    #[test]
    fn only_top_level_values_are_kept() {
        let body = br#"{"data":[[0.1,{"usage":1}],"]"],"usage":{"n":{"a":"}"}},"n":12,"model":"m"}"#;
        let kept = vec![
            value("usage", r#"{"n":{"a":"}"}}"#, true),
            value("n", "12", true),
            value("model", r#""m""#, true),
        ];
        assert_eq!(objects(&[body]), (vec![kept], true));
    }

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        assert_eq!(objects(&[br#"{"n":1,"n":2}"#]).0, [[value("n", "2", true)]]);
    }

    #[test]
    fn values_over_their_limit_are_cut_and_marked_incomplete() {
        assert_eq!(
            objects(&[br#"{"long":"0123456789","n":1}"#]).0,
            [[value("long", "\"0123456", false), value("n", "1", true)]]
        );
    }

    #[test]
    fn arrays_and_consecutive_objects_are_read_one_by_one() {
        let one = || vec![value("n", "1", true)];
        assert_eq!(objects(&[b"[{\"n\":1}\n,\n{\"n\":1}]"]), (vec![one(), one()], true));
        assert_eq!(objects(&[b"{\"n\":1}\n{\"n\":1}\n"]), (vec![one(), one()], true));
        assert!(!objects(&[b"[{\"n\":1}\n,"]).1);
    }

    #[test]
    fn a_truncated_body_keeps_its_fields_so_far() {
        assert_eq!(
            objects(&[br#"{"n":1,"model":"gp"#]),
            (vec![vec![value("n", "1", true), value("model", "\"gp", false)]], false)
        );
    }

    proptest! {
        #[test]
        fn any_chunking_finds_the_same(size in 1usize..9, text in r#"\[?\{("(n|usage|x)":([0-9]{1,3}|"[a-z\\"]{0,4}"|\{"a":\[1\]\}|\[\[1\],"\]"\]),?){0,4}\}"#) {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(objects(&chunks), objects(&[text.as_bytes()]));
        }

        #[test]
        fn arbitrary_bytes_never_panic(text in r#"[\[\]{}":,\\a0é ]{0,40}"#, size in 1usize..9) {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(objects(&chunks), objects(&[text.as_bytes()]));
        }
    }
}
