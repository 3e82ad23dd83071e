//! Prompts on the request path: named in `X-Gateway-Prompt`, rendered with the values of `X-Gateway-Prompt-Variables`,
//! and added to the request as its system prompt. Parsed templates are cached, so that a request with a known prompt
//! does not wait for the database.

mod labels;
mod write;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use gateway_core::ids::OrgId;
use gateway_core::llm::paths::Operation;
use gateway_core::llm::system_prompt::prepend_system_prompt;
use gateway_core::logs::PromptVersionRef;
use gateway_core::prompts::{PromptReference, RenderError, Template, VersionSelector};
use gateway_store::connection_shares::on_behalf_of;
use gateway_store::prompts::{self as store, PromptName};
use http::{HeaderMap, StatusCode};

use crate::cluster::Cluster;
use crate::compute::{ComputeError, ComputePool, WaitLimits};
use crate::loading_cache::{LoadingCache, WeightLimit};
use crate::problem::{ApiResult, Problem};
use crate::services::Services;
pub use labels::LabelMove;
pub use write::{Change, check_content};

pub const PROMPT: &str = "x-gateway-prompt";
pub const VARIABLES: &str = "x-gateway-prompt-variables";

const MAX_ENTRIES_PER_SHARD: usize = 512;
/// Templates can be long. There are 64 shards.
const MAX_BYTES_PER_SHARD: usize = 1 << 20;
/// A text of more bytes, or a template of more pieces, is rendered by the threads for computation: a short request can ask
/// for megabytes, which take milliseconds.
const SHORT_BYTES: usize = 128 << 10;
const SHORT_PIECES: usize = 1_000;
const MAX_VARIABLES_BYTES: usize = 16 << 10;

pub struct Prompts {
    services: Arc<Services>,
    cluster: Arc<Cluster>,
    cache: LoadingCache<(OrgId, PromptReference), CachedPrompt>,
}

/// One version of a prompt.
pub struct CachedPrompt {
    pub template: Template,
    pub version: i64,
}

/// The prompt that a request names in its headers.
#[derive(Debug)]
pub struct PromptDirective {
    pub prompt: PromptReference,
    pub variables: HashMap<String, String>,
}

impl CachedPrompt {
    fn is_short(&self, values: &HashMap<String, String>) -> bool {
        self.template.pieces() <= SHORT_PIECES && self.template.rendered_length(values) <= SHORT_BYTES
    }
}

/// Renders a prompt, and makes something of the text.
pub(crate) async fn render<T: Send + 'static>(
    compute: &ComputePool,
    org: OrgId,
    prompt: &Arc<CachedPrompt>,
    values: &HashMap<String, String>,
    then: impl FnOnce(Result<String, RenderError>) -> T + Send + 'static,
) -> Result<T, ComputeError> {
    if prompt.is_short(values) {
        return Ok(then(prompt.template.render(values)));
    }
    let (prompt, values) = (Arc::clone(prompt), values.clone());
    compute.run(org, WaitLimits::REQUEST, move |_| then(prompt.template.render(&values))).await
}

impl PromptDirective {
    /// Returns `None` if the request names no prompt.
    pub fn from_headers(headers: &HeaderMap) -> ApiResult<Option<Self>> {
        let variables = headers.get(VARIABLES);
        let Some(prompt) = headers.get(PROMPT) else {
            return match variables {
                Some(_) => Err(Problem::field(VARIABLES, format!("requires {PROMPT}"))),
                None => Ok(None),
            };
        };
        let prompt =
            prompt.to_str().unwrap_or_default().trim().parse().map_err(|why| Problem::field(PROMPT, why))?;
        let variables = match variables {
            None => HashMap::new(),
            Some(value) if value.len() <= MAX_VARIABLES_BYTES => serde_json::from_slice(value.as_bytes())
                .map_err(|_| Problem::field(VARIABLES, "must be a JSON object whose values are strings"))?,
            Some(_) => {
                let message = format!("must have at most {MAX_VARIABLES_BYTES} bytes");
                return Err(Problem::field(VARIABLES, message));
            }
        };
        Ok(Some(Self { prompt, variables }))
    }
}

impl Prompts {
    pub fn new(services: Arc<Services>, cluster: Arc<Cluster>) -> Self {
        let weights = WeightLimit {
            owner: |key: &(OrgId, PromptReference)| key.0,
            weight: |cached: &CachedPrompt| cached.template.size() + size_of::<CachedPrompt>(),
            max_per_shard: MAX_BYTES_PER_SHARD,
        };
        Self { services, cluster, cache: LoadingCache::with_weights(MAX_ENTRIES_PER_SHARD, weights) }
    }

