//! Alias rules for model names that are not in the price table. In order:
//!
//! 1. Prefixes are removed: `models/` (Gemini); everything up to the last `/` of an Amazon or Google resource name; a
//!    publisher, as in `openai/gpt-4o`. The account part of a fine-tuned OpenAI model (`ft:base:…`) is removed as well.
//! 2. Amazon's region prefix is removed (`us.`, `eu.`, `apac.`, `global.` and others).
//! 3. A snapshot suffix is removed: `-2024-08-06`, `-20250219`, `-latest`, and Vertex's `@20250219` or `@default`.
//!
//! A common prefix of two model names is never enough.

/// Aliases of the providers in the table.
pub(super) fn provider(name: &str) -> Option<&'static str> {
    Some(match name {
        "azure" | "azure_openai" | "azureopenai" => "azure-openai",
        "google" | "google-ai-studio" | "aistudio" => "gemini",
        "vertex-ai" | "vertex_ai" | "vertexai" | "google-vertex" => "vertex",
        "aws-bedrock" | "amazon-bedrock" => "bedrock",
        "together-ai" | "together_ai" | "togetherai" => "together",
        "fireworks-ai" | "fireworks_ai" => "fireworks",
        "mistralai" => "mistral",
        "x-ai" => "xai",
        _ => return None,
    })
}

/// The aliases to try for a model, closest first.
pub(super) fn names<'a>(provider: &str, model: &'a str) -> impl Iterator<Item = &'a str> {
    let plain = undecorated(model);
    let plain = Some(plain).filter(|plain| *plain != model);
    let regionless = if is_bedrock(provider) { without_region(plain.unwrap_or(model)) } else { None };
    let whole = [Some(model), plain, regionless];
    let undated = whole.map(|name| name.and_then(without_snapshot));
    whole.into_iter().skip(1).chain(undated).flatten()
}

/// Model vendors first, then hosts of open models, then the clouds.
pub(super) fn preference(provider: &str) -> usize {
    const ORDER: [&str; 16] = [
        "openai",
        "anthropic",
        "gemini",
        "mistral",
        "cohere",
        "deepseek",
        "xai",
        "perplexity",
        "groq",
        "cerebras",
        "together",
        "fireworks",
        "vertex",
        "bedrock",
        "azure-openai",
        "openrouter",
    ];
    ORDER.iter().position(|name| *name == provider).unwrap_or(ORDER.len())
}

fn is_bedrock(name: &str) -> bool {
    provider(name).unwrap_or(name) == "bedrock"
}

fn undecorated(model: &str) -> &str {
    if let Some(name) = model.strip_prefix("ft:") {
        // The table lists fine-tuned models as `ft:` and the base model.
        let end = name.find(':').map_or(model.len(), |colon| "ft:".len() + colon);
        return &model[..end];
    }
    let is_resource =
        ["arn:", "projects/", "publishers/", "models/"].iter().any(|start| model.starts_with(start));
    let publisher = model.split_once('/').filter(|(_, rest)| !rest.contains('/'));
    match (is_resource, publisher) {
        (true, _) => model.rsplit_once('/').map_or(model, |(_, name)| name),
        (false, Some((_, name))) => name,
        (false, None) => model,
    }
}

fn without_region(model: &str) -> Option<&str> {
    const REGIONS: [&str; 8] = ["us", "eu", "apac", "global", "jp", "au", "ca", "us-gov"];
    model.split_once('.').filter(|(region, _)| REGIONS.contains(region)).map(|(_, rest)| rest)
}

fn without_snapshot(model: &str) -> Option<&str> {
    if let Some((name, version)) = model.split_once('@') {
        return (version == "default" || version == "latest" || is_day(version.as_bytes())).then_some(name);
    }
    if let Some(name) = model.strip_suffix("-latest") {
        return Some(name);
    }
    let cut = |length: usize| {
        let (name, end) = model.split_at_checked(model.len().checked_sub(length)?)?;
        let end = end.strip_prefix('-')?;
        (!name.is_empty() && is_day(end.as_bytes())).then_some(name)
    };
    cut("-2024-08-06".len()).or_else(|| cut("-20240806".len()))
}

fn is_day(text: &[u8]) -> bool {
    let (year, month, day) = match text {
        [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] | [y1, y2, y3, y4, m1, m2, d1, d2] => {
            ([*y1, *y2, *y3, *y4], [*m1, *m2], [*d1, *d2])
        }
        _ => return false,
    };
    let digits = year.iter().chain(&month).chain(&day).all(u8::is_ascii_digit);
    digits
        && year.starts_with(b"20")
        && (*b"01"..=*b"12").contains(&month)
        && (*b"01"..=*b"31").contains(&day)
}
