//! Translation of embeddings. Callers use OpenAI's format, providers use their own.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{
    super::{
        ProviderFormat,
        chat::{EmbeddingsRequest, Losses, TranslationError, WireFormat},
        usage::Usage,
    },
    json::{into_strings, take_string, take_u64, take_value},
    provider_codec,
    request::parse_body,
    response::UnreadableResponse,
};

/// An embeddings request in the provider's format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedEmbeddingsRequest {
    pub path: String,
    pub body: Vec<u8>,
    pub dropped: Vec<String>,
    /// The caller asked for base64 vectors, which is the default of OpenAI's SDK. Belongs into
    /// `translate_embeddings_response`.
    pub base64: bool,
}

/// Translates an embeddings request from OpenAI's format into a provider's. `model` is the provider's name of the
/// model.
pub fn translate_embeddings_request(
    to: ProviderFormat,
    body: &[u8],
    model: &str,
) -> Result<TranslatedEmbeddingsRequest, TranslationError> {
    let mut body = parse_body(body)?;
    let mut losses = Losses::new(WireFormat::OpenAiChat);
    let inputs = match take_value(&mut body, "input") {
        Some(Value::String(single)) => vec![single],
        Some(Value::Array(several)) if several.iter().any(|input| !input.is_string()) => {
            return Err(TranslationError::Unsupported {
                field: "input".to_owned(),
                message: "token arrays are not supported by this provider; send text".to_owned(),
            });
        }
        Some(Value::Array(several)) if !several.is_empty() => into_strings(several, "input")?,
        _ => {
            return Err(TranslationError::malformed(
                "input",
                "must be a string or a non-empty array of strings",
            ));
        }
    };
    let base64 = match take_string(&mut body, "encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => {
            return Err(TranslationError::malformed("encoding_format", "must be one of float, base64"));
        }
    };
    let request = EmbeddingsRequest {
        model: model.to_owned(),
        inputs,
        dimensions: take_u64(&mut body, "dimensions")?,
        user: take_string(&mut body, "user")?,
    };
    body.shift_remove("model");
    losses.drop_extra(super::super::chat::FieldLocation::Request, &body);
    let (path, body) = provider_codec(wire_format(to)).encode_embeddings_request(request, &mut losses)?;
    Ok(TranslatedEmbeddingsRequest {
        path,
        body: body.to_string().into_bytes(),
        dropped: losses.into_dropped(),
        base64,
    })
}

/// Translates a provider's embeddings into OpenAI's format.
pub fn translate_embeddings_response(
    from: ProviderFormat,
    body: &[u8],
    model: &str,
    base64: bool,
) -> Result<Vec<u8>, UnreadableResponse> {
    let body: Map<String, Value> = serde_json::from_slice(body).map_err(|_| UnreadableResponse)?;
    let embeddings =
        provider_codec(wire_format(from)).decode_embeddings_response(&body).ok_or(UnreadableResponse)?;
    let rows: Vec<Value> = embeddings
        .vectors
        .into_iter()
        .enumerate()
        .map(|(index, vector)| {
            let embedding = if base64 { encode_base64(&vector).into() } else { Value::from(vector) };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    let tokens = embeddings.usage.as_ref().map_or(0, Usage::prompt_tokens);
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let body = json!({"object": "list", "data": rows, "model": model, "usage": usage});
    Ok(body.to_string().into_bytes())
}

fn wire_format(format: ProviderFormat) -> WireFormat {
    WireFormat::of_provider(format, false)
}

/// Encodes a vector as little-endian 32-bit floats.
fn encode_base64(vector: &[f64]) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "the format has 32 bits")]
    let bytes: Vec<u8> = vector.iter().flat_map(|number| (*number as f32).to_le_bytes()).collect();
    STANDARD.encode(bytes)
}
