//! Paths of objects that a provider keeps for an account: files, batches, stored responses and the like. Every
//! holder of a credential of the account can list, read and delete all of them. Organizations that share the operator's credential
//! therefore get no access to such paths.

use super::paths::RequestPath;

/// The names of collections of objects, as segments of a path.
const COLLECTIONS: [&str; 50] = [
    // OpenAI, and those who follow it.
    "files",
    "uploads",
    "batches",
    "batch",
    "conversations",
    "assistants",
    "threads",
    "vector_stores",
    "fine_tuning",
    "fine-tunes",
    "fine_tunes",
    "fine-tune",
    "containers",
    "evals",
    "skills",
    "videos",
    "chatkit",
    "realtime",
    "organization",
    "deferred-completion",
    // Anthropic.
    "agents",
    "sessions",
    "organizations",
    // Google.
    "cachedContents",
    "corpora",
    "ragStores",
    "fileSearchStores",
    "generatedFiles",
    "interactions",
    "operations",
    "auth_tokens",
    "batchPredictionJobs",
    "tuningJobs",
    "customJobs",
    "trainingPipelines",
    "reasoningEngines",
    "ragCorpora",
    // Cohere and Mistral.
    "datasets",
    "connectors",
    "finetuning",
    "embed-jobs",
    "libraries",
    "collections",
    // Bedrock.
    "async-invoke",
    "model-invocation-job",
    "model-invocation-jobs",
    "model-customization-jobs",
    "custom-models",
    "imported-models",
    // OpenRouter.
    "keys",
];

/// The calls by which a local server (Ollama, vLLM, LM Studio, llama.cpp) loads, changes or deletes models.
const MODEL_MANAGEMENT: [&str; 26] = [
    "pull",
    "push",
    "create",
    "copy",
    "delete",
    "blobs",
    "load",
    "unload",
    "download",
    "load_lora_adapter",
    "unload_lora_adapter",
    "lora-adapters",
    "slots",
    "sleep",
    "wake_up",
    "reset_prefix_cache",
    "reset_mm_cache",
    "reset_encoder_cache",
    "collective_rpc",
    "update_weights",
    "init_weight_transfer_engine",
    "pause",
    "resume",
    "scale_elastic_ep",
    "start_profile",
    "stop_profile",
];

/// Methods of Google's APIs that create an object.
const CREATING_METHODS: [&str; 3] = ["batchGenerateContent", "asyncBatchEmbedContent", "predictLongRunning"];

/// Whether a call reads or changes objects of the account, instead of only answering. `method` is in upper case. A path
/// that servers may read differently counts as one.
pub fn touches_stored_objects(method: &str, path: &RequestPath<'_>) -> bool {
    let operation = path.operation();
    let is_post = method == "POST";
    if is_post && operation.calls_model() {
        return false;
    }
    let Some(words) = path.segments() else { return true };
    let words: Vec<&str> = words.iter().flat_map(|word| word.split('/')).collect();
    let is = |word: &str, names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(word));
    // A model or deployment may have any name.
    let names_model = |at: usize| {
        at.checked_sub(1)
            .is_some_and(|before| is(words[before], &["models", "model", "deployments", "engines"]))
    };
    let stores = |(at, word): (usize, &&str)| {
        let (name, called) = word.split_once(':').unwrap_or((word, ""));
        (!names_model(at) && is(name, &COLLECTIONS)) || is(called, &CREATING_METHODS)
    };
    let manages = |(at, word): (usize, &&str)| {
        let follows = |names: &[&str]| at.checked_sub(1).is_none_or(|before| is(words[before], names));
        is(word, &MODEL_MANAGEMENT) && follows(&["api", "v0", "v1", "models"])
    };
    words.iter().enumerate().any(|word| stores(word) || manages(word))
        || is_stored_answer(is_post, &words)
        || changes_model(method, &words)
}

/// Responses and chat completions that the provider has stored. A POST to the collection itself is a call to a model,
/// and so are the counting and the compaction of an input.
fn is_stored_answer(is_post: bool, words: &[&str]) -> bool {
    let is = |word: &str, name: &str| word.eq_ignore_ascii_case(name);
    let behind = words.iter().enumerate().find_map(|(at, word)| {
        let is_completions = is(word, "completions") && at > 0 && is(words[at - 1], "chat");
        (is(word, "responses") || is_completions).then(|| &words[at + 1..])
    });
    match behind {
        None => false,
        Some([]) => !is_post,
        Some([last]) if is_post => !(is(last, "input_tokens") || is(last, "compact")),
        Some(_) => true,
    }
}

