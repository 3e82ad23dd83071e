//! Embeddings. The character trigrams of a text are hashed into a unit vector, so texts with shared wording are close
//! to each other. The same input always has the same vector.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::request::model_of;
use super::{SandboxBody, SandboxError, tokens};

const DEFAULT_DIMENSIONS: u64 = 256;
const MAX_DIMENSIONS: u64 = 4096;
const MAX_INPUTS: usize = 2048;
/// Of all vectors together. As many inputs as there may be have vectors of the usual length.
const MAX_NUMBERS: usize = 512 << 10;
/// Digits of a number and its comma.
const BYTES_PER_NUMBER: usize = 22;

pub(super) fn embeddings(body: &Value) -> Result<SandboxBody, SandboxError> {
    let model = model_of(body)?;
    let dimensions = match body.get("dimensions") {
        None | Some(Value::Null) => DEFAULT_DIMENSIONS,
        Some(value) => {
            value.as_u64().filter(|count| (1..=MAX_DIMENSIONS).contains(count)).ok_or_else(|| {
                SandboxError::field(
                    "dimensions",
                    &format!("dimensions must be an integer from 1 to {MAX_DIMENSIONS}."),
                )
            })?
        }
    };
    let as_base64 = match body.get("encoding_format").and_then(Value::as_str) {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => {
            return Err(SandboxError::field("encoding_format", "encoding_format must be float or base64."));
        }
    };
    let dimensions = usize::try_from(dimensions).unwrap_or_default();
    let inputs = inputs(body.get("input").unwrap_or(&Value::Null))?;
    if inputs.len().saturating_mul(dimensions) > MAX_NUMBERS {
        return Err(SandboxError::field(
            "dimensions",
            &format!(
                "{} inputs of {dimensions} dimensions are too many: the sandbox returns at most {MAX_NUMBERS} \
                 numbers in all.",
                inputs.len()
            ),
        ));
    }
    let embeddings = inputs.iter().enumerate().map(|(index, input)| {
        let vector = embed(input, dimensions);
        let vector = if as_base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
            Vector::Base64(STANDARD.encode(bytes))
        } else {
            Vector::Numbers(vector)
        };
        Embedding { object: "embedding", index, vector }
    });
    let data: Vec<Embedding> = embeddings.collect();
    let used: usize = inputs.iter().map(Input::tokens).sum();
    let usage = Usage { prompt_tokens: used, total_tokens: used };
    // No tree of the numbers, which takes many times their memory.
    serde_json::to_vec(&Embeddings { object: "list", data, model, usage })
        .map(SandboxBody::Json)
        .map_err(|error| SandboxError::new(format!("The embeddings could not be encoded: {error}")))
}

/// About the length of the response to such a body, or more, from a glance at it.
pub(super) fn expected_bytes(body: &[u8]) -> usize {
    let names_dimensions = memchr::memmem::find(body, b"\"dimensions\"").is_some();
    let dimensions = if names_dimensions { MAX_DIMENSIONS } else { DEFAULT_DIMENSIONS };
    let dimensions = usize::try_from(dimensions).unwrap_or_default();
    let numbers = max_inputs(body).min(MAX_INPUTS).saturating_mul(dimensions);
    numbers.min(MAX_NUMBERS) * BYTES_PER_NUMBER
}

/// Texts and lists of tokens that a comma follows, and one.
fn max_inputs(body: &[u8]) -> usize {
    let (mut count, mut last) = (1, b' ');
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => (is_text, last) = (!is_text, b'"'),
            _ if is_text => {}
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b',' if matches!(last, b'"' | b']') => (count, last) = (count + 1, b','),
            _ => last = *byte,
        }
    }
    count
}

#[derive(Serialize)]
struct Embeddings {
    object: &'static str,
    data: Vec<Embedding>,
    model: String,
    usage: Usage,
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    #[serde(rename = "embedding")]
    vector: Vector,
}

enum Vector {
    Numbers(Vec<f32>),
    Base64(String),
}

impl Serialize for Vector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            // With as many digits as a JSON tree gives them.
            Self::Numbers(numbers) => serializer.collect_seq(numbers.iter().map(|number| f64::from(*number))),
            Self::Base64(text) => serializer.serialize_str(text),
        }
    }
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

enum Input {
    Text(String),
    Tokens(Vec<u64>),
}

impl Input {
    fn tokens(&self) -> usize {
        match self {
            Self::Text(text) => tokens(text),
            Self::Tokens(list) => list.len(),
        }
    }
}

/// Parses a text, a list of texts, a list of token numbers, or a list of such lists.
fn inputs(input: &Value) -> Result<Vec<Input>, SandboxError> {
    let wrong =
        || SandboxError::field("input", "input must be a non-empty text, a list of texts, or token numbers.");
    let one = |value: &Value| match value {
        Value::String(text) if !text.is_empty() => Some(Input::Text(text.clone())),
        Value::Array(numbers) if !numbers.is_empty() => {
            numbers.iter().map(Value::as_u64).collect::<Option<_>>().map(Input::Tokens)
        }
        _ => None,
    };
    if let Some(single) = one(input) {
        return Ok(vec![single]);
    }
    let list =
        input.as_array().filter(|list| !list.is_empty() && list.len() <= MAX_INPUTS).ok_or_else(wrong)?;
    list.iter().map(|value| one(value).ok_or_else(wrong)).collect()
}

