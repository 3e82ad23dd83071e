//! Cost of translating between wire formats, measured in this process. Untranslated requests do not pay it.

use std::fmt::Write as _;
use std::hint::black_box;

use gateway_core::llm::translate::{
    RequestOptions, ResponseOptions, StreamTranslator, translate_request, translate_response,
};
use gateway_core::llm::{ClientFormat, ProviderFormat};

use crate::bench::Bench;
use crate::error::{BenchError, BenchResult};
use crate::procfs;
use crate::report::{Goal, Row, Section};
use crate::request::chat;
use crate::responses::{DONE, ResponseScript, chunk, plain_body, usage_chunk};
use crate::stats::Spread;

const CHUNKS: u32 = 50;
const REQUEST_OPTIONS: RequestOptions<'_> = RequestOptions {
    model: "claude-sonnet-4-5",
    stream: false,
    supports_include_usage: true,
    use_responses_api: false,
};
const RESPONSE_OPTIONS: ResponseOptions<'_> = ResponseOptions {
    id: "gw-1",
    model: "model",
    created: 1_760_000_000,
    include_usage: true,
    use_responses_api: false,
};

pub(super) fn run(bench: &Bench) -> BenchResult<Section> {
    let whole = chat(2048, ResponseScript::default(), "");
    let length = crate::http::parse_head(&whole).map_or(0, |head| head.length);
    let asked = whole.get(length..).unwrap_or_default();
    let (claude, openai) = (claude_answer(), plain_body());
    let to_claude = |body: &[u8]| {
        translate_request(ClientFormat::OpenAiChat, ProviderFormat::Anthropic, body, &REQUEST_OPTIONS)
    };
    let translated = to_claude(asked).map_err(|error| BenchError::new(error.to_string()))?.body;
    let mut rows = Vec::new();
    let mut row = |name: &str, per: f64, goal: Option<f64>, once: &mut dyn FnMut() -> BenchResult<()>| {
        once()?;
        let mut rounds = Vec::new();
        for _ in 0..bench.rounds {
            bench.stop.check()?;
            rounds.push(cost(once)? / per);
        }
        let row = Row { gateway: Spread::of(rounds), ..Row::of_gateway(name, "us", 0.0) };
        rows.push(match goal {
            Some(most) => row.goal(Goal::Below(most)),
            None => row,
        });
        BenchResult::Ok(())
    };
    row("request and answer, OpenAI caller, Anthropic provider", 1.0, Some(60.0), &mut || {
        sound(to_claude(asked).map(|made| made.body))?;
        sound(translate_response(
            ProviderFormat::Anthropic,
            ClientFormat::OpenAiChat,
            claude.as_bytes(),
            &RESPONSE_OPTIONS,
        ))
    })?;
    row("request and answer, Anthropic caller, OpenAI provider", 1.0, Some(60.0), &mut || {
        sound(
            translate_request(ClientFormat::Anthropic, ProviderFormat::OpenAi, &translated, &REQUEST_OPTIONS)
                .map(|made| made.body),
        )?;
        sound(translate_response(
            ProviderFormat::OpenAi,
            ClientFormat::Anthropic,
            openai.as_bytes(),
            &RESPONSE_OPTIONS,
        ))
    })?;
    for (name, from, to, events) in [
        ("chunk, Anthropic to OpenAI", ProviderFormat::Anthropic, ClientFormat::OpenAiChat, claude_stream()),
        ("chunk, OpenAI to Anthropic", ProviderFormat::OpenAi, ClientFormat::Anthropic, openai_stream()),
        ("chunk, OpenAI to Gemini", ProviderFormat::OpenAi, ClientFormat::Gemini, openai_stream()),
    ] {
        row(name, f64::from(CHUNKS), Some(2.0), &mut || {
            let mut stream = StreamTranslator::new(from, to, &RESPONSE_OPTIONS);
            let mut length = 0;
            for event in &events {
                let mut out = Vec::new();
                stream.feed(event.as_bytes(), &mut out);
                length += black_box(out).len();
            }
            let mut out = Vec::new();
            stream.finish(&mut out);
            if length > events.len() && memchr::memmem::find(&out, b"error").is_none() {
                Ok(())
            } else {
                Err(BenchError::new("a stream was not translated"))
            }
        })?;
    }
    Ok(Section {
        id: "l",
        title: format!("translation: 2 KB prompt, 300 B answer, {CHUNKS} chunks, in process"),
        rows,
        notes: Vec::new(),
    })
}

/// CPU time of one translation, in microseconds.
fn cost(once: &mut dyn FnMut() -> BenchResult<()>) -> BenchResult<f64> {
    const TIMES: u32 = 3_000;
    let this = [std::process::id()];
    let before = procfs::cpu(&this);
    for _ in 0..TIMES {
        once()?;
    }
    Ok(procfs::cpu_between(&before, &procfs::cpu(&this)) / f64::from(TIMES))
}

fn sound<E: std::fmt::Display>(made: Result<Vec<u8>, E>) -> BenchResult<()> {
    made.map(|body| drop(black_box(body))).map_err(|error| BenchError::new(error.to_string()))
}

fn claude_answer() -> String {
    "{\"id\":\"msg_bench\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5\",\"content\":[{\"type\":\
     \"text\",\"text\":\"Costs doubled since spring, and nobody asked why.\"}],\"stop_reason\":\"end_turn\",\
     \"stop_sequence\":null,\"usage\":{\"input_tokens\":480,\"output_tokens\":12}}"
        .to_owned()
}

fn claude_stream() -> Vec<String> {
    let event = |name: &str, data: &str| format!("event: {name}\ndata: {{\"type\":\"{name}\"{data}}}\n\n");
    let words = (0..CHUNKS).map(|at| {
        let mut data = String::from(",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" ");
        // Writing to a String cannot fail.
        let _ = write!(data, "word{at}\"}}");
        event("content_block_delta", &data)
    });
    let begin = ",\"message\":{\"id\":\"msg_bench\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5\",\
        \"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":480,\"output_tokens\":1}}";
    let first = [
        event("message_start", begin),
        event("content_block_start", ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}"),
    ];
    let stop =
        ",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":50}";
    let last = [
        event("content_block_stop", ",\"index\":0"),
        event("message_delta", stop),
        event("message_stop", ""),
    ];
    first.into_iter().chain(words).chain(last).collect()
}

fn openai_stream() -> Vec<String> {
    let script = ResponseScript { chunks: CHUNKS, ..ResponseScript::default() };
    let words = (0..CHUNKS).map(|at| chunk(script, at, true));
    words.chain([usage_chunk(script), DONE.to_owned()]).collect()
}
