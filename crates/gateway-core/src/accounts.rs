//! Validation of emails, slugs, passwords and names, and the format of API keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ids::UserId;
use crate::llm::prompt_cache::PromptCache;

pub const KEY_PREFIX: &str = "sk-gateway-";
const KEY_HEX_DIGITS: usize = 64;

/// SHA-256 of a raw key. The raw key itself is never stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

/// The hash of a raw key, or `None` if the text does not have the format of a key.
pub fn hash_key(raw: &str) -> Option<KeyHash> {
    let digits = raw.strip_prefix(KEY_PREFIX)?;
    let well_formed =
        digits.len() == KEY_HEX_DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    well_formed.then(|| KeyHash(Sha256::digest(raw.as_bytes()).into()))
}

/// The hash of a key that another gateway made, whatever its form.
pub fn hash_foreign_key(raw: &str) -> KeyHash {
    KeyHash(Sha256::digest(raw.as_bytes()).into())
}

/// Formats 32 random bytes as a raw key.
pub fn format_key(random: &[u8; 32]) -> String {
    format!("{KEY_PREFIX}{}", hex::encode(random))
}

/// The part of a raw key that may be shown: `sk-gateway-` and the first 8 digits.
pub fn key_prefix(raw: &str) -> String {
    raw.chars().take(KEY_PREFIX.len() + 8).collect()
}

/// Settings of an organization.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OrgSettings {
    /// Store request and response bodies with log rows.
    pub log_bodies: bool,
    /// Days after which log rows are removed; null uses the server's setting.
    pub log_retention_days: Option<u32>,
    /// Members who may read the audit log besides admins.
    pub auditors: Vec<UserId>,
    /// Whose reads of stored conversations and of the audit log are recorded in it.
    pub audit_reads: AuditReads,
    /// Days after which audit entries are removed.
    pub audit_retention_days: u32,
    /// The provider of requests without `X-Gateway-Provider`: a name, or `auto`. Null: they are refused.
    pub default_provider: Option<String>,
    /// Marks for the prompt caches of providers, for calls of which neither a header nor a named model says it.
    pub prompt_cache: PromptCache,
    /// What keeps the calls of a conversation together if they have no `X-Gateway-Session`.
    pub affinity: Affinity,
    /// What the keys may do that members make for themselves. Null: up to the rights of the member.
    pub self_service_keys: Option<SelfServiceKeys>,
    /// Which headers tell callers about limits.
    pub limit_headers: LimitHeaders,
    /// Which skills the MCP server `gateway` serves.
    pub skills_served: SkillsServed,
    /// Tools for finding and loading skills, for MCP clients without the skills extension.
    pub skills_as_tools: bool,
}

/// Which skills of the organization agents get over MCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SkillsServed {
    /// Those whose current version the publish gate accepts.
    #[default]
    Passed,
    All,
}

/// Which headers of answers tell callers about limits. `X-RateLimit-*` are always there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LimitHeaders {
    /// `RateLimit-Policy`, `RateLimit`, and those that the clients of OpenAI and Anthropic know.
    #[default]
    All,
    /// `RateLimit-Policy` and `RateLimit`.
    Minimal,
    Off,
}

/// What keeps the calls of a conversation at one target and account, so that they find its prompt cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Affinity {
    /// Only `X-Gateway-Session`.
    #[default]
    Header,
    /// Also the session that an agent names in its own way, or else how the conversation begins.
    Auto,
}

/// The bounds of keys that members make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SelfServiceKeys {
    /// The scopes that a key may have; without scopes of its own it gets all of them.
    pub scopes: Vec<String>,
    /// The monthly budget that each key gets.
    #[serde(default)]
    pub budget_usd: Option<f64>,
    /// How many valid keys a member may have.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub max: Option<u32>,
}

/// Whose reads are recorded in the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditReads {
    Off,
    /// Of people, not of keys.
    #[default]
    Users,
    All,
}

impl Default for OrgSettings {
    fn default() -> Self {
        Self {
            log_bodies: true,
            log_retention_days: None,
            auditors: Vec::new(),
            audit_reads: AuditReads::default(),
            audit_retention_days: 365,
            default_provider: None,
            prompt_cache: PromptCache::default(),
            affinity: Affinity::default(),
            self_service_keys: None,
            limit_headers: LimitHeaders::default(),
            skills_served: SkillsServed::default(),
            skills_as_tools: true,
        }
    }
}

