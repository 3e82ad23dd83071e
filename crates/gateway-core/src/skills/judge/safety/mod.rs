//! Scans a skill for content that is unsafe for an agent. Each check reads the whole file and reports findings with the
//! passage; one finding keeps a skill off the shelf. The checks match wording, not intent. They stop the known attacks
//! on skill marketplaces but do not prove that a skill is harmless.

mod encoded;
mod hidden;
mod intent;
mod passages;
mod phrases;
mod secrets;

pub use hidden::is_invisible;

use super::quoted;
use crate::skills::rubric::Axis;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    HiddenText,
    InvisibleCharacters,
    HtmlComment,
    EncodedBlob,
    CredentialPath,
    Exfiltration,
    RemoteCode,
    Override,
    Deception,
    Destruction,
    Persistence,
    LeakedSecret,
}

impl FindingKind {
    pub fn describe(self) -> &'static str {
        match self {
            Self::HiddenText => "text that a reader of the page does not see",
            Self::InvisibleCharacters => "invisible or look-alike characters",
            Self::HtmlComment => "instructions in an HTML comment",
            Self::EncodedBlob => "an encoded blob",
            Self::CredentialPath => "access to a place where credentials are kept",
            Self::Exfiltration => "private data sent to an address",
            Self::RemoteCode => "code from the network that is run unseen",
            Self::Override => "an instruction to ignore instructions or safeguards",
            Self::Deception => "something to be kept from the user",
            Self::Destruction => "a command that destroys data",
            Self::Persistence => "a change that outlives the task",
            Self::LeakedSecret => "a secret in the clear",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    /// The passage. Of a secret, only the first characters.
    pub passage: String,
}

impl Finding {
    fn new(kind: FindingKind, passage: impl Into<String>) -> Self {
        Self { kind, passage: passage.into() }
    }
}

/// All findings in a file, at most a few of each kind.
pub fn scan(raw_source: &str) -> Vec<Finding> {
    const MAX_PER_KIND: usize = 3;
    let mut found = Vec::new();
    hidden::scan(raw_source, &mut found);
    encoded::scan(raw_source, &mut found);
    secrets::scan(raw_source, &mut found);
    for passage in passages::passages(raw_source) {
        intent::scan(&passage, &mut found);
    }
    found.sort_by_key(|finding| finding.kind);
    let mut kept: Vec<Finding> = Vec::new();
    for finding in found {
        let same = kept.iter().filter(|known| known.kind == finding.kind);
        if same.clone().count() < MAX_PER_KIND && !same.clone().any(|known| known.passage == finding.passage)
        {
            kept.push(finding);
        }
    }
    kept
}

pub fn axis(findings: &[Finding]) -> Axis {
    if findings.is_empty() {
        let rationale = "Looked for hidden text, invisible characters, HTML comments, encoded blobs, credential paths, \
                         exfiltration, remote code, instructions to ignore instructions, deception, destruction and leaked \
                         secrets; found none.";
        return Axis { score: 1.0, rationale: rationale.into() };
    }
    let reasons: Vec<_> = findings
        .iter()
        .map(|finding| format!("{}: {}", finding.kind.describe(), quoted(&finding.passage)))
        .collect();
    Axis { score: 0.0, rationale: format!("Found {}.", reasons.join("; ")) }
}

#[cfg(test)]
mod tests;
