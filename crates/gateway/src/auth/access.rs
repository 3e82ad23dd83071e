//! The authenticator: checks credentials against cached keys, organizations, memberships and token revocations.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use gateway_core::access::Role;
use gateway_core::accounts::{KeyHash, hash_foreign_key, hash_key};
use gateway_core::cache::CacheKey;
use gateway_core::ids::{KeyId, OrgId, TokenId, UserId};
use gateway_core::time::Timestamp;
use gateway_store::accounts::Membership;
use gateway_store::cache_purges::{self, Generation};
use gateway_store::foreign_keys::{self, ForeignKey};
use gateway_store::user_sessions::{self, IssuedToken};
use gateway_store::{StoreError, accounts, keys, mcp_servers, models, orgs, prompt_cache_pauses, providers};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use super::cached::{CachedKey, CachedOrg, CachedSession, EvictedUses};
use super::tokens::{Claims, Tokens};
use super::{Denied, Identity, KEY_HEADER, Principal, RowAccess};
use crate::attempts::{AttemptLimits, FailureKind};
use crate::budgets::Budgets;
use crate::limits::Limits;
use crate::loading_cache::LoadingCache;
use crate::mcp_servers::OrgMcpServers;
use crate::models::OrgModels;
use crate::problem::{ApiResult, Problem};
use crate::services::Services;
use crate::targets::{OperatorTargets, OrgProviders};

/// How long a key that the database does not have is not looked up again, in milliseconds.
const UNKNOWN_KEY_TTL: i64 = 5_000;
const MAX_UNKNOWN_KEYS_PER_SHARD: usize = 64;
/// Last uses that wait while the database is unreachable.
const MAX_UNRECORDED_USES: usize = 100_000;

pub struct Access {
    services: Arc<Services>,
    tokens: Arc<Tokens>,
    attempts: Arc<AttemptLimits>,
    budgets: Budgets,
    limits: Limits,
    operator: OperatorTargets,
    keys: LoadingCache<KeyHash, CachedKey>,
    /// Keys that the database does not have, each with the end of its entry.
    unknown_keys: LoadingCache<KeyHash, Timestamp>,
    /// Keys that other gateways made, by their own hashes.
    foreign_keys: LoadingCache<KeyHash, ForeignKey>,
    orgs: LoadingCache<OrgId, CachedOrg>,
    members: LoadingCache<(OrgId, UserId), Membership>,
    sessions: LoadingCache<TokenId, CachedSession>,
    evicted_uses: EvictedUses,
}

impl Access {
    pub fn new(
        services: Arc<Services>,
        tokens: Arc<Tokens>,
        attempts: Arc<AttemptLimits>,
        (budgets, limits): (Budgets, Limits),
        operator: OperatorTargets,
    ) -> Self {
        Self {
            services,
            tokens,
            attempts,
            budgets,
            limits,
            operator,
            keys: LoadingCache::default(),
            unknown_keys: LoadingCache::with_capacity(MAX_UNKNOWN_KEYS_PER_SHARD),
            foreign_keys: LoadingCache::default(),
            orgs: LoadingCache::default(),
            members: LoadingCache::default(),
            sessions: LoadingCache::default(),
            evicted_uses: EvictedUses::default(),
        }
    }

    /// Identifies the caller, whose wrong credentials count against a limit of its address. A key takes precedence over
    /// a token, and an invalid key is never excused by a valid token. Does not count against the rate limit.
    pub async fn authenticate(
        self: &Arc<Self>,
        headers: &HeaderMap,
        address: IpAddr,
    ) -> Result<Identity, Denied> {
        let identified = self.identify(headers, Some(address)).await;
        if !matches!(identified, Err(Denied::Invalid)) {
            return identified;
        }
        let status = self.attempts.count_failure(FailureKind::Request, address);
        Err(if status.allowed { Denied::Invalid } else { Denied::TooMany(status) })
    }

    /// Identifies the caller by a key that another gateway made, for paths below `/compat`. It has the rights and the end
    /// of the key that it was imported as.
    pub async fn authenticate_foreign(
        self: &Arc<Self>,
        raw: &str,
        address: IpAddr,
    ) -> Result<Identity, Denied> {
        let hash = hash_foreign_key(raw);
        if let Some(identity) = self.foreign_cached(hash) {
            return Ok(identity);
        }
        // Only the main runtime uses the database.
        let access = Arc::clone(self);
        let loading = async move { access.load_foreign(hash, address).await };
        let identified = self.services.tasks.runtime.spawn(loading).await.map_err(|_| Denied::Unavailable)?;
        if !matches!(identified, Err(Denied::Invalid)) {
            return identified;
        }
        let status = self.attempts.count_failure(FailureKind::Request, address);
        Err(if status.allowed { Denied::Invalid } else { Denied::TooMany(status) })
    }

