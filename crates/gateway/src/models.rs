//! The named models of an organization in memory. Each is compiled when it is first asked for, so that loading an
//! organization with many models is cheap. Patterns are large when they are compiled, so only those of the models that
//! were used last stay compiled, and a list of models compiles none.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gateway_core::ids::OrgId;
use gateway_core::models::{Definition, MAX_TOTAL_BYTES, Model, NamedModels};
use gateway_core::time::Timestamp;
use gateway_store::Tx;
use gateway_store::models::{self as store, LatestModel};

use crate::problem::{ApiResult, Problem};

/// Patterns of an organization that stay compiled.
const MAX_PATTERNS: usize = 100;

#[derive(Default)]
pub struct OrgModels {
    models: NamedModels<Entry>,
    with_patterns: Mutex<RecentModels>,
}

struct Entry {
    number: usize,
    definition: String,
    created_at: Timestamp,
    /// What lists show, and what requests use unless the model has patterns: the patterns are never matched here, so
    /// they stay uncompiled.
    compiled: OnceLock<Result<Arc<Model>, String>>,
}

/// Models with patterns by their number, the one that was used last at the end.
#[derive(Default)]
struct RecentModels(VecDeque<(usize, Arc<Model>)>);

impl RecentModels {
    fn get(&mut self, number: usize) -> Option<Arc<Model>> {
        let at = self.0.iter().position(|(other, _)| *other == number)?;
        let found = self.0.remove(at)?;
        let model = Arc::clone(&found.1);
        self.0.push_back(found);
        Some(model)
    }

    fn add(&mut self, number: usize, model: Arc<Model>) {
        self.0.push_back((number, model));
        let patterns = |models: &VecDeque<(usize, Arc<Model>)>| -> usize {
            models.iter().map(|(_, model)| model.patterns()).sum()
        };
        while self.0.len() > 1 && patterns(&self.0) > MAX_PATTERNS {
            self.0.pop_front();
        }
    }
}

/// Checks what the transaction has written: the definitions of an organization have a limit together.
pub async fn check_total(tx: &mut Tx, org: OrgId) -> ApiResult<()> {
    check_total_with(tx, org, 0).await
}

/// The same, with bytes that the transaction would have added.
pub async fn check_total_with(tx: &mut Tx, org: OrgId, added: i64) -> ApiResult<()> {
    if store::total_bytes(tx, org).await?.saturating_add_signed(added) <= MAX_TOTAL_BYTES {
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
    pub model: &'a Model,
}

impl OrgModels {
    pub fn new(stored: Vec<LatestModel>) -> Self {
        let entry = |(number, model): (usize, LatestModel)| {
            let LatestModel { name, definition, created_at } = model;
            (name, Entry { number, definition, created_at, compiled: OnceLock::new() })
        };
        Self { models: stored.into_iter().enumerate().map(entry).collect(), with_patterns: Mutex::default() }
    }

    /// The model that a requested name means, and what the star of its name matched.
    pub fn find<'n>(&self, requested: &'n str) -> ApiResult<Option<(Arc<Model>, Option<&'n str>)>> {
        let Some((entry, star)) = self.models.find(requested) else { return Ok(None) };
        let model = self.callable(entry).map_err(|error| {
            Problem::internal(format!("the definition of the model '{requested}' is invalid: {error}"))
        })?;
        Ok(Some((model, star)))
    }

    /// The model for a request, which may match patterns.
    fn callable(&self, entry: &Entry) -> Result<Arc<Model>, String> {
        let listed = entry.listed()?;
        if listed.patterns() == 0 {
            return Ok(Arc::clone(listed));
        }
        if let Some(model) = self.recent().get(entry.number) {
            return Ok(model);
        }
        let model = entry.compile()?;
        self.recent().add(entry.number, Arc::clone(&model));
        Ok(model)
    }

    fn recent(&self) -> MutexGuard<'_, RecentModels> {
        self.with_patterns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The models without a star that are enabled and not hidden, by name.
    pub fn listed(&self) -> Vec<ListedModel<'_>> {
        let listed = self.models.exact().filter_map(|(name, entry)| {
            let model = entry.listed().ok().filter(|model| model.enabled && !model.hidden)?;
            Some(ListedModel { name, created_at: entry.created_at, model })
        });
        let mut listed: Vec<ListedModel<'_>> = listed.collect();
        listed.sort_unstable_by_key(|model| model.name);
        listed
    }
}

impl Entry {
    fn listed(&self) -> Result<&Arc<Model>, String> {
        self.compiled.get_or_init(|| self.compile()).as_ref().map_err(Clone::clone)
    }

    fn compile(&self) -> Result<Arc<Model>, String> {
        let definition: Definition =
            serde_json::from_str(&self.definition).map_err(|error| error.to_string())?;
        Model::compile(&definition).map(Arc::new).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Models with five patterns each.
    fn with_patterns() -> OrgModels {
        let definition = |number: usize| {
            let patterns: Vec<_> =
                (0..5).map(|_| json!({"metadata.app": {"$regex": format!("^app-{number}$")}})).collect();
            let conditional = json!({"mode": "conditional", "default": "a", "conditions": [{"query": {"$or": patterns}, "then": "a"}]});
            json!({"strategy": conditional, "targets": [{"id": "a", "provider": "sandbox", "model": "echo"}]})
                .to_string()
        };
        let model = |number: usize| LatestModel {
            name: format!("model-{number}"),
            definition: definition(number),
            created_at: Timestamp(0),
        };
        OrgModels::new((0..50).map(model).collect())
    }

    #[test]
    fn a_list_shares_no_model_with_requests() {
        let models = with_patterns();
        let listed = models.listed();
        assert_eq!((listed.len(), listed[0].name), (50, "model-0"));
        assert!(models.recent().0.is_empty(), "nothing was prepared for a request");
        let (called, _) = models.find("model-0").unwrap().unwrap();
        assert!(!std::ptr::eq(listed[0].model, Arc::as_ptr(&called)), "its patterns would stay compiled");
        let (again, _) = models.find("model-0").unwrap().unwrap();
        assert!(Arc::ptr_eq(&called, &again));
    }

    #[test]
    fn only_so_many_patterns_stay_compiled() {
        let models = with_patterns();
        for number in (0..50).chain(45..50) {
            let name = format!("model-{number}");
            let (model, _) = models.find(&name).unwrap().unwrap();
            assert_eq!(model.patterns(), 5);
            models.find("model-7").unwrap().unwrap();
        }
        let kept: Vec<usize> = models.recent().0.iter().map(|(number, _)| *number).collect();
        assert_eq!(kept.len(), MAX_PATTERNS / 5);
        assert!(kept.contains(&7) && !kept.contains(&8), "the models that were used last: {kept:?}");
    }
}
