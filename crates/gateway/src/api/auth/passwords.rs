//! Checks, changes and resets of passwords.

use std::net::IpAddr;

use gateway_core::accounts::check_password;
use gateway_store::accounts::{self, User};
use gateway_store::{orgs, sign_ins, user_sessions};
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::super::attempt_limits::{AttemptLimit, ResetEndpoint};
use super::super::audited::Audited;
use super::super::caller::SessionUser;
use super::super::extract::Body;
use super::super::response::Json;
use super::sessions::{self, SessionOrigin};
use crate::app::App;
use crate::attempts::{KNOWN_ADDRESS_AGE, network};
use crate::auth::passwords::{PasswordError, Waiter, hash_reset_token};
use crate::cluster::invalidation::{self, Invalidation};
use crate::metrics::events::AuthFailure;
use crate::problem::{ApiResult, Problem};

/// Whether the password is that of the account. `user` is `None` for an unknown email, which takes the same time. After
/// too many wrong passwords only addresses from which the account signed in may try.
pub(in crate::api) async fn verify_password(
    app: &App,
    address: IpAddr,
    email: &str,
    user: Option<&User>,
    password: SecretString,
) -> ApiResult<bool> {
    verify_as(app, (Waiter::Address(network(address)), address), email, user, password).await
}

/// The same for this waiter for a thread.
async fn verify_as(
    app: &App,
    (waiter, address): (Waiter, IpAddr),
    email: &str,
    user: Option<&User>,
    password: SecretString,
) -> ApiResult<bool> {
    let status = app.attempts.count_account_failure(email).await;
    let now = app.services.clock.now();
    if !status.allowed {
        let (address, since) = (network(address).to_string(), now.plus(-KNOWN_ADDRESS_AGE));
        if !sign_ins::is_known(&app.services.db, email, &address, since).await? {
            let message = "too many wrong passwords for this account; try again later";
            return Err(Problem::rate_limited(status, now, message));
        }
    }
    let stored = user.map(|user| user.password_hash.clone());
    let result = app.passwords.verify(waiter, password, stored).await;
    if result == Ok(false) {
        app.proxy.metrics.events.auth_failure(AuthFailure::WrongPassword);
    } else {
        app.attempts.forgive_account(email).await;
    }
    result.map_err(password_problem)
}

pub(in crate::api) fn password_problem(error: PasswordError) -> Problem {
    match error {
        PasswordError::Busy => {
            Problem::overloaded("too many password checks are in progress; try again shortly")
        }
        PasswordError::Failed => Problem::internal(error),
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct PasswordChange {
    current_password: String,
    /// 8 to 256 characters.
    new_password: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct PasswordChanged {
    changed: bool,
}

pub(super) async fn change_password(
    app: Audited,
    person: SessionUser,
    origin: SessionOrigin,
    Body(request): Body<PasswordChange>,
) -> ApiResult<Json<PasswordChanged>> {
    check_password(&request.new_password).map_err(|why| Problem::field("new_password", why))?;
    let status = app.attempts.count_password_change(person.id).await;
    if !status.allowed {
        let message = "too many changes of the password; try again later";
        return Err(Problem::rate_limited(status, app.services.clock.now(), message));
    }
    let waiter = Waiter::User(person.id);
    let user = accounts::find(&app.services.db, person.id).await?.ok_or_else(Problem::not_found)?;
    let current = SecretString::from(request.current_password);
    if !verify_as(&app, (waiter, origin.address), &user.email, Some(&user), current).await? {
        return Err(Problem::forbidden("current_password is wrong"));
    }
    let new = SecretString::from(request.new_password);
    let hash = app.passwords.hash_for(waiter, new).await.map_err(password_problem)?;
    let mut tx = app.services.db.begin().await?;
    if !accounts::lock_with_password(&mut tx, user.id, &user.password_hash).await? {
        return Err(Problem::conflict("the password was changed at the same time; sign in with the new one"));
    }
    sessions::lock_session(&mut tx, &person).await?;
    accounts::set_password(&mut tx, user.id, &hash).await?;
    sessions::end_other_sessions(&app, &mut tx, &person, &origin).await?;
    sign_ins::delete_reset(&mut tx, user.id).await?;
    tx.record(app.entry().on_actor().secret_if(true, "password"));
    let pending = invalidation::record(&mut tx, Invalidation::User(user.id)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json(PasswordChanged { changed: true }))
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct ResetRequest {
    /// Printed by `gateway admin reset-password EMAIL`; valid for one hour and for one use.
    token: String,
    /// 8 to 256 characters.
    new_password: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ResetResponse {
    reset: bool,
}

pub(super) async fn reset_password(
    app: Audited,
    _: AttemptLimit<ResetEndpoint>,
    origin: SessionOrigin,
    Body(request): Body<ResetRequest>,
) -> ApiResult<Json<ResetResponse>> {
    check_password(&request.new_password).map_err(|why| Problem::field("new_password", why))?;
    let token_hash = hash_reset_token(&request.token);
    // Before the work of a password hash.
    if !sign_ins::reset_exists(&app.services.db, &token_hash, app.services.clock.now()).await? {
        return Err(Problem::not_found());
    }
    let (waiter, new) = (Waiter::Address(network(origin.address)), SecretString::from(request.new_password));
    let hash = app.passwords.hash_for(waiter, new).await.map_err(password_problem)?;
    let mut tx = app.services.db.begin().await?;
    let now = app.services.clock.now();
    let user = sign_ins::consume_reset(&mut tx, &token_hash, now).await?.ok_or_else(Problem::not_found)?;
    accounts::set_password(&mut tx, user, &hash).await?;
    user_sessions::end_all(&mut tx, user, None, now).await?;
    sessions::record_sign_in(&app, &mut tx, user, &origin).await?;
    let entry = app.entry().by_user_id(user).on_actor().secret_if(true, "password");
    let orgs = orgs::list_by_user_in_tx(&mut tx, user).await?;
    tx.record(orgs.first().map_or(entry.clone(), |(org, _)| entry.within(org.id)));
    let pending = invalidation::record(&mut tx, Invalidation::User(user)).await?;
    invalidation::commit(tx, [pending], &app.cluster).await?;
    Ok(Json(ResetResponse { reset: true }))
}
