//! The rows of the provider table.

use super::*;
use std::collections::HashSet;

const NAMES: [&str; 22] = [
    "openai",
    "anthropic",
    "gemini",
    "azure-openai",
    "bedrock",
    "vertex",
    "mistral",
    "cohere",
    "groq",
    "together",
    "fireworks",
    "deepseek",
    "xai",
    "perplexity",
    "openrouter",
    "cerebras",
    "nvidia",
    "huggingface",
    "ollama",
    "vllm",
    "lmstudio",
    "sandbox",
];

#[test]
fn every_specified_provider_is_listed_once() {
    for name in NAMES {
        assert_eq!(builtin(name).map(|provider| provider.name), Some(name));
    }
    assert_eq!(all().iter().map(|provider| provider.name).collect::<HashSet<_>>().len(), all().len());
    assert_eq!(all().len(), NAMES.len());
    assert!(builtin("OpenAI").is_none() && builtin("").is_none());
}

#[test]
fn base_urls_are_https_unless_local_and_leave_the_version_to_the_caller() {
    for provider in all() {
        let Some(url) = provider.base_url else {
            assert!(["azure-openai", SANDBOX].contains(&provider.name), "{}", provider.name);
            continue;
        };
        let host = match url.strip_prefix("http://") {
            Some(rest) => {
                assert!(rest.starts_with("localhost:") && provider.is_local());
                continue;
            }
            None => url.strip_prefix("https://").unwrap().split('/').next().unwrap(),
        };
        assert!(host.contains('.') && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-".contains(&b)));
        assert!(!url.ends_with('/') && !url.ends_with("/v1"), "{url}");
    }
}

#[test]
fn a_call_for_another_provider_gets_the_path_of_this_one() {
    let at =
        |name: &str, operation, stream| builtin(name).unwrap().path_for(operation, Some("a/b:0"), stream);
    for (name, operation, stream, path) in [
        ("groq", Operation::Chat, true, Some("/v1/chat/completions")),
        ("azure-openai", Operation::Chat, false, Some("/openai/v1/chat/completions")),
        ("perplexity", Operation::Chat, false, Some("/chat/completions")),
        ("openai", Operation::Responses, false, Some("/v1/responses")),
        ("mistral", Operation::Responses, false, None),
        ("vllm", Operation::Completions, false, Some("/v1/completions")),
        ("together", Operation::Embeddings, false, Some("/v1/embeddings")),
        ("groq", Operation::Embeddings, false, None),
        ("anthropic", Operation::Messages, true, Some("/v1/messages")),
        ("anthropic", Operation::Chat, true, None),
        ("bedrock", Operation::Converse, true, Some("/model/a%2Fb%3A0/converse-stream")),
        ("gemini", Operation::GenerateContent, false, Some("/v1beta/models/a%2Fb%3A0:generateContent")),
        ("vertex", Operation::GenerateContent, false, None),
        ("openai", Operation::Other, false, None),
    ] {
        assert_eq!(at(name, operation, stream).as_deref(), path, "{name} {operation:?}");
    }
    assert_eq!(builtin("gemini").unwrap().path_for(Operation::GenerateContent, None, false), None);
}

#[test]
fn rows_are_complete() {
    for provider in all() {
        assert!(!provider.otel_name.is_empty(), "{}", provider.name);
        let paths = [
            Some(provider.chat_path),
            provider.stream_path,
            provider.responses_path,
            provider.embeddings_path,
            provider.models_path,
        ];
        assert!(paths.iter().flatten().all(|path| path.starts_with('/')), "{}", provider.name);
        let model_in_path = matches!(provider.format, ProviderFormat::Gemini | ProviderFormat::Bedrock);
        assert_eq!(provider.chat_path.contains("{model}"), model_in_path, "{}", provider.name);
        assert_eq!(provider.stream_path.is_some(), model_in_path, "{}", provider.name);
        assert_eq!(provider.env_keys.is_empty(), provider.auth == Auth::None, "{}", provider.name);
        assert!(
            !provider.supports_include_usage || provider.format == ProviderFormat::OpenAi,
            "{}",
            provider.name
        );
    }
}
