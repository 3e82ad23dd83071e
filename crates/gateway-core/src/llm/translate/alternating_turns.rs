//! Conversations for formats that keep the system's words apart and want user and assistant to take turns.

use super::super::chat::{Content, FieldLocation, Losses, Message, OutputFormat, Part, RequestField, Role};

pub(super) struct AlternatingTurns {
    pub(super) system: Vec<Message>,
    /// Of user and assistant only; results of tools belong to the user's turn and stand first in it.
    pub(super) turns: Vec<Message>,
}

/// Takes a conversation apart. `own`: it came in the target's format, so that its turns are left as they are.
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

/// The line that asks for JSON where a format has no switch for it.
pub(super) fn json_instruction(output: Option<&OutputFormat>) -> Option<&'static str> {
    matches!(output, Some(OutputFormat::JsonObject))
        .then_some("Answer with a single JSON object and nothing else.")
}

/// An id of a call in the letters that Anthropic and Bedrock allow. Calls and results change alike.
pub(super) fn sanitize_call_id(mut id: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !id.chars().all(plain) {
        id = id.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    }
    id
}

fn is_empty_text(part: &Part) -> bool {
    matches!(&part.content, Content::Text(text) if text.is_empty())
}
