//! Who is calling: from headers to an identity, answered from memory once the caller is known.

pub mod limits;
pub mod passwords;
pub mod tokens;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gateway_core::access::{Plan, Role};
use gateway_core::accounts::{KeyHash, OrgSettings, hash_key};
use gateway_core::budget::Spender;
use gateway_core::ids::{AppId, KeyId, OrgId, TeamId, TokenId, UserId};
use gateway_core::limits::LimitStatus;
use gateway_core::scopes::Scopes;
use gateway_core::time::Timestamp;
use gateway_store::db::Dialect;
use gateway_store::{Db, StoreError, accounts, keys, orgs, providers};
use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::app::App;
use crate::budgets::OrgBudgets;
use crate::loading_cache::LoadingCache;
use crate::nodes;
use crate::problem::{ApiResult, Problem};
use crate::proxy::target::{self, Credential, Target};
use crate::vault::encryption_context;
use limits::{Counter, Counters};
use tokens::Claims;

pub const KEY_HEADER: &str = "x-gateway-key";

/// An authenticated caller, and what may be done in whose name.
#[derive(Clone)]
pub struct Identity {
    pub org: Arc<OrgFacts>,
    pub role: Role,
    pub who: Who,
    /// None when the plan's rate limit is unlimited.
    pub rate: Option<LimitStatus>,
}

#[derive(Clone)]
pub enum Who {
    User {
        id: UserId,
        token: TokenId,
        expires_at: Timestamp,
    },
    Key(Arc<KeyFacts>),
    /// The organization itself, for what it has ordered to be done in the background.
    Org,
}

impl Identity {
    /// Whose budgets its calls count against.
    pub fn spender(&self) -> Spender {
        match &self.who {
            Who::Key(key) => Spender { key: Some(key.id), app: key.app_id, team: key.team_id },
            Who::User { .. } | Who::Org => Spender::default(),
        }
    }

    /// The id that events and records name as the actor.
    pub fn actor(&self) -> String {
        match &self.who {
            Who::User { id, .. } => id.to_string(),
            Who::Key(key) => key.id.to_string(),
            Who::Org => self.org.id.to_string(),
        }
    }
}

pub struct OrgFacts {
    pub id: OrgId,
    pub slug: String,
    pub name: String,
    pub plan: Plan,
    pub settings: OrgSettings,
    /// Credentials and providers of its own.
    pub providers: HashMap<String, Arc<Target>>,
    /// None when it has no budgets.
    pub budgets: Option<Arc<OrgBudgets>>,
}

pub struct KeyFacts {
    pub id: KeyId,
    pub org_id: OrgId,
    pub app_id: Option<AppId>,
    pub team_id: Option<TeamId>,
    pub scopes: Scopes,
    pub role: Role,
    pub expires_at: Option<Timestamp>,
    counter: Arc<Counter>,
    last_used: AtomicI64,
    uses: Uses,
}

/// Uses of keys that are no longer remembered, waiting to be noted.
type Uses = Arc<Mutex<Vec<(KeyId, Timestamp)>>>;