/// Validates an email and returns its stored form, in lower case.
pub fn normalise_email(text: &str) -> Result<String, &'static str> {
    let email = text.trim().to_lowercase();
    let Some((local, domain)) = email.rsplit_once('@') else {
        return Err("must be an email address such as ada@example.com");
    };
    let sane = |part: &str| {
        !part.is_empty()
            && !part.contains(|c: char| c.is_whitespace() || c.is_control() || "<>()[],;:\\\"@".contains(c))
    };
    let domain_sane = sane(domain) && domain.split('.').all(|label| !label.is_empty());
    if email.len() > 254 || !sane(local) || !domain_sane {
        return Err("must be an email address such as ada@example.com");
    }
    Ok(email)
}

pub fn check_slug(slug: &str) -> Result<(), &'static str> {
    let bytes = slug.as_bytes();
    let inner = bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    if inner && (1..=48).contains(&bytes.len()) && !slug.starts_with('-') && !slug.ends_with('-') {
        Ok(())
    } else {
        Err("must be 1 to 48 lowercase letters, digits or inner hyphens, such as acme-labs")
    }
}

pub fn check_password(password: &str) -> Result<(), &'static str> {
    if (8..=256).contains(&password.chars().count()) {
        Ok(())
    } else {
        Err("must be 8 to 256 characters long")
    }
}

/// Display names, key names, team names: something a person can read.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let length = name.chars().count();
    if name.trim().is_empty() {
        Err("must not be empty")
    } else if length > 200 {
        Err("must be at most 200 characters long")
    } else if name.chars().any(char::is_control) {
        Err("must not contain control characters")
    } else {
        Ok(())
    }
}

/// Slugs that mean something else: the shelf in names of skills, and the gateway's own server.
const RESERVED_SLUGS: [&str; 2] = ["shelf", "gateway"];

/// Checks the slug of a new organization. Those that existed before a slug was reserved keep it.
pub fn check_new_slug(slug: &str) -> Result<(), &'static str> {
    check_slug(slug)?;
    if RESERVED_SLUGS.contains(&slug) { Err("is reserved; choose another one") } else { Ok(()) }
}

/// Derives a slug from a name. Empty if the name has no usable character.
pub fn slugify(name: &str) -> String {
    let mut slug = String::new();
    for c in name.to_lowercase().chars() {
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() == 40 {
            break;
        }
    }
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_prefix_and_64_lowercase_hex_digits() {
        let raw = format_key(&[0xab; 32]);
        assert_eq!(raw.len(), 11 + 64);
        assert!(hash_key(&raw).is_some());
        assert_eq!(key_prefix(&raw), "sk-gateway-abababab");
        for bad in ["", "sk-gateway-", &raw[..74], &raw.to_uppercase(), &format!("{raw}0"), "sk-other-00"] {
            assert_eq!(hash_key(bad), None, "{bad}");
        }
    }

    #[test]
    fn emails_are_normalised() {
        assert_eq!(normalise_email(" Ada@Example.COM ").as_deref(), Ok("ada@example.com"));
        for bad in ["", "ada", "@x", "a@", "a b@c.d", "a@b..c", "a@b,c", "a@b@c", "<a@b.c>"] {
            assert!(normalise_email(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn slugs_follow_the_contract() {
        for good in ["a", "0", "acme", "a-b", &"x".repeat(48)] {
            assert!(check_slug(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "ä", &"x".repeat(49)] {
            assert!(check_slug(bad).is_err(), "{bad}");
        }
        for reserved in ["shelf", "gateway"] {
            assert!(check_slug(reserved).is_ok() && check_new_slug(reserved).is_err(), "{reserved}");
        }
        assert!(check_new_slug("acme").is_ok() && check_new_slug("A").is_err());
        assert_eq!(slugify("  Acme Labs, Inc. "), "acme-labs-inc");
        assert_eq!(slugify("日本"), "");
    }

    #[test]
    fn password_length_counts_characters() {
        assert!(check_password("1234567").is_err());
        assert!(check_password("pässwört").is_ok());
        assert!(check_password(&"x".repeat(257)).is_err());
    }
}