    fn foreign_cached(&self, hash: KeyHash) -> Option<Identity> {
        let key = self.keys.peek(&self.foreign_keys.peek(&hash)?.key_hash)?;
        let org = self.orgs.peek(&key.org_id)?;
        self.authorize_key(key, org).ok()
    }

    async fn load_foreign(&self, hash: KeyHash, address: IpAddr) -> Result<Identity, Denied> {
        let status = self.attempts.peek_failure(FailureKind::KeyLookup, address);
        if !status.allowed {
            return Err(Denied::TooMany(status));
        }
        let db = &self.services.db_authentication;
        let found =
            self.foreign_keys.get(&hash, || foreign_keys::find(db, hash)).await.map_err(unavailable)?;
        let Some(foreign) = found else {
            self.attempts.count_failure(FailureKind::KeyLookup, address);
            return Err(Denied::Invalid);
        };
        let key = self.key(foreign.key_hash).await.map_err(unavailable)?.ok_or(Denied::Invalid)?;
        let org = self.org(key.org_id).await.map_err(unavailable)?.ok_or(Denied::Invalid)?;
        self.authorize_key(key, org)
    }

    /// True if the headers still authenticate a caller that reads the same log rows. While the database is unreachable,
    /// an earlier authentication stays valid.
    pub async fn revalidate_reader(self: &Arc<Self>, headers: &HeaderMap, rows: RowAccess) -> bool {
        match self.identify(headers, None).await {
            Ok(identity) => identity.row_access() == rows,
            Err(error) => error == Denied::Unavailable,
        }
    }

    /// Identifies the caller of a response that is still running. Failures are not counted.
    pub async fn identify_again(self: &Arc<Self>, headers: &HeaderMap) -> Result<Identity, Denied> {
        self.identify(headers, None).await
    }

    /// Counts a request against the rate limit of the caller's plan.
    pub async fn count_request(&self, identity: &mut Identity) -> ApiResult<()> {
        let limit = self.services.config.rate_limits.of(identity.org.plan);
        if limit == 0 {
            return Ok(());
        }
        let status = match &identity.principal {
            Principal::Key(key) => self.limits.count_request(key.id.0, &key.counter, limit).await,
            Principal::User { id, .. } => {
                self.limits.count_request(id.0, &self.limits.plan_counter(id.0), limit).await
            }
            Principal::Org => {
                let id = identity.org.id.0;
                self.limits.count_request(id, &self.limits.plan_counter(id), limit).await
            }
        };
        identity.rate = Some(status);
        if status.allowed {
            return Ok(());
        }
        let message = "too many requests in this minute; see Retry-After";
        Err(Problem::rate_limited(status, self.services.clock.now(), message))
    }

    /// The identity of the organization itself; `None` if it does not exist.
    pub async fn org_identity(&self, org: OrgId) -> Result<Option<Identity>, StoreError> {
        let org = self.org(org).await?;
        Ok(org.map(|org| Identity { org, role: Role::Member, principal: Principal::Org, rate: None }))
    }

    /// The generation in which a cached response of the organization is valid. `None` if the organization is not in
    /// memory.
    pub fn cache_generation(&self, org: OrgId, namespace: &str, key: CacheKey) -> Option<Generation> {
        Some(self.orgs.peek(&org)?.cache_purges.generation(namespace, key))
    }

    pub fn invalidate_key(&self, hash: KeyHash) {
        self.unknown_keys.invalidate(&hash);
        self.keys.invalidate(&hash);
    }

    pub fn invalidate_org(&self, org: OrgId) {
        self.orgs.invalidate(&org);
    }

    pub fn invalidate_member(&self, org: OrgId, user: UserId) {
        self.members.invalidate(&(org, user));
    }

    pub fn invalidate_token(&self, token: TokenId) {
        self.sessions.invalidate(&token);
    }

    /// Invalidates all session tokens of a user.
    pub fn invalidate_tokens_of(&self, user: UserId) {
        self.sessions.invalidate_if(move |_, session| session.user == user);
    }

    /// Invalidates an organization with all its keys and memberships.
    pub fn invalidate_all_of(&self, org: OrgId) {
        self.orgs.invalidate(&org);
        self.invalidate_keys_of(org);
    }

    /// Invalidates what depends on the applications and teams of an organization: its keys and memberships.
    pub fn invalidate_keys_of(&self, org: OrgId) {
        self.keys.invalidate_if(move |_, key| key.org_id == org);
        self.members.invalidate_if(move |(of, _), _| *of == org);
        self.foreign_keys.invalidate_if(move |_, key| key.org == org);
    }

