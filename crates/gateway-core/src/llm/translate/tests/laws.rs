//! Properties of every pair of formats. Aggregating a stream and then translating it gives the same result as the
//! opposite order, regardless of chunk boundaries. Decoding a request and encoding it in the same format is lossless.

use proptest::prelude::*;
use serde_json::Value;

use super::{
    super::{
        super::{
            ClientFormat, ProviderFormat, aggregate,
            chat::{Losses, WireFormat},
        },
        client_codec, provider_codec, translate_response,
    },
    support::{CLIENTS, ProviderSide, cases, plain, read_json, stream_bytes, translate_stream},
};

fn every_stream() -> Vec<(ClientFormat, ProviderSide, String)> {
    let mut all = Vec::new();
    for client in CLIENTS {
        for side in ProviderSide::all() {
            all.extend(cases(side.name(), ".stream.txt").into_iter().map(|case| (client, side, case)));
        }
    }
    all
}

fn aggregated(format: WireFormat, bytes: &[u8]) -> Vec<u8> {
    aggregate::aggregate_stream(format, format.framing(), bytes)
        .unwrap_or_else(|error| panic!("{format:?}: {error}\n{}", String::from_utf8_lossy(bytes)))
}

#[test]
fn aggregating_and_translating_commute() {
    for (client, side, case) in every_stream().into_iter().filter(|(.., case)| case != "error") {
        let bytes = stream_bytes(side, &case);
        let translated = translate_stream(side, client, &bytes, &[7]);
        let translated_then_aggregated = aggregated(client.into(), &translated);
        let aggregated_then_translated =
            translate_response(side.provider, client, &aggregated(side.format(), &bytes), &side.reply())
                .unwrap();
        let parse = |bytes: &[u8]| plain(serde_json::from_slice::<Value>(bytes).unwrap());
        assert_eq!(
            parse(&translated_then_aggregated),
            parse(&aggregated_then_translated),
            "{client:?} from {}: {case}",
            side.name()
        );
    }
}

#[test]
fn a_stream_says_the_same_as_the_plain_answer() {
    for (client, side, case) in every_stream().into_iter().filter(|(.., case)| case != "error") {
        let body = read_json(side.name(), &format!("{case}.response.json"));
        let from_body =
            translate_response(side.provider, client, body.to_string().as_bytes(), &side.reply()).unwrap();
        let bytes = stream_bytes(side, &case);
        let from_stream =
            translate_response(side.provider, client, &aggregated(side.format(), &bytes), &side.reply())
                .unwrap();
        let parse = |bytes: &[u8]| plain(serde_json::from_slice::<Value>(bytes).unwrap());
        assert_eq!(parse(&from_stream), parse(&from_body), "{client:?} from {}: {case}", side.name());
    }
}

#[test]
fn requests_come_back_as_they_were() {
    for client in CLIENTS {
        for case in cases(client.as_str(), ".request.json") {
            let Value::Object(body) = read_json(client.as_str(), &format!("{case}.request.json")) else {
                panic!("{case} is not an object")
            };
            let request = client_codec(client).decode_request(body.clone()).unwrap();
            let format = WireFormat::from(client);
            let mut losses = Losses::new(format);
            let written = provider_codec(format).encode_request(request, &mut losses).unwrap();
            assert_eq!(plain(written), plain(body.into()), "{client:?}: {case}");
            assert_eq!(losses.into_dropped(), Vec::<String>::new(), "{client:?}: {case}");
        }
    }
}

#[test]
fn tokens_are_the_same_in_every_format() {
    use super::super::super::{
        BodyFraming,
        usage::{Meter, Usage},
    };
    for (client, side, case) in every_stream().into_iter().filter(|(.., case)| case != "error") {
        let bytes = stream_bytes(side, &case);
        let metered = |format: ProviderFormat, framing: BodyFraming, bytes: &[u8]| {
            let mut meter = Meter::new(format, framing);
            meter.feed(bytes);
            meter.finish().usage.unwrap()
        };
        let before = metered(side.provider, side.format().framing(), &bytes);
        let translated = translate_stream(side, client, &bytes, &[usize::MAX]);
        let after = metered(client.native(), BodyFraming::Sse, &translated);
        let what = format!("{client:?} from {}: {case}", side.name());
        assert_eq!(before.prompt_tokens(), after.prompt_tokens(), "{what}");
        assert_eq!(before.completion_tokens(), after.completion_tokens(), "{what}");
        assert_eq!(before.cached_tokens(), after.cached_tokens(), "{what}");
        if matches!(client, ClientFormat::OpenAiChat | ClientFormat::Anthropic) {
            let written = |usage: &Usage| usage.cache_write + usage.cache_write_1h;
            assert_eq!(written(&before), written(&after), "{what}");
        }
        // Anthropic counts thinking as output.
        if client == ClientFormat::OpenAiChat {
            assert_eq!(before.reasoning, after.reasoning, "{what}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunks_may_be_cut_anywhere(
        pick in any::<prop::sample::Index>(),
        sizes in prop::collection::vec(1usize..40, 1..6),
    ) {
        let all = every_stream();
        let (client, side, case) = &all[pick.index(all.len())];
        let bytes = stream_bytes(*side, case);
        let whole = translate_stream(*side, *client, &bytes, &[usize::MAX]);
        let cut = translate_stream(*side, *client, &bytes, &sizes);
        prop_assert_eq!(String::from_utf8(cut).unwrap(), String::from_utf8(whole).unwrap());
    }

    #[test]
    fn broken_streams_end_with_an_error_and_never_panic(
        pick in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let all = every_stream();
        let (client, side, case) = &all[pick.index(all.len())];
        let bytes = stream_bytes(*side, case);
        let mut broken = bytes[..cut.index(bytes.len())].to_vec();
        broken.extend(noise);
        let out = translate_stream(*side, *client, &broken, &[usize::MAX]);
        prop_assert!(!out.is_empty());
    }

    #[test]
    fn arbitrary_bodies_never_panic(body in r#"[\[\]{}":,a-z0-9 ]{0,60}"#) {
        for client in CLIENTS {
            for side in ProviderSide::all() {
                let _ = translate_response(side.provider, client, body.as_bytes(), &side.reply());
                let _ = super::super::translate_error(side.provider, client, 500, body.as_bytes());
                let _ = super::super::translate_models(side.provider, client, body.as_bytes());
            }
        }
    }
}
