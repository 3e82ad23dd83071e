//! Paths of every provider, and paths that servers might read differently.

use super::*;
use proptest::prelude::*;

#[test]
fn the_model_is_read_off_the_paths_of_every_provider() {
    let arn = "arn:aws:bedrock:us-east-1:1:inference-profile/us.amazon.nova-v1:0";
    for (path, model) in [
        ("/v1beta/models/gemini-2.5-pro:generateContent", Some("gemini-2.5-pro")),
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent/", Some("gemini-2.5-pro")),
        ("/v1beta/tunedModels/mine:generateContent", Some("tunedModels/mine")),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude%404:rawPredict", Some("claude@4")),
        ("/v1/projects/p/locations/l/endpoints/123:predict", Some("endpoints/123")),
        ("/v1/projects/p/locations/l/endpoints/openapi/chat/completions", None),
        ("/v1/models/gpt-4o", Some("gpt-4o")),
        ("/v1/models/models", Some("models")),
        ("/v1/models", None),
        ("/v1/models/", None),
        ("/model/amazon.nova-v1%3A0/converse", Some("amazon.nova-v1:0")),
        ("/model/amazon.nova-v1:0/invoke-with-response-stream", Some("amazon.nova-v1:0")),
        (
            "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.amazon.nova-v1%3A0/converse",
            Some(arn),
        ),
        ("/openai/deployments/my-gpt/chat/completions", Some("my-gpt")),
        ("/OpenAI/Deployments/my-gpt/chat/completions", Some("my-gpt")),
        ("/openai/d%65ployments/my-gpt/chat/completions", Some("my-gpt")),
        ("/v1/engines/davinci/completions", Some("davinci")),
        ("/v1/chat/completions", None),
        ("/v1//chat/completions", None),
        ("/openai/v1/responses", None),
        ("/", None),
    ] {
        assert_eq!(
            RequestPath::parse(path).model().as_ref().map(|found| found.as_deref()),
            Ok(model),
            "{path}"
        );
    }
}

#[test]
fn a_path_that_servers_might_read_differently_is_ambiguous() {
    for path in [
        "/v1beta/models/good/../models/bad:generateContent",
        "/v1beta/models/good/%2e%2E/bad:generateContent",
        "/v1beta/models/./good:generateContent",
        "/v1beta//models/good:generateContent",
        "/v1beta/models//good:generateContent",
        "/v1beta/models/bad:x:generateContent",
        "/v1beta/models/bad%3AgenerateContent",
        "/v1beta/models/good:generateContent%3A",
        "/v1beta/models/:generateContent",
        "/v1beta/models/bad%2f..%2fgood:generateContent",
        "/v1beta/models/%2567ood:generateContent",
        "/v1beta/models/good%00:generateContent",
        "/v1beta/models/good%:generateContent",
        "/v1beta/models/good%ff:generateContent",
        "/v1beta/models\\good:generateContent",
        "/v1beta/models%2Fbad:generateContent",
        "/v1beta/models/bad/v1/chat/completions",
        "/v1beta/models/a/models/b:generateContent",
        "/models/a/deployments/b/chat/completions",
        "/endpoints/openapi/models/bad:generateContent",
        "/model/a/b/converse",
        "/model/bad/new-action",
        "/model/..%2fbad/converse",
        "/model/bad%2f/converse",
        "/model",
        "/v1/models/a?x",
        "/model;x/bad/converse",
        "/v1/projects/a.com:p/locations/l/publishers/google/models/bad%3AgenerateContent",
        "/v1/chat%2Fcompletions",
    ] {
        assert_eq!(RequestPath::parse(path).model(), Err(AmbiguousPath), "{path}");
    }
}

#[test]
fn streams_are_recognized_by_method_or_action() {
    for (path, query, streams) in [
        ("/v1beta/models/g:streamGenerateContent", Some("alt=sse"), true),
        ("/v1beta/models/g:streamGenerateContent", None, true),
        ("/v1beta/models/g:generateContent", None, false),
        ("/v1/projects/p/publishers/anthropic/models/c:streamRawPredict", None, true),
        ("/model/x/converse-stream", None, true),
        ("/model/x/invoke-with-response-stream", None, true),
        ("/model/x/converse", None, false),
        ("/v1/chat/completions", Some("alt=sse"), false),
    ] {
        assert_eq!(RequestPath::parse(path).is_streaming(query), streams, "{path}");
    }
}