/// A key that is forgotten right after its use, as one that is being revoked, still tells of it.
impl Drop for KeyFacts {
    fn drop(&mut self) {
        let at = *self.last_used.get_mut();
        if at != 0 {
            self.uses.lock().unwrap_or_else(PoisonError::into_inner).push((self.id, Timestamp(at)));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// No credential was sent.
    Missing,
    /// A credential was sent, and it is not (or no longer) good.
    Invalid,
    /// It cannot be told right now: the caller is not known here and the database is away.
    Unavailable,
}

/// Everything that authentication remembers.
#[derive(Default)]
pub struct Access {
    keys: LoadingCache<KeyHash, KeyFacts>,
    orgs: LoadingCache<OrgId, OrgFacts>,
    members: LoadingCache<(OrgId, UserId), Role>,
    tokens: LoadingCache<TokenId, bool>,
    counters: Counters,
    uses: Uses,
}

impl Access {
    pub fn invalidate_key(&self, hash: KeyHash) {
        self.keys.invalidate(&hash);
    }

    pub fn invalidate_org(&self, org: OrgId) {
        self.orgs.invalidate(&org);
    }

    pub fn invalidate_member(&self, org: OrgId, user: UserId) {
        self.members.invalidate(&(org, user));
    }

    pub fn invalidate_token(&self, token: TokenId) {
        self.tokens.invalidate(&token);
    }

    /// The whole organization is gone, with its keys and memberships.
    pub fn invalidate_all_of(&self, org: OrgId) {
        self.orgs.invalidate(&org);
        self.keys.invalidate_if(|_, key| key.org_id == org);
        self.members.invalidate_if(|(of, _), _| *of == org);
    }

    /// What the keys of an organization belong to has changed.
    pub fn invalidate_keys_of(&self, org: OrgId) {
        self.keys.invalidate_if(|_, key| key.org_id == org);
    }

    /// What is known may be wrong.
    pub fn invalidate_all(&self) {
        self.orgs.invalidate_all();
        self.keys.invalidate_all();
        self.members.invalidate_all();
        self.tokens.invalidate_all();
    }

    /// When each known key was last used, where that changed since the last call.
    pub fn take_used(&self, used: &mut Vec<(KeyId, Timestamp)>) {
        used.append(&mut self.uses.lock().unwrap_or_else(PoisonError::into_inner));
        self.keys.for_each(|_, key| {
            let at = key.last_used.swap(0, Ordering::Relaxed);
            if at != 0 {
                used.push((key.id, Timestamp(at)));
            }
        });
    }

    /// Drops what is no longer of use.
    pub fn sweep(&self, now: Timestamp) {
        self.counters.sweep(now);
    }

    async fn org(&self, app: &App, id: OrgId) -> Result<Option<Arc<OrgFacts>>, StoreError> {
        self.orgs
            .get(&id, || async {
                let Some(org) = orgs::find(&app.services.db, id).await? else { return Ok(None) };
                let stored = providers::list(&app.services.db, id).await?;
                let providers = stored.iter().filter_map(|stored| own_provider(app, id, stored)).collect();
                let orgs::Org { id, slug, name, plan, settings, created_at: _ } = org;
                let budgets = app.proxy.budgets.load(id).await?;
                Ok(Some(OrgFacts { id, slug, name, plan, settings, providers, budgets }))
            })
            .await
    }

    async fn key(&self, db: &Db, hash: KeyHash) -> Result<Option<Arc<KeyFacts>>, StoreError> {
        self.keys
            .get(&hash, || async {
                let found = keys::find_access(db, hash).await?;
                Ok(found.filter(|access| access.key.revoked_at.is_none()).map(|access| KeyFacts {
                    id: access.key.id,
                    org_id: access.key.org_id,
                    app_id: access.key.app_id,
                    team_id: access.team_id,
                    scopes: access.key.scopes,
                    role: access.key.role,
                    expires_at: access.key.expires_at,
                    counter: self.counters.of(access.key.id.0),
                    last_used: 0.into(),
                    uses: Arc::clone(&self.uses),
                }))
            })
            .await
    }
}

/// A provider of the organization's own, with its secrets opened.
fn own_provider(app: &App, org: OrgId, stored: &providers::Provider) -> Option<(String, Arc<Target>)> {
    let open = |column: &str, sealed: &Option<String>| {
        let sealed = sealed.as_deref()?;
        let opened = app.services.vault.open(&encryption_context(org, &stored.name, column), sealed);
        opened
            .inspect_err(
                |error| tracing::error!(%error, %org, provider = stored.name, "a credential is lost"),
            )
            .ok()
    };
    let headers = open("headers", &stored.headers);
    let one = open("api_key", &stored.api_key).map(|secret| Credential::new("", 1, secret));
    let more = stored.api_keys.iter().filter_map(|key| {
        let secret = open(&format!("api_keys/{}", key.label), &Some(key.sealed.clone()))?;
        Some(Credential::new(&key.label, key.weight, secret))
    });
    let credentials = one.into_iter().chain(more).collect();
    let target = target::of_org(&app.proxy.providers, stored, credentials, headers.as_ref())?;
    Some((stored.name.clone(), Arc::new(target)))
}

/// The caller behind these headers. A key wins over a token; a key that is not good is never excused by a token. Counts
/// against no limit: see `count`.
pub async fn authenticate(app: &Arc<App>, headers: &HeaderMap) -> Result<Identity, Denied> {
    if let Some(identity) = known_by_key(app, headers) {
        return Ok(identity);
    }
    // Only the main runtime talks to the database.
    let (app, headers) = (Arc::clone(app), headers.clone());
    let runtime = app.services.tasks.runtime.clone();
    let identified = runtime.spawn(async move { identify(&app, &headers).await });
    identified.await.map_err(|_| Denied::Unavailable)?
}

/// Counts one more request of this caller against the limit of its plan.
pub async fn count(app: &App, identity: &mut Identity) -> ApiResult<()> {
    let limit = app.services.config.rate_limits.of(identity.org.plan);
    if limit == 0 {
        return Ok(());
    }
    let id = match &identity.who {
        Who::Key(key) => key.id.0,
        Who::User { id, .. } => id.0,
        Who::Org => identity.org.id.0,
    };
    let held;
    let counter = if let Who::Key(key) = &identity.who {
        &key.counter
    } else {
        held = app.proxy.access.counters.of(id);
        &held
    };
    let counted = counter.add(app.services.clock.now());
    let used = match app.services.db.dialect() {
        Dialect::Sqlite => counted.used,
        Dialect::Postgres => nodes::limits::total(app, id, counter, counted, limit).await,
    };
    let verdict = LimitStatus::new(limit, used, counted.ends_at());
    identity.rate = Some(verdict);
    if verdict.allowed {
        return Ok(());
    }
    let why = "too many requests in this minute; see Retry-After";
    Err(Problem::rate_limited(verdict, app.services.clock.now(), why))
}

/// The organization itself as a caller; none when it is gone.
pub async fn for_org(app: &App, org: OrgId) -> Result<Option<Identity>, StoreError> {
    let org = app.proxy.access.org(app, org).await?;
    Ok(org.map(|org| Identity { org, role: Role::Member, who: Who::Org, rate: None }))
}

/// Would these headers still be let in? Counts against no limit; while the database is away, who was in stays in.
pub async fn still_good(app: &Arc<App>, headers: &HeaderMap) -> bool {
    matches!(authenticate(app, headers).await, Ok(_) | Err(Denied::Unavailable))
}

/// A key that is in memory with its organization: answered without waiting for anything.
fn known_by_key(app: &App, headers: &HeaderMap) -> Option<Identity> {
    let hash = hash_key(headers.get(KEY_HEADER)?.to_str().ok()?.trim())?;
    let key = app.proxy.access.keys.peek(&hash)?;
    let org = app.proxy.access.orgs.peek(&key.org_id)?;
    by_facts(app, key, org).ok()
}

async fn identify(app: &App, headers: &HeaderMap) -> Result<Identity, Denied> {
    if let Some(value) = headers.get(KEY_HEADER) {
        let raw = value.to_str().map_err(|_| Denied::Invalid)?;
        return by_key(app, raw.trim()).await;
    }
    let value = headers.get(AUTHORIZATION).ok_or(Denied::Missing)?;
    let text = value.to_str().map_err(|_| Denied::Invalid)?;
    let (scheme, token) = text.split_once(' ').ok_or(Denied::Invalid)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Denied::Invalid);
    }
    by_token(app, token.trim()).await
}

