//! Properties that hold for every input of a reader: it never panics, its work is bounded, chunks of any size give the
//! same result, what was written is read back, and a second implementation agrees where there is one.

use gateway_core::body_blocks::{blocks_of, read_bodies};
use gateway_core::cache::{CanonicalError, canonical_json};
use gateway_core::compat::{Changes, DIALECTS, Known, read_head, take_headers};
use gateway_core::datasets::import::{ImportError, ImportFormat, check as check_import, read as import};
use gateway_core::evaluators::{CallFacts, Evaluator, Subject, SubjectText};
use gateway_core::ids::OrgId;
use gateway_core::import::Source;
use gateway_core::json::{complete_truncated, unescape};
use gateway_core::llm::aggregate::{StreamAggregator, aggregate_stream, synthesize_stream};
use gateway_core::llm::eventstream::{self, FrameReader};
use gateway_core::llm::multipart::multipart_model;
use gateway_core::llm::peek::{BodyPeek, peek, replace_model};
use gateway_core::llm::sse::{EventFilter, EventItem, EventLimits, EventReader};
use gateway_core::llm::translate::{ResponseOptions, StreamTranslator};
use gateway_core::llm::usage::Meter;
use gateway_core::llm::{BodyFraming, ClientFormat, ProviderFormat, WireFormat};
use gateway_core::otlp::limits::{json_within_limits, protobuf_within_limits};
use gateway_core::otlp::parse_traceparent;
use gateway_core::otlp::proto::ExportTraceServiceRequest;
use gateway_core::prompts::Template;
use gateway_core::route::parse_chain;
use gateway_core::search_terms::query_terms;
use gateway_core::skills::frontmatter::Document;
use gateway_core::time::Timestamp;
use gateway_core::word_runs::{Run, decode_ids, encode_ids, encode_part, read_part, rows_with};
use prost::Message as _;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::harness::{FuzzTarget, fuzz};
use super::ordinary::{self, recorded};
use super::targets::{self, lossy};

const FORMATS: [&str; 4] = ["openai", "openai-responses", "anthropic", "gemini"];
const PROVIDERS: [&str; 5] = ["openai", "anthropic", "gemini", "bedrock", "cohere"];
const FIXTURES: &str = "tests/fixtures/fuzz";
const SECONDS: u64 = 9;

fn target(name: &'static str, seeds: Vec<Vec<u8>>, check: fn(&[u8])) -> FuzzTarget {
    FuzzTarget { name, seeds, check }
}

