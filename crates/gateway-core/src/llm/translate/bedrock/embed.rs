//! Embeddings. Converse has none: Titan's and Cohere's models are invoked in their own words.

use serde_json::{Map, Value, json};

use super::super::{
    super::{
        chat::{Embed, Embedded, Field, Losses, Untranslatable},
        usage::Usage,
    },
    driver::path_segment,
    json::set,
};

pub(super) fn write(mut embed: Embed, losses: &mut Losses) -> Result<(String, Value), Untranslatable> {
    let refused = |field: &str, message: &str| Untranslatable::Refused {
        field: field.to_owned(),
        message: message.to_owned(),
    };
    if embed.user.is_some() {
        losses.drop(Field::User);
    }
    let path = format!("/model/{}/invoke", path_segment(&embed.model));
    if embed.model.contains("titan-embed") {
        if embed.inputs.len() > 1 {
            return Err(refused("input", "this model embeds one text at a time"));
        }
        let mut body = Map::new();
        set(&mut body, "inputText", embed.inputs.pop());
        set(&mut body, "dimensions", embed.dimensions);
        return Ok((path, body.into()));
    }
    if embed.model.contains("cohere.embed") {
        let mut body = json!({"texts": embed.inputs, "input_type": "search_document"});
        if let Some(dimensions) = embed.dimensions {
            body["output_dimension"] = dimensions.into();
        }
        return Ok((path, body));
    }
    Err(refused("model", "the gateway knows no embeddings of this model"))
}

pub(super) fn read(body: &Map<String, Value>) -> Option<Embedded> {
    let vector = |value: &Value| value.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>();
    if let Some(one) = body.get("embedding") {
        let usage = body.get("inputTextTokenCount").and_then(Value::as_u64);
        return Some(Embedded {
            vectors: vec![vector(one)?],
            usage: usage.map(|input| Usage::of_totals(input, 0)),
        });
    }
    let list = match body.get("embeddings")? {
        Value::Object(by_type) => by_type.get("float")?.as_array()?,
        list => list.as_array()?,
    };
    Some(Embedded { vectors: list.iter().map(vector).collect::<Option<_>>()?, usage: None })
}