async fn by_key(app: &App, raw: &str) -> Result<Identity, Denied> {
    let hash = hash_key(raw).ok_or(Denied::Invalid)?;
    let key =
        app.proxy.access.key(&app.services.db, hash).await.map_err(unavailable)?.ok_or(Denied::Invalid)?;
    let org = app.proxy.access.org(app, key.org_id).await.map_err(unavailable)?.ok_or(Denied::Invalid)?;
    by_facts(app, key, org)
}

fn by_facts(app: &App, key: Arc<KeyFacts>, org: Arc<OrgFacts>) -> Result<Identity, Denied> {
    let now = app.services.clock.now();
    if key.expires_at.is_some_and(|end| now >= end) {
        return Err(Denied::Invalid);
    }
    key.last_used.store(now.0, Ordering::Relaxed);
    // Never an owner, and never more than the maker of the key was.
    let role = key.role.min(if key.scopes.is_all() { Role::Admin } else { Role::Member });
    Ok(Identity { org, role, who: Who::Key(key), rate: None })
}

async fn by_token(app: &App, token: &str) -> Result<Identity, Denied> {
    let claims = app.proxy.tokens.read(token, app.services.clock.now()).ok_or(Denied::Invalid)?;
    let Claims { sub, org, jti, .. } = claims;
    let access = &app.proxy.access;
    let revoked = access
        .tokens
        .get(&jti, || async { accounts::token_is_revoked(&app.services.db, jti).await.map(Some) });
    if revoked.await.map_err(unavailable)?.is_some_and(|revoked| *revoked) {
        return Err(Denied::Invalid);
    }
    let member = (org, sub);
    let role = access.members.get(&member, || accounts::role_of(&app.services.db, org, sub));
    let role = *role.await.map_err(unavailable)?.ok_or(Denied::Invalid)?;
    let org = access.org(app, org).await.map_err(unavailable)?.ok_or(Denied::Invalid)?;
    let who = Who::User { id: sub, token: jti, expires_at: claims.expires_at() };
    Ok(Identity { org, role, who, rate: None })
}

#[expect(clippy::needless_pass_by_value, reason = "used as a map_err function")]
fn unavailable(error: StoreError) -> Denied {
    tracing::warn!(%error, "a caller could not be checked");
    Denied::Unavailable
}
