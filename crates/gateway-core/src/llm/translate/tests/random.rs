//! The properties of `laws` for randomly generated requests and responses.

use proptest::{collection::vec, prelude::*};
use serde_json::{Map, Value};

use super::{
    super::{
        super::{
            ClientFormat, aggregate,
            chat::{Losses, WireFormat},
        },
        client_codec, provider_codec, translate_response,
    },
    generators::{anthropic_request, chat_request, chat_response, gemini_request, responses_request},
    support::{CLIENTS, ProviderApi, normalize_json, translate_stream},
};

fn json_value(bytes: &[u8]) -> Value {
    normalize_json(serde_json::from_slice(bytes).unwrap())
}

fn assert_unchanged(client: ClientFormat, body: Map<String, Value>) -> Result<(), TestCaseError> {
    let request = client_codec(client).decode_request(body.clone()).unwrap();
    let format = WireFormat::from(client);
    let mut losses = Losses::new(format);
    let encoded = provider_codec(format).encode_request(request, &mut losses).unwrap();
    prop_assert_eq!(normalize_json(encoded), normalize_json(body.into()));
    prop_assert_eq!(losses.into_dropped(), Vec::<String>::new());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn aggregating_and_translating_commute_for_any_response(
        response in chat_response(),
        sizes in vec(1usize..64, 1..4),
    ) {
        for source in CLIENTS {
            let api = ProviderApi { provider: source.native(), use_responses_api: source == ClientFormat::OpenAiResponses };
            let body = client_codec(source).encode_response(response.clone()).to_string();
            let stream = aggregate::synthesize_stream(api.format(), body.as_bytes(), true).unwrap().concat();
            for client in CLIENTS {
                let translated = translate_stream(api, client, &stream, &sizes);
                let format = client.into();
                let aggregated = aggregate::aggregate_stream(format, format.framing(), &translated).unwrap();
                let expected = translate_response(api.provider, client, body.as_bytes(), &api.response_options()).unwrap();
                prop_assert_eq!(json_value(&aggregated), json_value(&expected), "{:?} to {:?}", source, client);
            }
        }
    }

    #[test]
    fn any_chat_request_is_unchanged_by_decoding_and_encoding(body in chat_request()) {
        assert_unchanged(ClientFormat::OpenAiChat, body)?;
    }

    #[test]
    fn any_responses_request_is_unchanged_by_decoding_and_encoding(body in responses_request()) {
        assert_unchanged(ClientFormat::OpenAiResponses, body)?;
    }

    #[test]
    fn any_gemini_request_is_unchanged_by_decoding_and_encoding(body in gemini_request()) {
        assert_unchanged(ClientFormat::Gemini, body)?;
    }

    #[test]
    fn any_anthropic_request_is_unchanged_by_decoding_and_encoding(body in anthropic_request()) {
        assert_unchanged(ClientFormat::Anthropic, body)?;
    }
}
