//! Converts conversations for formats that keep the system prompt in a separate field and require user and assistant
//! messages to alternate.

use super::super::chat::{Content, FieldLocation, Losses, Message, OutputFormat, Part, RequestField, Role};

pub(super) struct AlternatingTurns {
    pub(super) system: Vec<Message>,
    /// User and assistant messages only. Tool results belong to the user's turn and come first in it.
    pub(super) turns: Vec<Message>,
}

/// Splits a conversation into system prompt and alternating turns. If `same_format` is set, the request was sent in the
/// target's format and its turns are left unchanged.
pub(super) fn to_alternating_turns(
    messages: Vec<Message>,
    same_format: bool,
    losses: &mut Losses,
) -> AlternatingTurns {
    let mut system = Vec::new();
    let mut turns: Vec<Message> = Vec::with_capacity(messages.len());
    for mut message in messages {
        if !same_format {
            if message.name.take().is_some() {
                losses.drop(RequestField::MessageName);
            }
            losses.drop_extra(FieldLocation::Message, &message.extra);
            message.extra.clear();
            message.parts.retain(|part| !is_empty_text(part));
        }
        if message.is_system() {
            system.push(message);
            continue;
        }
        if message.role == Role::Tool {
            message.role = Role::User;
        }
        if !same_format && message.parts.is_empty() {
            continue;
        }
        match turns.last_mut() {
            Some(last) if !same_format && last.role == message.role => {
                last.parts.append(&mut message.parts);
                last.is_string = false;
            }
            _ => turns.push(message),
        }
    }
    if !same_format {
        for turn in turns.iter_mut().filter(|turn| turn.role == Role::User) {
            turn.parts.sort_by_key(|part| !matches!(part.content, Content::ToolResult(_)));
        }
    }
    AlternatingTurns { system, turns }
}

/// A system instruction that requests JSON output, for formats without a parameter for it.
pub(super) fn json_instruction(output: Option<&OutputFormat>) -> Option<&'static str> {
    matches!(output, Some(OutputFormat::JsonObject))
        .then_some("Answer with a single JSON object and nothing else.")
}

/// Replaces the characters of a tool call id that Anthropic and Bedrock reject. Calls and results are changed alike, so
/// they still match.
pub(super) fn sanitize_call_id(mut id: String) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !id.chars().all(is_allowed) {
        id = id.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect();
    }
    id
}

fn is_empty_text(part: &Part) -> bool {
    matches!(&part.content, Content::Text(text) if text.is_empty())
}
