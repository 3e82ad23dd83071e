//! Whose signature a signature is. ThinkingDedup are signed by the provider that had them and are proof to nobody else: sent to
//! another they make it refuse the whole conversation, which is what happens when a call falls back. So a signature
//! that reaches its caller in another format than its maker's is wrapped with its maker's name; when it comes back, it is
//! unwrapped for its maker and left out for everybody else. A signature without a name is of the caller's own format.
//!
//! The wrapping is base64, because Google's SDKs take signatures for bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::super::chat::{ChatRequest, Choice, Content, Losses, RequestField, StreamEvent, WireFormat};

const MARK: &str = "gateway:";

/// Whether a request holds signatures that were wrapped here. It must then be translated even into its own format.
pub fn contains_wrapped_signatures(body: &[u8]) -> bool {
    // `gateway:` in base64, up to the last letter that is the same whatever follows.
    memchr::memmem::find(body, b"Z2F0ZXdheTp").is_some()
}

/// Names the makers in an answer.
pub(super) fn wrap_response(choices: &mut [Choice], maker: WireFormat, caller: WireFormat) {
    if family(maker) == family(caller) {
        return;
    }
    for part in choices.iter_mut().flat_map(|choice| &mut choice.parts) {
        if let Some(signature) = signature_in(&mut part.content) {
            wrap(signature, maker);
        }
    }
}

/// Names the maker in an event of a stream.
pub(super) fn wrap_event(event: &mut StreamEvent, maker: WireFormat, caller: WireFormat) {
    if family(maker) == family(caller) {
        return;
    }
    match event {
        StreamEvent::Signature { signature, .. }
        | StreamEvent::ToolStart { signature: Some(signature), .. } => {
            wrap(signature, maker);
        }
        StreamEvent::Redacted { data, .. } => wrap(data, maker),
        _ => {}
    }
}

