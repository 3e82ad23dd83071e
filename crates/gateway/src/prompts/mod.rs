//! Prompts as requests use them: named in `X-Gateway-Prompt`, rendered with the values of `X-Gateway-Prompt-Variables`, put
//! into the request as its system text. Templates are held in memory, already parsed, so that a request with a known
//! prompt does not wait for the database; whoever changes one has it forgotten before the change is answered.

pub mod write;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use gateway_core::ids::OrgId;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::system_prompt::prepend_system_prompt;
use gateway_core::logs::PromptVersionRef;
use gateway_core::prompts::{PromptReference, RenderError, Template};
use gateway_store::prompts::{self as store, PromptName};
use http::{HeaderMap, StatusCode};

use crate::loading_cache::LoadingCache;
use crate::problem::{ApiResult, Problem};
use crate::services::Services;

pub const PROMPT: &str = "x-gateway-prompt";
pub const VARIABLES: &str = "x-gateway-prompt-variables";

/// Templates can be long, so fewer of them are remembered than of keys.
const ENTRIES_PER_SHARD: usize = 32;
const MAX_VARIABLES: usize = 16 << 10;

/// The templates that are held in memory.
pub struct Prompts {
    known: LoadingCache<(OrgId, PromptReference), Known>,
}

/// One version of a prompt.
pub struct Known {
    pub template: Template,
    pub version: i64,
}

impl Default for Prompts {
    fn default() -> Self {
        Self { known: LoadingCache::with_capacity(ENTRIES_PER_SHARD) }
    }
}

impl Prompts {
    /// A new version is there: what was the latest is so no more.
    pub fn invalidate_latest(&self, org: OrgId, namespace: &str, slug: &str) {
        let latest = PromptReference { namespace: namespace.into(), slug: slug.into(), version: None };
        self.known.invalidate(&(org, latest));
    }

    /// The prompt is gone with all its versions.
    pub fn invalidate(&self, org: OrgId, namespace: &str, slug: &str) {
        self.known
            .invalidate_if(|(of, name), _| *of == org && name.namespace == namespace && name.slug == slug);
    }

    pub fn invalidate_all_of(&self, org: OrgId) {
        self.known.invalidate_if(|(of, _), _| *of == org);
    }

    /// What is known may be wrong.
    pub fn invalidate_all(&self) {
        self.known.invalidate_all();
    }
}

/// The version that is meant, from memory or else from the store. None when there is no such prompt.
pub async fn find(
    services: &Arc<Services>,
    prompts: &Arc<Prompts>,
    org: OrgId,
    reference: &PromptReference,
) -> ApiResult<Option<Arc<Known>>> {
    let key = (org, reference.clone());
    if let Some(known) = prompts.known.peek(&key) {
        return Ok(Some(known));
    }
    // Requests live on workers, and only the main runtime talks to the database.
    let (own_services, own_prompts) = (Arc::clone(services), Arc::clone(prompts));
    let load = services.tasks.runtime.spawn(async move { own_prompts.load(&own_services, &key).await });
    load.await.map_err(Problem::internal)?
}

impl Prompts {
    async fn load(
        &self,
        services: &Services,
        key: &(OrgId, PromptReference),
    ) -> ApiResult<Option<Arc<Known>>> {
        self.known
            .get(key, || async {
                let (org, PromptReference { namespace, slug, version }) = key;
                let stored =
                    store::find(&services.db, *org, PromptName { namespace, slug }, *version).await?;
                let Some(stored) = stored else { return Ok(None) };
                let template = Template::parse(&stored.content).map_err(Problem::internal)?;
                Ok(Some(Known { template, version: stored.version }))
            })
            .await
    }
}

/// What a request's headers ask for.
#[derive(Debug)]
pub struct Asked {
    pub prompt: PromptReference,
    pub variables: HashMap<String, String>,
}

