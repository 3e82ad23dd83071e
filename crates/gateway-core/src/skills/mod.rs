//! Skills: instructions for agents, written as a SKILL.md file. This folder has what makes a skill valid, what lets it
//! on the shelf, and the judge that reads it.

pub mod adoption;
pub mod frontmatter;
pub mod gate;
pub mod judge;
pub mod rubric;

use sha2::{Digest, Sha256};

use frontmatter::Document;

pub const NAME_LENGTH: usize = 64;
pub const DESCRIPTION_LENGTH: usize = 1024;
pub const HEADLINE_LENGTH: usize = 200;
/// Of the whole file. Agents load it into a prompt, so even this is far too much.
pub const SOURCE_BYTES: usize = 256 << 10;

/// One version of a skill's text. The fields and the file say the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillSource {
    pub name: String,
    /// Empty when there is none.
    pub headline: String,
    pub description: String,
    pub body: String,
    pub raw_source: String,
}

/// The fields of a skill that a partial update names.
#[derive(Debug, Clone, Default)]
pub struct SkillChange {
    pub name: Option<String>,
    pub headline: Option<String>,
    pub description: Option<String>,
    pub body: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The frontmatter is no YAML, or says something that a skill must not.
    #[error("{0}")]
    Frontmatter(String),
    #[error("the skill is larger than {SOURCE_BYTES} bytes")]
    TooLarge,
    /// What was written from the fields does not read back as the same.
    #[error("the frontmatter could not be written")]
    Synthesis,
}

impl SkillSource {
    /// A skill from its file.
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
        check_length("description", &source.description, DESCRIPTION_LENGTH)?;
        if source.description.trim().is_empty() {
            return Err(SourceError::Frontmatter("description: must say what the skill is for".into()));
        }
        check_length("headline", &source.headline, HEADLINE_LENGTH)?;
        Ok(source)
    }

    /// A skill from its fields; the file is written from them.
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
        Self::written(&document)
    }

    /// The skill with some fields changed. Whatever else stands in its frontmatter stays.
    pub fn changed(&self, change: &SkillChange) -> Result<Self, SourceError> {
        let mut document = Document::parse(&self.raw_source)?;
        let SkillChange { name, headline, description, body } = change;
        let fields = [("name", name, &self.name), ("description", description, &self.description)];
        for (key, value, now) in fields {
            if let Some(value) = value.as_ref().filter(|value| *value != now) {
                document.set(key, value);
            }
        }
        if let Some(headline) = headline.as_ref().filter(|value| **value != self.headline) {
            document.set_headline(headline);
        }
        if let Some(body) = body {
            body.clone_into(&mut document.body);
        }
        Self::written(&document)
    }

    /// The file as agents load it; see `Document::for_agents`.
    pub fn for_agents(&self) -> Result<String, SourceError> {
        Document::parse(&self.raw_source)?.for_agents()
    }

    pub fn hash(&self) -> String {
        content_hash(&self.raw_source)
    }

    /// Writes, and reads what was written: the fields must come back as they were meant.
    fn written(document: &Document) -> Result<Self, SourceError> {
        let source = Self::from_raw(&document.write()?)?;
        let meant = (document.text("name")?, document.headline()?, document.text("description")?);
        let found = (Some(source.name.clone()), source.headline.clone(), Some(source.description.clone()));
        if meant == found && source.body == document.body { Ok(source) } else { Err(SourceError::Synthesis) }
    }
}

/// SHA-256 of the file, by which verdicts and adopters know that it is the same text.
pub fn content_hash(raw_source: &str) -> String {
    hex::encode(Sha256::digest(raw_source.as_bytes()))
}

/// Lowercase words joined by single hyphens.
pub fn check_name(name: &str) -> Result<(), SourceError> {
    let word =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if name.is_empty() {
        Err(SourceError::Frontmatter("name: is missing".into()))
    } else if name.len() > NAME_LENGTH || !name.split('-').all(word) {
        let rule = "must be kebab-case: 1 to 64 lowercase letters and digits, words joined by single hyphens";
        Err(SourceError::Frontmatter(format!("name: {rule}")))
    } else {
        Ok(())
    }
}

fn check_length(field: &str, text: &str, longest: usize) -> Result<(), SourceError> {
    if text.chars().count() > longest {
        return Err(SourceError::Frontmatter(format!("{field}: must be at most {longest} characters long")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