/// Deleting or changing a model, which may be the fine-tuned one of another organization.
fn changes_model(method: &str, words: &[&str]) -> bool {
    let named = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
    match method {
        "DELETE" | "PUT" | "PATCH" => named("models") || named("tunedModels") || named("deployments"),
        // Google's fine-tuned models are listed and created there; a call to one has a method behind a colon.
        _ => named("tunedModels") && !words.last().is_some_and(|last| last.contains(':')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touches(method: &str, path: &str) -> bool {
        touches_stored_objects(method, &RequestPath::parse(path))
    }

    #[test]
    fn calls_of_models_touch_nothing() {
        for path in [
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/responses",
            "/v1/responses/input_tokens",
            "/v1/responses/compact",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/embeddings",
            "/v1/images/generations",
            "/v1/images/edits",
            "/v1/audio/transcriptions",
            "/v1/audio/speech",
            "/v1/moderations",
            "/v1/rerank",
            "/v2/chat",
            "/v2/embed",
            "/v1beta/models/gemini:generateContent",
            "/v1beta/models/gemini:countTokens",
            "/v1beta/models/gemini:batchEmbedContents",
            "/v1beta/tunedModels/mine:generateContent",
            "/v1/projects/p/locations/l/publishers/google/models/g:generateContent",
            "/openai/deployments/files/chat/completions",
            "/openai/deployments/evals/images/generations",
            "/model/amazon.nova/converse",
            "/model/amazon.nova/invoke",
            "/models/org/model",
            "/api/chat",
            "/api/generate",
            "/api/show",
            "/api/embed",
            "/tokenize",
            "/v1/score",
        ] {
            assert!(!touches("POST", path), "POST {path}");
        }
        for path in
            ["/", "/v1/models", "/v1/models/gpt", "/v1beta/models", "/api/tags", "/api/ps", "/api/version"]
        {
            assert!(!touches("GET", path), "GET {path}");
        }
    }

    #[test]
    fn stored_answers_are_objects_and_new_ones_are_not() {
        for (method, path) in [
            ("GET", "/v1/responses"),
            ("GET", "/v1/responses/resp_1"),
            ("DELETE", "/v1/responses/resp_1"),
            ("POST", "/v1/responses/resp_1/cancel"),
            ("POST", "/v1/responses/resp_1"),
            ("GET", "/v1/responses/resp_1/input_items"),
            ("GET", "/openai/v1/responses/resp_1"),
            ("GET", "/v1/chat/completions"),
            ("GET", "/v1/chat/completions/c1/messages"),
            ("POST", "/v1/chat/completions/c1"),
            ("DELETE", "/v1/chat/completions/c1"),
        ] {
            assert!(touches(method, path), "{method} {path}");
        }
    }

    #[test]
    fn no_spelling_hides_an_object() {
        for path in [
            "/v1/Files",
            "/v1/%66iles",
            "/v1//files",
            "/v1/files/",
            "/v1/x%2ffiles",
            "/openai/files",
            "/v1beta/files/abc:download",
            "/v1beta/models/g:batchGenerateContent",
            // Servers that decode twice read `files`.
            "/v1/%2566iles",
            "/v1/files;x",
        ] {
            assert!(touches("GET", path) && touches("POST", path), "{path}");
        }
    }

    #[test]
    fn models_are_listed_but_not_changed() {
        for (method, path) in [
            ("DELETE", "/v1/models/ft:gpt:acme"),
            ("PATCH", "/v1beta/tunedModels/mine"),
            ("GET", "/v1beta/tunedModels"),
            ("POST", "/v1beta/tunedModels"),
            ("POST", "/api/pull"),
            ("DELETE", "/api/delete"),
            ("POST", "/api/blobs/sha256:00"),
            ("HEAD", "/api/blobs/sha256:00"),
            ("POST", "/v1/load_lora_adapter"),
            ("POST", "/sleep"),
            ("POST", "/api/v1/models/load"),
            ("POST", "/models/unload"),
        ] {
            assert!(touches(method, path), "{method} {path}");
        }
    }
}
