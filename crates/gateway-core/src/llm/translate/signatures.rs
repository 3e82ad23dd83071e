//! Tracks which provider signed the thinking of a conversation. Only that provider accepts the signature; another
//! one, for example after a fallback, rejects the whole conversation. A signature that is returned in another format
//! than that of its issuer is therefore wrapped together with the issuer's name. When the caller sends it back, it is
//! unwrapped for the issuer and removed for all other providers. A signature that is not wrapped belongs to the
//! caller's format.
//!
//! Wrapped signatures are base64, because Google's SDKs treat signatures as bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::super::chat::{ChatRequest, Choice, Content, Losses, RequestField, StreamEvent, WireFormat};

const WRAP_PREFIX: &str = "gateway:";

/// Returns whether a request contains wrapped signatures. Such a request is translated even into its own format.
pub fn contains_wrapped_signatures(body: &[u8]) -> bool {
    // `gateway:` in base64, up to the last character that does not depend on the bytes after it.
    memchr::memmem::find(body, b"Z2F0ZXdheTp").is_some()
}

/// Wraps the signatures of a response, unless the caller uses the issuer's format.
pub(super) fn wrap_response(choices: &mut [Choice], issuer: WireFormat, caller: WireFormat) {
    if signature_family(issuer) == signature_family(caller) {
        return;
    }
    for part in choices.iter_mut().flat_map(|choice| &mut choice.parts) {
        if let Some(signature) = signature_in(&mut part.content) {
            wrap(signature, issuer);
        }
    }
}

/// Wraps the signature of a stream event, unless the caller uses the issuer's format.
pub(super) fn wrap_event(event: &mut StreamEvent, issuer: WireFormat, caller: WireFormat) {
    if signature_family(issuer) == signature_family(caller) {
        return;
    }
    match event {
        StreamEvent::Signature { signature, .. }
        | StreamEvent::ToolStart { signature: Some(signature), .. } => {
            wrap(signature, issuer);
        }
        StreamEvent::Redacted { data, .. } => wrap(data, issuer),
        _ => {}
    }
}

/// Unwraps the signatures that the target issued and removes all others, together with the thinking that they sign.
pub(super) fn unwrap_request(request: &mut ChatRequest, target: WireFormat, losses: &mut Losses) {
    let source = request.format;
    for message in &mut request.messages {
        message.parts.retain_mut(|part| {
            let Some(signature) = signature_in(&mut part.content) else { return true };
            let (issuer, original) = unwrap(signature).unwrap_or((signature_family(source), None));
            if issuer == signature_family(target) {
                if let Some(original) = original {
                    *signature = original;
                }
                return true;
            }
            match &mut part.content {
                Content::ToolCall(call) => call.signature = None,
                // Cohere accepts unsigned thinking. All other formats require a signature.
                Content::Thinking { text, signature } if target == WireFormat::Cohere && !text.is_empty() => {
                    *signature = None;
                }
                Content::Thinking { .. } => {
                    losses.drop(RequestField::Thinking);
                    return false;
                }
                _ => {
                    losses.drop(RequestField::Redacted);
                    return false;
                }
            }
            true
        });
    }
}

fn signature_in(content: &mut Content) -> Option<&mut String> {
    match content {
        Content::Thinking { signature, .. } => signature.as_mut(),
        Content::ToolCall(call) => call.signature.as_mut(),
        Content::Redacted(data) => Some(data),
        _ => None,
    }
}

/// The formats of one family accept each other's signatures. Claude's are the same at Anthropic and at Bedrock.
fn signature_family(format: WireFormat) -> &'static str {
    match format {
        WireFormat::OpenAiChat | WireFormat::OpenAiCompletions => "chat",
        WireFormat::OpenAiResponses => "responses",
        WireFormat::Anthropic | WireFormat::Bedrock => "claude",
        WireFormat::Gemini => "gemini",
        WireFormat::Cohere => "cohere",
    }
}

fn wrap(signature: &mut String, issuer: WireFormat) {
    *signature = STANDARD.encode(format!("{WRAP_PREFIX}{}:{signature}", signature_family(issuer)));
}

