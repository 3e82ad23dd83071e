//! Embeddings: asked for in OpenAI's words, made by any provider that can.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{
    super::{
        Shape,
        chat::{Embed, Losses, Untranslatable, Wire},
        usage::Usage,
    },
    driver::{Unreadable, object},
    json::{string, strings, take, whole},
    provider,
};

/// A request for embeddings in the provider's format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedRequest {
    pub path: String,
    pub body: Vec<u8>,
    pub dropped: Vec<String>,
    /// For `embed_response`: the caller wants its vectors as base64, as OpenAI's own SDK does unless told otherwise.
    pub base64: bool,
}

/// Turns a request in OpenAI's format into one for a provider. `model` is what the provider calls it.
pub fn embed_request(to: Shape, body: &[u8], model: &str) -> Result<EmbedRequest, Untranslatable> {
    let mut body = object(body)?;
    let mut losses = Losses::new(Wire::OpenAiChat);
    let inputs = match take(&mut body, "input") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) if several.iter().any(|input| !input.is_string()) => {
            return Err(Untranslatable::Refused {
                field: "input".to_owned(),
                message: "tokens mean something to their own model only; send text".to_owned(),
            });
        }
        Some(Value::Array(several)) if !several.is_empty() => strings(several, "input")?,
        _ => return Err(Untranslatable::malformed("input", "must be a text or a list of texts")),
    };
    let base64 = match string(&mut body, "encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(Untranslatable::malformed("encoding_format", "must be float or base64")),
    };
    let embed = Embed {
        model: model.to_owned(),
        inputs,
        dimensions: whole(&mut body, "dimensions")?,
        user: string(&mut body, "user")?,
    };
    body.shift_remove("model");
    losses.drop_extra(super::super::chat::Place::Request, &body);
    let (path, body) = provider(wire(to)).write_embed(embed, &mut losses)?;
    Ok(EmbedRequest { path, body: body.to_string().into_bytes(), dropped: losses.into_dropped(), base64 })
}

/// Turns a provider's embeddings into OpenAI's format.
pub fn embed_response(from: Shape, body: &[u8], model: &str, base64: bool) -> Result<Vec<u8>, Unreadable> {
    let body: Map<String, Value> = serde_json::from_slice(body).map_err(|_| Unreadable)?;
    let embedded = provider(wire(from)).read_embedded(&body).ok_or(Unreadable)?;
    let rows: Vec<Value> = embedded
        .vectors
        .into_iter()
        .enumerate()
        .map(|(index, vector)| {
            let embedding = if base64 { packed(&vector).into() } else { Value::from(vector) };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    let tokens = embedded.usage.as_ref().map_or(0, Usage::prompt_tokens);
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let body = json!({"object": "list", "data": rows, "model": model, "usage": usage});
    Ok(body.to_string().into_bytes())
}

fn wire(shape: Shape) -> Wire {
    Wire::of_provider(shape, false)
}

/// 32-bit floats, least byte first.
fn packed(vector: &[f64]) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "the format has 32 bits")]
    let bytes: Vec<u8> = vector.iter().flat_map(|number| (*number as f32).to_le_bytes()).collect();
    STANDARD.encode(bytes)
}
