//! Applies cache invalidations to the components that have caches.

use gateway_core::cache::CacheKey;
use gateway_store::cache_purges::PurgeScope;

use super::App;
use crate::cluster::invalidation::{Invalidation, InvalidationHandler};

impl InvalidationHandler for App {
    fn invalidate(&self, invalidation: &Invalidation) {
        let (access, prompts, cache) = (&self.proxy.access, &self.proxy.prompts, &self.proxy.cache);
        match invalidation {
            Invalidation::Key(hash) => access.invalidate_key(*hash),
            Invalidation::OrgKeys(org) => access.invalidate_keys_of(*org),
            Invalidation::Org(org) => access.invalidate_org(*org),
            Invalidation::OrgAll(org) => {
                access.invalidate_all_of(*org);
                prompts.invalidate_all_of(*org);
                cache.purge(*org, &PurgeScope::All);
            }
            Invalidation::Member(org, user) => access.invalidate_member(*org, *user),
            Invalidation::Token(token) => access.invalidate_token(*token),
            Invalidation::User(user) => access.invalidate_tokens_of(*user),
            Invalidation::PromptVersion { org, namespace, slug } => {
                prompts.invalidate_latest(*org, namespace, slug);
            }
            Invalidation::PromptLabel { org, namespace, slug, label } => {
                prompts.invalidate_label(*org, namespace, slug, label);
            }
            Invalidation::Prompt { org, namespace, slug } => prompts.invalidate(*org, namespace, slug),
            Invalidation::BudgetLeases(org) => self.proxy.budgets.recall(*org),
            Invalidation::UserBudgetLeases { org, user } => self.proxy.budgets.recall_user(*org, user),
            Invalidation::LiveEvals => self.jobs.live_evals.invalidate(),
            Invalidation::Exports => {
                self.jobs.export_changes.send_replace(());
            }
            // Applied by the cluster module.
            Invalidation::Nodes => {}
            Invalidation::CacheEntries { org, namespace, entry } => {
                let scope = match (namespace, entry.as_deref().map(CacheKey::parse)) {
                    (_, Some(Some(key))) => PurgeScope::Entry(key),
                    (Some(namespace), None) => PurgeScope::Namespace(namespace.clone()),
                    _ => PurgeScope::All,
                };
                // The organization first: it has the purges that the shared cache must respect.
                access.invalidate_org(*org);
                cache.purge(*org, &scope);
            }
        }
    }

    fn invalidate_all(&self) {
        self.proxy.access.invalidate_all();
        self.proxy.prompts.invalidate_all();
        self.proxy.cache.purge_all();
        self.jobs.live_evals.invalidate();
    }
}
