//! The wanted top-level values of a JSON body of any size, in bounded memory. Like its neighbour it checks nothing: the
//! few values that it keeps are parsed afterwards.

use memchr::{memchr2, memchr3};

/// A top-level value that was asked for; `whole` unless it is larger than its bound or the body broke off in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    key: &'static str,
    bytes: Vec<u8>,
    whole: bool,
}

/// The values found in one object.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(Vec<Found>);

impl Fields {
    pub(super) fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.iter().find(|found| found.key == key && found.whole).map(|found| &*found.bytes)
    }

    /// What there is of a value, even if it is only its beginning.
    pub(super) fn start_of(&self, key: &str) -> Option<&[u8]> {
        self.0.iter().find(|found| found.key == key).map(|found| &*found.bytes)
    }

    fn last(&mut self) -> Option<&mut Found> {
        self.0.last_mut()
    }
}

/// A key to look for and how many bytes of its value to keep.
pub(super) type Wanted = (&'static str, usize);

/// Walks through a JSON body of any size and keeps a few top-level values. An array of objects and objects in a row
/// are read object by object, so that streams in those forms need nothing more.
#[derive(Debug, Clone)]
pub(super) struct Objects {
    wanted: &'static [Wanted],
    state: State,
    arrays: usize,
    seen: usize,
    key: Vec<u8>,
    room: usize,
    fields: Fields,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Outside,
    Skipping(Walk),
    BeforeKey,
    InKey { escaped: bool },
    BeforeValue,
    InValue(Walk),
}

const LONGEST_KEY: usize = 64;

impl Objects {
    pub(super) fn new(wanted: &'static [Wanted]) -> Self {
        Objects {
            wanted,
            state: State::Outside,
            arrays: 0,
            seen: 0,
            key: Vec::new(),
            room: 0,
            fields: Fields::default(),
        }
    }

    /// Whether the body ended where a body may end.
    pub(super) fn complete(&self) -> bool {
        self.seen > 0 && self.arrays == 0 && matches!(self.state, State::Outside)
    }

    /// The object that the body broke off in.
    pub(super) fn unfinished(&self) -> Option<&Fields> {
        (!matches!(self.state, State::Outside | State::Skipping(_))).then_some(&self.fields)
    }

    /// Calls `visit` for each object that this chunk completes.
    pub(super) fn feed(&mut self, chunk: &[u8], mut visit: impl FnMut(&Fields)) {
        let mut at = 0;
        while at < chunk.len() {
            let rest = &chunk[at..];
            at += match self.state {
                State::Outside => self.outside(rest[0]),
                State::Skipping(mut walk) => {
                    let end = walk.feed(rest);
                    self.state = if end.is_some() { State::Outside } else { State::Skipping(walk) };
                    end.unwrap_or(rest.len())
                }
                State::BeforeKey => {
                    match rest[0] {
                        b'"' => {
                            self.key.clear();
                            self.state = State::InKey { escaped: false };
                        }
                        b'}' => {
                            visit(&self.fields);
                            self.fields.0.clear();
                            self.seen += 1;
                            self.state = State::Outside;
                        }
                        _ => {}
                    }
                    1
                }
                State::InKey { escaped } => self.in_key(rest, escaped),
                State::BeforeValue => {
                    if !matches!(rest[0], b' ' | b'\t' | b'\n' | b'\r' | b':') {
                        self.start_value(rest[0]);
                    }
                    1
                }
                State::InValue(walk) => self.in_value(rest, walk),
            };
        }
    }

    fn outside(&mut self, byte: u8) -> usize {
        match byte {
            b'{' => self.state = State::BeforeKey,
            b'"' => self.state = State::Skipping(Walk::start(byte)),
            b'[' => self.arrays += 1,
            b']' => self.arrays = self.arrays.saturating_sub(1),
            _ => {}
        }
        1
    }

    fn in_key(&mut self, rest: &[u8], escaped: bool) -> usize {
        let mut walk = Walk::Text { escaped };
        let end = walk.feed(rest);
        let text = &rest[..end.map_or(rest.len(), |end| end - 1)];
        let room = (LONGEST_KEY + 1).saturating_sub(self.key.len());
        self.key.extend_from_slice(&text[..text.len().min(room)]);
        self.state = match (end, walk) {
            (None, Walk::Text { escaped }) => State::InKey { escaped },
            _ => State::BeforeValue,
        };
        end.unwrap_or(rest.len())
    }

    fn start_value(&mut self, first: u8) {
        let wanted = self.wanted.iter().find(|(key, _)| key.as_bytes() == self.key);
        self.room = 0;
        if let Some((key, room)) = wanted {
            self.fields.0.retain(|found| found.key != *key);
            self.fields.0.push(Found { key, bytes: vec![first], whole: false });
            self.room = *room;
        }
        self.state = State::InValue(Walk::start(first));
    }

    fn in_value(&mut self, rest: &[u8], mut walk: Walk) -> usize {
        let end = walk.feed(rest);
        let used = end.unwrap_or(rest.len());
        if self.room > 0
            && let Some(found) = self.fields.last()
        {
            let kept = used.min(self.room - found.bytes.len());
            found.bytes.extend_from_slice(&rest[..kept]);
            found.whole = end.is_some() && kept == used;
            if kept < used {
                // Marks the value as cut for good, whatever follows.
                self.room = 0;
            }
        }
        self.state = if end.is_some() { State::BeforeKey } else { State::InValue(walk) };
        used
    }
}

/// Steps over one value. Of an array only its own kind of bracket is counted, of an object only its own kind of brace,
/// which is enough in valid JSON and lets long arrays of numbers pass at the speed of a byte search.
#[derive(Debug, Clone, Copy)]
enum Walk {
    Text { escaped: bool },
    Nested { open: u8, close: u8, depth: usize, text: Option<bool> },
    Scalar,
}

impl Walk {
    fn start(first: u8) -> Self {
        match first {
            b'"' => Walk::Text { escaped: false },
            b'{' => Walk::Nested { open: b'{', close: b'}', depth: 1, text: None },
            b'[' => Walk::Nested { open: b'[', close: b']', depth: 1, text: None },
            _ => Walk::Scalar,
        }
    }

    /// Where the value ends in these bytes, which continue it.
    fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        match self {
            Walk::Text { escaped } => close_text(bytes, escaped),
            Walk::Nested { open, close, depth, text } => {
                let mut at = 0;
                loop {
                    if let Some(escaped) = text {
                        at += close_text(&bytes[at..], escaped)?;
                        *text = None;
                    }
                    at += memchr3(*open, *close, b'"', &bytes[at..])? + 1;
                    match bytes[at - 1] {
                        b'"' => *text = Some(false),
                        byte if byte == *open => *depth += 1,
                        _ => {
                            *depth -= 1;
                            if *depth == 0 {
                                return Some(at);
                            }
                        }
                    }
                }
            }
            Walk::Scalar => bytes
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r')),
        }
    }
}

