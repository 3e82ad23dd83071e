//! Everything that reads a tenant's bytes: its own, or those of a provider that it chose.

mod spans;

pub use spans::{ingest_json, ingest_protobuf, span};

use std::collections::HashMap;
use std::sync::OnceLock;

use gateway_core::body_blocks::{Conversation, RowBodies, blocks_of};
use gateway_core::cache::{agrees, canonical_json, is_storable, split};
use gateway_core::datasets::import::{self, ImportFormat};
use gateway_core::embed::hash_v1;
use gateway_core::evaluators::{CallFacts, Evaluator, Method, Subject, SubjectText};
use gateway_core::ids::OrgId;
use gateway_core::json::{char_count, complete_truncated, for_each_member, string_tokens, unescape};
use gateway_core::llm::affinity::{beginning, prompt_cache_key};
use gateway_core::llm::aggregate::{StreamAggregator, set_stream, stream_path, synthesize_stream};
use gateway_core::llm::credentials::{find_parameter, without_credential_parameters};
use gateway_core::llm::estimate::estimate_tokens;
use gateway_core::llm::eventstream::FrameReader;
use gateway_core::llm::multipart::multipart_model;
use gateway_core::llm::paths::{Operation, RequestPath};
use gateway_core::llm::peek::{BodyPeek, add_include_usage, peek, replace_model};
use gateway_core::llm::preview::{assistant_text, last_user_text};
use gateway_core::llm::prompt_cache::{CacheablePrompt, MarkFormat, PromptCache};
use gateway_core::llm::sandbox::{self, SandboxDirectives};
use gateway_core::llm::sigv4;
use gateway_core::llm::sse::{EventFilter, EventLimits, EventReader};
use gateway_core::llm::system_prompt::prepend_system_prompt;
use gateway_core::llm::translate::{
    RequestOptions, ResponseOptions, StreamTranslator, contains_wrapped_signatures,
    translate_embeddings_request, translate_embeddings_response, translate_error, translate_models,
    translate_request, translate_response,
};
use gateway_core::llm::usage::Meter;
use gateway_core::llm::{BodyFraming, ClientFormat, ProviderFormat, WireFormat};
use gateway_core::prompts::Template;
use gateway_core::query;
use gateway_core::route::parse_chain;
use gateway_core::scopes::Scopes;
use gateway_core::search_terms::{TermHasher, body_terms, query_terms};
use gateway_core::skills::SkillSource;
use gateway_core::skills::judge;
use gateway_core::skills::rubric::Rubric;
use gateway_core::word_runs::Run;
use serde_json::json;

use self::spans::{spans_json, spans_protobuf};
use super::ordinary;

pub struct Target {
    pub name: &'static str,
    /// An ordinary input of about this length.
    pub ordinary: fn(usize) -> Vec<u8>,
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, ordinary: fn(usize) -> Vec<u8>, run: fn(&[u8])) -> Target {
    Target { name, ordinary, run }
}

/// A row whose request and response are these bytes.
pub fn bodies(body: &[u8]) -> RowBodies<'_> {
    let conversation = Conversation::default();
    RowBodies { id: 1, org: OrgId(uuid::Uuid::nil()), conversation, request: body, response: body }
}

