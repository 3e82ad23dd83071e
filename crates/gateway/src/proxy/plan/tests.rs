//! Tests of the plan: streaming mode, end user and account binding.

use std::time::Duration;

use gateway_core::llm::ClientFormat;
use gateway_core::llm::peek::FurtherModels;
use gateway_core::llm::prompt_cache::PromptCache;
use serde_json::Map;

use super::*;
use crate::proxy::directives::FormatSource;
use crate::proxy::prompt_cache::PromptCacheDirective;

fn directives(operation: Operation, stream: Option<bool>) -> Directives {
    Directives {
        provider: "openai".into(),
        fallbacks: Vec::new(),
        strategy: None,
        max_retries: None,
        operation,
        client_format: ClientFormat::OpenAiChat,
        format_source: FormatSource::FromPath,
        stream,
        cache: None,
        has_cache_header: false,
        session: None,
        affinity: None,
        prompt_cache: PromptCacheDirective::new(PromptCache::default(), None),
        wants_cost: false,
        user: None,
        metadata: Map::new(),
        log_bodies: false,
        timeout: Duration::from_secs(1),
        stored_credential: false,
        wait_ms: None,
        priority: None,
    }
}

fn facts(streams: bool) -> RequestFacts {
    RequestFacts {
        model: None,
        model_in_path: false,
        model_at: None,
        body_model: None,
        further_models: FurtherModels::None,
        max_tokens: None,
        choices: None,
        streams,
        include_usage: false,
        user: Some("from the body".into()),
    }
}

#[test]
fn the_stream_header_decides_who_streams() {
    // X-Gateway-Stream, the request streams: the provider streams, the caller streams, the option is added
    for (operation, header, request, provider, caller, adds) in [
        (Operation::Chat, None, false, false, false, false),
        (Operation::Chat, None, true, true, true, false),
        (Operation::Chat, Some(false), false, false, false, false),
        (Operation::Chat, Some(false), true, true, false, false),
        (Operation::Chat, Some(true), false, true, true, true),
        (Operation::Chat, Some(true), true, true, true, false),
        (Operation::Embeddings, Some(true), false, false, false, false),
    ] {
        let directives = directives(operation, header);
        let stream_mode = StreamMode::of(&directives);
        let plan = Plan {
            directives: &directives,
            facts: facts(request),
            stream_mode,
            targets: Vec::new(),
            model: None,
            is_bound: false,
        };
        let found = (plan.provider_streams(), plan.caller_streams(), plan.adds_stream());
        assert_eq!(found, (provider, caller, adds), "{operation:?} {header:?} {request}");
    }
}

#[test]
fn the_user_of_the_header_comes_before_the_user_of_the_body() {
    let mut directives = directives(Operation::Chat, None);
    let user = |directives: &Directives| {
        let stream_mode = StreamMode::Passthrough;
        let plan = Plan {
            directives,
            facts: facts(false),
            stream_mode,
            targets: Vec::new(),
            model: None,
            is_bound: false,
        };
        plan.user().map(ToOwned::to_owned)
    };
    assert_eq!(user(&directives).as_deref(), Some("from the body"));
    directives.user = Some("from the header".into());
    assert_eq!(user(&directives).as_deref(), Some("from the header"));
}

#[test]
fn only_responses_that_refer_to_earlier_ones_are_bound_to_an_account() {
    for (operation, body, is_bound) in [
        (Operation::Responses, r#"{"previous_response_id": "resp_1"}"#, true),
        (Operation::Responses, r#"{"input":[{"encrypted_content" : "x"}]}"#, true),
        (Operation::Responses, r#"{"previous_response_id": null}"#, false),
        (Operation::Responses, r#"{"input": "previous_response_id"}"#, false),
        (Operation::Chat, r#"{"previous_response_id": "resp_1"}"#, false),
    ] {
        assert_eq!(refers_to_account_state(operation, body.as_bytes()), is_bound, "{body}");
    }
}