#[test]
fn operations_and_caller_formats_follow_the_path() {
    use ClientFormat::{Anthropic, Gemini, OpenAiChat, OpenAiResponses};
    use Operation::{
        Chat, Completions, Converse, Embeddings, GenerateContent, Messages, Models, Other, Responses,
    };
    for (path, expected, format) in [
        ("/v1/chat/completions", Chat, Some(OpenAiChat)),
        ("/v1/chat/completions/", Chat, Some(OpenAiChat)),
        ("/chat/completions", Chat, Some(OpenAiChat)),
        ("/openai/deployments/d/chat/completions", Chat, Some(OpenAiChat)),
        ("/v2/chat", Chat, None),
        ("/api/chat", Chat, None),
        ("/v1/completions", Completions, Some(OpenAiChat)),
        ("/v1/responses", Responses, Some(OpenAiResponses)),
        ("/v1/responses/resp_1", Other, None),
        ("/v1/messages", Messages, Some(Anthropic)),
        ("/v1/messages/count_tokens", Other, None),
        ("/v1/threads/t/messages", Other, None),
        ("/v1/publishers/anthropic/models/c:rawPredict", Messages, None),
        ("/v1beta/models/g:generateContent", GenerateContent, Some(Gemini)),
        ("/v1beta/models/g:streamGenerateContent", GenerateContent, Some(Gemini)),
        ("/v1beta/models/g:embedContent", Embeddings, Some(Gemini)),
        ("/v1/embeddings", Embeddings, Some(OpenAiChat)),
        ("/v2/embed", Embeddings, None),
        ("/model/m/converse-stream", Converse, None),
        ("/model/m/invoke", Other, None),
        ("/v1/models", Models, None),
        ("/v1/models/gpt-4o", Models, None),
        ("/v1/audio/speech", Other, None),
        ("/", Other, None),
    ] {
        assert_eq!(RequestPath::parse(path).operation(), expected, "{path}");
        assert_eq!(RequestPath::parse(path).client_format(), format, "{path}");
    }
}

proptest! {
    #[test]
    fn bedrock_models_survive_encoding(model in "[a-z0-9.:-]{1,30}(/[a-z0-9.:-]{1,5}[a-z])?") {
        prop_assume!(model.split('/').all(|piece| piece != "." && piece != ".."));
        let encoded = percent_encoding::utf8_percent_encode(&model, percent_encoding::NON_ALPHANUMERIC);
        let path = format!("/model/{encoded}/converse");
        let found = RequestPath::parse(&path).model().unwrap();
        prop_assert_eq!(found.as_deref(), Some(&*model));
    }

    #[test]
    fn no_path_panics(path in "(/|models|model|deployments|:|%2f|%|\\.|x|converse|é){0,12}") {
        let read = RequestPath::parse(&path);
        let _ = (read.model(), read.operation(), read.client_format(), read.is_streaming(None));
    }
}

#[test]
fn parent_segments_are_found_however_they_are_encoded() {
    for path in [
        "/..",
        "/../v1/x",
        "/v1/../x",
        "/v1/..",
        "/v1/%2e%2e/x",
        "/v1/%2E./x",
        "/v1/.%2e",
        "/v1/%252e%252e/x",
        "/v1/%25252e./x",
        "/v1/a%2f..%2fx",
        "/v1/a%5c..%5cx",
        "/v1/a\\..\\x",
        "/v1/..;a=b/x",
        "/v1/%2e%2e%3bx/y",
        "/v1/%25252525252525252525x",
    ] {
        assert!(has_parent_segment(path), "{path}");
    }
    for path in [
        "/",
        "/v1/models",
        "/v1/a..b",
        "/v1/...",
        "/v1/..a",
        "/v1/x..",
        "/v1/./x",
        "/v1/a%2fb",
        "/v1/100%",
        "/v1/%zz..",
        "/v1/%e4%bd%a0",
        "/v1/%ff",
    ] {
        assert!(!has_parent_segment(path), "{path}");
    }
}