fn all_recorded(formats: &[&str], suffix: &str) -> Vec<Vec<u8>> {
    formats.iter().flat_map(|format| recorded(format, suffix)).collect()
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn requests() {
    let requests = || all_recorded(&FORMATS, ".request.json");
    let targets = vec![
        target("canonical-json", requests(), canonical),
        target("truncated-json", requests(), truncated),
        target("peek", requests(), peeked),
        target("translated-requests", requests(), |body| {
            (0..4).for_each(|client| targets::requests(body, client));
        }),
        target("sandbox", requests(), targets::sandbox_call),
        target("forms", vec![ordinary::form(300)], form),
        target(
            "paths",
            texts(&["/v1/models/a%2fb:generateContent?alt=sse&key=x", "/model/a.b-v1:0/invoke"]),
            |text| {
                targets::paths(text);
                targets::chains(text);
                targets::sign(text);
            },
        ),
        target(
            "chains",
            texts(&["openai/gpt-4o, anthropic/claude-3@2, sandbox", "provider:a,model:b"]),
            |text| {
                let _ = parse_chain(&lossy(text));
                targets::chains(text);
            },
        ),
    ];
    fuzz(FIXTURES, targets, SECONDS);
}

#[test]
fn bodies() {
    let responses = || all_recorded(&PROVIDERS, ".response.json");
    let mut bodies = responses();
    bodies.extend(all_recorded(&FORMATS, ".request.json"));
    bodies.extend(all_recorded(&["openai", "anthropic"], ".stream.txt"));
    let every = targets::all();
    let run = |name: &str| every.iter().find(|target| target.name == name).unwrap().run;
    let targets = vec![
        target("translated-responses", responses(), |body| {
            (0..5).for_each(|at| targets::responses(body, at));
        }),
        target(
            "synthesized-streams",
            all_recorded(&["openai", "anthropic", "gemini"], ".response.json"),
            synthesized,
        ),
        target("preview", bodies.clone(), run("preview")),
        target("search-terms", bodies.clone(), run("search terms of bodies")),
        target("search-index", vec![run_part(), vec![1, 0, 0, 0, 0, 0, 7, 2, 3]], word_run),
        target("body-block", vec![body_block(), vec![0, 5, 1, 0, 1, 0, 7]], body_blocks),
        target("scanners", bodies.clone(), run("JSON scanners")),
        target("semantic-cache", bodies, run("semantic cache")),
        target(
            "gate",
            vec![ordinary::prose(200), b"Fix `a b` and \"C d\", 1,000 or 50%?".to_vec()],
            run("gate of similar texts"),
        ),
    ];
    fuzz(FIXTURES, targets, SECONDS);
}

#[test]
fn streams() {
    let streams =
        || all_recorded(&["openai", "openai-responses", "anthropic", "gemini", "cohere"], ".stream.txt");
    let frames = || recorded("bedrock", ".stream.txt");
    let targets = vec![
        target("events", streams(), events),
        target("frames", frames(), frame_reader),
        target("meters", streams(), |bytes| (0..5).for_each(|format| metered(bytes, format))),
        target("meter-of-frames", frames(), |bytes| metered(bytes, 3)),
        target("aggregation", streams(), |bytes| (0..7).for_each(|format| aggregated(bytes, format))),
        target("aggregation-of-frames", frames(), |bytes| aggregated(bytes, 5)),
        target("translated-streams", streams(), |bytes| {
            for provider in [0, 1, 2, 4] {
                translated(bytes, provider);
            }
        }),
        target("translated-frames", frames(), |bytes| translated(bytes, 3)),
    ];
    fuzz(FIXTURES, targets, SECONDS);
}

#[test]
fn files() {
    let span = json!({"resourceSpans": [{"scopeSpans": [{"spans": [targets::span()]}]}]});
    let decoded: ExportTraceServiceRequest = serde_json::from_value(span.clone()).unwrap();
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "required": ["a"],
        "additionalProperties": {"type": ["string", "null"]}, "$defs": {"b": {"anyOf": [{"minimum": 1}, {"const": "x"}]}}});
    let targets = vec![
        target(
            "frontmatter",
            vec![
                ordinary::skill(400),
                b"---\nname: a\ndescription: |\n  b\n  c\nmetadata: {x: 1}\n---\n\nbody".to_vec(),
            ],
            frontmatter,
        ),
        target("skills", vec![ordinary::skill(1_000)], targets::skill),
        target(
            "configurations",
            vec![
                include_bytes!("../../fixtures/import/litellm.yaml").to_vec(),
                include_bytes!("../../fixtures/import/litellm_keys.sql").to_vec(),
                include_bytes!("../../fixtures/import/litellm_keys.csv").to_vec(),
                include_bytes!("../../fixtures/import/portkey.json").to_vec(),
                include_bytes!("../../fixtures/import/openrouter.json").to_vec(),
                include_bytes!("../../fixtures/import/helicone.yaml").to_vec(),
            ],
            configuration,
        ),
        target(
            "dialects",
            texts(&[
                r#"{"model":"a/b:nitro","num_retries":2,"metadata":{"a":1},"cache":{"ttl":3},"provider":{"zdr":false}}"#,
                r#"{"models":["a/b","c"],"fallbacks":["smart",{"model":"x/y","top_p":1},{"c":["d"]}],"provider":{"order":["a"],"max_price":{"prompt":"1.5"},"sort":{"by":"price"}}}"#,
                r#"{"strategy":{"mode":"conditional","conditions":[{"query":{"metadata.a":{"$regex":"b+"}},"then":"x"}],"default":"x"},"targets":[{"name":"x","provider":"openai","override_params":{"model":"m"}}]}"#,
                r#"[{"target-url":"https://api.openai.com","onCodes":[429,{"from":500,"to":599}],"bodyKeyOverride":{"model":"m"}}]"#,
                r#"{"error":{"message":"m","code":502},"usage":{}}"#,
            ]),
            dialect,
        ),
        target("otlp-protobuf", vec![decoded.encode_to_vec()], protobuf),
        target("otlp-json", vec![span.to_string().into_bytes()], |bytes| {
            json_within_limits(bytes);
            targets::ingest_json(bytes);
        }),
        target("import", vec![ordinary::csv(200), ordinary::cases(300), ordinary::lines(300)], imported),
        target("templates", vec![ordinary::template(200), b"a \\{{b}} {{ c }}".to_vec()], template),
        target("schemas", vec![schema.to_string().into_bytes()], evaluated_schema),
        target("patterns", texts(&[r"(?i)\b[a-z]{2,5}\d+(?:-\d{4})?$", "(a|b)*c{3}[^d]"]), pattern),
        target(
            "small-texts",
            texts(&[
                "2026-11-16T02:03:04.567+05:30",
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            ]),
            small,
        ),
    ];
    fuzz(FIXTURES, targets, SECONDS);
}

