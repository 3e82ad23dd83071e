//! Prompts of the organization as MCP prompts: their arguments are the variables of the template.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gateway_core::mcp::{Members, RESERVED_SERVER, RpcError, namespaced, prompt_name, raw};
use gateway_core::prompts::{PromptReference, RenderError, VersionSelector};
use gateway_store::prompts::{self as store, PromptHead};
use serde_json::{Value, json};

use super::{Answer, Context, unknown};
use crate::mcp::Mcp;
use crate::mcp::access::sees_whole_server;
use crate::problem::ApiResult;
use crate::prompts::render;

/// Prompts in a list.
const MAX_PROMPTS: i64 = 1_000;
/// Arguments that a list shows of a prompt. All of them are replaced.
const MAX_LISTED_ARGUMENTS: usize = 100;

/// A prompt under the names that callers use.
struct NamedPrompt {
    head: PromptHead,
    /// On the server's own endpoint.
    own: String,
    /// In the list of all servers.
    exposed: String,
}

impl Mcp {
    async fn named_prompts(&self, context: &Context) -> ApiResult<Vec<NamedPrompt>> {
        let heads = store::list_heads(&self.services.db, context.identity.org.id, MAX_PROMPTS).await?;
        let (mut owns, mut exposed_names) = (HashSet::new(), HashSet::new());
        let named = heads.into_iter().map(|head| {
            let own = prompt_name(&head.namespace, &head.slug, |name| owns.contains(name));
            let exposed = namespaced(RESERVED_SERVER, &own, |name| exposed_names.contains(name));
            owns.insert(own.clone());
            exposed_names.insert(exposed.clone());
            NamedPrompt { head, own, exposed }
        });
        Ok(named.collect())
    }

    pub(super) async fn prompt_entries(&self, context: &Context) -> ApiResult<Vec<Members>> {
        let mut entries = Vec::new();
        for NamedPrompt { head, own, exposed } in self.named_prompts(context).await? {
            let Some(variables) = self.variables(context, &head).await? else { continue };
            let arguments: Vec<Value> =
                variables.iter().map(|name| json!({"name": name, "required": true})).collect();
            let mut entry = Members::default();
            entry.set("name", if context.is_single { &own } else { &exposed });
            entry.set("title", &format!("{}/{}", head.namespace, head.slug));
            entry.set("arguments", &arguments);
            entries.push(entry);
        }
        Ok(entries)
    }

    /// The variables of the latest version. `None` if the prompt was deleted meanwhile. A version never changes, so each
    /// is read once.
    async fn variables(&self, context: &Context, head: &PromptHead) -> ApiResult<Option<Arc<[String]>>> {
        let org = context.identity.org.id;
        let key: Arc<str> = format!("{}@{}", head.id, head.version).into();
        if let Some(known) = self.prompt_variables().get(org, &key) {
            return Ok(Some(Arc::clone(known)));
        }
        let reference = PromptReference {
            namespace: head.namespace.clone(),
            slug: head.slug.clone(),
            version: VersionSelector::Number(head.version),
        };
        let Some(prompt) = self.proxy.prompts.find(org, &reference).await? else { return Ok(None) };
        let listed = prompt.template.variables().iter().take(MAX_LISTED_ARGUMENTS).cloned();
        let variables: Arc<[String]> = listed.collect();
        // If there is no room, the next list reads it again.
        let _ = self.prompt_variables().insert(org, key, Arc::clone(&variables), |_| true);
        Ok(Some(variables))
    }

    /// Renders the latest version as one message of the user.
    pub(super) async fn get_prompt(&self, context: &Context, name: &str, params: &Members) -> Answer {
        if !sees_whole_server(&context.identity, RESERVED_SERVER) {
            return Ok(Err(unknown("prompt", name)));
        }
        let asked = params.text("name").unwrap_or_default();
        let found = self
            .named_prompts(context)
            .await?
            .into_iter()
            .find(|prompt| if context.is_single { prompt.own == name } else { prompt.exposed == asked });
        let Some(NamedPrompt { head, .. }) = found else { return Ok(Err(unknown("prompt", &asked))) };
        let arguments = params.get("arguments").filter(|raw| raw.get() != "null");
        let values =
            arguments.map(|raw| serde_json::from_str::<HashMap<String, String>>(raw.get())).transpose();
        let Ok(values) = values else {
            let message = "`arguments` must be an object whose values are strings";
            return Ok(Err(RpcError::invalid_params(message)));
        };
        let values = values.unwrap_or_default();
        let PromptHead { namespace, slug, .. } = head;
        let title = format!("{namespace}/{slug}");
        let reference = PromptReference { namespace, slug, version: VersionSelector::Latest };
        let found = self.proxy.prompts.find(context.identity.org.id, &reference).await?;
        let Some(prompt) = found else { return Ok(Err(unknown("prompt", &asked))) };
        let result = move |text: Result<String, RenderError>| match text {
            Ok(text) => {
                let message = json!({"role": "user", "content": {"type": "text", "text": text}});
                Ok(raw(&json!({"description": title, "messages": [message]})))
            }
            Err(error) => Err(RpcError::invalid_params(format!("Invalid arguments: {error}"))),
        };
        Ok(render(&self.services.compute, context.identity.org.id, &prompt, &values, result).await?)
    }
}