fn embed(input: &Input, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0.0_f32; dimensions];
    let mut count = |hash: u64| {
        // The lowest bit is the sign and the others are the index, so collisions cancel out on average.
        let sign = if hash & 1 == 0 { 1.0 } else { -1.0 };
        let index = usize::try_from((hash >> 1) % (dimensions.max(1) as u64)).unwrap_or_default();
        if let Some(number) = vector.get_mut(index) {
            *number += sign;
        }
    };
    match input {
        Input::Text(text) => {
            let padded: Vec<char> = format!(" {} ", text.to_lowercase()).chars().collect();
            for gram in padded.windows(3) {
                count(fnv(gram.iter().map(|c| u64::from(u32::from(*c)))));
            }
        }
        Input::Tokens(list) => {
            for token in list {
                count(fnv([*token].into_iter()));
            }
        }
    }
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    if length > 0.0 {
        for number in &mut vector {
            *number /= length;
        }
    } else if let Some(first) = vector.first_mut() {
        *first = 1.0;
    }
    vector
}

/// FNV-1a with a last shuffle, because its low bits alone are poorly mixed.
fn fnv(words: impl Iterator<Item = u64>) -> u64 {
    let hash = words.flat_map(u64::to_le_bytes).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn vectors(body: &Value) -> Vec<Vec<f64>> {
        let Ok(SandboxBody::Json(reply)) = embeddings(body) else { panic!("refused: {body}") };
        let reply: Value = serde_json::from_slice(&reply).unwrap();
        let data = reply["data"].as_array().unwrap();
        data.iter()
            .map(|entry| entry["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect())
            .collect()
    }

    fn cosine(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn vectors_are_of_unit_length_and_like_texts_are_near() {
        let all = vectors(
            &json!({"model": "sandbox-embed", "input": ["How do I reset my password?", "how do i reset the password", "Bananas are yellow."]}),
        );
        assert!(all.iter().all(|v| v.len() == 256 && (cosine(v, v) - 1.0).abs() < 1e-5));
        assert!(cosine(&all[0], &all[1]) > 0.6 && cosine(&all[0], &all[2]) < 0.4);
        assert_eq!(vectors(&json!({"model": "m", "input": "How do I reset my password?"}))[0], all[0]);
        assert_eq!(vectors(&json!({"model": "m", "input": [[1, 2], [3]], "dimensions": 3})).len(), 2);
        assert_eq!(vectors(&json!({"model": "m", "input": [1, 2], "dimensions": 3}))[0].len(), 3);
    }

    #[test]
    fn base64_holds_the_same_numbers() {
        let Ok(SandboxBody::Json(reply)) =
            embeddings(&json!({"model": "m", "input": "hi there", "encoding_format": "base64"}))
        else {
            panic!()
        };
        let reply: Value = serde_json::from_slice(&reply).unwrap();
        let bytes = STANDARD.decode(reply["data"][0]["embedding"].as_str().unwrap()).unwrap();
        let numbers: Vec<f64> =
            bytes.chunks(4).map(|four| f64::from(f32::from_le_bytes(four.try_into().unwrap()))).collect();
        let floats = &vectors(&json!({"model": "m", "input": "hi there"}))[0];
        assert!(numbers.iter().zip(floats).all(|(a, b)| (a - b).abs() < 1e-7) && numbers.len() == 256);
        assert_eq!(reply["usage"], json!({"prompt_tokens": 2, "total_tokens": 2}));
    }

    #[test]
    fn the_numbers_of_all_vectors_are_bounded() {
        let many = |count: usize| json!({"model": "m", "input": vec!["hello"; count]});
        let SandboxBody::Json(reply) = embeddings(&many(2048)).ok().unwrap() else { panic!() };
        let expected = expected_bytes(many(2048).to_string().as_bytes());
        assert!(expected >= reply.len(), "{expected} for {}", reply.len());
        let wide = |count: usize| {
            let mut body = many(count);
            body["dimensions"] = json!(4096);
            body
        };
        assert!(embeddings(&wide(128)).is_ok());
        let Err(error) = embeddings(&wide(129)) else { panic!("accepted") };
        assert_eq!((error.status, error.param), (400, Some("dimensions")));
        assert!(error.message.contains("at most 524288 numbers"), "{}", error.message);
    }

    #[test]
    fn the_inputs_are_counted_without_a_parser() {
        for (body, count) in [
            (r#"{"input":"a, \"b\", c"}"#, 1),
            (r#"{"input":["a", "b" , "c,d"]}"#, 3),
            (r#"{"input":[1, 2, 3]}"#, 1),
            (r#"{"input":[[1, 2], [3]]}"#, 2),
        ] {
            assert_eq!(max_inputs(body.as_bytes()), count, "{body}");
        }
    }

    #[test]
    fn the_body_is_the_same_as_that_of_a_tree() {
        let body = json!({"model": "m", "input": ["hello there", "b"], "dimensions": 3});
        let Ok(SandboxBody::Json(reply)) = embeddings(&body) else { panic!() };
        let numbers = |text: &str| embed(&Input::Text(text.to_owned()), 3);
        let tree = json!({"object": "list", "data": [
            {"object": "embedding", "index": 0, "embedding": numbers("hello there")},
            {"object": "embedding", "index": 1, "embedding": numbers("b")},
        ], "model": "m", "usage": {"prompt_tokens": 4, "total_tokens": 4}});
        assert_eq!(String::from_utf8(reply).unwrap(), tree.to_string());
    }

    #[test]
    fn invalid_inputs_are_rejected() {
        for extra in [
            json!({"input": ""}),
            json!({"input": []}),
            json!({"input": ["a", 1]}),
            json!({"input": "a", "dimensions": 0}),
            json!({"input": "a", "encoding_format": "hex"}),
        ] {
            let mut body = json!({"model": "m"});
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            assert!(embeddings(&body).is_err(), "{body}");
        }
    }
}