pub fn all() -> Vec<Target> {
    vec![
        target("preview", ordinary::chat_request, preview),
        target("search terms of bodies", ordinary::chat_request, |body| drop(body_terms(body, body, true))),
        target("search index of bodies", ordinary::chat_request, |body| {
            let terms = TermHasher::default().hashes(body, body, true);
            drop(Run::of([(1, OrgId(uuid::Uuid::nil()), terms.as_slice())]));
        }),
        target("blocks of bodies", ordinary::chat_request, |body| drop(blocks_of([bodies(body)]))),
        target("search terms of a query", ordinary::prose, |text| drop(query_terms(&lossy(text)))),
        target("query", query_text, query),
        target("canonical JSON", ordinary::chat_request, |body| drop(canonical_json(body, &["stream"]))),
        target("semantic cache", ordinary::chat_request, semantic_cache),
        target("gate of similar texts", ordinary::prose, |text| {
            // The cache compares no longer texts.
            let letters: Vec<char> = lossy(text).chars().collect();
            for text in letters.chunks(2_000).map(|letters| letters.iter().collect::<String>()) {
                agrees(&text, &text);
            }
        }),
        target("peek", ordinary::chat_request, |body| drop(peek(body))),
        target("peek in pieces", ordinary::chat_request, peek_in_pieces),
        target("edits of requests", ordinary::chat_request, edit),
        target("marks of prompt caches", ordinary::chat_request, mark_prompt),
        target("beginning of a conversation", ordinary::chat_request, |body| {
            for operation in [Operation::Chat, Operation::Responses, Operation::GenerateContent] {
                beginning(operation, body);
            }
            prompt_cache_key(body);
        }),
        target("JSON scanners", ordinary::chat_request, scan),
        target("SSE", |length| ordinary::stream("openai", length), |bytes| read_events(bytes, usize::MAX)),
        target("SSE in pieces", |length| ordinary::stream("openai", length), |bytes| read_events(bytes, 1)),
        target("filter of events", |length| ordinary::stream("openai", length), filter_events),
        target(
            "event stream",
            |length| ordinary::stream("bedrock", length),
            |bytes| frames(bytes, usize::MAX),
        ),
        target(
            "event stream in pieces",
            |length| ordinary::stream("bedrock", length),
            |bytes| frames(bytes, 1),
        ),
        target("meter of openai", |length| ordinary::stream("openai", length), |bytes| meter(bytes, 0)),
        target("meter of anthropic", |length| ordinary::stream("anthropic", length), |bytes| meter(bytes, 1)),
        target("meter of gemini", |length| ordinary::stream("gemini", length), |bytes| meter(bytes, 2)),
        target("meter of bedrock", |length| ordinary::stream("bedrock", length), |bytes| meter(bytes, 3)),
        target("meter of cohere", |length| ordinary::stream("cohere", length), |bytes| meter(bytes, 4)),
        target(
            "aggregation of chat",
            |length| ordinary::stream("openai", length),
            |bytes| aggregate(bytes, 0),
        ),
        target(
            "aggregation of responses",
            |length| ordinary::stream("openai-responses", length),
            |bytes| {
                aggregate(bytes, 2);
            },
        ),
        target(
            "aggregation of anthropic",
            |length| ordinary::stream("anthropic", length),
            |bytes| {
                aggregate(bytes, 3);
            },
        ),
        target(
            "aggregation of gemini",
            |length| ordinary::stream("gemini", length),
            |bytes| aggregate(bytes, 4),
        ),
        target(
            "aggregation of bedrock",
            |length| ordinary::stream("bedrock", length),
            |bytes| {
                aggregate(bytes, 5);
            },
        ),
        target(
            "aggregation of cohere",
            |length| ordinary::stream("cohere", length),
            |bytes| aggregate(bytes, 6),
        ),
        target(
            "streams of chat bodies",
            |length| ordinary::response("openai", length),
            |body| synthesize(body, 0),
        ),
        target(
            "streams of responses",
            |length| ordinary::response("openai-responses", length),
            |body| {
                synthesize(body, 2);
            },
        ),
        target(
            "streams of anthropic bodies",
            |length| ordinary::response("anthropic", length),
            |body| {
                synthesize(body, 3);
            },
        ),
        target(
            "streams of gemini bodies",
            |length| ordinary::response("gemini", length),
            |body| {
                synthesize(body, 4);
            },
        ),
        target(
            "streams of bedrock bodies",
            |length| ordinary::response("bedrock", length),
            |body| {
                synthesize(body, 5);
            },
        ),
        target(
            "streams of cohere bodies",
            |length| ordinary::response("cohere", length),
            |body| {
                synthesize(body, 6);
            },
        ),
        target("requests of chat", ordinary::chat_request, |body| requests(body, 0)),
        target("requests of responses", ordinary::responses_request, |body| requests(body, 1)),
        target("requests of anthropic", ordinary::anthropic_request, |body| requests(body, 2)),
        target("requests of gemini", ordinary::gemini_request, |body| requests(body, 3)),
        target(
            "responses of openai",
            |length| ordinary::response("openai", length),
            |body| responses(body, 0),
        ),
        target(
            "responses of anthropic",
            |length| ordinary::response("anthropic", length),
            |body| {
                responses(body, 1);
            },
        ),
        target(
            "responses of gemini",
            |length| ordinary::response("gemini", length),
            |body| responses(body, 2),
        ),
        target(
            "responses of bedrock",
            |length| ordinary::response("bedrock", length),
            |body| responses(body, 3),
        ),
        target(
            "responses of cohere",
            |length| ordinary::response("cohere", length),
            |body| responses(body, 4),
        ),
        target("streams of openai", |length| ordinary::stream("openai", length), |bytes| streams(bytes, 0)),
        target(
            "streams of anthropic",
            |length| ordinary::stream("anthropic", length),
            |bytes| streams(bytes, 1),
        ),
        target("streams of gemini", |length| ordinary::stream("gemini", length), |bytes| streams(bytes, 2)),
        target("streams of bedrock", |length| ordinary::stream("bedrock", length), |bytes| streams(bytes, 3)),
        target("streams of cohere", |length| ordinary::stream("cohere", length), |bytes| streams(bytes, 4)),
        target("embeddings", embeddings_body, embeddings),
        target("sandbox", ordinary::chat_request, sandbox_call),
        target("sandbox schema", ordinary::schema, sandbox_schema),
        target("multipart", ordinary::form, |body| {
            multipart_model("multipart/form-data; boundary=X", body);
        }),
        target("content types", content_type, |text| drop(multipart_model(&lossy(text), b"--X--"))),
        target("OTLP, protobuf", spans_protobuf, ingest_protobuf),
        target("OTLP, JSON", spans_json, ingest_json),
        target("skills", ordinary::skill, skill),
        target("import of JSON", ordinary::cases, |bytes| drop(import::check(ImportFormat::Json, bytes))),
        target("import of CSV", ordinary::csv, |bytes| drop(import::check(ImportFormat::Csv, bytes))),
        target("import of lines", ordinary::lines, |bytes| drop(import::check(ImportFormat::Ndjson, bytes))),
        target("templates", ordinary::template, template),
        target("evaluated texts", ordinary::prose, evaluate),
        target("evaluated documents", ordinary::chat_request, evaluate_schema),
        target("verdicts of judges", verdict, verdicts),
        target("embedding hash-v1", ordinary::prose, |text| drop(hash_v1(&lossy(text), 256))),
        target("paths", ordinary::path, paths),
        target("chains and scopes", |length| "openai/gpt-4o,".repeat(length / 14).into_bytes(), chains),
        target("SigV4", ordinary::path, sign),
        target("token estimate", ordinary::prose, |text| {
            estimate_tokens(&lossy(text));
        }),
    ]
}

