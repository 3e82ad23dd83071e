//! The named models of an organization in memory. Each is compiled when it is first asked for, so that loading an
//! organization with many models is cheap.

use std::sync::{Arc, OnceLock};

use gateway_core::ids::OrgId;
use gateway_core::models::{Definition, MAX_TOTAL_BYTES, Model, NamedModels};
use gateway_core::time::Timestamp;
use gateway_store::Tx;
use gateway_store::models::{self as store, LatestModel};

use crate::problem::{ApiResult, Problem};

#[derive(Default)]
pub struct OrgModels(NamedModels<Entry>);

struct Entry {
    definition: String,
    created_at: Timestamp,
    compiled: OnceLock<Result<Arc<Model>, String>>,
}

/// Checks what the transaction has written: the definitions of an organization have a limit together.
pub async fn check_total(tx: &mut Tx, org: OrgId) -> ApiResult<()> {
    if store::total_bytes(tx, org).await? <= MAX_TOTAL_BYTES {
        return Ok(());
    }
    let message = format!(
        "the definitions of all named models of an organization have at most {MAX_TOTAL_BYTES} bytes together; delete \
         models that are not used, or shorten conditions and parameters"
    );
    Err(Problem::quota_exceeded(("model_bytes", MAX_TOTAL_BYTES), message))
}

/// A model as the list of models shows it.
pub struct ListedModel<'a> {
    pub name: &'a str,
    pub created_at: Timestamp,
    pub model: Arc<Model>,
}

impl OrgModels {
    pub fn new(stored: Vec<LatestModel>) -> Self {
        let entry = |model: LatestModel| {
            let LatestModel { name, definition, created_at } = model;
            (name, Entry { definition, created_at, compiled: OnceLock::new() })
        };
        Self(stored.into_iter().map(entry).collect())
    }

    /// The model that a requested name means, and what the star of its name matched.
    pub fn find<'n>(&self, requested: &'n str) -> ApiResult<Option<(Arc<Model>, Option<&'n str>)>> {
        let Some((entry, star)) = self.0.find(requested) else { return Ok(None) };
        let model = entry.model().map_err(|error| {
            Problem::internal(format!("the definition of the model '{requested}' is invalid: {error}"))
        })?;
        Ok(Some((model, star)))
    }

    /// The models without a star that are enabled and not hidden, by name.
    pub fn listed(&self) -> Vec<ListedModel<'_>> {
        let listed = self.0.exact().filter_map(|(name, entry)| {
            let model = entry.model().ok().filter(|model| model.enabled && !model.hidden)?;
            Some(ListedModel { name, created_at: entry.created_at, model })
        });
        let mut listed: Vec<ListedModel<'_>> = listed.collect();
        listed.sort_unstable_by_key(|model| model.name);
        listed
    }
}

impl Entry {
    fn model(&self) -> Result<Arc<Model>, &str> {
        let compile = || {
            let definition: Definition =
                serde_json::from_str(&self.definition).map_err(|error| error.to_string())?;
            Model::compile(&definition).map(Arc::new).map_err(|error| error.to_string())
        };
        self.compiled.get_or_init(compile).as_ref().map(Arc::clone).map_err(String::as_str)
    }
}