/// Returns the issuer's family and the original signature. None if the signature is not wrapped.
fn unwrap(signature: &str) -> Option<(&'static str, Option<String>)> {
    let text = String::from_utf8(STANDARD.decode(signature).ok()?).ok()?;
    let (name, original) = text.strip_prefix(WRAP_PREFIX)?.split_once(':')?;
    const FORMATS: [WireFormat; 5] = [
        WireFormat::OpenAiChat,
        WireFormat::OpenAiResponses,
        WireFormat::Anthropic,
        WireFormat::Gemini,
        WireFormat::Cohere,
    ];
    // An unknown name matches no target.
    let issuer = FORMATS.into_iter().map(signature_family).find(|family| *family == name).unwrap_or("");
    Some((issuer, Some(original.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::chat::{Message, Part, Role, ToolCall};

    fn thought(signature: &str) -> Part {
        Part::new(Content::Thinking { text: "hm".to_owned(), signature: Some(signature.to_owned()) })
    }

    fn unwrapped(from: WireFormat, to: WireFormat, parts: Vec<Part>) -> (Vec<Content>, Vec<String>) {
        let mut request = ChatRequest::new(from);
        request.messages = vec![Message::new(Role::Assistant, parts)];
        let mut losses = Losses::new(from);
        unwrap_request(&mut request, to, &mut losses);
        let parts = request.messages.remove(0).parts;
        (parts.into_iter().map(|part| part.content).collect(), losses.into_dropped())
    }

    fn wrapped(issuer: WireFormat, caller: WireFormat, parts: Vec<Part>) -> Vec<Part> {
        let mut choices = [Choice { parts, ..Choice::default() }];
        wrap_response(&mut choices, issuer, caller);
        let [choice] = choices;
        choice.parts
    }

    #[test]
    fn a_signature_is_restored_for_its_issuer() {
        let call = ToolCall {
            id: "c".into(),
            name: "f".into(),
            arguments: "{}".into(),
            signature: Some("s".into()),
        };
        let parts =
            vec![thought("s"), Part::new(Content::Redacted("r".into())), Part::new(Content::ToolCall(call))];
        for (issuer, caller) in [
            (WireFormat::Gemini, WireFormat::Anthropic),
            (WireFormat::Anthropic, WireFormat::Gemini),
            (WireFormat::Bedrock, WireFormat::OpenAiChat),
            (WireFormat::OpenAiResponses, WireFormat::Anthropic),
        ] {
            let wrapped = wrapped(issuer, caller, parts.clone());
            assert_ne!(wrapped, parts);
            for part in &mut wrapped.clone() {
                let signature = signature_in(&mut part.content).unwrap();
                assert!(contains_wrapped_signatures(format!(r#"{{"signature":"{signature}"}}"#).as_bytes()));
            }
            let (back, dropped) = unwrapped(caller, issuer, wrapped);
            assert_eq!(back, parts.iter().map(|part| part.content.clone()).collect::<Vec<_>>());
            assert_eq!(dropped, Vec::<String>::new());
        }
    }

    #[test]
    fn claude_signatures_are_the_same_at_all_providers() {
        assert_eq!(wrapped(WireFormat::Bedrock, WireFormat::Anthropic, vec![thought("s")]), [thought("s")]);
        assert_eq!(
            unwrapped(WireFormat::Anthropic, WireFormat::Bedrock, vec![thought("s")]).0,
            [thought("s").content]
        );
        let wrapped = wrapped(WireFormat::Anthropic, WireFormat::Gemini, vec![thought("s")]);
        assert_eq!(unwrapped(WireFormat::Gemini, WireFormat::Bedrock, wrapped).0, [thought("s").content]);
    }

    #[test]
    fn other_providers_get_no_signatures() {
        assert_eq!(unwrapped(WireFormat::Anthropic, WireFormat::Gemini, vec![thought("s")]).0, []);
        let wrapped = wrapped(WireFormat::Gemini, WireFormat::Anthropic, vec![thought("s")]);
        assert_eq!(unwrapped(WireFormat::Anthropic, WireFormat::Anthropic, wrapped).0, []);
        let unsigned = Content::Thinking { text: "hm".to_owned(), signature: None };
        assert_eq!(unwrapped(WireFormat::Anthropic, WireFormat::Cohere, vec![thought("s")]).0, [unsigned]);
        let signature = Some("s".to_owned());
        let call = ToolCall { id: "c".into(), name: "f".into(), arguments: "{}".into(), signature };
        let unsigned = ToolCall { signature: None, ..call.clone() };
        let parts = vec![Part::new(Content::ToolCall(call))];
        assert_eq!(
            unwrapped(WireFormat::Gemini, WireFormat::OpenAiChat, parts).0,
            [Content::ToolCall(unsigned)]
        );
        let without_text = Part::new(Content::Thinking { text: String::new(), signature: Some("s".into()) });
        let redacted = Part::new(Content::Redacted("r".into()));
        let (parts, dropped) =
            unwrapped(WireFormat::Anthropic, WireFormat::Gemini, vec![without_text, redacted]);
        assert_eq!(parts, []);
        assert_eq!(dropped, ["messages[].content[].thinking", "messages[].content[].data"]);
    }
}
