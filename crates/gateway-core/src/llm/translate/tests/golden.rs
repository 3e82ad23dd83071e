//! Golden files for every caller, provider and case, in `fixtures/expected/<client>-<provider>/`. To regenerate them,
//! run the tests with `REGENERATE_GOLDEN=1` and review the diff.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use super::{
    super::{
        super::{ClientFormat, chat::TranslationError},
        RequestOptions, translate_error, translate_request, translate_response,
    },
    support::{CLIENTS, ProviderSide, cases, fixtures, read, read_json, stream_bytes, translate_stream},
};

/// The cases that must exist for every format, as requests and as responses.
const REQUESTS: [&str; 10] = [
    "text",
    "system",
    "image",
    "tool",
    "parallel_tools",
    "tool_result",
    "json_schema",
    "thinking",
    "refusal",
    "error",
];
const ANSWERS: [&str; 7] = ["text", "tool", "parallel_tools", "json_schema", "thinking", "refusal", "error"];

/// Compares the output with the golden file, or writes the file.
struct Golden {
    regenerate: bool,
    seen: BTreeSet<String>,
    wrong: Vec<String>,
}

impl Golden {
    fn check(&mut self, name: String, actual: &[u8]) {
        let path = fixtures().join("expected").join(&name);
        if self.regenerate {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, actual).unwrap();
        } else {
            match fs::read(&path) {
                Err(_) => self.wrong.push(format!("{name} is missing")),
                Ok(expected) if expected != actual => {
                    self.wrong.push(format!("{name} is now:\n{}", String::from_utf8_lossy(actual)));
                }
                Ok(_) => {}
            }
        }
        self.seen.insert(name);
    }

    fn strangers(&self) -> Vec<String> {
        let mut strangers = Vec::new();
        for folder in fs::read_dir(fixtures().join("expected")).unwrap() {
            let folder = folder.unwrap();
            for file in fs::read_dir(folder.path()).unwrap() {
                let name = [folder.file_name(), file.unwrap().file_name()]
                    .map(|name| name.into_string().unwrap())
                    .join("/");
                if !self.seen.contains(&name) {
                    strangers.push(name);
                }
            }
        }
        strangers
    }
}

#[test]
fn every_pair_of_formats_translates_as_written_down() {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting")]
    let regenerate = std::env::var_os("REGENERATE_GOLDEN").is_some();
    let mut golden = Golden { regenerate, seen: BTreeSet::new(), wrong: Vec::new() };
    for client in CLIENTS {
        for side in ProviderSide::all() {
            let folder = format!("{}-{}", client.as_str(), side.name());
            for case in cases(client.as_str(), ".request.json") {
                let body = read(client.as_str(), &format!("{case}.request.json"));
                golden.check(format!("{folder}/{case}.request.json"), &request_text(client, side, &body));
            }
            for case in cases(side.name(), ".response.json") {
                let body = read_json(side.name(), &format!("{case}.response.json"));
                golden.check(format!("{folder}/{case}.response.json"), &response_text(side, client, &body));
            }
            for case in cases(side.name(), ".stream.txt") {
                let stream = translate_stream(side, client, &stream_bytes(side, &case), &[usize::MAX]);
                golden.check(format!("{folder}/{case}.stream.txt"), &stream);
            }
        }
    }
    assert!(golden.wrong.is_empty(), "{}", golden.wrong.join("\n"));
    if !regenerate {
        assert_eq!(golden.strangers(), Vec::<String>::new(), "golden files that nothing makes");
    }
}

#[test]
fn every_format_has_all_cases() {
    for client in CLIENTS {
        let existing = cases(client.as_str(), ".request.json");
        for case in REQUESTS {
            assert!(existing.iter().any(|name| name == case), "{}: no request {case}", client.as_str());
        }
        for side in ProviderSide::all() {
            for ending in [".response.json", ".stream.txt"] {
                let existing = cases(side.name(), ending);
                for case in ANSWERS {
                    assert!(existing.iter().any(|name| name == case), "{}: no {case}{ending}", side.name());
                }
            }
        }
    }
}

fn request_text(client: ClientFormat, side: ProviderSide, body: &[u8]) -> Vec<u8> {
    let parsed: Value = serde_json::from_slice(body).unwrap();
    let options = RequestOptions {
        model: side.model(),
        stream: parsed.get("stream").and_then(Value::as_bool).unwrap_or(false),
        supports_include_usage: true,
        use_responses_api: side.use_responses_api,
    };
    let translated = match translate_request(client, side.provider, body, &options) {
        Ok(request) => json!({
            "path": request.path,
            "dropped": request.dropped,
            "usage_wanted": request.include_usage,
            "body": serde_json::from_slice::<Value>(&request.body).unwrap(),
        }),
        Err(TranslationError::Unsupported { field, message }) => {
            json!({"refused": field, "message": message})
        }
        Err(malformed) => panic!("{} is malformed: {malformed}", String::from_utf8_lossy(body)),
    };
    pretty(&translated)
}

/// An error fixture contains the status and the body.
fn response_text(side: ProviderSide, client: ClientFormat, body: &Value) -> Vec<u8> {
    let translated = match (body.get("status").and_then(Value::as_u64), body.get("body")) {
        (Some(status), Some(body)) => translate_error(
            side.provider,
            client,
            u16::try_from(status).unwrap(),
            body.to_string().as_bytes(),
        ),
        _ => translate_response(side.provider, client, body.to_string().as_bytes(), &side.reply()).unwrap(),
    };
    pretty(&serde_json::from_slice(&translated).unwrap())
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).unwrap();
    text.push(b'\n');
    text
}