fn canonical(body: &[u8]) {
    match canonical_json(body, &[]) {
        Ok(form) => {
            assert_eq!(canonical_json(&form, &[]).as_ref(), Ok(&form), "it is its own canonical form");
            assert!(form.len() <= body.len() + body.len() / 2 + 64);
        }
        Err(CanonicalError::NotJson) => {
            // Only numbers that no float can hold are JSON for us and not for serde.
            assert!(serde_json::from_slice::<Value>(body).is_err(), "serde reads it");
        }
        Err(CanonicalError::DuplicateKey | CanonicalError::TooDeep) => {}
    }
}

fn truncated(body: &[u8]) {
    let text = lossy(body);
    if serde_json::from_str::<Value>(&text).is_ok() {
        for at in (0..=text.len()).step_by(1 + text.len() / 16) {
            let cut = &text[..text.floor_char_boundary(at)];
            if let Some(completed) = complete_truncated(cut) {
                assert!(serde_json::from_str::<Value>(&completed).is_ok(), "{cut} became {completed}");
            }
        }
    } else {
        complete_truncated(&text);
    }
    if let Some(text) = unescape(body) {
        assert!(text.len() <= body.len());
    }
}

fn peeked(body: &[u8]) {
    let whole = peek(body);
    let mut pieces = BodyPeek::new();
    let fed = body.chunks(7).try_for_each(|piece| pieces.feed(piece));
    let in_pieces = fed.and_then(|()| pieces.finish());
    assert_eq!(whole.is_ok(), in_pieces.is_ok(), "{whole:?} {in_pieces:?}");
    if let (Ok(whole), Ok(in_pieces)) = (&whole, in_pieces) {
        assert_eq!(*whole, in_pieces);
    }
    let (Ok(found), Ok(Value::Object(parsed))) = (whole, serde_json::from_slice::<Value>(body)) else {
        return;
    };
    assert_eq!(
        found.model.as_deref(),
        parsed.get("model").and_then(Value::as_str),
        "the model is what serde reads"
    );
    if let Some(replaced) = replace_model(body, "another") {
        let replaced: Value = serde_json::from_slice(&replaced).unwrap();
        assert_eq!(replaced["model"], "another");
    }
}

fn form(body: &[u8]) {
    if let Some(model) = multipart_model("multipart/form-data; boundary=X", body) {
        assert!(lossy(body).contains(&model));
    }
    multipart_model(&lossy(body), b"--X--");
}

fn synthesized(body: &[u8]) {
    for format in WireFormat::ALL {
        if let Ok(events) = synthesize_stream(format, body, true) {
            let _ = aggregate_stream(format, format.framing(), &events.concat());
        }
    }
}