    pub fn invalidate_all(&self) {
        self.orgs.invalidate_all();
        self.keys.invalidate_all();
        self.unknown_keys.invalidate_all();
        self.foreign_keys.invalidate_all();
        self.members.invalidate_all();
        self.sessions.invalidate_all();
    }

    /// Records in the database when keys were last used.
    pub async fn record_last_uses(&self) {
        let mut uses = self.take_last_uses();
        if uses.is_empty() {
            return;
        }
        // Rows are locked in a fixed order, so that two nodes cannot deadlock.
        uses.sort_by_key(|(id, _)| *id);
        if let Err(error) = keys::touch(&self.services.db, &uses).await {
            tracing::debug!(%error, "cannot record the last use of keys yet");
            let mut later = self.evicted_uses.lock().unwrap_or_else(PoisonError::into_inner);
            for (id, at) in uses.into_iter().take(MAX_UNRECORDED_USES.saturating_sub(later.len())) {
                later.entry(id).or_insert(at);
            }
        }
    }

    fn take_last_uses(&self) -> Vec<(KeyId, Timestamp)> {
        let mut uses = std::mem::take(&mut *self.evicted_uses.lock().unwrap_or_else(PoisonError::into_inner));
        self.keys.for_each(|_, key| uses.extend(key.take_last_use()));
        uses.into_iter().collect()
    }

    async fn identify(
        self: &Arc<Self>,
        headers: &HeaderMap,
        address: Option<IpAddr>,
    ) -> Result<Identity, Denied> {
        if let Some(identity) = self.authenticate_cached(headers) {
            return Ok(identity);
        }
        // Only the main runtime uses the database.
        let (access, headers) = (Arc::clone(self), headers.clone());
        let identified = self
            .services
            .tasks
            .runtime
            .spawn(async move { access.authenticate_loading(&headers, address).await });
        identified.await.map_err(|_| Denied::Unavailable)?
    }

    /// Authenticates a key that is cached together with its organization, without waiting.
    pub fn authenticate_cached(&self, headers: &HeaderMap) -> Option<Identity> {
        let hash = hash_key(only_value(headers, KEY_HEADER)?.to_str().ok()?.trim())?;
        let key = self.keys.peek(&hash)?;
        let org = self.orgs.peek(&key.org_id)?;
        self.authorize_key(key, org).ok()
    }