    /// Returns the prompt from the cache or the store; `None` if it does not exist.
    pub async fn find(
        self: &Arc<Self>,
        org: OrgId,
        reference: &PromptReference,
    ) -> ApiResult<Option<Arc<CachedPrompt>>> {
        let key = (org, reference.clone());
        if let Some(cached) = self.cache.peek(&key) {
            return Ok(Some(cached));
        }
        // Requests run on worker threads, and only the main runtime uses the database.
        let prompts = Arc::clone(self);
        let load = async move { prompts.load(&key).await };
        let load = self.services.tasks.runtime.spawn(on_behalf_of(org, load));
        load.await.map_err(Problem::internal)?
    }

    async fn load(&self, key: &(OrgId, PromptReference)) -> ApiResult<Option<Arc<CachedPrompt>>> {
        self.cache
            .get(key, || async {
                let (org, PromptReference { namespace, slug, version }) = key;
                let name = PromptName { namespace, slug };
                let Some(stored) = store::find(&self.services.db, *org, name, version).await? else {
                    return Ok(None);
                };
                let template = Template::parse(&stored.content).map_err(Problem::internal)?;
                Ok(Some(CachedPrompt { template, version: stored.version }))
            })
            .await
    }

    /// Returns the body of a chat request with the rendered prompt added, and the prompt's version for the log row. The
    /// operation determines the format of the body.
    pub async fn apply(
        self: &Arc<Self>,
        org: OrgId,
        directive: &PromptDirective,
        operation: Operation,
        body: &Bytes,
    ) -> ApiResult<(Bytes, PromptVersionRef)> {
        let PromptDirective { prompt, variables } = directive;
        let cached = self.find(org, prompt).await?;
        let cached = cached.ok_or_else(|| Problem::field(PROMPT, prompt.missing()))?;
        let body = body.clone();
        let prepend = move |text: Result<String, RenderError>| {
            let text = text.map_err(|error| render_problem(VARIABLES, error))?;
            prepend_system_prompt(operation, &body, &text)
                .map_err(|error| Problem::field(PROMPT, error.to_string()))
        };
        let body = render(&self.services.compute, org, &cached, variables, prepend).await??;
        let name = format!("{}/{}", prompt.namespace, prompt.slug);
        Ok((body.into(), PromptVersionRef { name, version: cached.version }))
    }

    /// Invalidates the latest version, because there is a newer one.
    pub fn invalidate_latest(&self, org: OrgId, namespace: &str, slug: &str) {
        self.invalidate_selected(org, namespace, slug, VersionSelector::Latest);
    }

    /// Invalidates a label, because it points to another version now or is gone.
    pub fn invalidate_label(&self, org: OrgId, namespace: &str, slug: &str, label: &str) {
        self.invalidate_selected(org, namespace, slug, VersionSelector::Label(label.into()));
    }

    fn invalidate_selected(&self, org: OrgId, namespace: &str, slug: &str, version: VersionSelector) {
        let (namespace, slug) = (namespace.into(), slug.into());
        self.cache.invalidate(&(org, PromptReference { namespace, slug, version }));
    }

    /// Invalidates all versions of a prompt.
    pub fn invalidate(&self, org: OrgId, namespace: &str, slug: &str) {
        let (namespace, slug) = (namespace.to_owned(), slug.to_owned());
        self.cache.invalidate_if(move |(of, name), _| {
            *of == org && name.namespace == namespace && name.slug == slug
        });
    }

    pub fn invalidate_all_of(&self, org: OrgId) {
        self.cache.invalidate_if(move |(of, _), _| *of == org);
    }

    pub fn invalidate_all(&self) {
        self.cache.invalidate_all();
    }
}

/// The error for variables of this field or header that cannot render the template.
pub fn render_problem(field: &str, error: RenderError) -> Problem {
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

    fn read(prompt: Option<&str>, variables: Option<&str>) -> ApiResult<Option<PromptDirective>> {
        let mut headers = HeaderMap::new();
        for (name, value) in [(PROMPT, prompt), (VARIABLES, variables)] {
            if let Some(value) = value {
                headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
        }
        PromptDirective::from_headers(&headers)
    }

    #[test]
    fn the_headers_name_a_prompt_and_its_values() {
        assert!(read(None, None).unwrap().is_none());
        let directive = read(Some(" support/hello@3 "), Some(r#"{"name": "Zoë"}"#)).unwrap().unwrap();
        assert_eq!(directive.prompt.version, VersionSelector::Number(3));
        assert_eq!(directive.variables["name"], "Zoë");
        let directive = read(Some("support/hello@production"), None).unwrap().unwrap();
        assert_eq!(directive.prompt.version, VersionSelector::Label("production".into()));
        assert!(directive.variables.is_empty());
    }

    #[test]
    fn a_bad_header_is_named() {
        let long = format!(r#"{{"a": "{}"}}"#, "x".repeat(MAX_VARIABLES_BYTES));
        for (prompt, variables, named) in [
            (Some("hello"), None, PROMPT),
            (Some("Support/hello"), None, PROMPT),
            (Some("support/hello@0"), None, PROMPT),
            (Some("support/hello@v2"), None, PROMPT),
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