/// The events as text, from chunks of this size.
fn read_events(bytes: &[u8], size: usize) -> Vec<String> {
    let mut reader = EventReader::new(EventLimits { line: 4 << 10, event: 8 << 10 });
    let mut found = Vec::new();
    let mut visit = |item: EventItem<'_>| {
        found.push(match item {
            EventItem::Event(event) => format!("{:?} {}", event.event.map(lossy), lossy(event.data)),
            EventItem::Overlong => "overlong".to_owned(),
        });
    };
    for chunk in bytes.chunks(size) {
        reader.feed(chunk, &mut visit);
    }
    reader.finish(&mut visit);
    found
}

fn events(bytes: &[u8]) {
    let whole = read_events(bytes, bytes.len().max(1));
    for size in [1, 3, 64] {
        assert_eq!(read_events(bytes, size), whole, "chunks of {size} bytes");
    }
    for size in [1, 5, 1_000] {
        let mut filter = EventFilter::new(EventLimits::FILTER);
        let mut passed = Vec::new();
        for chunk in bytes.chunks(size) {
            passed.extend(filter.feed(chunk, |_| false).concat(chunk));
        }
        passed.extend(filter.finish(|_| false));
        assert!(passed == bytes, "a filter that removes nothing changes nothing");
    }
}

fn frame_reader(bytes: &[u8]) {
    let read = |size: usize| {
        let mut reader = FrameReader::new();
        let mut found = Vec::new();
        for chunk in bytes.chunks(size) {
            let result = reader.feed(chunk, |frame| {
                found.push((frame.event_type.map(str::to_owned), frame.payload.to_vec()));
            });
            if result.is_err() {
                break;
            }
        }
        (found, reader.at_boundary())
    };
    let whole = read(bytes.len().max(1));
    assert_eq!(read(1), whole);
    assert_eq!(read(13), whole);
    let payload = &bytes[..bytes.len().min(100)];
    let encoded = eventstream::encode(&[(":event-type", "a")], payload).unwrap();
    let mut reader = FrameReader::new();
    reader
        .feed(&encoded, |frame| assert_eq!((frame.event_type, frame.payload), (Some("a"), payload)))
        .unwrap();
}

fn metered(bytes: &[u8], format: usize) {
    let format = ProviderFormat::ALL[format];
    for framing in [BodyFraming::Sse, BodyFraming::EventStream, BodyFraming::Json] {
        let read = |size: usize| {
            let mut meter = Meter::new(format, framing);
            bytes.chunks(size).for_each(|chunk| meter.feed(chunk));
            meter.finish()
        };
        assert_eq!(read(bytes.len().max(1)), read(9), "{framing:?}");
    }
}

fn aggregated(bytes: &[u8], format: usize) {
    let format = WireFormat::ALL[format];
    let read = |size: usize| {
        let mut aggregator = StreamAggregator::new(format, format.framing(), 1 << 20);
        for chunk in bytes.chunks(size) {
            aggregator.feed(chunk)?;
        }
        aggregator.finish()
    };
    let (whole, in_pieces) = (read(bytes.len().max(1)), read(11));
    assert_eq!(whole.is_ok(), in_pieces.is_ok());
    if let (Ok(whole), Ok(in_pieces)) = (whole, in_pieces) {
        assert_eq!(lossy(&whole), lossy(&in_pieces));
        assert!(serde_json::from_slice::<Value>(&whole).is_ok());
    }
}

fn translated(bytes: &[u8], provider: usize) {
    let options =
        ResponseOptions { id: "1", model: "m", created: 1, include_usage: true, use_responses_api: false };
    for client in ClientFormat::ALL {
        let read = |size: usize| {
            let mut translator = StreamTranslator::new(ProviderFormat::ALL[provider], client, &options);
            let mut out = Vec::new();
            bytes.chunks(size).for_each(|chunk| translator.feed(chunk, &mut out));
            translator.finish(&mut out);
            assert!(translator.is_finished());
            out
        };
        assert_eq!(lossy(&read(bytes.len().max(1))), lossy(&read(17)), "{client:?}");
    }
}