/// Leaves in a request only what the provider has signed itself.
pub(super) fn unwrap_request(request: &mut ChatRequest, target: WireFormat, losses: &mut Losses) {
    let source = request.format;
    for message in &mut request.messages {
        message.parts.retain_mut(|part| {
            let Some(signature) = signature_in(&mut part.content) else { return true };
            let (maker, original) = unwrap(signature).unwrap_or((family(source), None));
            if maker == family(target) {
                if let Some(original) = original {
                    *signature = original;
                }
                return true;
            }
            match &mut part.content {
                Content::ToolCall(call) => call.signature = None,
                // Cohere signs nothing; to all others a thought without a signature is worth nothing.
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

/// Who takes whose signatures: Claude signs alike wherever it runs.
fn family(format: WireFormat) -> &'static str {
    match format {
        WireFormat::OpenAiChat | WireFormat::OpenAiCompletions => "chat",
        WireFormat::OpenAiResponses => "responses",
        WireFormat::Anthropic | WireFormat::Bedrock => "claude",
        WireFormat::Gemini => "gemini",
        WireFormat::Cohere => "cohere",
    }
}

fn wrap(signature: &mut String, maker: WireFormat) {
    *signature = STANDARD.encode(format!("{MARK}{}:{signature}", family(maker)));
}

/// The maker's family and its signature, of one that was wrapped here.
fn unwrap(signature: &str) -> Option<(&'static str, Option<String>)> {
    let text = String::from_utf8(STANDARD.decode(signature).ok()?).ok()?;
    let (name, original) = text.strip_prefix(MARK)?.split_once(':')?;
    const FORMATS: [WireFormat; 5] = [
        WireFormat::OpenAiChat,
        WireFormat::OpenAiResponses,
        WireFormat::Anthropic,
        WireFormat::Gemini,
        WireFormat::Cohere,
    ];
    // A name that is not known is nobody's here.
    let maker = FORMATS.into_iter().map(family).find(|family| *family == name).unwrap_or("");
    Some((maker, Some(original.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::chat::{Message, Part, Role, ToolCall};

    fn thought(signature: &str) -> Part {
        Part::new(Content::Thinking { text: "hm".to_owned(), signature: Some(signature.to_owned()) })
    }

    fn sent(from: WireFormat, to: WireFormat, parts: Vec<Part>) -> (Vec<Content>, Vec<String>) {
        let mut request = ChatRequest::new(from);
        request.messages = vec![Message::new(Role::Assistant, parts)];
        let mut losses = Losses::new(from);
        unwrap_request(&mut request, to, &mut losses);
        let parts = request.messages.remove(0).parts;
        (parts.into_iter().map(|part| part.content).collect(), losses.into_dropped())
    }

    fn answered(maker: WireFormat, caller: WireFormat, parts: Vec<Part>) -> Vec<Part> {
        let mut choices = [Choice { parts, ..Choice::default() }];
        wrap_response(&mut choices, maker, caller);
        let [choice] = choices;
        choice.parts
    }

    #[test]
    fn a_signature_comes_back_to_its_maker_as_it_was() {
        let call = ToolCall {
            id: "c".into(),
            name: "f".into(),
            arguments: "{}".into(),
            signature: Some("s".into()),
        };
        let parts =
            vec![thought("s"), Part::new(Content::Redacted("r".into())), Part::new(Content::ToolCall(call))];
        for (maker, caller) in [
            (WireFormat::Gemini, WireFormat::Anthropic),
            (WireFormat::Anthropic, WireFormat::Gemini),
            (WireFormat::Bedrock, WireFormat::OpenAiChat),
            (WireFormat::OpenAiResponses, WireFormat::Anthropic),
        ] {
            let wrapped = answered(maker, caller, parts.clone());
            assert_ne!(wrapped, parts);
            for part in &mut wrapped.clone() {
                let signature = signature_in(&mut part.content).unwrap();
                assert!(contains_wrapped_signatures(format!(r#"{{"signature":"{signature}"}}"#).as_bytes()));
            }
            let (back, dropped) = sent(caller, maker, wrapped);
            assert_eq!(back, parts.iter().map(|part| part.content.clone()).collect::<Vec<_>>());
            assert_eq!(dropped, Vec::<String>::new());
        }
    }

    #[test]
    fn claude_signs_alike_wherever_it_runs() {
        assert_eq!(answered(WireFormat::Bedrock, WireFormat::Anthropic, vec![thought("s")]), [thought("s")]);
        assert_eq!(
            sent(WireFormat::Anthropic, WireFormat::Bedrock, vec![thought("s")]).0,
            [thought("s").content]
        );
        let wrapped = answered(WireFormat::Anthropic, WireFormat::Gemini, vec![thought("s")]);
        assert_eq!(sent(WireFormat::Gemini, WireFormat::Bedrock, wrapped).0, [thought("s").content]);
    }

    #[test]
    fn a_stranger_gets_no_signatures() {
        assert_eq!(sent(WireFormat::Anthropic, WireFormat::Gemini, vec![thought("s")]).0, []);
        let wrapped = answered(WireFormat::Gemini, WireFormat::Anthropic, vec![thought("s")]);
        assert_eq!(sent(WireFormat::Anthropic, WireFormat::Anthropic, wrapped).0, []);
        let unsigned = Content::Thinking { text: "hm".to_owned(), signature: None };
        assert_eq!(sent(WireFormat::Anthropic, WireFormat::Cohere, vec![thought("s")]).0, [unsigned]);
        let signature = Some("s".to_owned());
        let call = ToolCall { id: "c".into(), name: "f".into(), arguments: "{}".into(), signature };
        let unsigned = ToolCall { signature: None, ..call.clone() };
        let parts = vec![Part::new(Content::ToolCall(call))];
        assert_eq!(sent(WireFormat::Gemini, WireFormat::OpenAiChat, parts).0, [Content::ToolCall(unsigned)]);
        let silent = Part::new(Content::Thinking { text: String::new(), signature: Some("s".into()) });
        let redacted = Part::new(Content::Redacted("r".into()));
        let (parts, dropped) = sent(WireFormat::Anthropic, WireFormat::Gemini, vec![silent, redacted]);
        assert_eq!(parts, []);
        assert_eq!(dropped, ["messages[].content[].thinking", "messages[].content[].data"]);
    }
}