pub fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn preview(body: &[u8]) {
    last_user_text(body);
    assistant_text(body, true);
    assistant_text(body, false);
}

fn semantic_cache(body: &[u8]) {
    for operation in [Operation::Chat, Operation::Messages, Operation::GenerateContent, Operation::Embeddings]
    {
        split(operation, body);
        is_storable(operation, 200, body);
    }
}

fn peek_in_pieces(body: &[u8]) {
    let mut peek = BodyPeek::new();
    for (at, piece) in body.chunks(1).enumerate() {
        if peek.feed(piece).is_err() {
            break;
        }
        if at % 1024 == 0 {
            let _ = peek.snapshot();
        }
    }
    let _ = peek.finish();
}

/// All formats, because the body of one may look like that of another.
fn mark_prompt(body: &[u8]) {
    let setting = PromptCache { min_tokens: 1, ..PromptCache::default() };
    for (format, model) in [
        (MarkFormat::Anthropic, "claude-sonnet-4-5"),
        (MarkFormat::Bedrock, "anthropic.claude-sonnet-4-5-v1:0"),
        (MarkFormat::OpenAiChat, "gpt-5.6"),
        (MarkFormat::OpenAiResponses, "gpt-5.6"),
    ] {
        if let Some(prompt) = CacheablePrompt::read(format, body) {
            prompt.head_hash();
            prompt.marked(&setting, model);
        }
    }
}