fn frontmatter(raw: &[u8]) {
    let Ok(parsed) = Document::parse(&lossy(raw)) else { return };
    if let Ok(written) = parsed.write() {
        let again = Document::parse(&written).expect("what was written is read");
        assert_eq!((again.fields, again.body), (parsed.fields.clone(), parsed.body.clone()));
    }
    let mut changed = parsed;
    changed.set("description", "another");
    if let Ok(written) = changed.write() {
        let again = Document::parse(&written).expect("what was changed is read");
        assert_eq!(again.fields, changed.fields, "{written}");
    }
    let _ = changed.for_agents();
}

/// Whatever the source, what is planned can be saved.
fn configuration(bytes: &[u8]) {
    for source in Source::ALL {
        let Ok(import) = gateway_core::import::plan(source, &lossy(bytes), &|_| None) else { continue };
        for model in import.plan.models {
            model.definition.checked(&model.name, &|_| true).expect("a planned model is valid");
        }
    }
}

/// Knows some models and all addresses.
struct AnyOrg;

impl Known for AnyOrg {
    fn has_model(&self, name: &str) -> bool {
        name.len().is_multiple_of(3)
    }

    fn has_provider(&self, name: &str) -> bool {
        name.len().is_multiple_of(2)
    }

    fn provider_at(&self, url: &str) -> Option<String> {
        Some(url.chars().take(8).collect())
    }
}

/// A rewritten body is one JSON object, like the one that was rewritten; a config that is read can be compiled.
fn dialect(bytes: &[u8]) {
    let text = lossy(bytes);
    for dialect in &DIALECTS {
        let edited = gateway_core::compat::body(dialect, bytes, &mut Changes::default(), &AnyOrg);
        if let Ok(Some(edited)) = edited {
            // Half of a surrogate pair is JSON, but no text: a tree cannot have it.
            let edited = std::str::from_utf8(&edited).expect("an edited body is UTF-8");
            serde_json::from_str::<IgnoredAny>(edited).expect("an edited body is JSON");
            assert!(edited.trim_start().starts_with('{'), "{edited}");
        }
        for (name, _) in dialect.headers {
            let head = take_headers(dialect, [(*name, &*text)].into_iter());
            if let Ok(changes) = read_head(dialect, &head, &AnyOrg)
                && let Some(config) = changes.route.config
            {
                gateway_core::models::Model::compile(&config).expect("a checked config");
            }
        }
        if let Some(shaped) = dialect.stream_error(bytes, "provider", "id") {
            assert!(serde_json::from_slice::<Value>(&shaped).expect("an event is JSON").is_object());
        }
    }
}

fn protobuf(bytes: &[u8]) {
    protobuf_within_limits(bytes);
    targets::ingest_protobuf(bytes);
    let ours = ExportTraceServiceRequest::decode(bytes);
    if let Ok(ours) = ours {
        let again = ExportTraceServiceRequest::decode(&ours.encode_to_vec()[..]).unwrap();
        assert_eq!(again, ours);
    }
}

fn imported(bytes: &[u8]) {
    for format in [ImportFormat::Json, ImportFormat::Csv, ImportFormat::Ndjson] {
        let mut taken = 0;
        let result = import(format, bytes, &mut |_| {
            taken += 1;
            true
        });
        assert_eq!(result, check_import(format, bytes));
        match result {
            Ok(count) => assert_eq!(count, taken),
            Err(ImportError::Rows { rows, .. }) => assert!(!rows.is_empty()),
            Err(ImportError::Unreadable(message)) => assert!(!message.is_empty()),
        }
    }
}

/// A part of the search index of two rows.
fn run_part() -> Vec<u8> {
    let org = OrgId(uuid::Uuid::nil());
    Run::of([(7, org, &[1_u64, 2, 3][..]), (9, org, &[2, 3])]).unwrap().parts.remove(0)
}

