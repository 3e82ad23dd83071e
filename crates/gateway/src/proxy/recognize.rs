//! Recognizes a response whose content type says nothing, before it is converted for the caller. What is neither JSON
//! nor a stream of events cannot be translated: it is a failure of the provider, not something to forward in a format
//! that the caller does not read.

use std::collections::VecDeque;

use gateway_core::llm::failure::AttemptOutcome;
use gateway_core::llm::{BodyFraming, ProviderFormat};
use tokio::time::Instant;

use super::attempt::Attempt;
use super::content_decoding::ContentCodings;
use super::response_body::BodySource;
use super::response_format::ResponseContent;
use super::upstream::{AttemptError, UpstreamResponse};
use super::validate::next_chunk;

/// Blanks in front of the content are read up to this length.
const MAX_START: usize = 64 << 10;
/// Both layers of a body with two codings count.
const MAX_DECODED_START: u64 = 4 * MAX_START as u64;

/// Returns the response with the framing of its content.
pub async fn recognize(
    attempt: &Attempt<'_>,
    response: UpstreamResponse,
    deadline: Instant,
) -> Result<UpstreamResponse, AttemptError> {
    if !response.head.status.is_success() || response.framing != BodyFraming::Opaque {
        return Ok(response);
    }
    let UpstreamResponse { head, content, .. } = response;
    let ResponseContent::Streaming { source: BodySource::Upstream(mut body), codings, translator } = content
    else {
        return Ok(UpstreamResponse { head, framing: BodyFraming::Opaque, content });
    };
    let is_readable = ContentCodings::from_headers(&head.headers).is_some();
    let mut decoder = codings.decoder(MAX_DECODED_START);
    let (mut chunks, mut received, mut start) = (VecDeque::new(), 0, Vec::new());
    let mut framing = BodyFraming::Opaque;
    while is_readable
        && start.len() < MAX_START
        // Very many compressed bytes may become nothing.
        && received < MAX_START
        && let Some(chunk) = next_chunk(&mut body, deadline).await?
    {
        let decoded = if let Some(decoder) = &mut decoder {
            decoder.feed(&chunk, &mut |piece| start.extend_from_slice(piece))
        } else {
            start.extend_from_slice(&chunk);
            Ok(())
        };
        received += chunk.len();
        chunks.push_back(chunk);
        if let Some(found) = BodyFraming::sniff(&start) {
            framing = found;
            break;
        }
        if decoded.is_err() {
            break;
        }
    }
    let is_possible = match framing {
        BodyFraming::Json | BodyFraming::Sse => true,
        BodyFraming::EventStream => attempt.provider().format == ProviderFormat::Bedrock,
        BodyFraming::Opaque => false,
    };
    if !is_possible && attempt.translation.is_some() {
        let message = "upstream returned neither JSON nor a stream of events";
        return Err(AttemptError::new(AttemptOutcome::InvalidResponse, message));
    }
    let framing = if is_possible { framing } else { BodyFraming::Opaque };
    let source = BodySource::Prefixed(chunks, body);
    Ok(UpstreamResponse {
        head,
        framing,
        content: ResponseContent::Streaming { source, codings, translator },
    })
}
