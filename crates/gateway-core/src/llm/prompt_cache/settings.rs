//! The setting of an organization or of a named model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether the gateway marks the parts of prompts that providers shall cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PromptCache {
    #[serde(default)]
    pub mode: PromptCacheMode,
    /// How long the provider keeps the tools and the system prompt. `1h` costs twice the input price to write.
    #[serde(default)]
    pub ttl: PromptCacheTtl,
    /// A shorter prefix is not marked. Models that need more keep their own minimum.
    #[serde(default = "default_min_tokens")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub min_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PromptCacheMode {
    #[default]
    Off,
    Auto,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PromptCacheTtl {
    #[default]
    #[serde(rename = "5m")]
    FiveMinutes,
    #[serde(rename = "1h")]
    OneHour,
}

const MAX_MIN_TOKENS: u64 = 1_000_000;

fn default_min_tokens() -> u64 {
    1_024
}

impl Default for PromptCache {
    fn default() -> Self {
        Self {
            mode: PromptCacheMode::Off,
            ttl: PromptCacheTtl::FiveMinutes,
            min_tokens: default_min_tokens(),
        }
    }
}

impl PromptCache {
    pub fn is_auto(&self) -> bool {
        self.mode == PromptCacheMode::Auto
    }

    /// Whether its values are in their ranges. The text names the field and what it must be.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if (1..=MAX_MIN_TOKENS).contains(&self.min_tokens) {
            Ok(())
        } else {
            Err(("min_tokens", "must be from 1 to 1000000"))
        }
    }
}
