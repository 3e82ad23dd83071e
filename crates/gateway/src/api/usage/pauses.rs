//! Prompt caching that is paused, as the API shows it.

use gateway_core::ids::KeyId;
use gateway_core::time::Timestamp;
use gateway_core::totals::usd;
use gateway_store::prompt_cache_pauses::Pause;
use schemars::JsonSchema;
use serde::Serialize;

/// Prompt caching that is paused because it lost money over a hundred calls.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PromptCachePause")]
pub struct PauseView {
    /// The key whose calls lost money; null for calls of members without a key.
    key_id: Option<KeyId>,
    /// The named model with the setting; null for the setting of the organization.
    model: Option<String>,
    /// What was saved over the hundred calls: negative.
    saved_usd: f64,
    paused_at: Timestamp,
}

impl From<Pause> for PauseView {
    fn from(pause: Pause) -> Self {
        let Pause { key_id, model, saved, paused_at } = pause;
        Self { key_id, model, saved_usd: usd(saved), paused_at }
    }
}
