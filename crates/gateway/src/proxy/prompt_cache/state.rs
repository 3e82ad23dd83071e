//! What this node remembers of prompt caching: how the latest calls of conversations began, and what marks saved for
//! each key. Kept in memory, within bounds.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gateway_core::ids::{KeyId, OrgId};
use gateway_core::llm::prompt_cache::{HeadHistory, SavingLedger};
use gateway_core::time::{HOUR, MINUTE, Timestamp};

const SHARDS: usize = 16;
const MAX_PER_SHARD: usize = 4_096;
/// A provider forgets a prompt after an hour at the latest.
const HISTORY_TTL: i64 = HOUR;
const MAX_LEDGERS: usize = 50_000;
const MAX_LOSSES: usize = 1_000;

/// The calls of a key with a setting: that of a named model, or that of the organization.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct LedgerKey {
    org: OrgId,
    key: Option<KeyId>,
    model: Option<String>,
}

/// A setting that lost money over the calls of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    pub org: OrgId,
    pub key: Option<KeyId>,
    pub model: Option<String>,
    /// Negative, in units of 1e-12 USD.
    pub saved: i64,
}

struct Conversation {
    history: HeadHistory,
    seen_at: Timestamp,
}

#[derive(Default)]
struct Shard {
    known: HashMap<u64, Conversation>,
    /// When old conversations were last removed.
    swept_at: Option<Timestamp>,
}

impl Shard {
    /// Whether another conversation can be remembered.
    fn make_room(&mut self, now: Timestamp) -> bool {
        let is_due = self.swept_at.is_none_or(|at| now.0 - at.0 >= MINUTE);
        if self.known.len() >= MAX_PER_SHARD && is_due {
            self.swept_at = Some(now);
            self.known.retain(|_, known| now.0 - known.seen_at.0 < HISTORY_TTL);
        }
        self.known.len() < MAX_PER_SHARD
    }
}

#[derive(Default)]
pub struct PromptCaches {
    /// Its keys are random, so that callers cannot provoke collisions.
    hasher: RandomState,
    conversations: [Mutex<Shard>; SHARDS],
    ledgers: Mutex<HashMap<LedgerKey, SavingLedger>>,
    losses: Mutex<Vec<Loss>>,
}

impl PromptCaches {
    pub fn hash(&self, value: impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }

    /// Records how a call of a conversation begins. Returns false if the latest two calls began differently.
    pub fn observe(&self, conversation: Option<u64>, head: u64, now: Timestamp) -> bool {
        let Some(conversation) = conversation else { return true };
        let shard = usize::try_from(conversation % SHARDS as u64).unwrap_or(0);
        let mut shard = lock(&self.conversations[shard]);
        if !shard.known.contains_key(&conversation) && !shard.make_room(now) {
            return true;
        }
        let known = shard
            .known
            .entry(conversation)
            .or_insert_with(|| Conversation { history: HeadHistory::default(), seen_at: now });
        if now.0 - known.seen_at.0 >= HISTORY_TTL {
            known.history = HeadHistory::default();
        }
        known.seen_at = now;
        known.history.observe(head)
    }

    /// Records what the marks of a call saved, in units of 1e-12 USD.
    pub fn record_saving(&self, (org, key): (OrgId, Option<KeyId>), model: Option<&str>, saved: i64) {
        let model = model.map(ToOwned::to_owned);
        let ledger = LedgerKey { org, key, model };
        let mut ledgers = lock(&self.ledgers);
        if ledgers.len() >= MAX_LEDGERS && !ledgers.contains_key(&ledger) {
            ledgers.clear();
        }
        let lost = ledgers.entry(ledger.clone()).or_default().add(saved);
        drop(ledgers);
        if let Some(saved) = lost {
            let mut losses = lock(&self.losses);
            if losses.len() < MAX_LOSSES {
                let LedgerKey { org, key, model } = ledger;
                losses.push(Loss { org, key, model, saved });
            }
        }
    }

    /// The losses since the last call.
    pub fn take_losses(&self) -> Vec<Loss> {
        std::mem::take(&mut *lock(&self.losses))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);
    const ORG: OrgId = OrgId(uuid::Uuid::nil());

    #[test]
    fn each_conversation_has_its_own_history() {
        let caches = PromptCaches::default();
        let observed: Vec<bool> = [(1, 1), (2, 9), (1, 2), (2, 9), (1, 3), (2, 9)]
            .map(|(id, head)| caches.observe(Some(id), head, NOW))
            .into();
        assert_eq!(observed, [true, true, true, true, false, true]);
        assert!(caches.observe(None, 4, NOW));
        // After an hour the provider has forgotten everything, so nothing is known either.
        assert!(caches.observe(Some(1), 4, NOW.plus(HISTORY_TTL)));
    }

    #[test]
    fn memory_is_bounded() {
        let caches = PromptCaches::default();
        for conversation in 0..200_000 {
            assert!(caches.observe(Some(conversation), 1, NOW));
        }
        let kept: usize = caches.conversations.iter().map(|shard| lock(shard).known.len()).sum();
        assert_eq!(kept, SHARDS * MAX_PER_SHARD);
        caches.observe(Some(200_001), 1, NOW.plus(HISTORY_TTL));
        let kept: usize = caches.conversations.iter().map(|shard| lock(shard).known.len()).sum();
        assert!(kept < SHARDS * MAX_PER_SHARD);
    }

    #[test]
    fn a_key_that_loses_money_is_reported_once_per_hundred_calls() {
        let caches = PromptCaches::default();
        for _ in 0..100 {
            caches.record_saving((ORG, None), Some("m"), -3);
            caches.record_saving((ORG, None), None, 3);
        }
        let loss = Loss { org: ORG, key: None, model: Some("m".into()), saved: -300 };
        assert_eq!(caches.take_losses(), [loss]);
        assert_eq!(caches.take_losses(), []);
    }
}