    async fn authenticate_loading(
        &self,
        headers: &HeaderMap,
        address: Option<IpAddr>,
    ) -> Result<Identity, Denied> {
        if headers.contains_key(KEY_HEADER) {
            let value = only_value(headers, KEY_HEADER).ok_or(Denied::Invalid)?;
            let raw = value.to_str().map_err(|_| Denied::Invalid)?;
            return self.authenticate_key(raw.trim(), address).await;
        }
        if !headers.contains_key(AUTHORIZATION) {
            return Err(Denied::Missing);
        }
        let value = only_value(headers, AUTHORIZATION.as_str()).ok_or(Denied::Invalid)?;
        let text = value.to_str().map_err(|_| Denied::Invalid)?;
        let (scheme, token) = text.split_once(' ').ok_or(Denied::Invalid)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Denied::Invalid);
        }
        self.authenticate_token(token.trim()).await
    }

    async fn authenticate_key(&self, raw: &str, address: Option<IpAddr>) -> Result<Identity, Denied> {
        let hash = hash_key(raw).ok_or(Denied::Invalid)?;
        let key = self.known_key(hash, address).await?.ok_or(Denied::Invalid)?;
        let org = self.org(key.org_id).await.map_err(unavailable)?.ok_or(Denied::Invalid)?;
        self.authorize_key(key, org)
    }

    fn authorize_key(&self, key: Arc<CachedKey>, org: Arc<CachedOrg>) -> Result<Identity, Denied> {
        let now = self.services.clock.now();
        if key.expires_at.is_some_and(|end| now >= end) {
            return Err(Denied::Invalid);
        }
        key.mark_used(now);
        // Never an owner, and never more than the creator of the key.
        let role = key.role.min(key.scopes.max_role().unwrap_or(Role::Viewer));
        Ok(Identity { org, role, principal: Principal::Key(key), rate: None })
    }

    async fn authenticate_token(&self, token: &str) -> Result<Identity, Denied> {
        let db = &self.services.db_authentication;
        let claims = self.tokens.read(token, self.services.clock.now()).ok_or(Denied::Invalid)?;
        let issued = IssuedToken { id: claims.jti, user: claims.sub, issued_at: claims.issued_at() };
        let Claims { sub, org, jti, .. } = claims;
        let session = self.sessions.get(&jti, || async {
            let is_ended = user_sessions::is_ended(db, issued).await?;
            Ok(Some(CachedSession { user: sub, is_ended }))
        });
        if session.await.map_err(unavailable)?.is_some_and(|session| session.is_ended) {
            return Err(Denied::Invalid);
        }
        let member = (org, sub);
        let membership = self.members.get(&member, || accounts::find_membership(db, org, sub));
        let Membership { role, team_id } = *membership.await.map_err(unavailable)?.ok_or(Denied::Invalid)?;
        let org = self.org(org).await.map_err(unavailable)?.ok_or(Denied::Invalid)?;
        let principal = Principal::User { id: sub, token: issued, expires_at: claims.expires_at(), team_id };
        Ok(Identity { org, role, principal, rate: None })
    }

    async fn org(&self, id: OrgId) -> Result<Option<Arc<CachedOrg>>, StoreError> {
        let Services { db_authentication: db, vault, config, .. } = &*self.services;
        self.orgs
            .get(&id, || async {
                let Some(org) = orgs::find(db, id).await? else { return Ok(None) };
                let stored = providers::list(db, id).await?;
                let operator = if config.operator_credentials.allow(&org.slug, org.plan) {
                    &self.operator.with_credentials
                } else {
                    &self.operator.without_credentials
                };
                let providers = OrgProviders::new(vault, operator, id, &stored);
                let orgs::Org { id, slug, name, plan, settings, created_at: _ } = org;
                let models = OrgModels::new(models::latest(db, id).await?);
                let mcp_servers = OrgMcpServers::new(vault, id, mcp_servers::list(db, id).await?);
                let pauses = prompt_cache_pauses::list(db, id).await?.into_iter();
                let prompt_cache_pauses = pauses.map(|pause| (pause.key_id, pause.model)).collect();
                let cache_purges = cache_purges::list(db, id).await?;
                let budgets = self.budgets.load(id).await?;
                let limits = self.limits.load(db, id).await?;
                // Before the accounts, which count what all organizations of the owner use.
                db.owners().load(db, id).await?;
                let memory = self.services.memory.account(id);
                let calls = self.services.calls.of(id);
                Ok(Some(CachedOrg {
                    id,
                    slug,
                    name,
                    plan,
                    settings,
                    providers,
                    models,
                    mcp_servers,
                    prompt_cache_pauses,
                    cache_purges,
                    budgets,
                    limits,
                    memory,
                    calls,
                }))
            })
            .await
    }

    /// Returns a key from memory or from the database. An address that asked for too many unknown keys may not ask
    /// again until its window is over; one that repeats the same unknown key is not asking the database.
    async fn known_key(
        &self,
        hash: KeyHash,
        address: Option<IpAddr>,
    ) -> Result<Option<Arc<CachedKey>>, Denied> {
        if let Some(key) = self.keys.peek(&hash) {
            return Ok(Some(key));
        }
        let now = self.services.clock.now();
        if let Some(until) = self.unknown_keys.peek(&hash) {
            if (until.plus(-UNKNOWN_KEY_TTL)..*until).contains(&now) {
                return Ok(None);
            }
            self.unknown_keys.invalidate(&hash);
        }
        if let Some(address) = address {
            let status = self.attempts.peek_failure(FailureKind::KeyLookup, address);
            if !status.allowed {
                return Err(Denied::TooMany(status));
            }
        }
        // Loaded inside of the cache of unknown keys, which therefore never misses that the key was created meanwhile.
        let look_up = || async {
            let found = self.key(hash).await?;
            Ok::<_, StoreError>(found.is_none().then(|| now.plus(UNKNOWN_KEY_TTL)))
        };
        if self.unknown_keys.get(&hash, look_up).await.map_err(unavailable)?.is_none() {
            return self.key(hash).await.map_err(unavailable);
        }
        if let Some(address) = address {
            self.attempts.count_failure(FailureKind::KeyLookup, address);
        }
        Ok(None)
    }

    async fn key(&self, hash: KeyHash) -> Result<Option<Arc<CachedKey>>, StoreError> {
        self.keys
            .get(&hash, || async {
                let found = keys::find_access(&self.services.db_authentication, hash).await?;
                Ok(found.filter(|access| access.key.revoked_at.is_none()).map(|access| {
                    let counter = self.limits.plan_counter(access.key.id.0);
                    CachedKey::new(access, counter, &self.evicted_uses)
                }))
            })
            .await
    }
}

/// The value of a header with a credential. None if there is none, or more than one: a proxy in front may have looked at
/// the other.
fn only_value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

#[expect(clippy::needless_pass_by_value, reason = "used as a map_err function")]
fn unavailable(error: StoreError) -> Denied {
    tracing::warn!(%error, "cannot check a credential");
    Denied::Unavailable
}