fn edit(body: &[u8]) {
    add_include_usage(body);
    replace_model(body, "another");
    set_stream(WireFormat::OpenAiChat, body, true);
    for operation in [Operation::Chat, Operation::Responses, Operation::Messages, Operation::GenerateContent]
    {
        let _ = prepend_system_prompt(operation, body, "Be brief.");
    }
}

fn scan(body: &[u8]) {
    for_each_member(body, |_, _| {});
    string_tokens(body).for_each(drop);
    complete_truncated(&lossy(body));
    char_count(body);
    unescape(body);
    contains_wrapped_signatures(body);
}

pub fn read_events(bytes: &[u8], piece: usize) {
    let mut reader = EventReader::new(EventLimits::READ);
    for chunk in bytes.chunks(piece.min(bytes.len()).max(1)) {
        reader.feed(chunk, |_| {});
    }
    reader.finish(|_| {});
}

fn filter_events(bytes: &[u8]) {
    let mut filter = EventFilter::new(EventLimits::FILTER);
    for chunk in bytes.chunks(100) {
        filter.feed(chunk, |event| event.data.len() > 50).concat(chunk);
    }
    filter.finish(|_| false);
}

pub fn frames(bytes: &[u8], piece: usize) {
    let mut reader = FrameReader::new();
    for chunk in bytes.chunks(piece.min(bytes.len()).max(1)) {
        let _ = reader.feed(chunk, |_| {});
    }
}

pub fn meter(bytes: &[u8], format: usize) {
    let format = ProviderFormat::ALL[format];
    for framing in [WireFormat::of_provider(format, false).framing(), BodyFraming::Json] {
        let mut meter = Meter::new(format, framing);
        for chunk in bytes.chunks(1000) {
            meter.feed(chunk);
        }
        meter.finish();
    }
}

pub fn aggregate(bytes: &[u8], format: usize) {
    let format = WireFormat::ALL[format];
    let mut aggregator = StreamAggregator::new(format, format.framing(), 16 << 20);
    for chunk in bytes.chunks(1000) {
        if aggregator.feed(chunk).is_err() {
            break;
        }
    }
    let _ = aggregator.finish();
}

pub fn synthesize(body: &[u8], format: usize) {
    let _ = synthesize_stream(WireFormat::ALL[format], body, true);
}

pub fn requests(body: &[u8], client: usize) {
    for provider in ProviderFormat::ALL {
        for use_responses_api in [false, true] {
            if use_responses_api && provider != ProviderFormat::OpenAi {
                continue;
            }
            let options =
                RequestOptions { model: "m", stream: true, supports_include_usage: true, use_responses_api };
            let _ = translate_request(ClientFormat::ALL[client], provider, body, &options);
        }
    }
}

fn response_options() -> ResponseOptions<'static> {
    ResponseOptions { id: "1", model: "m", created: 1, include_usage: true, use_responses_api: false }
}

pub fn responses(body: &[u8], provider: usize) {
    let provider = ProviderFormat::ALL[provider];
    for client in ClientFormat::ALL {
        let _ = translate_response(provider, client, body, &response_options());
    }
    translate_error(provider, ClientFormat::OpenAiChat, 400, body);
    let _ = translate_models(provider, ClientFormat::OpenAiChat, body);
}

pub fn streams(bytes: &[u8], provider: usize) {
    for client in ClientFormat::ALL {
        let mut translator =
            StreamTranslator::new(ProviderFormat::ALL[provider], client, &response_options());
        let mut out = Vec::new();
        for chunk in bytes.chunks(1000) {
            translator.feed(chunk, &mut out);
        }
        translator.finish(&mut out);
    }
}

