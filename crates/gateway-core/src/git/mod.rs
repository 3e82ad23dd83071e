//! A read-only git repository: objects, packs and the server side of a fetch. Only what a clone, a shallow clone and a
//! pull need is here, so that neither a git binary nor a git library has to be shipped.

mod fetch;
mod pack;
mod protocol;

pub use fetch::{FetchPlan, History};
pub use pack::pack;
pub use protocol::{FetchRequest, ProtocolError, advertisement, negotiation, pack_answer};

use std::fmt;
use std::io::{Read as _, Write as _};
use std::str::FromStr;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use sha1::{Digest as _, Sha1};

/// The branch that is served.
pub const BRANCH: &str = "main";

/// The id of an object: the SHA-1 of its type, length and content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Oid(pub [u8; 20]);

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Oid({self})")
    }
}

/// The text is not 40 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a git object: expected 40 hexadecimal digits")]
pub struct MalformedOid;

impl FromStr for Oid {
    type Err = MalformedOid;

    fn from_str(text: &str) -> Result<Self, MalformedOid> {
        let mut bytes = [0; 20];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| MalformedOid)?;
        Ok(Self(bytes))
    }
}

/// The numbers are those of pack entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    Commit = 1,
    Tree = 2,
    Blob = 3,
}

impl ObjectKind {
    pub fn number(self) -> u8 {
        match self {
            Self::Commit => 1,
            Self::Tree => 2,
            Self::Blob => 3,
        }
    }

    pub fn from_number(number: i64) -> Option<Self> {
        match number {
            1 => Some(Self::Commit),
            2 => Some(Self::Tree),
            3 => Some(Self::Blob),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
        }
    }
}

/// An object in the form in which it is stored and sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub oid: Oid,
    pub kind: ObjectKind,
    /// The length of the content.
    pub size: usize,
    /// The content, compressed with zlib.
    pub data: Vec<u8>,
}

impl Object {
    pub fn new(kind: ObjectKind, content: &[u8]) -> Self {
        Self { oid: object_id(kind, content), kind, size: content.len(), data: compress(content) }
    }

    /// The content. `None` if the stored data is damaged.
    pub fn content(&self) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        let limit = u64::try_from(self.size).ok()?.checked_add(1)?;
        ZlibDecoder::new(self.data.as_slice()).take(limit).read_to_end(&mut content).ok()?;
        (content.len() == self.size).then_some(content)
    }
}

pub fn object_id(kind: ObjectKind, content: &[u8]) -> Oid {
    let mut hash = Sha1::new();
    hash.update(format!("{} {}\0", kind.name(), content.len()).as_bytes());
    hash.update(content);
    Oid(hash.finalize().into())
}

/// Writing into a vector cannot fail; an empty result would be found by the reader's length check.
fn compress(content: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(content);
    written.and_then(|()| encoder.finish()).unwrap_or_default()
}

/// What a tree contains under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File { is_executable: bool },
    Directory,
}

/// The content of a tree object. Git sorts directories as if their names ended with a slash.
pub fn tree_content(entries: &[(String, EntryKind, Oid)]) -> Vec<u8> {
    let key = |(name, kind, _): &(String, EntryKind, Oid)| match kind {
        EntryKind::Directory => format!("{name}/"),
        EntryKind::File { .. } => name.clone(),
    };
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by_cached_key(|entry| key(entry));
    let mut content = Vec::new();
    for (name, kind, oid) in sorted {
        let mode = match kind {
            EntryKind::Directory => "40000",
            EntryKind::File { is_executable: true } => "100755",
            EntryKind::File { is_executable: false } => "100644",
        };
        content.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        content.extend_from_slice(&oid.0);
    }
    content
}

/// The entries of a tree object: id, and whether it is a tree. `None` if it is damaged.
fn parse_tree(mut content: &[u8]) -> Option<Vec<(Oid, bool)>> {
    let mut entries = Vec::new();
    while !content.is_empty() {
        let end = content.iter().position(|byte| *byte == 0)?;
        let is_tree = content.starts_with(b"40000 ");
        let oid = content.get(end + 1..end + 21)?.try_into().ok()?;
        entries.push((Oid(oid), is_tree));
        content = &content[end + 21..];
    }
    Some(entries)
}

/// A commit of the gateway.
#[derive(Debug, Clone, Copy)]
pub struct Commit<'a> {
    pub tree: Oid,
    pub parent: Option<Oid>,
    /// Seconds since the epoch.
    pub time: i64,
    pub message: &'a str,
}

impl Commit<'_> {
    pub fn content(&self) -> Vec<u8> {
        const AUTHOR: &str = "Gateway <skills@gateway.invalid>";
        let Self { tree, parent, time, message } = self;
        let parent = parent.map(|parent| format!("parent {parent}\n")).unwrap_or_default();
        let time = (*time).max(0);
        format!(
            "tree {tree}\n{parent}author {AUTHOR} {time} +0000\ncommitter {AUTHOR} {time} +0000\n\n{message}\n"
        )
        .into_bytes()
    }
}

/// Tree and parent of a commit that this module wrote.
fn parse_commit(content: &[u8]) -> Option<(Oid, Option<Oid>)> {
    let text = std::str::from_utf8(content).ok()?;
    let mut lines = text.lines();
    let tree = lines.next()?.strip_prefix("tree ")?.parse().ok()?;
    let parent = lines.next().and_then(|line| line.strip_prefix("parent ")).and_then(|oid| oid.parse().ok());
    Some((tree, parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids are those that `git hash-object` prints.
    #[test]
    fn ids_are_those_of_git() {
        let blob = Object::new(ObjectKind::Blob, b"hello\n");
        assert_eq!(blob.oid.to_string(), "ce013625030ba8dba906f756967f9e9ca394464a");
        assert_eq!(object_id(ObjectKind::Tree, b"").to_string(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
        assert_eq!(blob.content().as_deref(), Some(b"hello\n".as_slice()));
        assert_eq!(Object { size: 5, ..blob.clone() }.content(), None);
        assert_eq!(Object { data: Vec::new(), ..blob }.content(), None);
    }

    #[test]
    fn directories_are_sorted_as_git_sorts_them() {
        let oid = object_id(ObjectKind::Blob, b"");
        let file = EntryKind::File { is_executable: false };
        let entries = [
            ("a".to_owned(), EntryKind::Directory, oid),
            ("a.b".to_owned(), file, oid),
            ("a0".to_owned(), EntryKind::File { is_executable: true }, oid),
        ];
        let content = tree_content(&entries);
        let text = String::from_utf8_lossy(&content);
        let at = |name: &str| text.find(name).unwrap();
        assert!(at("100644 a.b\0") < at("40000 a\0") && at("40000 a\0") < at("100755 a0\0"), "{text}");
        assert_eq!(parse_tree(&content).unwrap().iter().filter(|(_, is_tree)| *is_tree).count(), 1);
        assert_eq!(parse_tree(&content[..content.len() - 1]), None);
    }

    #[test]
    fn a_commit_parses_back() {
        let tree = object_id(ObjectKind::Tree, b"");
        let first = Commit { tree, parent: None, time: 7, message: "one\n\nparent x" };
        assert_eq!(parse_commit(&first.content()), Some((tree, None)));
        let parent = Some(object_id(ObjectKind::Commit, &first.content()));
        assert_eq!(parse_commit(&Commit { parent, ..first }.content()), Some((tree, parent)));
    }
}
