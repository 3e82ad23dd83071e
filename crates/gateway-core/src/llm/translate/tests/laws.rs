//! Properties of every pair of formats. Aggregating and translating a stream commute. The sizes of its chunks do not
//! matter. A request that is decoded and encoded again in its own format is unchanged.

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
    support::{CLIENTS, ProviderApi, cases, normalize_json, read_json, stream_bytes, translate_stream},
};

fn every_stream() -> Vec<(ClientFormat, ProviderApi, String)> {
    let mut all = Vec::new();
    for client in CLIENTS {
        for api in ProviderApi::all() {
            all.extend(cases(api.name(), ".stream.txt").into_iter().map(|case| (client, api, case)));
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
    for (client, api, case) in every_stream().into_iter().filter(|(.., case)| case != "error") {
        let bytes = stream_bytes(api, &case);
        let translated = translate_stream(api, client, &bytes, &[7]);
        let translated_then_aggregated = aggregated(client.into(), &translated);
        let aggregated_then_translated = translate_response(
            api.provider,
            client,
            &aggregated(api.format(), &bytes),
            &api.response_options(),
        )
        .unwrap();
        let parse = |bytes: &[u8]| normalize_json(serde_json::from_slice::<Value>(bytes).unwrap());
        assert_eq!(
            parse(&translated_then_aggregated),
            parse(&aggregated_then_translated),
            "{client:?} from {}: {case}",
            api.name()
        );
    }
}

#[test]
fn a_stream_translates_to_the_same_content_as_a_complete_response() {
    for (client, api, case) in every_stream().into_iter().filter(|(.., case)| case != "error") {
        let body = read_json(api.name(), &format!("{case}.response.json"));
        let from_body =
            translate_response(api.provider, client, body.to_string().as_bytes(), &api.response_options())
                .unwrap();
        let bytes = stream_bytes(api, &case);
        let from_stream = translate_response(
            api.provider,
            client,
            &aggregated(api.format(), &bytes),
            &api.response_options(),
        )
        .unwrap();
        let parse = |bytes: &[u8]| normalize_json(serde_json::from_slice::<Value>(bytes).unwrap());
        assert_eq!(parse(&from_stream), parse(&from_body), "{client:?} from {}: {case}", api.name());
    }
}

#[test]
fn requests_are_unchanged_by_decoding_and_encoding() {
    for client in CLIENTS {
        for case in cases(client.as_str(), ".request.json") {
            let Value::Object(body) = read_json(client.as_str(), &format!("{case}.request.json")) else {
                panic!("{case} is not an object")
            };
            let request = client_codec(client).decode_request(body.clone()).unwrap();
            let format = WireFormat::from(client);
            let mut losses = Losses::new(format);
            let encoded = provider_codec(format).encode_request(request, &mut losses).unwrap();
            assert_eq!(normalize_json(encoded), normalize_json(body.into()), "{client:?}: {case}");
            assert_eq!(losses.into_dropped(), Vec::<String>::new(), "{client:?}: {case}");
        }
    }
}

#[test]
fn token_counts_are_the_same_in_every_format() {
    use super::super::super::{
        BodyFraming,
        usage::{Meter, Usage},
    };
    for (client, api, case) in every_stream().into_iter().filter(|(.., case)| case != "error") {
        let bytes = stream_bytes(api, &case);
        let metered = |format: ProviderFormat, framing: BodyFraming, bytes: &[u8]| {
            let mut meter = Meter::new(format, framing);
            meter.feed(bytes);
            meter.finish().usage.unwrap()
        };
        let before = metered(api.provider, api.format().framing(), &bytes);
        let translated = translate_stream(api, client, &bytes, &[usize::MAX]);
        let after = metered(client.native(), BodyFraming::Sse, &translated);
        let context = format!("{client:?} from {}: {case}", api.name());
        assert_eq!(before.prompt_tokens(), after.prompt_tokens(), "{context}");
        assert_eq!(before.completion_tokens(), after.completion_tokens(), "{context}");
        assert_eq!(before.cached_tokens(), after.cached_tokens(), "{context}");
        if matches!(client, ClientFormat::OpenAiChat | ClientFormat::Anthropic) {
            let written = |usage: &Usage| usage.cache_write + usage.cache_write_1h;
            assert_eq!(written(&before), written(&after), "{context}");
        }
        // Anthropic counts thinking as output.
        if client == ClientFormat::OpenAiChat {
            assert_eq!(before.reasoning, after.reasoning, "{context}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunk_boundaries_do_not_matter(
        pick in any::<prop::sample::Index>(),
        sizes in prop::collection::vec(1usize..40, 1..6),
    ) {
        let all = every_stream();
        let (client, api, case) = &all[pick.index(all.len())];
        let bytes = stream_bytes(*api, case);
        let whole = translate_stream(*api, *client, &bytes, &[usize::MAX]);
        let chunked = translate_stream(*api, *client, &bytes, &sizes);
        prop_assert_eq!(String::from_utf8(chunked).unwrap(), String::from_utf8(whole).unwrap());
    }

    #[test]
    fn broken_streams_end_with_an_error_and_never_panic(
        pick in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let all = every_stream();
        let (client, api, case) = &all[pick.index(all.len())];
        let bytes = stream_bytes(*api, case);
        let mut truncated = bytes[..cut.index(bytes.len())].to_vec();
        truncated.extend(noise);
        let out = translate_stream(*api, *client, &truncated, &[usize::MAX]);
        prop_assert!(!out.is_empty());
    }

    #[test]
    fn arbitrary_bodies_never_panic(body in r#"[\[\]{}":,a-z0-9 ]{0,60}"#) {
        for client in CLIENTS {
            for api in ProviderApi::all() {
                let _ = translate_response(api.provider, client, body.as_bytes(), &api.response_options());
                let _ = super::super::translate_error(api.provider, client, 500, body.as_bytes());
                let _ = super::super::translate_models(api.provider, client, body.as_bytes());
            }
        }
    }
}
