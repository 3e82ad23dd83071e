//! Skills: instructions for agents in SKILL.md files. This module validates skills, gates their publication, and
//! contains the judge that scores them.

pub mod adoption;
pub mod files;
pub mod frontmatter;
pub mod gate;
pub mod install;
pub mod judge;
pub mod rubric;

use sha2::{Digest, Sha256};

use frontmatter::Document;

pub const MAX_NAME_CHARS: usize = 64;
pub const MAX_DESCRIPTION_CHARS: usize = 1024;
pub const MAX_HEADLINE_CHARS: usize = 200;
/// The limit for the whole file. It is generous: agents load the file into a prompt.
pub const MAX_SOURCE_BYTES: usize = 256 << 10;

/// One version of a skill's text. The fields are parsed from `raw_source`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillSource {
    pub name: String,
    /// Empty if absent.
    pub headline: String,
    pub description: String,
    pub body: String,
    pub raw_source: String,
}

/// A partial update; absent fields stay unchanged.
#[derive(Debug, Clone, Default)]
pub struct SkillChange {
    pub name: Option<String>,
    pub headline: Option<String>,
    pub description: Option<String>,
    pub body: Option<String>,
}

impl SkillChange {
    /// Checks the fields without the skill that they change: in place of those of a minimal one.
    pub fn check(&self) -> Result<(), SourceError> {
        SkillSource::from_fields("a", "", "a", "")?.changed(self).map(|_| ())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The frontmatter is not valid YAML, or a field is missing or invalid.
    #[error("{0}")]
    Frontmatter(String),
    #[error("the skill is larger than {MAX_SOURCE_BYTES} bytes")]
    TooLarge,
    /// The file written from the fields does not parse back to the same fields.
    #[error("the frontmatter could not be written")]
    Synthesis,
}

impl SkillSource {
    /// Parses a SKILL.md file.
    pub fn from_raw(raw: &str) -> Result<Self, SourceError> {
        let document = Document::parse(raw)?;
        let source = Self {
            name: document.text("name")?.unwrap_or_default(),
            headline: document.headline()?,
            description: document.text("description")?.unwrap_or_default(),
            body: document.body,
            raw_source: raw.to_owned(),
        };
        check_name(&source.name)?;
        check_length("description", &source.description, MAX_DESCRIPTION_CHARS)?;
        if source.description.trim().is_empty() {
            return Err(SourceError::Frontmatter("description: must say what the skill is for".into()));
        }
        check_length("headline", &source.headline, MAX_HEADLINE_CHARS)?;
        Ok(source)
    }

    /// Builds a skill from its fields and writes the file from them.
    pub fn from_fields(
        name: &str,
        headline: &str,
        description: &str,
        body: &str,
    ) -> Result<Self, SourceError> {
        let mut document = Document::default();
        document.set("name", name);
        if !headline.is_empty() {
            document.set("headline", headline);
        }
        document.set("description", description);
        body.clone_into(&mut document.body);
        Self::from_document(&document)
    }

    /// The skill with some fields changed. Other frontmatter keys are preserved.
    pub fn changed(&self, change: &SkillChange) -> Result<Self, SourceError> {
        let current = Document::parse(&self.raw_source)?;
        let mut document = current.clone();
        let SkillChange { name, headline, description, body } = change;
        let fields = [("name", name, &self.name), ("description", description, &self.description)];
        for (key, value, current) in fields {
            if let Some(value) = value.as_ref().filter(|value| *value != current) {
                document.set(key, value);
            }
        }
        if let Some(headline) = headline.as_ref().filter(|value| **value != self.headline) {
            document.set_headline(headline);
        }
        if let Some(body) = body {
            body.clone_into(&mut document.body);
        }
        // Written anew, the file could differ in blank lines, and would be another version.
        if document == current { Ok(self.clone()) } else { Self::from_document(&document) }
    }

    /// The file for agents; see `Document::for_agents`.
    pub fn for_agents(&self) -> Result<String, SourceError> {
        Document::parse(&self.raw_source)?.for_agents()
    }

    pub fn hash(&self) -> String {
        content_hash(&self.raw_source)
    }

    /// Writes the document and parses the result, to verify that the fields survive the round trip.
    fn from_document(document: &Document) -> Result<Self, SourceError> {
        let source = Self::from_raw(&document.write()?)?;
        let expected = (document.text("name")?, document.headline()?, document.text("description")?);
        let parsed = (Some(source.name.clone()), source.headline.clone(), Some(source.description.clone()));
        if expected == parsed && source.body == document.body {
            Ok(source)
        } else {
            Err(SourceError::Synthesis)
        }
    }
}

/// SHA-256 of the file, which identifies the exact text for verdicts and adopters.
pub fn content_hash(raw_source: &str) -> String {
    hex::encode(Sha256::digest(raw_source.as_bytes()))
}

/// Checks for kebab-case: lowercase words joined by single hyphens.
pub fn check_name(name: &str) -> Result<(), SourceError> {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if name.is_empty() {
        Err(SourceError::Frontmatter("name: is missing".into()))
    } else if name.len() > MAX_NAME_CHARS || !name.split('-').all(is_word) {
        let rule = "must be kebab-case: 1 to 64 lowercase letters and digits, words joined by single hyphens";
        Err(SourceError::Frontmatter(format!("name: {rule}")))
    } else {
        Ok(())
    }
}

fn check_length(field: &str, text: &str, max: usize) -> Result<(), SourceError> {
    if text.chars().count() > max {
        return Err(SourceError::Frontmatter(format!("{field}: must be at most {max} characters long")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
