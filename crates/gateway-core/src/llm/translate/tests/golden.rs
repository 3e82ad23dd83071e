//! Golden files for every caller, provider and case, in `fixtures/expected/<client>-<provider>/`. To regenerate them,
//! run the tests with `REGENERATE_GOLDEN=1` and review the diff.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use super::{
    super::{
        super::{ClientFormat, chat::TranslationError},
        RequestOptions, translate_error, translate_request, translate_response,
    },
    support::{CLIENTS, ProviderApi, cases, fixtures, read, read_json, stream_bytes, translate_stream},
};

/// The cases that every format must have.
const REQUEST_CASES: [&str; 10] = [
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
const RESPONSE_CASES: [&str; 7] =
    ["text", "tool", "parallel_tools", "json_schema", "thinking", "refusal", "error"];

/// Compares results with the golden files, or writes the files.
struct Golden {
    regenerate: bool,
    checked: BTreeSet<String>,
    mismatches: Vec<String>,
}

impl Golden {
    fn check(&mut self, name: String, actual: &[u8]) {
        let path = fixtures().join("expected").join(&name);
        if self.regenerate {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, actual).unwrap();
        } else {
            match fs::read(&path) {
                Err(_) => self.mismatches.push(format!("{name} is missing")),
                Ok(expected) if expected != actual => {
                    self.mismatches.push(format!("{name} is now:\n{}", String::from_utf8_lossy(actual)));
                }
                Ok(_) => {}
            }
        }
        self.checked.insert(name);
    }

    fn orphans(&self) -> Vec<String> {
        let mut orphans = Vec::new();
        for folder in fs::read_dir(fixtures().join("expected")).unwrap() {
            let folder = folder.unwrap();
            for file in fs::read_dir(folder.path()).unwrap() {
                let name = [folder.file_name(), file.unwrap().file_name()]
                    .map(|name| name.into_string().unwrap())
                    .join("/");
                if !self.checked.contains(&name) {
                    orphans.push(name);
                }
            }
        }
        orphans
    }
}

#[test]
fn every_pair_of_formats_matches_its_golden_files() {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting")]
    let regenerate = std::env::var_os("REGENERATE_GOLDEN").is_some();
    let mut golden = Golden { regenerate, checked: BTreeSet::new(), mismatches: Vec::new() };
    for client in CLIENTS {
        for api in ProviderApi::all() {
            let folder = format!("{}-{}", client.as_str(), api.name());
            for case in cases(client.as_str(), ".request.json") {
                let body = read(client.as_str(), &format!("{case}.request.json"));
                golden
                    .check(format!("{folder}/{case}.request.json"), &translated_request(client, api, &body));
            }
            for case in cases(api.name(), ".response.json") {
                let body = read_json(api.name(), &format!("{case}.response.json"));
                golden.check(
                    format!("{folder}/{case}.response.json"),
                    &translated_response(api, client, &body),
                );
            }
            for case in cases(api.name(), ".stream.txt") {
                let stream = translate_stream(api, client, &stream_bytes(api, &case), &[usize::MAX]);
                golden.check(format!("{folder}/{case}.stream.txt"), &stream);
            }
        }
    }
    assert!(golden.mismatches.is_empty(), "{}", golden.mismatches.join("\n"));
    if !regenerate {
        assert_eq!(golden.orphans(), Vec::<String>::new(), "golden files without a test case");
    }
}

#[test]
fn every_format_has_all_cases() {
    for client in CLIENTS {
        let existing = cases(client.as_str(), ".request.json");
        for case in REQUEST_CASES {
            assert!(existing.iter().any(|name| name == case), "{}: no request {case}", client.as_str());
        }
        for api in ProviderApi::all() {
            for ending in [".response.json", ".stream.txt"] {
                let existing = cases(api.name(), ending);
                for case in RESPONSE_CASES {
                    assert!(existing.iter().any(|name| name == case), "{}: no {case}{ending}", api.name());
                }
            }
        }
    }
}

fn translated_request(client: ClientFormat, api: ProviderApi, body: &[u8]) -> Vec<u8> {
    let parsed: Value = serde_json::from_slice(body).unwrap();
    let options = RequestOptions {
        model: api.model(),
        stream: parsed.get("stream").and_then(Value::as_bool).unwrap_or(false),
        supports_include_usage: true,
        use_responses_api: api.use_responses_api,
    };
    let result = match translate_request(client, api.provider, body, &options) {
        Ok(translated) => json!({
            "path": translated.path,
            "dropped": translated.dropped,
            "usage_wanted": translated.include_usage,
            "body": serde_json::from_slice::<Value>(&translated.body).unwrap(),
        }),
        Err(TranslationError::Unsupported { field, message }) => {
            json!({"refused": field, "message": message})
        }
        Err(malformed) => panic!("{} is malformed: {malformed}", String::from_utf8_lossy(body)),
    };
    pretty(&result)
}

/// The fixture of an error contains its status next to its body.
fn translated_response(api: ProviderApi, client: ClientFormat, body: &Value) -> Vec<u8> {
    let translated = match (body.get("status").and_then(Value::as_u64), body.get("body")) {
        (Some(status), Some(body)) => {
            translate_error(api.provider, client, u16::try_from(status).unwrap(), body.to_string().as_bytes())
        }
        _ => translate_response(api.provider, client, body.to_string().as_bytes(), &api.response_options())
            .unwrap(),
    };
    pretty(&serde_json::from_slice(&translated).unwrap())
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).unwrap();
    text.push(b'\n');
    text
}
