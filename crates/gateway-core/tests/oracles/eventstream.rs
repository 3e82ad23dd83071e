//! Event-stream frames: each side decodes what the other one encodes.

use aws_smithy_eventstream::frame::{read_message_from, write_message_to};
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use gateway_core::llm::eventstream::{FrameReader, encode};
use proptest::prelude::*;

const NAMES: [&str; 3] = [":event-type", ":message-type", ":content-type"];

proptest! {
    #[test]
    fn amazons_decoder_reads_our_frames(
        values in prop::collection::vec("[ -~\u{e4}\u{1f600}]{0,40}", 0..=NAMES.len()),
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let headers: Vec<(&str, &str)> = NAMES.into_iter().zip(values.iter().map(String::as_str)).collect();
        let frame = encode(&headers, &payload).unwrap();
        let message = read_message_from(&frame[..]).unwrap();
        prop_assert_eq!(message.payload().as_ref(), &payload[..]);
        let found: Vec<(&str, &str)> = message
            .headers()
            .iter()
            .map(|header| (header.name().as_str(), header.value().as_string().unwrap().as_str()))
            .collect();
        prop_assert_eq!(found, headers);
    }

    #[test]
    fn our_reader_reads_amazons_frames(
        event in "[a-zA-Z]{1,40}",
        payload in prop::collection::vec(any::<u8>(), 0..300),
        number in any::<i64>(),
        flag in any::<bool>(),
        chunk in 1_usize..50,
    ) {
        let message = Message::new(payload.clone())
            .add_header(Header::new("flag", HeaderValue::Bool(flag)))
            .add_header(Header::new("number", HeaderValue::Int64(number)))
            .add_header(Header::new("bytes", HeaderValue::ByteArray(payload.clone().into())))
            .add_header(Header::new(":event-type", HeaderValue::String(event.clone().into())));
        let mut bytes = Vec::new();
        write_message_to(&message, &mut bytes).unwrap();
        write_message_to(&message, &mut bytes).unwrap();
        let (mut reader, mut found) = (FrameReader::new(), Vec::new());
        for piece in bytes.chunks(chunk) {
            reader
                .feed(piece, |frame| {
                    found.push((frame.event_type.map(str::to_owned), frame.payload.to_vec()));
                })
                .unwrap();
        }
        prop_assert!(reader.at_boundary());
        let expected = (Some(event), payload);
        prop_assert_eq!(found, vec![expected.clone(), expected]);
    }
}