fn close_text(bytes: &[u8], escaped: &mut bool) -> Option<usize> {
    let mut at = 0;
    if *escaped && !bytes.is_empty() {
        *escaped = false;
        at = 1;
    }
    loop {
        at += memchr2(b'"', b'\\', &bytes[at..])? + 1;
        if bytes[at - 1] == b'"' {
            return Some(at);
        }
        if at == bytes.len() {
            *escaped = true;
            return None;
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WANTED: &[Wanted] = &[("usage", 64), ("model", 64), ("n", 64), ("long", 8)];

    fn objects(chunks: &[&[u8]]) -> (Vec<Vec<Found>>, bool) {
        let mut objects = Objects::new(WANTED);
        let mut all = Vec::new();
        for chunk in chunks {
            objects.feed(chunk, |fields| all.push(fields.0.clone()));
        }
        if let Some(fields) = objects.unfinished() {
            all.push(fields.0.clone());
        }
        (all, objects.complete())
    }

    fn found(key: &'static str, text: &str, whole: bool) -> Found {
        Found { key, bytes: text.as_bytes().to_vec(), whole }
    }

    #[test]
    fn only_top_level_values_are_kept() {
        let body = br#"{"data":[[0.1,{"usage":1}],"]"],"usage":{"n":{"a":"}"}},"n":12,"model":"m"}"#;
        let kept = vec![
            found("usage", r#"{"n":{"a":"}"}}"#, true),
            found("n", "12", true),
            found("model", r#""m""#, true),
        ];
        assert_eq!(objects(&[body]), (vec![kept], true));
    }

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        assert_eq!(objects(&[br#"{"n":1,"n":2}"#]).0, [[found("n", "2", true)]]);
    }

    #[test]
    fn values_past_their_bound_are_cut_and_said_to_be() {
        assert_eq!(
            objects(&[br#"{"long":"0123456789","n":1}"#]).0,
            [[found("long", "\"0123456", false), found("n", "1", true)]]
        );
    }

    #[test]
    fn arrays_and_rows_of_objects_are_read_one_by_one() {
        let one = || vec![found("n", "1", true)];
        assert_eq!(objects(&[b"[{\"n\":1}\n,\n{\"n\":1}]"]), (vec![one(), one()], true));
        assert_eq!(objects(&[b"{\"n\":1}\n{\"n\":1}\n"]), (vec![one(), one()], true));
        assert!(!objects(&[b"[{\"n\":1}\n,"]).1);
    }

    #[test]
    fn a_body_that_breaks_off_keeps_what_came() {
        assert_eq!(
            objects(&[br#"{"n":1,"model":"gp"#]),
            (vec![vec![found("n", "1", true), found("model", "\"gp", false)]], false)
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
