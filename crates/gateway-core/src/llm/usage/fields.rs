//! Selected top-level fields of JSON bodies of any size, in bounded memory. Nothing is validated: the few values that
//! are kept are parsed afterwards.

use crate::json::{StringScanner, ValueSkipper, is_space};

/// A selected value. It is incomplete if it exceeds its limit or the body ends inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldValue {
    key: &'static str,
    bytes: Vec<u8>,
    is_complete: bool,
}

/// The selected values of one object.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(Vec<FieldValue>);

impl Fields {
    /// The value of a key, if it is complete.
    pub(super) fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.iter().find(|value| value.key == key && value.is_complete).map(|value| &*value.bytes)
    }

    /// The value of a key, complete or not.
    pub(super) fn prefix(&self, key: &str) -> Option<&[u8]> {
        self.0.iter().find(|value| value.key == key).map(|value| &*value.bytes)
    }

    fn last(&mut self) -> Option<&mut FieldValue> {
        self.0.last_mut()
    }
}

/// A selected key, and how many bytes of its value are kept.
pub(super) type FieldLimit = (&'static str, usize);

/// Reads a JSON body in chunks and keeps the selected top-level values. The objects of an array, and objects that
/// follow each other, are reported one by one, so streams in these two forms need no other reader.
#[derive(Debug, Clone)]
pub(super) struct FieldReader {
    selected: &'static [FieldLimit],
    state: State,
    open_arrays: usize,
    object_count: usize,
    key: Vec<u8>,
    /// How many bytes of the current value are kept.
    limit: usize,
    fields: Fields,
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

impl FieldReader {
    pub(super) fn new(selected: &'static [FieldLimit]) -> Self {
        FieldReader {
            selected,
            state: State::Outside,
            open_arrays: 0,
            object_count: 0,
            key: Vec::new(),
            limit: 0,
            fields: Fields::default(),
        }
    }

    /// Whether the body is complete if it ends here.
    pub(super) fn is_complete(&self) -> bool {
        self.object_count > 0 && self.open_arrays == 0 && matches!(self.state, State::Outside)
    }

    /// The fields of the object that is still open.
    pub(super) fn open_object(&self) -> Option<&Fields> {
        (!matches!(self.state, State::Outside | State::Skipping(_))).then_some(&self.fields)
    }

    /// Calls `visit` for each object that this chunk completes.
    pub(super) fn feed(&mut self, chunk: &[u8], mut visit: impl FnMut(&Fields)) {
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
                State::BeforeValue => {
                    if rest[0] != b':' && !is_space(rest[0]) {
                        self.start_value(rest[0]);
                    }
                    1
                }
                State::InValue(skipper) => self.in_value(rest, skipper),
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

    fn start_value(&mut self, first: u8) {
        let selected = self.selected.iter().find(|(key, _)| key.as_bytes() == self.key);
        self.limit = 0;
        if let Some((key, limit)) = selected {
            self.fields.0.retain(|value| value.key != *key);
            self.fields.0.push(FieldValue { key, bytes: vec![first], is_complete: false });
            self.limit = *limit;
        }
        self.state = State::InValue(ValueSkipper::new(first));
    }

    fn in_value(&mut self, rest: &[u8], mut skipper: ValueSkipper) -> usize {
        let end = skipper.feed(rest);
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

    const SELECTED: &[FieldLimit] = &[("usage", 64), ("model", 64), ("n", 64), ("long", 8)];

    fn objects(chunks: &[&[u8]]) -> (Vec<Vec<FieldValue>>, bool) {
        let mut reader = FieldReader::new(SELECTED);
        let mut all = Vec::new();
        for chunk in chunks {
            reader.feed(chunk, |fields| all.push(fields.0.clone()));
        }
        if let Some(fields) = reader.open_object() {
            all.push(fields.0.clone());
        }
        (all, reader.is_complete())
    }

    fn value(key: &'static str, text: &str, is_complete: bool) -> FieldValue {
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
