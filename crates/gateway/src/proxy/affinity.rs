//! What keeps the calls of a conversation without `X-Gateway-Session` at one target and account, so that they find the
//! provider's prompt cache: with the setting `affinity: auto`, what an agent sends anyway.

use gateway_core::accounts::Affinity as Setting;
use gateway_core::llm::affinity::{beginning, prompt_cache_key};
use http::header::CONTENT_TYPE;

use super::context::RequestContext;
use super::directives::Directives;
use super::inbound::Inbound;
use crate::problem::ApiResult;

const CLAUDE_CODE_SESSION: &str = "x-claude-code-session-id";
/// What Codex repeats in the calls of one turn.
const CODEX_TURN: &str = "x-codex-turn-state";
/// Longer names are not those of sessions.
const MAX_BYTES: usize = 1_024;

/// Identifies a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affinity {
    pub text: String,
    /// The caller named it; otherwise it is derived from how the conversation begins.
    pub is_named: bool,
}

impl Affinity {
    fn named(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_named: true }
    }

    /// Finds what the request has, if it has no session. The body is read only if nothing else says it.
    pub async fn find(
        context: RequestContext<'_>,
        directives: &Directives,
        inbound: &mut Inbound,
    ) -> ApiResult<Option<Self>> {
        let is_wanted =
            context.identity.org.settings.affinity == Setting::Auto && directives.session.is_none();
        if !is_wanted || !directives.operation.calls_model() {
            return Ok(None);
        }
        if let Some(session) = header(context, CLAUDE_CODE_SESSION) {
            return Ok(Some(session));
        }
        let content_type = context.head.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        if content_type.get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/")) {
            return Ok(None);
        }
        inbound.read_prefix(usize::MAX).await?;
        let body = inbound.first_chunk();
        let key = prompt_cache_key(body).map(Self::named);
        Ok(key.or_else(|| header(context, CODEX_TURN)).or_else(|| {
            let hash = beginning(directives.operation, body)?.with_system;
            Some(Self { text: format!("{hash:016x}"), is_named: false })
        }))
    }
}

fn header(context: RequestContext<'_>, name: &str) -> Option<Affinity> {
    let text = context.head.headers.get(name)?.to_str().ok()?.trim();
    (1..=MAX_BYTES).contains(&text.len()).then(|| Affinity::named(text))
}