/// Reads the two headers; None when no prompt is asked for.
pub fn asked(headers: &HeaderMap) -> ApiResult<Option<Asked>> {
    let variables = headers.get(VARIABLES);
    let Some(prompt) = headers.get(PROMPT) else {
        return match variables {
            Some(_) => Err(Problem::field(VARIABLES, format!("is of no use without {PROMPT}"))),
            None => Ok(None),
        };
    };
    let prompt =
        prompt.to_str().unwrap_or_default().trim().parse().map_err(|why| Problem::field(PROMPT, why))?;
    let variables = match variables {
        None => HashMap::new(),
        Some(value) if value.len() <= MAX_VARIABLES => serde_json::from_slice(value.as_bytes())
            .map_err(|_| Problem::field(VARIABLES, "must be a JSON object whose values are texts"))?,
        Some(_) => return Err(Problem::field(VARIABLES, format!("must have at most {MAX_VARIABLES} bytes"))),
    };
    Ok(Some(Asked { prompt, variables }))
}

impl Asked {
    /// Adds the rendered prompt to the body of a chat request, whose format follows from the operation. Returns the
    /// body, and the version for the log row. `known` is the prompt that the headers name.
    pub fn apply(
        &self,
        known: Option<&Known>,
        operation: Operation,
        body: &[u8],
    ) -> ApiResult<(Bytes, PromptVersionRef)> {
        let Self { prompt, variables } = self;
        let known =
            known.ok_or_else(|| Problem::field(PROMPT, "there is no such prompt in this organization"))?;
        let text = known.template.render(variables).map_err(|error| unrendered(VARIABLES, error))?;
        let body = prepend_system_prompt(operation, body, &text)
            .map_err(|error| Problem::field(PROMPT, error.to_string()))?;
        let name = format!("{}/{}", prompt.namespace, prompt.slug);
        Ok((body.into(), PromptVersionRef { name, version: known.version }))
    }
}

/// A template that cannot be rendered with what was given in that field or header.
pub fn unrendered(field: &str, error: RenderError) -> Problem {
    match error {
        RenderError::Missing(names) => {
            let mut problem = Problem::unprocessable(format!("{field}: no value for {}", names.join(", ")));
            problem.extra.insert("missing".into(), names.into());
            problem
        }
        RenderError::TooLong(_) => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn read(prompt: Option<&str>, variables: Option<&str>) -> ApiResult<Option<Asked>> {
        let mut headers = HeaderMap::new();
        for (name, value) in [(PROMPT, prompt), (VARIABLES, variables)] {
            if let Some(value) = value {
                headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
        }
        asked(&headers)
    }

    #[test]
    fn the_headers_name_a_prompt_and_its_values() {
        assert!(read(None, None).unwrap().is_none());
        let asked = read(Some(" support/hello@3 "), Some(r#"{"name": "Zoë"}"#)).unwrap().unwrap();
        assert_eq!(asked.prompt.version, Some(3));
        assert_eq!(asked.variables["name"], "Zoë");
        assert!(read(Some("support/hello"), None).unwrap().unwrap().variables.is_empty());
    }

    #[test]
    fn a_bad_header_is_named() {
        let long = format!(r#"{{"a": "{}"}}"#, "x".repeat(MAX_VARIABLES));
        for (prompt, variables, named) in [
            (Some("hello"), None, PROMPT),
            (Some("Support/hello"), None, PROMPT),
            (Some("support/hello@0"), None, PROMPT),
            (Some("support/héllo"), None, PROMPT),
            (None, Some("{}"), VARIABLES),
            (Some("a/b"), Some("[]"), VARIABLES),
            (Some("a/b"), Some(r#"{"a": 1}"#), VARIABLES),
            (Some("a/b"), Some("{"), VARIABLES),
            (Some("a/b"), Some(&long), VARIABLES),
        ] {
            let problem = read(prompt, variables).unwrap_err();
            assert_eq!(problem.status, 400);
            assert!(problem.message.starts_with(named), "{}", problem.message);
        }
    }
}
