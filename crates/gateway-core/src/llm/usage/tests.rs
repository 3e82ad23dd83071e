//! Streams and bodies as providers send them, and their expected totals.

mod bodies;
mod native;
mod openai;
mod reports;
mod vectors;

use proptest::prelude::*;

use self::{
    native::{ANTHROPIC, COHERE, GEMINI, converse, invoke},
    openai::{AZURE, DONE, FIRST, RESPONSES, STOP_WITH_USAGE, TEXT, USAGE},
};
use super::*;
use crate::llm::BodyFraming;

fn meter(format: ProviderFormat, framing: BodyFraming, chunks: &[&[u8]]) -> MeterReading {
    let mut meter = Meter::new(format, framing);
    for chunk in chunks {
        meter.feed(chunk);
    }
    meter.finish()
}

fn sse(format: ProviderFormat, events: &[&str]) -> MeterReading {
    meter(format, BodyFraming::Sse, &[sse_bytes(events).as_bytes()])
}

fn sse_bytes(events: &[&str]) -> String {
    events.iter().flat_map(|event| ["data: ", event, "\n\n"]).collect()
}

fn json(format: ProviderFormat, body: &str) -> MeterReading {
    meter(format, BodyFraming::Json, &[body.as_bytes()])
}

fn read(format: ProviderFormat, raw: &str) -> Usage {
    let usage = read_usage(format, raw).unwrap_or_else(|| panic!("no usage in {raw}"));
    assert_eq!(usage.raw.as_deref(), Some(raw));
    Usage { raw: None, ..usage }
}

fn classes(metered: &MeterReading) -> Usage {
    Usage { raw: None, ..metered.usage.clone().expect("usage") }
}

fn named_bytes(events: &[(&str, &str)]) -> String {
    events.iter().flat_map(|(name, data)| ["event: ", name, "\ndata: ", data, "\n\n"]).collect()
}

#[test]
fn a_meter_says_whether_it_reads_on() {
    let mut meter = Meter::new(ProviderFormat::Bedrock, BodyFraming::EventStream);
    assert!(meter.reads_on());
    meter.feed(&[0xff; 64]);
    assert!(!meter.reads_on(), "after an invalid frame");
    for (framing, reads_on) in
        [(BodyFraming::Json, true), (BodyFraming::Sse, true), (BodyFraming::Opaque, false)]
    {
        let mut meter = Meter::new(ProviderFormat::OpenAi, framing);
        meter.feed(b"{}");
        assert_eq!(meter.reads_on(), reads_on, "{framing:?}");
    }
}

/// Every recorded stream and body, for the property below.
fn recordings() -> Vec<(ProviderFormat, BodyFraming, Vec<u8>)> {
    let array = format!("[{}\n,\r\n{}]", GEMINI[0], GEMINI[2]);
    vec![
        (
            ProviderFormat::OpenAi,
            BodyFraming::Sse,
            sse_bytes(&[AZURE, FIRST, TEXT, STOP_WITH_USAGE, USAGE, DONE]).into(),
        ),
        (ProviderFormat::OpenAi, BodyFraming::Sse, sse_bytes(&RESPONSES).replace('\n', "\r\n").into()),
        (ProviderFormat::OpenAi, BodyFraming::Json, STOP_WITH_USAGE.into()),
        (ProviderFormat::Anthropic, BodyFraming::Sse, named_bytes(&ANTHROPIC).into()),
        (ProviderFormat::Gemini, BodyFraming::Sse, sse_bytes(&GEMINI).into()),
        (ProviderFormat::Gemini, BodyFraming::Json, array.into()),
        (ProviderFormat::Bedrock, BodyFraming::EventStream, converse()),
        (
            ProviderFormat::Bedrock,
            BodyFraming::EventStream,
            invoke(&[ANTHROPIC[0].1, ANTHROPIC[4].1, ANTHROPIC[5].1]),
        ),
        (ProviderFormat::Cohere, BodyFraming::Sse, named_bytes(&COHERE).into()),
    ]
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_reading(size in 1usize..300, cut in 0.0f64..1.0) {
        for (format, framing, bytes) in recordings() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in the bytes")]
            let bytes = &bytes[..bytes.len() - (bytes.len() as f64 * cut * cut) as usize];
            let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(meter(format, framing, &chunks), meter(format, framing, &[bytes]));
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in r#"(data: |\n|[\[\]{}":,\\a0]|"usage":|"type":"error"|"delta":){0,30}"#, size in 1usize..9) {
        for kind in [BodyFraming::Json, BodyFraming::Sse, BodyFraming::EventStream] {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(meter(ProviderFormat::OpenAi, kind, &chunks), meter(ProviderFormat::OpenAi, kind, &[text.as_bytes()]));
        }
    }
}
