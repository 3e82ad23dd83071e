//! Embeddings: asked for in OpenAI's words, made by any provider that can.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{
    super::{
        ProviderFormat,
        chat::{EmbeddingsRequest, Losses, TranslationError, WireFormat},
        usage::Usage,
    },
    driver::{UnreadableResponse, parse_body},
    json::{into_strings, take_string, take_u64, take_value},
    provider_codec,
};

/// A request for embeddings in the provider's format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedEmbeddingsRequest {
    pub path: String,
    pub body: Vec<u8>,
    pub dropped: Vec<String>,
    /// For `translate_embeddings_response`: the caller wants its vectors as base64, as OpenAI's own SDK does unless told otherwise.
    pub base64: bool,
}

/// AlternatingTurns a request in OpenAI's format into one for a provider. `model` is what the provider calls it.
pub fn translate_embeddings_request(
    to: ProviderFormat,
    body: &[u8],
    model: &str,
) -> Result<TranslatedEmbeddingsRequest, TranslationError> {
    let mut body = parse_body(body)?;
    let mut losses = Losses::new(WireFormat::OpenAiChat);
    let inputs = match take_value(&mut body, "input") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) if several.iter().any(|input| !input.is_string()) => {
            return Err(TranslationError::Unsupported {
                field: "input".to_owned(),
                message: "tokens mean something to their own model only; send text".to_owned(),
            });
        }
        Some(Value::Array(several)) if !several.is_empty() => into_strings(several, "input")?,
        _ => return Err(TranslationError::malformed("input", "must be a text or a list of texts")),
    };
    let base64 = match take_string(&mut body, "encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(TranslationError::malformed("encoding_format", "must be float or base64")),
    };
    let embed = EmbeddingsRequest {
        model: model.to_owned(),
        inputs,
        dimensions: take_u64(&mut body, "dimensions")?,
        user: take_string(&mut body, "user")?,
    };
    body.shift_remove("model");
    losses.drop_extra(super::super::chat::FieldLocation::Request, &body);
    let (path, body) = provider_codec(wire_format(to)).encode_embeddings_request(embed, &mut losses)?;
    Ok(TranslatedEmbeddingsRequest {
        path,
        body: body.to_string().into_bytes(),
        dropped: losses.into_dropped(),
        base64,
    })
}

/// AlternatingTurns a provider's embeddings into OpenAI's format.
pub fn translate_embeddings_response(
    from: ProviderFormat,
    body: &[u8],
    model: &str,
    base64: bool,
) -> Result<Vec<u8>, UnreadableResponse> {
    let body: Map<String, Value> = serde_json::from_slice(body).map_err(|_| UnreadableResponse)?;
    let embedded =
        provider_codec(wire_format(from)).decode_embeddings_response(&body).ok_or(UnreadableResponse)?;
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

fn wire_format(format: ProviderFormat) -> WireFormat {
    WireFormat::of_provider(format, false)
}

/// 32-bit floats, least byte first.
fn packed(vector: &[f64]) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "the format has 32 bits")]
    let bytes: Vec<u8> = vector.iter().flat_map(|number| (*number as f32).to_le_bytes()).collect();
    STANDARD.encode(bytes)
}