/// What is read of damaged bytes is in order and can be encoded again.
fn word_run(bytes: &[u8]) {
    let mut postings = Vec::new();
    if read_part(bytes, |posting| postings.push(posting)).is_ok() && postings.is_sorted_by(|a, b| a < b) {
        let rows = postings.iter().map(|posting| usize::from(posting.row()) + 1).max().unwrap_or(0);
        let (part, mut again) = (encode_part(&postings, rows), Vec::new());
        read_part(&part, |posting| again.push(posting)).unwrap();
        assert_eq!(postings, again);
        for posting in postings.iter().take(5) {
            assert!(rows_with(&part, posting.key()).unwrap().contains(&posting.row()));
        }
    }
    if let Ok(ids) = decode_ids(bytes) {
        assert_eq!(decode_ids(&encode_ids(&ids)).unwrap(), ids);
    }
    let _ = rows_with(bytes, 7);
}

fn body_block() -> Vec<u8> {
    blocks_of([targets::bodies(b"a question and an answer")]).remove(0).bytes
}

/// Bytes are bodies, which are read as they were, or a damaged block.
fn body_blocks(bytes: &[u8]) {
    let block = blocks_of([targets::bodies(bytes)]).remove(0);
    let found = read_bodies(block.id(), &block.bytes, |_| true).unwrap();
    assert_eq!(found.get(&block.id()), Some(&(bytes.to_vec(), bytes.to_vec())));
    let _ = read_bodies(1, bytes, |_| true);
}

fn template(content: &[u8]) {
    let content = lossy(content);
    let Ok(template) = Template::parse(&content) else { return };
    // A variable that is replaced by itself, escaped, gives a template with the same text.
    let values = template.variables().iter().map(|name| (name.clone(), "v".to_owned())).collect();
    let rendered = template.render(&values).unwrap();
    if template.variables().is_empty() && !content.contains('\\') {
        assert_eq!(rendered, content);
    }
    assert_eq!(template.unused(&values), [""; 0]);
}

fn evaluated_schema(bytes: &[u8]) {
    let Ok(schema) = serde_json::from_slice::<Value>(bytes) else { return };
    if let Ok(evaluator) = Evaluator::parse("static", "json_schema", &json!({"schema": schema})) {
        for document in [r#"{"a": 1}"#, r#"{"a": "x", "b": null}"#, "[1, [2]]", "{"] {
            let text = SubjectText::Text(document.to_owned());
            let subject = Subject { text, request: None, expected: None, facts: CallFacts::default() };
            let first = evaluator.evaluate(&subject);
            assert_eq!(evaluator.evaluate(&subject), first);
        }
    }
}

fn pattern(bytes: &[u8]) {
    if let Ok(evaluator) = Evaluator::parse("static", "regex", &json!({"pattern": lossy(bytes)})) {
        let text = SubjectText::Text("ab12-3456 aaabbbcccd".repeat(20));
        let subject = Subject { text, request: None, expected: None, facts: CallFacts::default() };
        evaluator.evaluate(&subject);
    }
}

fn small(bytes: &[u8]) {
    let text = lossy(bytes);
    if let Ok(time) = text.parse::<Timestamp>() {
        assert_eq!(time.to_string().parse::<Timestamp>().ok(), Some(time));
    }
    parse_traceparent(&text);
    query_terms(&text);
    let _ = gateway_core::signing::decode_secret(&text);
    let _ = gateway_core::accounts::normalise_email(&text);
    gateway_core::accounts::hash_key(&text);
    gateway_core::accounts::slugify(&text);
    let _ = gateway_core::scopes::Scopes::parse(&[&*text]);
    let _ = gateway_core::pricing::PriceTable::parse(&text);
    gateway_core::llm::failure::retry_after([("retry-after", &*text), ("retry-after-ms", &*text)], 0);
    let _ = gateway_core::quotas::Quotas::default().with_overrides(&text);
}