fn embeddings_body(length: usize) -> Vec<u8> {
    json!({"model": "m", "input": vec!["four words of text"; length / 21]}).to_string().into_bytes()
}

fn embeddings(body: &[u8]) {
    for provider in ProviderFormat::ALL {
        let _ = translate_embeddings_request(provider, body, "m");
        let _ = translate_embeddings_response(provider, body, "m", true);
    }
}

pub fn sandbox_call(body: &[u8]) {
    let directives = SandboxDirectives::from_headers([]);
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"] {
        sandbox::respond("POST", path, &directives, body);
    }
}

/// The schema of the answer, and of a tool that must be called.
pub fn sandbox_schema(schema: &[u8]) {
    let directives = SandboxDirectives::from_headers([]);
    let start = r#"{"model":"m","messages":[{"role":"user","content":"a"}],"stream":true,"#;
    for (before, after) in [
        (r#""response_format":{"type":"json_schema","json_schema":{"schema":"#, "}}}"),
        (r#""tool_choice":"required","tools":[{"function":{"name":"a","parameters":"#, "}}]}"),
    ] {
        let body = [start.as_bytes(), before.as_bytes(), schema, after.as_bytes()].concat();
        sandbox::respond("POST", "/v1/chat/completions", &directives, &body);
    }
}

fn content_type(length: usize) -> Vec<u8> {
    format!("multipart/form-data; {}boundary=X", "charset=utf-8; ".repeat(length / 15)).into_bytes()
}

pub fn skill(raw: &[u8]) {
    let raw = lossy(raw);
    // The bytes as a whole file, as frontmatter, and as the text behind it.
    let yaml = &raw[..raw.floor_char_boundary(12 << 10)];
    let files = [
        raw.to_string(),
        format!("---\n{yaml}\n---\nx"),
        format!("---\nname: a\ndescription: b\n---\n{raw}"),
    ];
    let rubric = Rubric::seeded(("builtin", "rubric-v1"), ("builtin", "hash-v1"), 256);
    for file in files {
        if let Ok(source) = SkillSource::from_raw(&file) {
            let neighbour = judge::compare("other", 0.9, "builtin/hash-v1", &source.body, "Reads commits.");
            judge::builtin(&source, &[], Some(&neighbour), &rubric);
            let _ = source.for_agents();
        }
    }
}

pub fn template(content: &[u8]) {
    if let Ok(template) = Template::parse(&lossy(content)) {
        let values: HashMap<String, String> =
            template.variables().iter().map(|name| (name.clone(), "text".to_owned())).collect();
        let _ = template.render(&values);
        template.unused(&values);
    }
}

fn evaluators() -> &'static [Evaluator] {
    static EVALUATORS: OnceLock<Vec<Evaluator>> = OnceLock::new();
    EVALUATORS.get_or_init(|| {
        let config = |kind, name, config| Evaluator::parse(kind, name, &config).unwrap();
        vec![
            config("static", "is_json", json!({})),
            config("static", "contains", json!({"values": ["release", "tag"], "case_sensitive": false})),
            config("static", "regex", json!({"pattern": r"\b\d{3}-\d{4}\b"})),
            config("static", "regex", json!({"pattern": "(?i)(order|invoice) (number|id):? *[a-z0-9]+"})),
            config("static", "length", json!({"max": 1000})),
            config("similarity", "levenshtein", json!({"reference": "The release notes name every change."})),
        ]
    })
}

fn subject(text: &[u8]) -> Subject {
    let text = SubjectText::Text(lossy(text).into_owned());
    Subject { text, request: None, expected: None, facts: CallFacts::default() }
}

fn evaluate(text: &[u8]) {
    let subject = subject(text);
    for evaluator in evaluators() {
        evaluator.evaluate(&subject);
    }
}

fn evaluate_schema(text: &[u8]) {
    static SCHEMA: OnceLock<Evaluator> = OnceLock::new();
    let evaluator = SCHEMA.get_or_init(|| {
        let message = json!({"type": "object", "properties": {"role": {"enum": ["user", "assistant"]}},
            "required": ["role", "content"]});
        let schema = json!({"type": "object", "required": ["messages"],
            "properties": {"model": {"type": "string"}, "messages": {"type": "array", "items": message}}});
        Evaluator::parse("static", "json_schema", &json!({"schema": schema})).unwrap()
    });
    evaluator.evaluate(&subject(text));
}

fn verdict(length: usize) -> Vec<u8> {
    json!({"score": 0.7, "passed": true, "reason": "It is right. ".repeat(length / 13)})
        .to_string()
        .into_bytes()
}

fn verdicts(text: &[u8]) {
    static JUDGE: OnceLock<Evaluator> = OnceLock::new();
    let evaluator = JUDGE.get_or_init(|| {
        let config = json!({"provider": "sandbox", "model": "m", "criteria": "It is right."});
        Evaluator::parse("llm", "judge", &config).unwrap()
    });
    let Method::Judge(judge) = &evaluator.method else { panic!("not a judge") };
    let text = lossy(text);
    let _ = judge.parse_verdict(&text);
    let _ = judge.messages(&subject(text.as_bytes()));
    let rubric = Rubric::seeded(("builtin", "rubric-v1"), ("builtin", "hash-v1"), 256);
    let _ = judge::llm::parse_answer(&text, &rubric);
}

pub fn paths(text: &[u8]) {
    let text = lossy(text);
    let (path, query) = text.split_once('?').unwrap_or((&text, &text));
    let parsed = RequestPath::parse(path);
    let _ = parsed.model();
    parsed.is_streaming(Some(query));
    parsed.operation();
    parsed.client_format();
    find_parameter(query, "key");
    without_credential_parameters(&text);
    stream_path(&text, true);
}

pub fn chains(text: &[u8]) {
    let text = lossy(text);
    let _ = parse_chain(&text);
    let scopes: Vec<&str> = text.split(',').collect();
    if let Ok(scopes) = Scopes::parse(&scopes) {
        scopes.allow("openai", Some("gpt-4o"));
    }
}

pub fn sign(text: &[u8]) {
    let text = lossy(text);
    let (path, query) = text.split_once('?').unwrap_or((&text, ""));
    let headers = [("host", "bedrock-runtime.eu-west-1.amazonaws.com"), ("content-type", &text)];
    let request =
        sigv4::Request { method: "POST", path, query, headers: &headers, body_sha256: "e3b0c44298fc1c14" };
    let keys = sigv4::Credentials::parse("AKIAIOSFODNN7EXAMPLE:secret").unwrap();
    let scope = sigv4::Scope { region: "eu-west-1", service: "bedrock" };
    sigv4::sign(&request, &keys, scope, jiff::Timestamp::UNIX_EPOCH);
    sigv4::Credentials::parse(&text);
    sigv4::region_of_host(&text);
}

/// Terms of the query language.
fn query_text(length: usize) -> Vec<u8> {
    let terms =
        "status:error latency:>2s model:gpt-4o*,x -metadata.env:prod \"exact words\" time:>=2026-01-31 ";
    terms.repeat(length.div_ceil(terms.len())).into_bytes()
}

/// Reads pieces as long as a query may be. The canonical form of a query is the same query.
fn query(bytes: &[u8]) {
    for piece in bytes.chunks(400) {
        let text = lossy(piece);
        match query::parse(&text) {
            Ok(query) => {
                let canonical = query.to_string();
                let again = query::parse(&canonical).map(|query| query.to_string());
                // The canonical form may be longer than a query may be.
                assert!(
                    again.is_err() && canonical.len() > query::MAX_CHARS || again == Ok(canonical),
                    "{text:?}"
                );
            }
            Err(error) => assert!(error.position + error.length <= text.chars().count(), "{text:?}: {error}"),
        }
    }
}
